/* The application's OpenCL events as fences, and fences as events that its queues wait for.
 */
#include "hal/opencl/opencl.h"
#include "opencl_device.h"

static ingot_instance_t *instance;
static ingot_device_t *device;
static const ingot_cl_functions_t *cl;
static const ingot_opencl_device_t *opencl;

TEST(a_fence_is_reached_when_the_event_is_complete) {
  int32_t error = 0;
  ingot_fence_t *fence = NULL;
  ingot_cl_event_t event = cl->CreateUserEvent(opencl->context, &error);
  REQUIRE_OK(ingot_opencl_fence_from_event(device, event, &fence));
  EXPECT_STATUS(ingot_fence_wait(fence, 1, 0), DEADLINE_EXCEEDED, "at 0");
  EXPECT_EQUAL(cl->SetUserEventStatus(event, INGOT_CL_COMPLETE), 0);
  EXPECT_OK(ingot_fence_wait(fence, 1, INGOT_FOREVER));
  ingot_fence_release(fence);
  REQUIRE_OK(ingot_opencl_fence_from_event(device, event, &fence)); /* which is over */
  EXPECT_OK(ingot_fence_wait(fence, 1, INGOT_FOREVER));
  ingot_fence_release(fence);
  EXPECT_EQUAL(cl->ReleaseEvent(event), 0);
}

TEST(an_event_in_error_fails_the_fence) {
  int32_t error = 0;
  /* PoCL 3.1 calls nobody when a user event ends so. */
  if (strstr(device->description, "Portable Computing Language")) return;
  ingot_fence_t *fence = NULL;
  ingot_cl_event_t event = cl->CreateUserEvent(opencl->context, &error);
  REQUIRE_OK(ingot_opencl_fence_from_event(device, event, &fence));
  EXPECT_EQUAL(cl->SetUserEventStatus(event, -5), 0);
  EXPECT_STATUS(ingot_fence_wait(fence, 1, INGOT_FOREVER), DEVICE_LOST, "ended with an error");
  ingot_fence_release(fence);
  EXPECT_EQUAL(cl->ReleaseEvent(event), 0);
}

/* The fill waits for the fence, so the read behind it sees it. */
TEST(queues_wait_for_fences) {
  static const uint32_t old = 1, new = 2;
  uint32_t value = 0;
  void *waiting = NULL;
  ingot_fence_t *fence = NULL;
  int32_t error = 0;
  ingot_cl_memory_t memory =
      cl->CreateBuffer(opencl->context, INGOT_CL_MEM_READ_WRITE, 4, NULL, &error);
  EXPECT_EQUAL(cl->EnqueueFillBuffer(opencl->queue, memory, &old, 4, 0, 4, 0, NULL, NULL), 0);
  EXPECT_EQUAL(cl->Finish(opencl->queue), 0);
  REQUIRE_OK(ingot_fence_create(instance, 0, &fence));
  REQUIRE_OK(ingot_opencl_event_from_fence(device, fence, 3, &waiting));
  ingot_cl_event_t event = waiting;
  EXPECT_EQUAL(cl->EnqueueFillBuffer(opencl->queue, memory, &new, 4, 0, 4, 1, &event, NULL), 0);
  EXPECT_EQUAL(cl->EnqueueReadBuffer(opencl->queue, memory, 0, 0, 4, &value, 0, NULL, NULL), 0);
  EXPECT_EQUAL(cl->Flush(opencl->queue), 0);
  EXPECT_OK(ingot_fence_signal(fence, 2));
  EXPECT_EQUAL(value, 0);
  EXPECT_OK(ingot_fence_signal(fence, 3));
  EXPECT_EQUAL(cl->Finish(opencl->queue), 0);
  EXPECT_EQUAL(value, 2);
  EXPECT_EQUAL(cl->ReleaseEvent(event), 0);
  EXPECT_EQUAL(cl->ReleaseMemObject(memory), 0);
  ingot_fence_release(fence);
}

TEST(a_failed_fence_is_an_event_in_error) {
  void *waiting = NULL;
  ingot_fence_t *fence = NULL;
  REQUIRE_OK(ingot_fence_create(instance, 0, &fence));
  REQUIRE_OK(ingot_opencl_event_from_fence(device, fence, 1, &waiting));
  ingot_fence_release(fence); /* nobody can signal it */
  ingot_cl_event_t event = waiting;
  EXPECT(cl->WaitForEvents(1, &event) != 0);
  EXPECT_EQUAL(cl->ReleaseEvent(event), 0);
}

TEST(wrong_events_are_refused) {
  ingot_fence_t *fence = NULL;
  ingot_device_t *cpu = NULL;
  void *event = NULL;
  EXPECT_STATUS(ingot_opencl_fence_from_event(device, NULL, &fence), INVALID_ARGUMENT,
                "the event is NULL");
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &cpu));
  REQUIRE_OK(ingot_fence_create(instance, 0, &fence));
  EXPECT_STATUS(ingot_opencl_event_from_fence(cpu, fence, 1, &event), INVALID_ARGUMENT,
                "is not one of OpenCL");
  ingot_fence_release(fence);
  ingot_hal_device_release(cpu);
}

int main(void) {
  static const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver,
                                                      &ingot_hal_opencl_driver};
  if (!test_has_opencl()) return TEST_SKIPPED();
  ingot_status_t status = ingot_hal_instance_create(NULL, drivers, 2, &instance);
  if (!status) status = ingot_hal_device_create(instance, "opencl://0?cache=off", NULL, &device);
  if (status) return 1;
  opencl = (const ingot_opencl_device_t *)device;
  cl = opencl->cl;
  RUN_TESTS();
  ingot_hal_device_release(device);
  ingot_hal_instance_release(instance);
  return TEST_RESULT();
}
