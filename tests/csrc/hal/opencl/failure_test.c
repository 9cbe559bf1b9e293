/* Every call of OpenCL fails once, and every allocation: each failure becomes a status or has
 * no effect, no reference of OpenCL's objects is left, and the process goes on.
 *
 * The shim (shim.c) stands between the driver and the system's library.
 */
#include <dlfcn.h>

#include "../../../cts/kernels.h"
#include "opencl_device.h"
#include "opencl_object.h"
#include "shim.h"

static const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver,
                                                    &ingot_hal_opencl_driver};
static shim_state_t *shim;
static test_object_t object;
static test_allocator_t counter;
static char cache_folder[] = "/tmp/ingot-opencl-XXXXXX";

typedef struct objects_t {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_device_t *wrapped;
  ingot_hal_executable_t *executable;
  ingot_hal_queue_t *queue;
  ingot_buffer_t *buffer;
  ingot_buffer_t *foreign;
  ingot_buffer_t *constants;
  ingot_buffer_t *memory;
} objects_t;

static void ignore_trace(void *user, const ingot_hal_trace_t *trace) {
  (void)user;
  (void)trace;
}

static ingot_status_t dispatch(const objects_t *objects, uint32_t entry) {
  const ingot_hal_binding_t bindings[3] = {
      {objects->buffer, 0, 256}, {objects->buffer, 256, 256}, {objects->foreign, 0, 256}};
  const int64_t constant = 8;
  const ingot_hal_dispatch_t operation = {
      .executable = objects->executable,
      .entry = entry,
      .binding_count = kernel_descriptions[entry].binding_count,
      .constant_count = kernel_descriptions[entry].constant_count,
      .bindings = bindings,
      .constants = &constant,
      .workload = {8, 1, 1}};
  return ingot_hal_queue_dispatch(objects->queue, &operation);
}

/* Two plain dispatches, transfers of all kinds, a traced dispatch. */
static ingot_status_t work(objects_t *objects) {
  uint8_t bytes[64] = {1};
  void *data;
  INGOT_TRY(ingot_hal_queue_fill(objects->queue, objects->buffer, 0, 512, 0, 4));
  INGOT_TRY(ingot_hal_queue_write(objects->queue, objects->buffer, 0, bytes, 64));
  INGOT_TRY(ingot_hal_queue_copy(objects->queue, objects->buffer, 0, objects->buffer, 256, 64));
  INGOT_TRY(ingot_hal_queue_copy(objects->queue, objects->constants, 4, objects->buffer, 256, 4));
  INGOT_TRY(dispatch(objects, KERNEL_ADD));
  INGOT_TRY(dispatch(objects, KERNEL_SCRATCH));
  INGOT_TRY(ingot_hal_queue_read(objects->queue, objects->buffer, 0, bytes, 64));
  INGOT_TRY(ingot_hal_buffer_map(objects->buffer, 0, 64, 3, &data));
  ingot_hal_buffer_unmap(objects->buffer, data);
  objects->queue->trace = ignore_trace;
  INGOT_TRY(dispatch(objects, KERNEL_GATHER));
  INGOT_TRY(ingot_hal_queue_wait(objects->queue));
  return NULL;
}

