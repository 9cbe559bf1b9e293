/* Guards: under the sanitizer only bound bytes of a written buffer may be touched meanwhile.
 */
#include "hal/cpu/guard.h"
#include "hal/hal.h"
#include "test.h"

#if defined(INGOT_SANITIZE)
static bool is_forbidden(const ingot_buffer_t *buffer, int64_t offset) {
  return __asan_address_is_poisoned(buffer->host + offset) != 0;
}

TEST(bytes_around_bindings_are_forbidden_while_the_dispatch_runs) {
  static const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver};
  ingot_instance_t *instance = NULL;
  ingot_device_t *device = NULL;
  ingot_buffer_t *written = NULL, *read = NULL;
  REQUIRE_OK(ingot_hal_instance_create(NULL, drivers, 1, &instance));
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &device));
  REQUIRE_OK(ingot_hal_buffer_create(device, 256, &written));
  REQUIRE_OK(ingot_hal_buffer_create(device, 256, &read));

  ingot_hal_entry_t entries[1] = {{.description = {.name = "kernel", .written = 1 << 1}}};
  ingot_hal_executable_t executable = {.device = device, .entries = entries, .entry_count = 1};
  const ingot_hal_binding_t bindings[3] = {{read, 0, 8}, {written, 64, 12}, {written, 128, 8}};
  const ingot_hal_dispatch_t dispatch = {
      .executable = &executable, .binding_count = 3, .bindings = bindings};
  ingot_guard_raise(&dispatch);
  EXPECT(!is_forbidden(read, 8)); /* another session may read it */
  EXPECT(is_forbidden(written, 0) && is_forbidden(written, 63) && is_forbidden(written, 255));
  EXPECT(!is_forbidden(written, 64) && !is_forbidden(written, 75) && is_forbidden(written, 76));
  EXPECT(!is_forbidden(written, 135) && is_forbidden(written, 136));
  ingot_guard_lower(&dispatch);
  for (int64_t i = 0; i < 256; i++) EXPECT(!is_forbidden(written, i));

  ingot_hal_buffer_release(read);
  ingot_hal_buffer_release(written);
  ingot_hal_device_release(device);
  ingot_hal_instance_release(instance);
}
#endif

int main(void) {
#if defined(INGOT_SANITIZE)
  RUN_TESTS();
#endif
  return TEST_RESULT();
}
