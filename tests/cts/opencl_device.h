/* Whether tests can have an OpenCL device, what they do without one, and folders to cache in.
 */
#ifndef INGOT_TESTS_CTS_OPENCL_DEVICE_H_
#define INGOT_TESTS_CTS_OPENCL_DEVICE_H_

#include <unistd.h>

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
  if (!status) status = ingot_hal_device_create(instance, "opencl://0?cache=off", NULL, &device);
  bool has_device = status == NULL;
  if (status) printf("no OpenCL device: %s\n", ingot_status_message(status));
  ingot_status_free(status);
  ingot_hal_device_release(device);
  ingot_hal_instance_release(instance);
  return has_device;
}

/* What a test without a device returns: CTest shows it as skipped (tests/csrc/CMakeLists.txt). */
#define TEST_SKIPPED() (getenv("INGOT_REQUIRE_OPENCL") ? 1 : 77)

/* What compilers of OpenCL implementations (PoCL's is C++ on LLVM) leave behind is not the
 * driver's; its own blocks are C's, and failure_test counts the references that it holds. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:libpocl\nleak:libLLVM\nleak:libclang\nleak:libstdc++\n";
}

/* A fresh private folder; `path` ends in XXXXXX, which is filled in. */
static inline bool test_make_folder(char *path) { return mkdtemp(path) != NULL; }

/* With all that is in it. */
static inline void test_remove_folder(const char *path) {
  char command[256];
  (void)snprintf(command, sizeof(command), "rm -rf '%s'", path);
  EXPECT(system(command) == 0);
}

#endif /* INGOT_TESTS_CTS_OPENCL_DEVICE_H_ */
