/* Memory of other APIs as buffers: cl_khr_external_memory and what belongs to it. */
#include <string.h>

#include "hal/opencl/opencl.h"
#include "ingot/opencl.h"

/* Kinds by their numbers: the extension, and the property that names a handle. */
typedef struct ingot_opencl_external_t {
  const char *extension;
  uint64_t property;
} ingot_opencl_external_t;

static const ingot_opencl_external_t ingot_opencl_externals[] = {
    [INGOT_OPENCL_DMA_BUF] = {"cl_khr_external_memory_dma_buf", 0x2067},
    [INGOT_OPENCL_OPAQUE_FD] = {"cl_khr_external_memory_opaque_fd", 0x2060},
    [INGOT_OPENCL_HARDWARE_BUFFER] = {"cl_khr_external_memory_android_hardware_buffer", 0x2070},
};

typedef int32_t(INGOT_CL_CALL *ingot_opencl_exchange_t)(ingot_cl_queue_t, uint32_t,
                                                        const ingot_cl_memory_t *, uint32_t,
                                                        const ingot_cl_event_t *,
                                                        ingot_cl_event_t *);

static ingot_status_t ingot_opencl_unsupported(const ingot_opencl_device_t *device,
                                               const char *missing) {
  return ingot_status_create(ingot_hal_device_allocator(&device->base), INGOT_STATUS_UNSUPPORTED,
                             "the device has no %s: copy the bytes, or wrap a cl_mem of your own",
                             missing);
}

static ingot_status_t ingot_opencl_check_extension(const ingot_opencl_device_t *device,
                                                   const char *extension) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  size_t length = 0;
  void *memory;
  INGOT_OPENCL_TRY(allocator, device->cl, GetDeviceInfo, device->device, INGOT_CL_DEVICE_EXTENSIONS,
                   0, NULL, &length);
  INGOT_TRY(ingot_allocate(allocator, length + 1, &memory));
  int32_t error =
      device->cl->GetDeviceInfo(device->device, INGOT_CL_DEVICE_EXTENSIONS, length, memory, NULL);
  bool is_there = ingot_opencl_has_word(memory, extension);
  ingot_release_memory(allocator, memory);
  if (error) return ingot_opencl_status(allocator, "clGetDeviceInfo", error);
  return is_there ? NULL : ingot_opencl_unsupported(device, extension);
}

ingot_status_t ingot_opencl_buffer_hand_over(ingot_buffer_t *base, bool to_device) {
  const char *name =
      to_device ? "clEnqueueAcquireExternalMemObjectsKHR" : "clEnqueueReleaseExternalMemObjectsKHR";
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(base->device);
  ingot_opencl_buffer_t *buffer = (ingot_opencl_buffer_t *)base->root;
  if (base->device->vtable != &ingot_opencl_device_vtable || !buffer->is_external) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "the buffer was not made by ingot_opencl_buffer_import");
  }
  ingot_opencl_device_t *device = (ingot_opencl_device_t *)base->device;
  const ingot_cl_functions_t *cl = device->cl;
  ingot_cl_platform_t platform = NULL;
  ingot_opencl_exchange_t exchange = NULL;
  INGOT_OPENCL_TRY(allocator, cl, GetDeviceInfo, device->device, INGOT_CL_DEVICE_PLATFORM,
                   sizeof(platform), &platform, NULL);
  if (cl->GetExtensionFunctionAddressForPlatform) {
    void *address = cl->GetExtensionFunctionAddressForPlatform(platform, name);
    memcpy(&exchange, &address, sizeof(address));
  }
  if (!exchange) return ingot_opencl_unsupported(device, name);
  INGOT_TRY(ingot_opencl_device_finish(device, atomic_load(&buffer->users)));
  int32_t error = exchange(device->queue, 1, &buffer->memory, 0, NULL, NULL);
  if (!error) error = cl->Finish(device->queue);
  return error ? ingot_opencl_status(allocator, name, error) : NULL;
}

ingot_status_t ingot_opencl_buffer_import(ingot_device_t *base, uint32_t kind, uintptr_t handle,
                                          size_t length, ingot_buffer_t **out_buffer) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(base);
  ingot_opencl_device_t *device = (ingot_opencl_device_t *)base;
  const size_t count = sizeof(ingot_opencl_externals) / sizeof(ingot_opencl_externals[0]);
  if (base->vtable != &ingot_opencl_device_vtable || kind == 0 || kind >= count || length == 0) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "import of %zu bytes of kind %u: expected bytes, a kind from 1 to "
                               "%u, and a device of OpenCL",
                               length, kind, (uint32_t)count - 1);
  }
  const ingot_opencl_external_t *external = &ingot_opencl_externals[kind];
  INGOT_TRY(ingot_opencl_check_extension(device, external->extension));
  const ingot_cl_functions_t *cl = device->cl;
  if (!cl->CreateBufferWithProperties) {
    return ingot_opencl_unsupported(device, "clCreateBufferWithProperties of OpenCL 3.0");
  }
  const uint64_t properties[] = {external->property, handle, 0};
  size_t asked = kind == INGOT_OPENCL_HARDWARE_BUFFER ? 0 : length; /* it knows its own */
  int32_t error = 0;
  ingot_cl_memory_t memory = cl->CreateBufferWithProperties(
      device->context, properties, INGOT_CL_MEM_READ_WRITE, asked, NULL, &error);
  if (error) return ingot_opencl_status(allocator, "clCreateBufferWithProperties", error);
  ingot_buffer_t *buffer = NULL;
  int64_t wanted = length < (size_t)INT64_MAX ? (int64_t)length : INT64_MAX;
  ingot_status_t status =
      ingot_opencl_buffer_from_memory(base, memory, 0, wanted, NULL, NULL, &buffer);
  (void)cl->ReleaseMemObject(memory); /* the buffer has its own reference */
  if (status) return status;
  ((ingot_opencl_buffer_t *)buffer)->is_external = true;
  status = ingot_opencl_buffer_hand_over(buffer, true);
  if (status) ingot_hal_buffer_release(buffer);
  else *out_buffer = buffer;
  return status;
}
