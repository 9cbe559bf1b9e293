/* Copies between this process and the device: through a map where they share memory, else through
 * pinned bytes, from which and to which devices copy by themselves. One half of these is filled
 * or emptied while the device works on the other.
 */
#include <string.h>

#include "hal/opencl/opencl.h"

#define INGOT_OPENCL_STAGING_HALF ((int64_t)4 << 20) /* bytes */

/* One half, and what the device does with it. */
typedef struct ingot_opencl_half_t {
  uint8_t *bytes;
  ingot_cl_event_t event; /* NULL: nothing */
  uint8_t *target;        /* where the bytes go once they are read; NULL for a write */
  size_t length;
} ingot_opencl_half_t;

void ingot_opencl_staging_free(ingot_opencl_device_t *device) {
  if (!device->staging_memory) return;
  if (device->staging) {
    (void)device->cl->EnqueueUnmapMemObject(device->queue, device->staging_memory, device->staging,
                                            0, NULL, NULL);
    (void)device->cl->Finish(device->queue);
  }
  (void)device->cl->ReleaseMemObject(device->staging_memory);
  device->staging_memory = NULL;
  device->staging = NULL;
}

/* Under the staging_mutex. */
static ingot_status_t ingot_opencl_staging_make(ingot_opencl_device_t *device) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  const size_t length = 2 * (size_t)INGOT_OPENCL_STAGING_HALF;
  int32_t error = 0;
  if (device->staging) return NULL;
  ingot_cl_memory_t memory = device->cl->CreateBuffer(
      device->context, INGOT_CL_MEM_READ_WRITE | INGOT_CL_MEM_ALLOC_HOST_PTR, length, NULL, &error);
  if (error) return ingot_opencl_status(allocator, "clCreateBuffer", error);
  void *bytes =
      device->cl->EnqueueMapBuffer(device->queue, memory, 1, INGOT_CL_MAP_READ | INGOT_CL_MAP_WRITE,
                                   0, length, 0, NULL, NULL, &error);
  if (error) {
    (void)device->cl->ReleaseMemObject(memory);
    return ingot_opencl_status(allocator, "clEnqueueMapBuffer", error);
  }
  device->staging_memory = memory;
  device->staging = bytes;
  return NULL;
}

/* Waits for the device's work on a half, whose bytes then go where they belong. */
static ingot_status_t ingot_opencl_drain(ingot_opencl_device_t *device, ingot_opencl_half_t *half) {
  if (!half->event) return NULL;
  int32_t error = device->cl->WaitForEvents(1, &half->event);
  (void)device->cl->ReleaseEvent(half->event);
  half->event = NULL;
  if (error) {
    return ingot_opencl_status(ingot_hal_device_allocator(&device->base), "clWaitForEvents", error);
  }
  if (half->target) memcpy(half->target, half->bytes, half->length);
  return NULL;
}

/* Sets the device to work on a half that is free. */
static ingot_status_t ingot_opencl_send(ingot_opencl_device_t *device, ingot_opencl_half_t *half,
                                        ingot_cl_memory_t memory, int64_t offset, bool to_device,
                                        uint8_t *host) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  half->target = to_device ? NULL : host;
  if (to_device) {
    memcpy(half->bytes, host, half->length);
    INGOT_OPENCL_TRY(allocator, device->cl, EnqueueWriteBuffer, device->queue, memory, 0,
                     (size_t)offset, half->length, half->bytes, 0, NULL, &half->event);
  } else {
    INGOT_OPENCL_TRY(allocator, device->cl, EnqueueReadBuffer, device->queue, memory, 0,
                     (size_t)offset, half->length, half->bytes, 0, NULL, &half->event);
  }
  INGOT_OPENCL_TRY(allocator, device->cl, Flush, device->queue);
  return NULL;
}

