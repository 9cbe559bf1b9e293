/* Moves weights that came on small pages to large ones while they are in use.
 *
 * A virtual machine may get large pages from its host so slowly that waiting for all of them would
 * delay the first call by seconds. But they are read a quarter faster, so a thread of low priority
 * moves what init has written, and ends with that, or with the weights.
 */
#ifndef INGOT_HAL_CPU_MOVER_H_
#define INGOT_HAL_CPU_MOVER_H_

#include "hal/cpu/cpu.h"

typedef struct ingot_hal_cpu_mover_t ingot_hal_cpu_mover_t;

/* `length` bytes, whole large pages from `data` on, must stay until it is stopped. The first page is
 * moved before this returns. NULL: they stay where they are, since the system moves none, or there
 * is no thread or memory for it. */
ingot_hal_cpu_mover_t *ingot_hal_cpu_mover_start(ingot_hal_cpu_device_t *device, void *data,
                                                 size_t length);

/* Waits for the pages that are being moved. `mover` may be NULL; the child of a fork has no thread to
 * wait for. */
void ingot_hal_cpu_mover_stop(ingot_hal_cpu_mover_t *mover);

#endif /* INGOT_HAL_CPU_MOVER_H_ */
