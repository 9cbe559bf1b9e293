/* Programs: OpenCL C built for a device, from source or from the cache.
 */
#ifndef INGOT_HAL_OPENCL_PROGRAM_H_
#define INGOT_HAL_OPENCL_PROGRAM_H_

#include "hal/opencl/cache.h"
#include "hal/opencl/opencl.h"

/* A built program, and what the cache says of its kernels. */
typedef struct ingot_opencl_built_t {
  ingot_cl_program_t program; /* to be released */
  ingot_opencl_key_t key;
  uint8_t *verdicts; /* per entry; to be released */
  bool is_cached;    /* it was found there */
} ingot_opencl_built_t;

/* Builds an executable's object with indices of that width. Unsupported with the driver's log
 * if its compiler refuses. */
ingot_status_t ingot_opencl_program_build(ingot_opencl_device_t *device, const uint8_t *object,
                                          size_t object_length, uint32_t width,
                                          ingot_opencl_built_t *out_built);

/* Puts it into the cache, if there is one. */
void ingot_opencl_program_keep(const ingot_opencl_device_t *device,
                               const ingot_opencl_built_t *built, uint32_t entry_count);

void ingot_opencl_program_release(const ingot_opencl_device_t *device, ingot_opencl_built_t *built);

#endif /* INGOT_HAL_OPENCL_PROGRAM_H_ */
