/* What the tests of OpenCL executables share: an instance that keeps its log, a device, objects of
 * changed kernels. A file is a program, so there are variables here.
 */
#ifndef INGOT_TESTS_HAL_OPENCL_EXECUTABLES_H_
#define INGOT_TESTS_HAL_OPENCL_EXECUTABLES_H_

#include "../../../cts/kernels.h"
#include "hal/opencl/opencl.h"
#include "opencl_device.h"
#include "opencl_object.h"

static const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver,
                                                    &ingot_hal_opencl_driver};
static ingot_instance_t *instance;
static ingot_device_t *device;
static test_object_t host_object;
static char last_warning[512], last_info[512];

#if defined(__x86_64__)
#define CPU_FORMAT "elf-x86_64"
#else
#define CPU_FORMAT "elf-aarch64"
#endif

static inline void keep_log(void *user, int32_t severity, const char *message) {
  (void)user;
  (void)snprintf(severity == INGOT_LOG_WARNING ? last_warning : last_info, sizeof(last_info), "%s",
                 message);
}

/* Loads an object, with the host's variant beside it or without. */
static inline ingot_status_t load_on(ingot_device_t *target, const void *data, size_t length,
                                     bool with_host, ingot_hal_executable_t **out_executable) {
  const ingot_hal_variant_t variants[2] = {
      {"cl", "opencl-c", 0, data, length},
      {"generic", CPU_FORMAT, 0, host_object.data, host_object.length}};
  const ingot_hal_executable_description_t description = {
      "kernels", kernel_descriptions, KERNEL_DESCRIPTION_COUNT, with_host ? 2 : 1, variants};
  return ingot_hal_executable_create(target, &description, out_executable);
}

static inline ingot_status_t load_parts(const test_opencl_parts_t *parts, bool with_host,
                                        ingot_hal_executable_t **out_executable) {
  test_object_t object = test_opencl_object(parts);
  ingot_status_t status = load_on(device, object.data, object.length, with_host, out_executable);
  test_object_free(&object);
  return status;
}

/* Parts with a test of add, whose operands have that dtype. */
static inline test_opencl_parts_t parts_with_test(const char *source,
                                                  ingot_opencl_test_binding_t bindings[3],
                                                  ingot_opencl_test_t *test) {
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  *test = (ingot_opencl_test_t){.entry = KERNEL_ADD, .workload = {100, 1, 1}};
  for (int b = 0; b < 3; b++) {
    bindings[b] = (ingot_opencl_test_binding_t){.length = 400,
                                                .dtype = INGOT_DTYPE_F32,
                                                .fill = INGOT_OPENCL_FILL_UNIFORM,
                                                .tolerance = 1e-6};
  }
  parts.test_count = 1;
  parts.tests = test;
  parts.test_binding_count = 3;
  parts.test_bindings = bindings;
  if (source) parts.source = source;
  return parts;
}

/* The suite's source with one text replaced; to be freed. */
static inline char *changed_source(const char *from, const char *to) {
  const char *source = test_opencl_kernel_parts().source;
  const char *found = strstr(source, from);
  char *changed = malloc(strlen(source) + strlen(to) + 1);
  if (!found || !changed) {
    free(changed);
    return NULL;
  }
  memcpy(changed, source, (size_t)(found - source));
  strcpy(changed + (found - source), to);
  strcat(changed, found + strlen(from));
  return changed;
}

/* What every test of the program needs; false without an OpenCL device. */
static inline bool open_all(void) {
  if (!test_has_opencl()) return false;
  host_object = test_object_build_kernels();
  EXPECT_OK(ingot_hal_instance_create(NULL, drivers, 2, &instance));
  instance->log.function = keep_log;
  EXPECT_OK(ingot_hal_device_create(instance, "opencl://0?cache=off", NULL, &device));
  return true;
}

static inline void close_all(void) {
  ingot_hal_device_release(device);
  ingot_hal_instance_release(instance);
  test_object_free(&host_object);
}

#endif /* INGOT_TESTS_HAL_OPENCL_EXECUTABLES_H_ */
