/* Whether tests can have an OpenCL device, and what they do without one.
 */
#ifndef INGOT_TESTS_CTS_OPENCL_DEVICE_H_
#define INGOT_TESTS_CTS_OPENCL_DEVICE_H_

#include "hal/hal.h"
#include "ingot/opencl.h"
#include "test.h"

extern const ingot_hal_driver_t ingot_hal_opencl_driver;

/* False if there is no device; why not is printed. */
static inline bool test_has_opencl(void) {
  const ingot_hal_driver_t *const drivers[] = {&ingot_hal_opencl_driver};
  ingot_instance_t *instance = NULL;
  ingot_device_t *device = NULL;
  ingot_status_t status = ingot_hal_instance_create(NULL, drivers, 1, &instance);
  if (!status) status = ingot_hal_device_create(instance, "opencl://0?cache=off", &device);
  bool has_device = status == NULL;
  if (status) printf("no OpenCL device: %s\n", ingot_status_message(status));
  ingot_status_free(status);
  ingot_hal_device_release(device);
  ingot_hal_instance_release(instance);
  return has_device;
}

/* What a test without a device returns: CTest shows it as skipped (tests/csrc/CMakeLists.txt). */
#define TEST_SKIPPED() (getenv("INGOT_REQUIRE_OPENCL") ? 1 : 77)

#endif /* INGOT_TESTS_CTS_OPENCL_DEVICE_H_ */