static ingot_status_t ingot_opencl_transfer_staged(ingot_opencl_device_t *device,
                                                   ingot_cl_memory_t memory, int64_t offset,
                                                   int64_t length, bool to_device, uint8_t *host) {
  ingot_opencl_half_t halves[2] = {{.bytes = device->staging},
                                   {.bytes = device->staging + INGOT_OPENCL_STAGING_HALF}};
  ingot_status_t status = NULL;
  uint32_t turn = 0;
  for (int64_t done = 0; !status && done < length; turn ^= 1) {
    ingot_opencl_half_t *half = &halves[turn];
    int64_t rest = length - done;
    status = ingot_opencl_drain(device, half);
    half->length = (size_t)(rest < INGOT_OPENCL_STAGING_HALF ? rest : INGOT_OPENCL_STAGING_HALF);
    if (!status) {
      status = ingot_opencl_send(device, half, memory, offset + done, to_device, host + done);
    }
    done += (int64_t)half->length;
  }
  for (uint32_t h = 0; h < 2; h++) {
    ingot_status_t drained = ingot_opencl_drain(device, &halves[turn ^ h]);
    if (status) ingot_status_free(drained);
    else status = drained;
  }
  if (status) (void)device->cl->Finish(device->queue); /* nothing may use the staging now */
  return status;
}

ingot_status_t ingot_opencl_map(ingot_opencl_device_t *device, ingot_cl_memory_t memory,
                                uint64_t flags, int64_t offset, int64_t length, void **out_data) {
  int32_t error = 0;
  ingot_mutex_lock(&device->map_mutex);
  *out_data = device->cl->EnqueueMapBuffer(device->queue, memory, 1, flags, (size_t)offset,
                                           (size_t)length, 0, NULL, NULL, &error);
  ingot_mutex_unlock(&device->map_mutex);
  return error ? ingot_opencl_status(ingot_hal_device_allocator(&device->base),
                                     "clEnqueueMapBuffer", error)
               : NULL;
}

ingot_status_t ingot_opencl_unmap(ingot_opencl_device_t *device, ingot_cl_memory_t memory,
                                  void *data) {
  ingot_mutex_lock(&device->map_mutex);
  int32_t error = device->cl->EnqueueUnmapMemObject(device->queue, memory, data, 0, NULL, NULL);
  if (!error) error = device->cl->Finish(device->queue); /* other queues may use it next */
  ingot_mutex_unlock(&device->map_mutex);
  return error ? ingot_opencl_status(ingot_hal_device_allocator(&device->base),
                                     "clEnqueueUnmapMemObject", error)
               : NULL;
}

static ingot_status_t ingot_opencl_transfer_mapped(ingot_opencl_device_t *device,
                                                   ingot_cl_memory_t memory, int64_t offset,
                                                   int64_t length, bool to_device, uint8_t *host) {
  void *data = NULL;
  INGOT_TRY(ingot_opencl_map(device, memory, to_device ? INGOT_CL_MAP_WRITE : INGOT_CL_MAP_READ,
                             offset, length, &data));
  /* Bytes that the device uses in place need no copy: the map alone makes them current. */
  if (data != (void *)host) {
    memcpy(to_device ? data : host, to_device ? host : data, (size_t)length);
  }
  return ingot_opencl_unmap(device, memory, data);
}

ingot_status_t ingot_opencl_transfer(ingot_opencl_device_t *device, ingot_cl_memory_t memory,
                                     int64_t offset, int64_t length, bool to_device,
                                     uint8_t *host) {
  if (length == 0) return NULL;
  if (device->zero_copy) {
    return ingot_opencl_transfer_mapped(device, memory, offset, length, to_device, host);
  }
  ingot_mutex_lock(&device->staging_mutex);
  ingot_status_t status = ingot_opencl_staging_make(device);
  if (!status) {
    status = ingot_opencl_transfer_staged(device, memory, offset, length, to_device, host);
  }
  ingot_mutex_unlock(&device->staging_mutex);
  return status;
}
