/* The conformance suite of the HAL: what the VM may expect of every device.
 *
 *   buffer_test                      all devices of this build, kernels built on the spot
 *   buffer_test URI FORMAT OBJECT    one device, with kernels.h's kernels in OBJECT
 *
 * (and likewise dispatch_test). It goes through ingot_hal_* only. A driver in work names
 * its URI and an object of the six kernels in its own format.
 */
#ifndef INGOT_TESTS_CTS_SUITE_H_
#define INGOT_TESTS_CTS_SUITE_H_

#include "hal/hal.h"
#include "kernels.h"
#include "object.h"
#include "test.h"

typedef struct suite_t {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_hal_executable_t *executable;
  ingot_hal_queue_t *queue;
} suite_t;

static suite_t suite;

static const ingot_hal_driver_t *const suite_drivers[] = {&ingot_hal_cpu_driver};

/* Costs that keep a dispatch on one thread, and that share it between all. */
#define SMALL 0
#define LARGE INT64_MAX

/* `data` may be NULL. */
static inline ingot_buffer_t *new_buffer(int64_t length, const void *data) {
  ingot_buffer_t *buffer = NULL;
  EXPECT_OK(ingot_hal_buffer_create(suite.device, length, &buffer));
  if (buffer && data) EXPECT_OK(ingot_hal_buffer_write(buffer, 0, length, data));
  return buffer;
}

static inline ingot_hal_binding_t whole(ingot_buffer_t *buffer) {
  ingot_hal_binding_t binding = {buffer, 0, buffer->length};
  return binding;
}

static inline ingot_status_t dispatch(uint32_t entry, const ingot_hal_binding_t *bindings,
                                      int64_t x, int64_t y, int64_t z, const int64_t *constants,
                                      int64_t cost) {
  ingot_hal_dispatch_t operation = {
      .executable = suite.executable,
      .entry = entry,
      .binding_count = kernel_descriptions[entry].binding_count,
      .constant_count = kernel_descriptions[entry].constant_count,
      .bindings = bindings,
      .constants = constants,
      .workload = {x, y, z},
      .cost_flops = cost,
  };
  return ingot_hal_queue_dispatch(suite.queue, &operation);
}

static inline void suite_run_device(const char *uri, const char *format,
                                    const test_object_t *object, void (*run_all)(void)) {
  ingot_hal_variant_t variant = {"test", format, 0, object->data, object->length};
  ingot_hal_executable_description_t description = {"cts", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 1, &variant};
  test_name = uri;
  REQUIRE_OK(ingot_hal_instance_create(NULL, suite_drivers, 1, &suite.instance));
  REQUIRE_OK(ingot_hal_device_create(suite.instance, uri, &suite.device));
  REQUIRE_OK(ingot_hal_executable_create(suite.device, &description, &suite.executable));
  REQUIRE_OK(ingot_hal_queue_create(suite.device, &suite.queue));
  EXPECT_TEXT(suite.executable->variant_name, "test");
  run_all();
  ingot_hal_queue_destroy(suite.queue);
  ingot_hal_executable_release(suite.executable);
  ingot_hal_device_release(suite.device);
  ingot_hal_instance_release(suite.instance);
}

static inline int suite_main(int count, char **arguments, void (*run_all)(void)) {
  if (count == 4) {
    test_object_t given = test_object_read(arguments[3]);
    suite_run_device(arguments[1], arguments[2], &given, run_all);
    test_object_free(&given);
    return TEST_RESULT();
  }
#if defined(__x86_64__)
  const char *format = "elf-x86_64";
#else
  const char *format = "elf-aarch64";
#endif
  test_object_t object = test_object_build_kernels();
  suite_run_device("cpu://?threads=1", format, &object, run_all);
  suite_run_device("cpu", format, &object, run_all);
  suite_run_device("cpu://?threads=4", format, &object, run_all);
  test_object_free(&object);
  return TEST_RESULT();
}

#endif /* INGOT_TESTS_CTS_SUITE_H_ */
