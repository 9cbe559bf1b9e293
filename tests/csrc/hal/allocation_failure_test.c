/* Every allocation fails once: creating, loading and dispatching give OutOfMemory or work,
 * and nothing is left behind. And a steady-state dispatch allocates nothing.
 */
#include "../../cts/kernels.h"
#include "object.h"
#include "test.h"

static const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver};
static test_object_t object;
static test_allocator_t counter;

#if defined(__x86_64__)
#define FORMAT "elf-x86_64"
#else
#define FORMAT "elf-aarch64"
#endif

typedef struct objects_t {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_hal_executable_t *executable;
  ingot_hal_queue_t *queue;
  ingot_buffer_t *buffer;
  ingot_buffer_t *part;
} objects_t;

static ingot_status_t dispatch_scratch(const objects_t *objects, int64_t cost) {
  ingot_hal_binding_t binding = {objects->buffer, 0, objects->buffer->length};
  ingot_hal_dispatch_t dispatch = {.executable = objects->executable,
                                   .entry = KERNEL_SCRATCH,
                                   .binding_count = 1,
                                   .bindings = &binding,
                                   .workload = {32, 1, 1},
                                   .cost_flops = cost};
  return ingot_hal_queue_dispatch(objects->queue, &dispatch);
}

static ingot_status_t create_all(objects_t *objects) {
  ingot_allocator_t allocator = test_allocator(&counter);
  ingot_hal_variant_t variant = {"v1", FORMAT, 0, object.data, object.length};
  ingot_hal_executable_description_t description = {"kernels", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 1, &variant};
  INGOT_TRY(ingot_hal_instance_create(&allocator, drivers, 1, &objects->instance));
  INGOT_TRY(ingot_hal_device_create(objects->instance, "cpu://?threads=3", NULL, &objects->device));
  INGOT_TRY(ingot_hal_executable_create(objects->device, &description, &objects->executable));
  INGOT_TRY(ingot_hal_queue_create(objects->device, &objects->queue));
  INGOT_TRY(ingot_hal_buffer_create(objects->device, 256, &objects->buffer));
  INGOT_TRY(ingot_hal_buffer_subspan(objects->buffer, 0, 8, &objects->part));
  INGOT_TRY(dispatch_scratch(objects, 0));
  return dispatch_scratch(objects, INT64_MAX);
}

static void release_all(objects_t *objects) {
  ingot_hal_buffer_release(objects->part);
  ingot_hal_buffer_release(objects->buffer);
  ingot_hal_queue_destroy(objects->queue);
  ingot_hal_executable_destroy(objects->executable);
  ingot_hal_device_release(objects->device);
  ingot_hal_instance_release(objects->instance);
}

TEST(every_failing_allocation_is_a_status_without_a_leak) {
  int64_t failures = 0;
  for (int64_t fail_at = 1;; fail_at++) {
    objects_t objects = {.instance = NULL};
    counter = (test_allocator_t){.fail_at = fail_at};
    ingot_status_t status = create_all(&objects);
    bool is_reached = counter.allocations >= fail_at;
    if (status) {
      failures++;
      EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_OUT_OF_MEMORY);
    }
    ingot_status_free(status);
    release_all(&objects);
    EXPECT_EQUAL(counter.live, 0);
    if (!is_reached) break;
  }
  EXPECT(failures >= 12);
}

/* The message of an error needs memory too. */
TEST(error_without_memory_is_still_an_error) {
  objects_t objects = {.instance = NULL};
  counter = (test_allocator_t){.fail_at = 0};
  REQUIRE_OK(create_all(&objects));
  ingot_buffer_t *buffer = NULL;
  for (int64_t i = 1; i < 4; i++) {
    counter.fail_at = counter.allocations + i;
    ingot_status_t status = ingot_hal_buffer_subspan(objects.buffer, 300, 1, &buffer);
    EXPECT(status != NULL && buffer == NULL);
    ingot_status_free(status);
  }
  counter.fail_at = 0;
  release_all(&objects);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(steady_state_dispatch_allocates_nothing) {
  objects_t objects = {.instance = NULL};
  counter = (test_allocator_t){.fail_at = 0};
  REQUIRE_OK(create_all(&objects));
  int64_t before = counter.allocations;
  for (int i = 0; i < 100; i++) EXPECT_OK(dispatch_scratch(&objects, i % 2 ? INT64_MAX : 0));
  EXPECT_EQUAL(counter.allocations, before);
  release_all(&objects);
}

int main(void) {
  object = test_object_build_kernels();
  if (!object.data) return 1;
  RUN_TESTS();
  test_object_free(&object);
  return TEST_RESULT();
}
