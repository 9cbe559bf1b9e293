/* The way out for kernels that a device cannot run: the same kernel as compiled for the host,
 * over the mapped bytes of its bindings. Not for drivers.
 */
#ifndef INGOT_HAL_HOST_H_
#define INGOT_HAL_HOST_H_

#include "hal/hal.h"

/* Bytes of one root that several bindings may lie in. */
typedef struct ingot_hal_host_range_t {
  ingot_buffer_t *root;
  int64_t begin;
  int64_t end;
  uint32_t access;
  uint8_t *data;
} ingot_hal_host_range_t;

/* The bindings as buffers of the host device, which have no owner. */
typedef struct ingot_hal_host_bindings_t {
  uint32_t range_count;
  ingot_hal_host_range_t ranges[INGOT_HAL_MAX_BINDINGS];
  ingot_buffer_t views[INGOT_HAL_MAX_BINDINGS];
  ingot_hal_binding_t bindings[INGOT_HAL_MAX_BINDINGS];
} ingot_hal_host_bindings_t;

/* Maps the bindings of a checked dispatch, on which no work runs, until unmap. On failure
 * nothing stays mapped. */
ingot_status_t ingot_hal_host_map(const ingot_hal_dispatch_t *dispatch,
                                  ingot_hal_host_bindings_t *out_mapped);
void ingot_hal_host_unmap(const ingot_hal_host_bindings_t *mapped);

#endif /* INGOT_HAL_HOST_H_ */
