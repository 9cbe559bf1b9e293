/* The part of OpenCL 1.2 that the driver uses, declared here so that a build needs no headers
 * of OpenCL and a program no library: types, numbers, and a table of functions that library.c
 * fills. Names and values are the standard's with an INGOT_ in front, so that a file may
 * include the standard's headers too.
 */
#ifndef INGOT_HAL_OPENCL_API_H_
#define INGOT_HAL_OPENCL_API_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define INGOT_CL_CALL __stdcall
#else
#define INGOT_CL_CALL
#endif

typedef struct ingot_cl_platform_object_t *ingot_cl_platform_t;
typedef struct ingot_cl_device_object_t *ingot_cl_device_t;
typedef struct ingot_cl_context_object_t *ingot_cl_context_t;
typedef struct ingot_cl_queue_object_t *ingot_cl_queue_t;
typedef struct ingot_cl_memory_object_t *ingot_cl_memory_t;
typedef struct ingot_cl_program_object_t *ingot_cl_program_t;
typedef struct ingot_cl_kernel_object_t *ingot_cl_kernel_t;
typedef struct ingot_cl_event_object_t *ingot_cl_event_t;
typedef intptr_t ingot_cl_property_t;
typedef void(INGOT_CL_CALL *ingot_cl_notify_t)(const char *text, const void *data, size_t length,
                                               void *user);

typedef void(INGOT_CL_CALL *ingot_cl_ended_t)(ingot_cl_event_t event, int32_t status, void *user);

typedef void(INGOT_CL_CALL *ingot_cl_built_t)(ingot_cl_program_t program, void *user);

enum { /* what functions return */
       INGOT_CL_SUCCESS = 0,
       INGOT_CL_DEVICE_NOT_FOUND = -1,
       INGOT_CL_DEVICE_NOT_AVAILABLE = -2,
       INGOT_CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
       INGOT_CL_OUT_OF_RESOURCES = -5,
       INGOT_CL_OUT_OF_HOST_MEMORY = -6,
       INGOT_CL_PROFILING_INFO_NOT_AVAILABLE = -7,
       INGOT_CL_MAP_FAILURE = -12,
       INGOT_CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST = -14,
       INGOT_CL_INVALID_DEVICE = -33,
       INGOT_CL_INVALID_CONTEXT = -34,
       INGOT_CL_INVALID_COMMAND_QUEUE = -36,
       INGOT_CL_INVALID_BUFFER_SIZE = -61,
       INGOT_CL_PLATFORM_NOT_FOUND_KHR = -1001,
};

/* Kinds of devices, a bit field. */
#define INGOT_CL_DEVICE_TYPE_CPU ((uint64_t)1 << 1)
#define INGOT_CL_DEVICE_TYPE_GPU ((uint64_t)1 << 2)
#define INGOT_CL_DEVICE_TYPE_ACCELERATOR ((uint64_t)1 << 3)
#define INGOT_CL_DEVICE_TYPE_ALL 0xFFFFFFFFu

/* Flags of memory and of maps, of arithmetic, properties of queues: bit fields. */
#define INGOT_CL_MEM_READ_WRITE ((uint64_t)1 << 0)
#define INGOT_CL_MEM_WRITE_ONLY ((uint64_t)1 << 1)
#define INGOT_CL_MEM_READ_ONLY ((uint64_t)1 << 2)
#define INGOT_CL_MEM_USE_HOST_PTR ((uint64_t)1 << 3)
#define INGOT_CL_MEM_ALLOC_HOST_PTR ((uint64_t)1 << 4)
#define INGOT_CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ((uint64_t)1 << 7)
#define INGOT_CL_MAP_READ ((uint64_t)1 << 0)
#define INGOT_CL_MAP_WRITE ((uint64_t)1 << 1)
#define INGOT_CL_QUEUE_OUT_OF_ORDER ((uint64_t)1 << 0)
#define INGOT_CL_QUEUE_PROFILING ((uint64_t)1 << 1)

