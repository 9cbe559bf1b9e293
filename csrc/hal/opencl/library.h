/* The system's OpenCL library: opened at run time, so that a program that has none starts too.
 */
#ifndef INGOT_HAL_OPENCL_LIBRARY_H_
#define INGOT_HAL_OPENCL_LIBRARY_H_

#include "hal/hal.h"
#include "hal/opencl/api.h"

/* Fills the table from the library at `path`, or from the first of the usual names if it is
 * "". It stays open for the life of the process: vendors' drivers keep threads and exit
 * handlers that do not survive a close. NotFound says what was tried and what to install;
 * Incompatible if a function of OpenCL 1.2 is missing. */
ingot_status_t ingot_opencl_library_open(const ingot_allocator_t *allocator, const char *path,
                                         ingot_cl_functions_t *out_functions);

/* The status of a failed call: `what` is the function's name, as "clCreateBuffer". */
ingot_status_t ingot_opencl_status(const ingot_allocator_t *allocator, const char *what,
                                   int32_t error);

/* Leaves the calling function unless the OpenCL function gives success. */
#define INGOT_OPENCL_TRY(allocator, functions, name, ...)                                    \
  do {                                                                                       \
    int32_t ingot_try_error = (functions)->name(__VA_ARGS__);                                \
    if (ingot_try_error) return ingot_opencl_status(allocator, "cl" #name, ingot_try_error); \
  } while (0)

#endif /* INGOT_HAL_OPENCL_LIBRARY_H_ */
