/* Bindings as bytes of this process, for what the host does in place of a device: kernels that the
 * device cannot run, as compiled for the host, and functions of the application. Not for drivers.
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

/* Maps checked bindings, on which no work runs, until unmap; bit b of `written`: binding b is
 * written. `host` is the device of the views, or NULL. On failure nothing stays mapped. */
ingot_status_t ingot_hal_host_map(const ingot_hal_binding_t *bindings, uint32_t count,
                                  uint64_t written, ingot_device_t *host,
                                  ingot_hal_host_bindings_t *out_mapped);
void ingot_hal_host_unmap(const ingot_hal_host_bindings_t *mapped);

#endif /* INGOT_HAL_HOST_H_ */
