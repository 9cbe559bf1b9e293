/* The application's events as fences, and fences as events. */
#include "hal/fence.h"
#include "hal/opencl/opencl.h"
#include "ingot/opencl.h"

/* On a thread of the OpenCL library. */
static void INGOT_CL_CALL ingot_opencl_event_ended(ingot_cl_event_t event, int32_t status,
                                                   void *user) {
  ingot_fence_t *fence = user;
  (void)event;
  ingot_fence_settle(fence, 1,
                     status == INGOT_CL_COMPLETE
                         ? NULL
                         : ingot_status_make(INGOT_STATUS_DEVICE_LOST,
                                             "an OpenCL event that was waited for ended with an "
                                             "error"));
}

static ingot_status_t ingot_opencl_check_event(const ingot_opencl_device_t *device,
                                               ingot_cl_event_t event) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  ingot_cl_context_t context = NULL;
  if (event) {
    INGOT_OPENCL_TRY(allocator, device->cl, GetEventInfo, event, INGOT_CL_EVENT_CONTEXT,
                     sizeof(context), &context, NULL);
  }
  if (context == device->context) return NULL;
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "the event is %s: expected one of the device's context",
                             event ? "of another context" : "NULL");
}

ingot_status_t ingot_opencl_fence_from_event(ingot_device_t *base, void *event,
                                             ingot_fence_t **out_fence) {
  INGOT_TRY(ingot_opencl_check_device(base));
  const ingot_opencl_device_t *device = (const ingot_opencl_device_t *)base;
  INGOT_TRY(ingot_opencl_check_event(device, event));
  ingot_fence_t *fence = NULL;
  INGOT_TRY(ingot_fence_create(base->instance, 0, &fence));
  ingot_fence_retain(fence);
  int32_t error =
      device->cl->SetEventCallback(event, INGOT_CL_COMPLETE, ingot_opencl_event_ended, fence);
  if (error) {
    ingot_fence_release(fence);
    ingot_fence_release(fence);
    return ingot_opencl_status(ingot_hal_device_allocator(base), "clSetEventCallback", error);
  }
  *out_fence = fence;
  return NULL;
}

/* An event that waits for a fence. */
typedef struct ingot_opencl_event_t {
  ingot_opencl_device_t *device; /* retained */
  ingot_cl_event_t event;        /* retained */
} ingot_opencl_event_t;

static void ingot_opencl_event_free(ingot_opencl_event_t *waiting) {
  ingot_opencl_device_t *device = waiting->device;
  (void)device->cl->ReleaseEvent(waiting->event);
  ingot_release_memory(ingot_hal_device_allocator(&device->base), waiting);
  ingot_hal_device_release(&device->base);
}

static void ingot_opencl_fence_ended(void *user, ingot_status_t status) {
  ingot_opencl_event_t *waiting = user;
  (void)waiting->device->cl->SetUserEventStatus(
      waiting->event,
      status ? INGOT_CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : INGOT_CL_COMPLETE);
  ingot_status_free(status);
  ingot_opencl_event_free(waiting);
}

ingot_status_t ingot_opencl_event_from_fence(ingot_device_t *base, ingot_fence_t *fence,
                                             uint64_t value, void **out_event) {
  INGOT_TRY(ingot_opencl_check_device(base));
  ingot_opencl_device_t *device = (ingot_opencl_device_t *)base;
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(base);
  void *memory;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_opencl_event_t), &memory));
  ingot_opencl_event_t *waiting = memory;
  int32_t error = 0;
  ingot_cl_event_t event = device->cl->CreateUserEvent(device->context, &error);
  if (!error && (error = device->cl->RetainEvent(event)) != 0) {
    (void)device->cl->ReleaseEvent(event);
  }
  if (error) {
    ingot_release_memory(allocator, waiting);
    return ingot_opencl_status(allocator, "clCreateUserEvent", error);
  }
  ingot_hal_device_retain(base);
  *waiting = (ingot_opencl_event_t){device, event};
  ingot_status_t status = ingot_fence_notify(fence, value, ingot_opencl_fence_ended, waiting);
  if (status) {
    (void)device->cl->ReleaseEvent(event);
    ingot_opencl_event_free(waiting);
    return status;
  }
  *out_event = event;
  return NULL;
}
