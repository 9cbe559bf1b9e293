/* Kernels that run on the host although their queue is another device's. Not for drivers.
 */
#ifndef INGOT_HAL_HOST_H_
#define INGOT_HAL_HOST_H_

#include "hal/hal.h"

/* Runs a checked dispatch of an entry with a host_reason: waits for the queue, maps the
 * bindings, runs executable->host, unmaps. It has ended when this returns. */
ingot_status_t ingot_hal_host_dispatch(ingot_hal_queue_t *queue,
                                       const ingot_hal_dispatch_t *dispatch);

#endif /* INGOT_HAL_HOST_H_ */
