/* Memory of other APIs: what a device without the extensions says, and, on the shim's stand-in for
 * dma-buf (a file descriptor that is mapped), that bytes are shared and handed over. No device here
 * has the extension itself.
 */
#define _GNU_SOURCE /* memfd_create */
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hal/hal.h"
#include "ingot/opencl.h"
#include "opencl_device.h"
#include "shim.h"
#include "test.h"

static const ingot_driver_t *drivers[1];
static shim_state_t *shim;

static ingot_status_t open_device(const char *uri, ingot_instance_t **instance,
                                  ingot_device_t **device) {
  const ingot_instance_options_t options = {.drivers = drivers, .driver_count = 1};
  *instance = NULL;
  *device = NULL;
  INGOT_TRY(ingot_instance_create(&options, instance));
  return ingot_device_create(*instance, uri, NULL, device);
}

TEST(a_device_without_the_extension_names_it) {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_device_t *cpu = NULL;
  ingot_buffer_t *buffer = NULL;
  REQUIRE_OK(open_device("opencl://0?cache=off", &instance, &device));
  REQUIRE_OK(ingot_device_create(instance, "cpu", NULL, &cpu));
  EXPECT_STATUS(ingot_opencl_buffer_import(device, INGOT_OPENCL_DMA_BUF, 3, 64, &buffer),
                UNSUPPORTED, "the device has no cl_khr_external_memory_dma_buf: copy the bytes");
  EXPECT_STATUS(ingot_opencl_buffer_import(device, INGOT_OPENCL_HARDWARE_BUFFER, 3, 64, &buffer),
                UNSUPPORTED, "cl_khr_external_memory_android_hardware_buffer");
  EXPECT_STATUS(ingot_opencl_buffer_import(device, 9, 3, 64, &buffer), INVALID_ARGUMENT,
                "import of 64 bytes of kind 9: expected bytes, a kind from 1 to 3");
  EXPECT_STATUS(ingot_opencl_buffer_import(cpu, INGOT_OPENCL_DMA_BUF, 3, 64, &buffer),
                INVALID_ARGUMENT, "a device of OpenCL");
  REQUIRE_OK(ingot_buffer_create(device, 64, &buffer));
  EXPECT_STATUS(ingot_opencl_buffer_hand_over(buffer, true), INVALID_ARGUMENT,
                "not made by ingot_opencl_buffer_import");
  ingot_buffer_release(buffer);
  ingot_device_release(cpu);
  ingot_device_release(device);
  ingot_instance_release(instance);
}

TEST(imported_bytes_are_shared_and_handed_over) {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_buffer_t *buffer = NULL;
  uint8_t got[4] = {0};
  const uint8_t more[4] = {9, 8, 7, 6};
  int file = memfd_create("ingot", 0);
  REQUIRE(file >= 0 && ftruncate(file, 4096) == 0);
  uint8_t *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(bytes != MAP_FAILED);
  memcpy(bytes, "abcd", 4);
  shim->is_external = true;
  REQUIRE_OK(open_device("opencl://0?cache=off&library=" OPENCL_SHIM, &instance, &device));
  REQUIRE_OK(
      ingot_opencl_buffer_import(device, INGOT_OPENCL_DMA_BUF, (uintptr_t)file, 4096, &buffer));
  EXPECT_EQUAL(shim->acquired, 1);
  EXPECT_EQUAL(ingot_buffer_length(buffer), 4096);
  EXPECT_OK(ingot_buffer_read(buffer, 0, got, 4));
  EXPECT(memcmp(got, "abcd", 4) == 0);
  EXPECT_OK(ingot_buffer_write(buffer, 4, more, 4));
  EXPECT_OK(ingot_opencl_buffer_hand_over(buffer, false));
  EXPECT_EQUAL(shim->acquired, 0);
  EXPECT(memcmp(bytes + 4, more, 4) == 0);
  memcpy(bytes, "efgh", 4);
  EXPECT_OK(ingot_opencl_buffer_hand_over(buffer, true));
  EXPECT_OK(ingot_buffer_read(buffer, 0, got, 4));
  EXPECT(memcmp(got, "efgh", 4) == 0);
  ingot_buffer_release(buffer);
  buffer = NULL;
  EXPECT_STATUS(ingot_opencl_buffer_import(device, INGOT_OPENCL_DMA_BUF, 9999, 4096, &buffer),
                INTERNAL, "clCreateBufferWithProperties");
  EXPECT_STATUS(ingot_opencl_buffer_import(device, INGOT_OPENCL_OPAQUE_FD, 3, 64, &buffer),
                UNSUPPORTED, "cl_khr_external_memory_opaque_fd");
  ingot_device_release(device);
  ingot_instance_release(instance);
  (void)munmap(bytes, 4096);
  (void)close(file);
}

int main(void) {
  void *handle = dlopen(OPENCL_SHIM, RTLD_NOW | RTLD_LOCAL);
  void *symbol = handle ? dlsym(handle, SHIM_STATE_NAME) : NULL;
  shim_state_function_t function;
  if (!test_has_opencl()) return TEST_SKIPPED();
  if (!symbol) return 1;
  memcpy(&function, &symbol, sizeof(symbol));
  shim = function();
  drivers[0] = ingot_opencl_driver();
  RUN_TESTS();
  return TEST_RESULT();
}