static ingot_status_t create_all(objects_t *objects, const char *options) {
  static uint8_t bytes[256 + 16];
  static const uint8_t constants[64] = {0};
  ingot_allocator_t allocator = test_allocator(&counter);
  ingot_hal_variant_t variant = {"v1", "opencl-c", 0, object.data, object.length};
  ingot_hal_executable_description_t description = {"kernels", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 1, &variant};
  char uri[256];
  void *context, *queue, *memory;
  size_t offset;
  (void)snprintf(uri, sizeof(uri), "opencl://0?library=" OPENCL_SHIM "&%s", options);
  INGOT_TRY(ingot_hal_instance_create(&allocator, drivers, 2, &objects->instance));
  INGOT_TRY(ingot_hal_device_create(objects->instance, uri, NULL, &objects->device));
  INGOT_TRY(ingot_hal_executable_create(objects->device, &description, &objects->executable));
  INGOT_TRY(ingot_hal_queue_create(objects->device, &objects->queue));
  INGOT_TRY(ingot_hal_buffer_create(objects->device, 512, &objects->buffer));
  INGOT_TRY(ingot_hal_buffer_wrap(objects->device, bytes + (16 - (uintptr_t)bytes % 16), 256, 3,
                                  NULL, NULL, &objects->foreign));
  INGOT_TRY(ingot_hal_buffer_wrap(objects->device, (void *)(uintptr_t)constants, 64,
                                  INGOT_HAL_ACCESS_READ, NULL, NULL, &objects->constants));
  INGOT_TRY(ingot_opencl_buffer_handle(objects->buffer, &memory, &offset));
  INGOT_TRY(ingot_opencl_buffer_wrap_memory(objects->device, memory, offset, 16, NULL, NULL,
                                            &objects->memory));
  INGOT_TRY(ingot_opencl_device_handles(objects->device, &context, NULL, &queue));
  INGOT_TRY(ingot_opencl_device_wrap(objects->instance, strchr(uri, '?') + 1, context, queue,
                                     &objects->wrapped));
  return work(objects);
}

static void release_all(objects_t *objects) {
  ingot_hal_buffer_release(objects->memory);
  ingot_hal_buffer_release(objects->constants);
  ingot_hal_buffer_release(objects->foreign);
  ingot_hal_buffer_release(objects->buffer);
  ingot_hal_queue_destroy(objects->queue);
  ingot_hal_executable_destroy(objects->executable);
  ingot_hal_device_release(objects->wrapped);
  ingot_hal_device_release(objects->device);
  ingot_hal_instance_release(objects->instance);
}

/* One run; whether it succeeded. Nothing may be left of it. */
static bool run(const char *options) {
  objects_t objects = {.instance = NULL};
  ingot_status_t status = create_all(&objects, options);
  bool has_succeeded = status == NULL;
  if (shim->fail_at == 0 && counter.fail_at == 0 && status) {
    FAIL("a run without failures gave: %s", ingot_status_message(status));
  }
  if (counter.fail_at > 0 && status) {
    EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_OUT_OF_MEMORY);
  }
  if (status) EXPECT(ingot_status_message(status)[0] != 0);
  ingot_status_free(status);
  release_all(&objects);
  EXPECT_EQUAL(counter.live, 0);
  if (shim->live != 0) {
    FAIL("%" PRId64 " references are left after %s failed at call %" PRId64, shim->live,
         shim->failed ? shim->failed : "nothing", shim->fail_at);
    shim->live = 0;
  }
  return has_succeeded;
}

/* Functions whose failure the driver can do without. */
static bool is_tolerated(const char *name) {
  static const char *const names[] = {"Release",
                                      "EnqueueUnmapMemObject",
                                      "GetProgramInfo",
                                      "GetEventProfilingInfo",
                                      "CreateProgramWithBinary",
                                      "BuildProgram",
                                      "CreateBuffer",
                                      "GetDeviceInfo",
                                      "Finish"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
  }
  return false;
}

/* With each error of the function, or with them in turn. */
static void every_failing_call_is_a_status_without_a_leak(const char *options, bool in_turn) {
  int64_t failures = 0;
  for (int64_t fail_at = 1;; fail_at++) {
    bool is_reached = false;
    int32_t first = in_turn ? (int32_t)(fail_at % SHIM_CHOICE_COUNT) : 0;
    int32_t end = in_turn ? first + 1 : SHIM_CHOICE_COUNT;
    for (int32_t choice = first; choice < end; choice++) {
      *shim = (shim_state_t){.fail_at = fail_at, .choice = choice};
      counter = (test_allocator_t){.fail_at = 0};
      bool has_succeeded = run(options);
      is_reached = shim->failed != NULL;
      failures += !has_succeeded;
      if (is_reached && has_succeeded && !is_tolerated(shim->failed)) {
        FAIL("cl%s failed with %d at call %" PRId64 ", and nobody noticed", shim->failed,
             shim->error, fail_at);
      }
    }
    if (!is_reached) break;
  }
  EXPECT(failures >= 100);
  *shim = (shim_state_t){.fail_at = 0};
  EXPECT(run(options));
}