enum { /* what can be asked */
       INGOT_CL_PLATFORM_NAME = 0x0902,
       INGOT_CL_DEVICE_TYPE = 0x1000,
       INGOT_CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
       INGOT_CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
       INGOT_CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
       INGOT_CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
       INGOT_CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
       INGOT_CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
       INGOT_CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
       INGOT_CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
       INGOT_CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
       INGOT_CL_DEVICE_NAME = 0x102B,
       INGOT_CL_DRIVER_VERSION = 0x102D,
       INGOT_CL_DEVICE_VERSION = 0x102F,
       INGOT_CL_DEVICE_EXTENSIONS = 0x1030,
       INGOT_CL_DEVICE_PLATFORM = 0x1031,
       INGOT_CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
       INGOT_CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
       INGOT_CL_CONTEXT_DEVICES = 0x1081,
       INGOT_CL_CONTEXT_PLATFORM = 0x1084, /* a property when a context is made */
       INGOT_CL_QUEUE_CONTEXT = 0x1090,
       INGOT_CL_QUEUE_DEVICE = 0x1091,
       INGOT_CL_QUEUE_PROPERTIES = 0x1093,
       INGOT_CL_MEM_TYPE = 0x1100,
       INGOT_CL_MEM_FLAGS = 0x1101,
       INGOT_CL_MEM_SIZE = 0x1102,
       INGOT_CL_MEM_CONTEXT = 0x1106,
       INGOT_CL_MEM_OBJECT_BUFFER = 0x10F0, /* a value of MEM_TYPE */
       INGOT_CL_PROGRAM_BINARY_SIZES = 0x1165,
       INGOT_CL_PROGRAM_BINARIES = 0x1166,
       INGOT_CL_PROGRAM_BUILD_LOG = 0x1183,
       INGOT_CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
       INGOT_CL_COMPLETE = 0, /* the status of an event */
       INGOT_CL_EVENT_CONTEXT = 0x11D4,
       INGOT_CL_PROFILING_COMMAND_START = 0x1282,
       INGOT_CL_PROFILING_COMMAND_END = 0x1283,
};

/* X(result, name without cl, arguments): the functions, in one list for the table and for
 * those who fill it. */
