/* Opening libOpenCL, and what its error numbers mean. */
#include "hal/opencl/library.h"

#include <string.h>

#include "platform/platform.h"

static const char *const ingot_opencl_library_names[] = {
#if defined(_WIN32)
    "OpenCL.dll",
#elif defined(__APPLE__)
    "/System/Library/Frameworks/OpenCL.framework/OpenCL",
#elif defined(__ANDROID__)
    "libOpenCL.so",
    "/vendor/lib64/libOpenCL.so",
    "/system/vendor/lib64/libOpenCL.so",
#else
    "libOpenCL.so.1",
    "libOpenCL.so",
#endif
};

#define INGOT_OPENCL_NAME_COUNT \
  (sizeof(ingot_opencl_library_names) / sizeof(ingot_opencl_library_names[0]))

static ingot_status_t ingot_opencl_library_missing(const ingot_allocator_t *allocator,
                                                   const char *path, const ingot_reason_t *reason) {
  return ingot_status_create(
      allocator, INGOT_STATUS_NOT_FOUND,
      "the OpenCL library '%.200s' cannot be opened (%.200s): install a driver with its loader "
      "(on Debian or Ubuntu: ocl-icd-libopencl1, and pocl-opencl-icd for the CPU), or name the "
      "library as 'opencl://0?library=PATH'",
      path[0] ? path : ingot_opencl_library_names[0], reason->text);
}

