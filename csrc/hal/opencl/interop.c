/* The application's OpenCL objects as Ingot's, and Ingot's as OpenCL's. */
#include "ingot/opencl.h"

#include "hal/opencl/queue.h"

ingot_status_t ingot_opencl_device_wrap(ingot_instance_t *instance, const char *options,
                                        void *context, void *queue, ingot_device_t **out_device) {
  const ingot_hal_uri_t uri = {.text = options, .scheme = "opencl", .path = "", .query = options};
  if (!context && !queue) {
    return ingot_status_create(&instance->allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "both the context and the command queue are NULL: expected one");
  }
  return ingot_opencl_open(instance, &uri, context, queue, out_device);
}

ingot_status_t ingot_opencl_check_device(const ingot_device_t *device) {
  if (device->vtable == &ingot_opencl_device_vtable) return NULL;
  return ingot_status_create(ingot_hal_device_allocator(device), INGOT_STATUS_INVALID_ARGUMENT,
                             "the device is not one of OpenCL but %s", device->description);
}

ingot_status_t ingot_opencl_device_handles(ingot_device_t *base, void **out_context,
                                           void **out_device_id, void **out_queue) {
  INGOT_TRY(ingot_opencl_check_device(base));
  const ingot_opencl_device_t *device = (const ingot_opencl_device_t *)base;
  if (out_context) *out_context = device->context;
  if (out_device_id) *out_device_id = device->device;
  if (out_queue) *out_queue = device->queue;
  return NULL;
}

/* Offsets are int64_t inside; what does not fit is beyond any memory. */
static int64_t ingot_opencl_clamp(size_t value) {
  return value > (size_t)INT64_MAX ? INT64_MAX : (int64_t)value;
}

ingot_status_t ingot_opencl_buffer_wrap_memory(ingot_device_t *device, void *memory, size_t offset,
                                               size_t length, ingot_release_function_t release,
                                               void *user, ingot_buffer_t **out_buffer) {
  INGOT_TRY(ingot_opencl_check_device(device));
  if (!memory) {
    return ingot_status_create(ingot_hal_device_allocator(device), INGOT_STATUS_INVALID_ARGUMENT,
                               "the memory object is NULL: expected a cl_mem");
  }
  return ingot_opencl_buffer_from_memory(device, memory, ingot_opencl_clamp(offset),
                                         ingot_opencl_clamp(length), release, user, out_buffer);
}

ingot_status_t ingot_opencl_buffer_handle(ingot_buffer_t *buffer, void **out_memory,
                                          size_t *out_offset) {
  INGOT_TRY(ingot_opencl_check_device(buffer->device));
  ingot_opencl_place_t place;
  INGOT_TRY(ingot_opencl_locate(buffer, 0, buffer->length, &place));
  *out_memory = place.memory;
  *out_offset = (size_t)place.offset;
  return NULL;
}

/* Notes what the function is going to queue, as for a dispatch. */
ingot_status_t ingot_opencl_native_queue(const ingot_native_call_t *call, void **out_queue) {
  ingot_opencl_queue_t *queue = call->runtime;
  INGOT_TRY(ingot_opencl_check_device(queue->base.device));
  INGOT_TRY(ingot_opencl_reserve_written(queue, call->result_count));
  for (uint32_t i = 0; i < call->argument_count; i++) {
    if (call->arguments[i].buffer) ingot_opencl_will_use(queue, call->arguments[i].buffer);
  }
  for (uint32_t i = 0; i < call->result_count; i++) {
    if (call->results[i].buffer) ingot_opencl_will_write(queue, call->results[i].buffer);
  }
  atomic_store(&queue->is_busy, true);
  *out_queue = queue->queue;
  return NULL;
}
