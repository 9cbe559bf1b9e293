/* Which devices there are, and which one a URI means.
 */
#ifndef INGOT_HAL_OPENCL_FIND_H_
#define INGOT_HAL_OPENCL_FIND_H_

#include "hal/opencl/library.h"

typedef struct ingot_opencl_found_t {
  ingot_cl_platform_t platform;
  ingot_cl_device_t device;
  uint64_t type; /* INGOT_CL_DEVICE_TYPE_* */
  char name[256];
  char platform_name[256];
} ingot_opencl_found_t;

/* All devices of all platforms, in the library's order; *out_devices is to be released. None
 * is no error; a platform that fails is left out, and the log says why. */
ingot_status_t ingot_opencl_find_all(ingot_instance_t *instance, const ingot_cl_functions_t *cl,
                                     ingot_opencl_found_t **out_devices, uint32_t *out_count);

/* The device that the path of a URI means: "" the first, a number, gpu, cpu or accelerator, or
 * a part of the device's or the platform's name in any case. NotFound lists what there is. */
ingot_status_t ingot_opencl_find(ingot_instance_t *instance, const ingot_cl_functions_t *cl,
                                 const ingot_hal_uri_t *uri, ingot_opencl_found_t *out_device);

/* Which schedules a device gets where a module has several. */
typedef enum ingot_opencl_groups_t {
  INGOT_OPENCL_GROUPS_BY_DEVICE,
  INGOT_OPENCL_GROUPS_LARGE,
  INGOT_OPENCL_GROUPS_SMALL,
} ingot_opencl_groups_t;

/* What a URI's query says. The texts point into the URI and are not terminated. */
typedef struct ingot_opencl_options_t {
  const char *library; /* "": the instance's */
  size_t library_length;
  const char *cache; /* a folder; NULL: the usual one */
  size_t cache_length;
  bool is_cached;
  bool zero_copy;
  bool self_test;
  ingot_opencl_groups_t groups;
} ingot_opencl_options_t;

/* InvalidArgument for an unknown option or value says what is known. */
ingot_status_t ingot_opencl_parse_options(const ingot_allocator_t *allocator,
                                          const ingot_hal_uri_t *uri,
                                          ingot_opencl_options_t *out_options);

#endif /* INGOT_HAL_OPENCL_FIND_H_ */