TEST(with_zero_copy) { every_failing_call_is_a_status_without_a_leak("cache=off", false); }

TEST(without_zero_copy) {
  every_failing_call_is_a_status_without_a_leak("cache=off&zero_copy=off", true);
}

TEST(from_the_cache) {
  char options[64];
  (void)snprintf(options, sizeof(options), "cache=%s", cache_folder);
  *shim = (shim_state_t){.fail_at = 0};
  counter = (test_allocator_t){.fail_at = 0};
  EXPECT(run(options));
  every_failing_call_is_a_status_without_a_leak(options, true);
}

TEST(every_failing_allocation_is_a_status_without_a_leak) {
  static const char *const options[] = {"cache=off", "cache=off&zero_copy=off"};
  for (int o = 0; o < 2; o++) {
    int64_t failures = 0;
    for (int64_t fail_at = 1;; fail_at++) {
      *shim = (shim_state_t){.fail_at = 0};
      counter = (test_allocator_t){.fail_at = fail_at};
      failures += !run(options[o]);
      if (counter.allocations < fail_at) break;
    }
    EXPECT(failures >= 15);
  }
}

/* A wait that fails before it has read the record must not leave it to the next one. */
TEST(fault_that_could_not_be_read_is_forgotten) {
  const int32_t outside = 99;
  *shim = (shim_state_t){.fail_at = 0};
  counter = (test_allocator_t){.fail_at = 0};
  for (int64_t later = 1; later <= 2; later++) { /* the read of the record, the finish */
    objects_t objects = {.instance = NULL};
    shim->fail_at = 0;
    REQUIRE_OK(create_all(&objects, "cache=off"));
    EXPECT_OK(ingot_hal_buffer_write(objects.buffer, 256, 4, &outside));
    EXPECT_OK(dispatch(&objects, KERNEL_GATHER));
    shim->fail_at = shim->calls + later;
    ingot_status_t status = ingot_hal_queue_wait(objects.queue);
    EXPECT(status != NULL && ingot_status_code(status) != INGOT_STATUS_OUT_OF_RANGE);
    ingot_status_free(status);
    EXPECT_OK(dispatch(&objects, KERNEL_ADD));
    EXPECT_OK(ingot_hal_queue_wait(objects.queue));
    release_all(&objects);
  }
}

/* A driver tells by the launch that its device has gone. */
TEST(lost_device_is_told_with_the_kernel) {
  objects_t objects = {.instance = NULL};
  bool is_told = false;
  *shim = (shim_state_t){.fail_at = 0, .choice = 2};
  counter = (test_allocator_t){.fail_at = 0};
  REQUIRE_OK(create_all(&objects, "cache=off"));
  for (int64_t later = 1; later < 30 && !is_told; later++) {
    shim->failed = NULL;
    shim->fail_at = shim->calls + later;
    ingot_status_t status = dispatch(&objects, KERNEL_ADD);
    is_told = shim->failed && strcmp(shim->failed, "EnqueueNDRangeKernel") == 0;
    if (is_told) {
      EXPECT_STATUS(status, DEVICE_LOST, "kernel 'add' of layer 'layer/Add': clEnqueueNDRange");
    } else {
      ingot_status_free(status);
    }
    shim->fail_at = 0;
    ingot_status_free(ingot_hal_queue_wait(objects.queue));
  }
  EXPECT(is_told);
  release_all(&objects);
}

int main(void) {
  if (!test_has_opencl()) return TEST_SKIPPED();
  void *handle = dlopen(OPENCL_SHIM, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    printf("%s\n", dlerror());
    return 1;
  }
  shim_state_function_t find;
  void *symbol = dlsym(handle, SHIM_STATE_NAME);
  memcpy(&find, &symbol, sizeof(symbol));
  shim = find();
  if (!test_make_folder(cache_folder)) return 1;
  object = test_opencl_kernels(false);
  RUN_TESTS();
  test_remove_folder(cache_folder);
  test_object_free(&object);
  return TEST_RESULT();
}
