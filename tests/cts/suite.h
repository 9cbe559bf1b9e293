/* The conformance suite of the HAL: what the VM may expect of every device.
 *
 *   buffer_test          the CPU, with several numbers of threads
 *   buffer_test opencl   the first OpenCL device: with and without zero copy, and with all
 *                        kernels on the host; without such a device the test is skipped,
 *                        or fails where INGOT_REQUIRE_OPENCL is set
 *
 * (and likewise dispatch_test, queue_test and fence_test). It goes through ingot_hal_* only. The kernels are
 * those of kernels.h, built on the spot.
 */
#ifndef INGOT_TESTS_CTS_SUITE_H_
#define INGOT_TESTS_CTS_SUITE_H_

#include "hal/hal.h"
#include "kernels.h"
#include "opencl_device.h"
#include "opencl_object.h"
#include "test.h"

typedef struct suite_t {
  const char *uri;
  bool on_host; /* kernels are the CPU's: they know lengths, and the lowest fault counts */
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_hal_executable_t *executable;
  ingot_hal_queue_t *queue;
} suite_t;

static suite_t suite;

#define SUITE_DRIVER_COUNT 2
static const ingot_hal_driver_t *const suite_drivers[] = {&ingot_hal_cpu_driver,
                                                          &ingot_hal_opencl_driver};

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

static inline void suite_run_device(const char *uri, uint32_t variant_count,
                                    const ingot_hal_variant_t *variants) {
  ingot_hal_executable_description_t description = {
      "cts", kernel_descriptions, KERNEL_DESCRIPTION_COUNT, variant_count, variants};
  test_name = uri;
  suite.uri = uri;
  REQUIRE_OK(ingot_hal_instance_create(NULL, suite_drivers, SUITE_DRIVER_COUNT, &suite.instance));
  REQUIRE_OK(ingot_hal_device_create(suite.instance, uri, NULL, &suite.device));
  REQUIRE_OK(ingot_hal_executable_create(suite.device, &description, &suite.executable));
  REQUIRE_OK(ingot_hal_queue_create(suite.device, &suite.queue));
  EXPECT_TEXT(suite.executable->variant_name, variants[0].name);
  suite.on_host =
      suite.executable->entries[0].host_reason[0] || strcmp(suite.device->target, "cpu") == 0;
  RUN_TESTS();
  ingot_hal_queue_destroy(suite.queue);
  ingot_hal_executable_destroy(suite.executable);
  ingot_hal_device_release(suite.device);
  ingot_hal_instance_release(suite.instance);
}

#if defined(__x86_64__)
#define SUITE_CPU_FORMAT "elf-x86_64"
#else
#define SUITE_CPU_FORMAT "elf-aarch64"
#endif

static inline void suite_run_cpu(void) {
  test_object_t object = test_object_build_kernels();
  const ingot_hal_variant_t variant = {"test", SUITE_CPU_FORMAT, 0, object.data, object.length};
  suite_run_device("cpu://?threads=1", 1, &variant);
  suite_run_device("cpu", 1, &variant);
  suite_run_device("cpu://?threads=4", 1, &variant);
  test_object_free(&object);
}

static inline void suite_run_opencl(void) {
  test_object_t host = test_object_build_kernels();
  test_object_t kernels = test_opencl_kernels(false), none = test_opencl_kernels(true);
  const ingot_hal_variant_t variants[2] = {
      {"opencl", "opencl-c", 0, kernels.data, kernels.length},
      {"generic", SUITE_CPU_FORMAT, 0, host.data, host.length}};
  const ingot_hal_variant_t on_host[2] = {{"none", "opencl-c", 0, none.data, none.length},
                                          variants[1]};
  suite_run_device("opencl://0?cache=off", 1, variants);
  suite_run_device("opencl://0?cache=off&zero_copy=off", 1, variants);
  suite_run_device("opencl://0?cache=off", 2, on_host);
  suite_run_device("opencl://0?cache=off&zero_copy=off", 2, on_host);
  test_object_free(&none);
  test_object_free(&kernels);
  test_object_free(&host);
}

static inline int suite_main(int count, char **arguments) {
  if (count == 1) {
    suite_run_cpu();
    return TEST_RESULT();
  }
  if (count != 2 || strcmp(arguments[1], "opencl") != 0) {
    printf("expected no argument or 'opencl'\n");
    return 1;
  }
  if (!test_has_opencl()) return TEST_SKIPPED();
  suite_run_opencl();
  return TEST_RESULT();
}

#endif /* INGOT_TESTS_CTS_SUITE_H_ */
