/* Ingot on OpenCL: the driver, and its objects as OpenCL's own.
 *
 *   const ingot_driver_t *drivers[] = {ingot_opencl_driver()};
 *   ingot_instance_options_t options = {.drivers = drivers, .driver_count = 1};
 *
 * Then "opencl://0" is a device. The path of a URI is a number, a part of the device's or the
 * platform's name (in any case), or gpu, cpu or accelerator; options follow behind a "?" with a
 * "&" between:
 *
 *   library=PATH      the OpenCL library; else the system's
 *   cache=FOLDER      where built kernels are kept; else $INGOT_CACHE, else the user's cache
 *   cache=off         they are not kept
 *   zero_copy=off     wrapped bytes are copied to the device although it shares memory
 *   self_test=off     kernels are not compared with the host's when they are first built
 *
 * Where OpenCL's types appear they are `void *`, so that this header needs none of OpenCL's. All
 * handles must come from the same OpenCL library that the driver uses. The rules of ingot.h
 * hold here too.
 */
#ifndef INGOT_OPENCL_H_
#define INGOT_OPENCL_H_

#ifndef INGOT_CDEF
#include "ingot/ingot.h"

#ifdef __cplusplus
extern "C" {
#endif
#endif /* INGOT_CDEF */

#ifndef INGOT_CDEF
/* Kinds of ingot_opencl_buffer_import, and what a handle is. */
#define INGOT_OPENCL_DMA_BUF 1u         /* a file descriptor; cl_khr_external_memory_dma_buf */
#define INGOT_OPENCL_OPAQUE_FD 2u       /* one of Vulkan's; cl_khr_external_memory_opaque_fd */
#define INGOT_OPENCL_HARDWARE_BUFFER \
  3u /* AHardwareBuffer *, a blob;
                                           cl_khr_external_memory_android_hardware_buffer */
#endif /* INGOT_CDEF */

/* For ingot_instance_options_t. Constant. */
INGOT_API const ingot_driver_t *ingot_opencl_driver(void);

/* The OpenCL library where a URI names none, for machines without one of the system. Before the
 * instance's devices are listed, else FailedPrecondition. */
INGOT_API ingot_status_t ingot_opencl_set_library(ingot_instance_t *instance, const char *path);

/* The application's cl_context, or cl_command_queue, or both, as a device. Both are retained, so
 * the application may release its own references at any time. With a queue, which must be in
 * order, calls run in it, behind what the application put there before; without one, each
 * session has a queue of its own, and the application waits for its own work before a call. Of a
 * context with several devices it is the queue's, or the first. `options`: as behind the "?" of
 * a URI, "" for none. InvalidArgument if both are NULL or the queue is not in order. */
INGOT_API ingot_status_t ingot_opencl_device_wrap(ingot_instance_t *instance, const char *options,
                                                  void *context, void *queue,
                                                  ingot_device_t **out_device);

/* The device's own handles: cl_context, cl_device_id, and a cl_command_queue that orders maps;
 * they are not retained for the caller. Each out-parameter may be NULL. InvalidArgument for a
 * device of another driver. */
INGOT_API ingot_status_t ingot_opencl_device_handles(ingot_device_t *device, void **out_context,
                                                     void **out_device_id, void **out_queue);

/* `length` bytes of the application's cl_mem (a buffer of the device's context) from `offset` on,
 * without a copy. The cl_mem is retained. `release` (may be NULL) is called with `user` and the
 * cl_mem when the last user has let go; never if wrapping fails. */
INGOT_API ingot_status_t ingot_opencl_buffer_wrap_memory(ingot_device_t *device, void *memory,
                                                         size_t offset, size_t length,
                                                         ingot_release_function_t release,
                                                         void *user, ingot_buffer_t **out_buffer);

/* `length` bytes of another API's memory, without a copy: arguments of a call that somebody else
 * writes, results that somebody else reads. The handle stays the caller's and may be closed. The
 * device has the memory from here on: see below. Unsupported names the extension that it lacks;
 * InvalidArgument for a device of another driver or a kind that there is not. */
INGOT_API ingot_status_t ingot_opencl_buffer_import(ingot_device_t *device, uint32_t kind,
                                                    uintptr_t handle, size_t length,
                                                    ingot_buffer_t **out_buffer);

/* Gives imported memory to the others, or takes it back: whoever uses it has it alone meanwhile.
 * Waits for the device's work on it. Objects of OpenGL and others are imported by the application:
 * it makes a cl_mem (clCreateFromGLBuffer) in its own context, wraps both, and acquires and
 * releases the object in its own queue. */
INGOT_API ingot_status_t ingot_opencl_buffer_hand_over(ingot_buffer_t *buffer, bool to_device);

/* The cl_mem that holds a buffer's bytes, and where in it they begin. It is not retained for the
 * caller; it lives as long as the buffer. InvalidArgument for a buffer of another driver. */
INGOT_API ingot_status_t ingot_opencl_buffer_handle(ingot_buffer_t *buffer, void **out_memory,
                                                    size_t *out_offset);

/* The cl_command_queue, in order, in which a native function with `on_device` queues its work on
 * the `buffer`s of `call`, whose cl_mem ingot_opencl_buffer_handle gives. Taken before the first of
 * that work; it is not retained for the caller. Nobody need wait for the work. InvalidArgument on
 * a device of another driver. */
INGOT_API ingot_status_t ingot_opencl_native_queue(const ingot_native_call_t *call,
                                                   void **out_queue);

/* A fence that reaches 1 when the application's cl_event, of the device's context, is complete, and
 * fails with DeviceLost if that ends with an error. The application flushes the queue of the event,
 * which is retained until then. */
INGOT_API ingot_status_t ingot_opencl_fence_from_event(ingot_device_t *device, void *event,
                                                       ingot_fence_t **out_fence);

/* A cl_event of the device's context for lists of events to wait for: complete when the fence
 * reaches `value`, in error when it fails. The caller releases it (clReleaseEvent). */
INGOT_API ingot_status_t ingot_opencl_event_from_fence(ingot_device_t *device, ingot_fence_t *fence,
                                                       uint64_t value, void **out_event);

#ifndef INGOT_CDEF
#ifdef __cplusplus
}
#endif
#endif /* INGOT_CDEF */

#endif /* INGOT_OPENCL_H_ */