ingot_status_t ingot_opencl_library_open(const ingot_allocator_t *allocator, const char *path,
                                         ingot_cl_functions_t *out_functions) {
  ingot_dynamic_library_t library = {NULL, -1};
  ingot_reason_t reason;
  bool is_open = path[0] && ingot_dynamic_library_open(path, &library, &reason);
  for (size_t n = 0; !is_open && !path[0] && n < INGOT_OPENCL_NAME_COUNT; n++) {
    is_open = ingot_dynamic_library_open(ingot_opencl_library_names[n], &library, &reason);
  }
  if (!is_open) return ingot_opencl_library_missing(allocator, path, &reason);
  ingot_cl_functions_t functions;
  const char *missing = NULL;
  void *symbol;
#define INGOT_CL_LOAD(result, name, arguments)                 \
  symbol = ingot_dynamic_library_symbol(&library, "cl" #name); \
  if (!symbol) missing = "cl" #name;                           \
  memcpy(&functions.name, &symbol, sizeof(symbol)); /* no cast from data to functions in C */
  INGOT_CL_FUNCTIONS(INGOT_CL_LOAD)
#undef INGOT_CL_LOAD
#define INGOT_CL_LOAD(result, name, arguments)                 \
  symbol = ingot_dynamic_library_symbol(&library, "cl" #name); \
  memcpy(&functions.name, &symbol, sizeof(symbol));
  INGOT_CL_OPTIONAL_FUNCTIONS(INGOT_CL_LOAD)
#undef INGOT_CL_LOAD
  if (missing) {
    return ingot_status_create(allocator, INGOT_STATUS_INCOMPATIBLE,
                               "the OpenCL library '%.200s' has no function %s: expected version "
                               "1.2 or later",
                               path[0] ? path : ingot_opencl_library_names[0], missing);
  }
  *out_functions = functions;
  return NULL;
}

/* -- errors ---------------------------------------------------------------------------------- */

/* Names without CL_, from 0 down; NULL in the gaps. */
static const char *const ingot_opencl_error_names[] = {"SUCCESS",
                                                       "DEVICE_NOT_FOUND",
                                                       "DEVICE_NOT_AVAILABLE",
                                                       "COMPILER_NOT_AVAILABLE",
                                                       "MEM_OBJECT_ALLOCATION_FAILURE",
                                                       "OUT_OF_RESOURCES",
                                                       "OUT_OF_HOST_MEMORY",
                                                       "PROFILING_INFO_NOT_AVAILABLE",
                                                       "MEM_COPY_OVERLAP",
                                                       "IMAGE_FORMAT_MISMATCH",
                                                       "IMAGE_FORMAT_NOT_SUPPORTED",
                                                       "BUILD_PROGRAM_FAILURE",
                                                       "MAP_FAILURE",
                                                       "MISALIGNED_SUB_BUFFER_OFFSET",
                                                       "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
                                                       "COMPILE_PROGRAM_FAILURE",
                                                       "LINKER_NOT_AVAILABLE",
                                                       "LINK_PROGRAM_FAILURE",
                                                       "DEVICE_PARTITION_FAILED",
                                                       "KERNEL_ARG_INFO_NOT_AVAILABLE",
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       "INVALID_VALUE",
                                                       "INVALID_DEVICE_TYPE",
                                                       "INVALID_PLATFORM",
                                                       "INVALID_DEVICE",
                                                       "INVALID_CONTEXT",
                                                       "INVALID_QUEUE_PROPERTIES",
                                                       "INVALID_COMMAND_QUEUE",
                                                       "INVALID_HOST_PTR",
                                                       "INVALID_MEM_OBJECT",
                                                       "INVALID_IMAGE_FORMAT_DESCRIPTOR",
                                                       "INVALID_IMAGE_SIZE",
                                                       "INVALID_SAMPLER",
                                                       "INVALID_BINARY",
                                                       "INVALID_BUILD_OPTIONS",
                                                       "INVALID_PROGRAM",
                                                       "INVALID_PROGRAM_EXECUTABLE",
                                                       "INVALID_KERNEL_NAME",
                                                       "INVALID_KERNEL_DEFINITION",
                                                       "INVALID_KERNEL",
                                                       "INVALID_ARG_INDEX",
                                                       "INVALID_ARG_VALUE",
                                                       "INVALID_ARG_SIZE",
                                                       "INVALID_KERNEL_ARGS",
                                                       "INVALID_WORK_DIMENSION",
                                                       "INVALID_WORK_GROUP_SIZE",
                                                       "INVALID_WORK_ITEM_SIZE",
                                                       "INVALID_GLOBAL_OFFSET",
                                                       "INVALID_EVENT_WAIT_LIST",
                                                       "INVALID_EVENT",
                                                       "INVALID_OPERATION",
                                                       "INVALID_GL_OBJECT",
                                                       "INVALID_BUFFER_SIZE",
                                                       "INVALID_MIP_LEVEL",
                                                       "INVALID_GLOBAL_WORK_SIZE",
                                                       "INVALID_PROPERTY"};

#define INGOT_OPENCL_ERROR_COUNT \
  ((int32_t)(sizeof(ingot_opencl_error_names) / sizeof(ingot_opencl_error_names[0])))

static const char *ingot_opencl_error_name(int32_t error) {
  if (error == INGOT_CL_PLATFORM_NOT_FOUND_KHR) return "PLATFORM_NOT_FOUND_KHR";
  bool is_known = error <= 0 && error > -INGOT_OPENCL_ERROR_COUNT;
  const char *name = is_known ? ingot_opencl_error_names[-error] : NULL;
  return name ? name : "an error of the vendor's own";
}

static ingot_status_code_t ingot_opencl_error_code(int32_t error) {
  switch (error) {
    case INGOT_CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case INGOT_CL_OUT_OF_RESOURCES:
    case INGOT_CL_OUT_OF_HOST_MEMORY:
    case INGOT_CL_INVALID_BUFFER_SIZE: return INGOT_STATUS_OUT_OF_MEMORY;
    case INGOT_CL_DEVICE_NOT_AVAILABLE: /* what drivers give once a device has hung */
    case INGOT_CL_INVALID_DEVICE:
    case INGOT_CL_INVALID_CONTEXT:
    case INGOT_CL_INVALID_COMMAND_QUEUE: return INGOT_STATUS_DEVICE_LOST;
    default: return INGOT_STATUS_INTERNAL;
  }
}

ingot_status_t ingot_opencl_status(const ingot_allocator_t *allocator, const char *what,
                                   int32_t error) {
  ingot_status_code_t code = ingot_opencl_error_code(error);
  const char *advice = "";
  if (code == INGOT_STATUS_OUT_OF_MEMORY) advice = ": the device has no room for it";
  if (code == INGOT_STATUS_DEVICE_LOST) {
    advice =
        ": the device was lost or its context is gone; open the device and load the program "
        "anew";
  }
  return ingot_status_create(allocator, code, "%s failed with CL_%s (%d)%s", what,
                             ingot_opencl_error_name(error), (int)error, advice);
}