#define INGOT_CL_FUNCTIONS(X)                                                                     \
  X(int32_t, GetPlatformIDs, (uint32_t, ingot_cl_platform_t *, uint32_t *))                       \
  X(int32_t, GetPlatformInfo, (ingot_cl_platform_t, uint32_t, size_t, void *, size_t *))          \
  X(int32_t, GetDeviceIDs,                                                                        \
    (ingot_cl_platform_t, uint64_t, uint32_t, ingot_cl_device_t *, uint32_t *))                   \
  X(int32_t, GetDeviceInfo, (ingot_cl_device_t, uint32_t, size_t, void *, size_t *))              \
  X(ingot_cl_context_t, CreateContext,                                                            \
    (const ingot_cl_property_t *, uint32_t, const ingot_cl_device_t *, ingot_cl_notify_t, void *, \
     int32_t *))                                                                                  \
  X(int32_t, RetainContext, (ingot_cl_context_t))                                                 \
  X(int32_t, ReleaseContext, (ingot_cl_context_t))                                                \
  X(int32_t, GetContextInfo, (ingot_cl_context_t, uint32_t, size_t, void *, size_t *))            \
  X(ingot_cl_queue_t, CreateCommandQueue,                                                         \
    (ingot_cl_context_t, ingot_cl_device_t, uint64_t, int32_t *))                                 \
  X(int32_t, RetainCommandQueue, (ingot_cl_queue_t))                                              \
  X(int32_t, ReleaseCommandQueue, (ingot_cl_queue_t))                                             \
  X(int32_t, GetCommandQueueInfo, (ingot_cl_queue_t, uint32_t, size_t, void *, size_t *))         \
  X(ingot_cl_memory_t, CreateBuffer, (ingot_cl_context_t, uint64_t, size_t, void *, int32_t *))   \
  X(int32_t, RetainMemObject, (ingot_cl_memory_t))                                                \
  X(int32_t, ReleaseMemObject, (ingot_cl_memory_t))                                               \
  X(int32_t, GetMemObjectInfo, (ingot_cl_memory_t, uint32_t, size_t, void *, size_t *))           \
  X(ingot_cl_program_t, CreateProgramWithSource,                                                  \
    (ingot_cl_context_t, uint32_t, const char **, const size_t *, int32_t *))                     \
  X(ingot_cl_program_t, CreateProgramWithBinary,                                                  \
    (ingot_cl_context_t, uint32_t, const ingot_cl_device_t *, const size_t *,                     \
     const unsigned char **, int32_t *, int32_t *))                                               \
  X(int32_t, BuildProgram,                                                                        \
    (ingot_cl_program_t, uint32_t, const ingot_cl_device_t *, const char *, ingot_cl_built_t,     \
     void *))                                                                                     \
  X(int32_t, GetProgramInfo, (ingot_cl_program_t, uint32_t, size_t, void *, size_t *))            \
  X(int32_t, GetProgramBuildInfo,                                                                 \
    (ingot_cl_program_t, ingot_cl_device_t, uint32_t, size_t, void *, size_t *))                  \
  X(int32_t, ReleaseProgram, (ingot_cl_program_t))                                                \
  X(ingot_cl_kernel_t, CreateKernel, (ingot_cl_program_t, const char *, int32_t *))               \
  X(int32_t, ReleaseKernel, (ingot_cl_kernel_t))                                                  \
  X(int32_t, SetKernelArg, (ingot_cl_kernel_t, uint32_t, size_t, const void *))                   \
  X(int32_t, GetKernelWorkGroupInfo,                                                              \
    (ingot_cl_kernel_t, ingot_cl_device_t, uint32_t, size_t, void *, size_t *))                   \
  X(int32_t, EnqueueNDRangeKernel,                                                                \
    (ingot_cl_queue_t, ingot_cl_kernel_t, uint32_t, const size_t *, const size_t *,               \
     const size_t *, uint32_t, const ingot_cl_event_t *, ingot_cl_event_t *))                     \
  X(int32_t, EnqueueReadBuffer,                                                                   \
    (ingot_cl_queue_t, ingot_cl_memory_t, uint32_t, size_t, size_t, void *, uint32_t,             \
     const ingot_cl_event_t *, ingot_cl_event_t *))                                               \
  X(int32_t, EnqueueWriteBuffer,                                                                  \
    (ingot_cl_queue_t, ingot_cl_memory_t, uint32_t, size_t, size_t, const void *, uint32_t,       \
     const ingot_cl_event_t *, ingot_cl_event_t *))                                               \
  X(int32_t, EnqueueCopyBuffer,                                                                   \
    (ingot_cl_queue_t, ingot_cl_memory_t, ingot_cl_memory_t, size_t, size_t, size_t, uint32_t,    \
     const ingot_cl_event_t *, ingot_cl_event_t *))                                               \
  X(int32_t, EnqueueFillBuffer,                                                                   \
    (ingot_cl_queue_t, ingot_cl_memory_t, const void *, size_t, size_t, size_t, uint32_t,         \
     const ingot_cl_event_t *, ingot_cl_event_t *))                                               \
  X(void *, EnqueueMapBuffer,                                                                     \
    (ingot_cl_queue_t, ingot_cl_memory_t, uint32_t, uint64_t, size_t, size_t, uint32_t,           \
     const ingot_cl_event_t *, ingot_cl_event_t *, int32_t *))                                    \
  X(int32_t, EnqueueUnmapMemObject,                                                               \
    (ingot_cl_queue_t, ingot_cl_memory_t, void *, uint32_t, const ingot_cl_event_t *,             \
     ingot_cl_event_t *))                                                                         \
  X(int32_t, Flush, (ingot_cl_queue_t))                                                           \
  X(int32_t, Finish, (ingot_cl_queue_t))                                                          \
  X(int32_t, WaitForEvents, (uint32_t, const ingot_cl_event_t *))                                 \
  X(ingot_cl_event_t, CreateUserEvent, (ingot_cl_context_t, int32_t *))                           \
  X(int32_t, SetUserEventStatus, (ingot_cl_event_t, int32_t))                                     \
  X(int32_t, SetEventCallback, (ingot_cl_event_t, int32_t, ingot_cl_ended_t, void *))             \
  X(int32_t, GetEventInfo, (ingot_cl_event_t, uint32_t, size_t, void *, size_t *))                \
  X(int32_t, RetainEvent, (ingot_cl_event_t))                                                     \
  X(int32_t, ReleaseEvent, (ingot_cl_event_t))                                                    \
  X(int32_t, GetEventProfilingInfo, (ingot_cl_event_t, uint32_t, size_t, void *, size_t *))

/* Those that a library may lack: of OpenCL 3.0, and of extensions. */
#define INGOT_CL_OPTIONAL_FUNCTIONS(X)                                           \
  X(ingot_cl_memory_t, CreateBufferWithProperties,                               \
    (ingot_cl_context_t, const uint64_t *, uint64_t, size_t, void *, int32_t *)) \
  X(void *, GetExtensionFunctionAddressForPlatform, (ingot_cl_platform_t, const char *))

typedef struct ingot_cl_functions_t {
#define INGOT_CL_MEMBER(result, name, arguments) result(INGOT_CL_CALL *name) arguments;
  INGOT_CL_FUNCTIONS(INGOT_CL_MEMBER)
  INGOT_CL_OPTIONAL_FUNCTIONS(INGOT_CL_MEMBER)
#undef INGOT_CL_MEMBER
} ingot_cl_functions_t;

#endif /* INGOT_HAL_OPENCL_API_H_ */
