/* The CPU device: its options, its features, its thread pool. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hal/cpu/cpu.h"
#include "hal/cpu/device_options.h"
#include "hal/cpu/features.h"
#include "platform/platform.h"

#if defined(INGOT_NO_LOADER)
#define INGOT_CPU_FORMAT NULL
#elif defined(__x86_64__)
#define INGOT_CPU_FORMAT "elf-x86_64"
#elif defined(__aarch64__)
#define INGOT_CPU_FORMAT "elf-aarch64"
#elif defined(__arm__)
#define INGOT_CPU_FORMAT "elf-arm"
#elif defined(__riscv) && __riscv_xlen == 64
#define INGOT_CPU_FORMAT "elf-riscv64"
#elif defined(__wasm__)
#define INGOT_CPU_FORMAT "wasm32"
#else
#define INGOT_CPU_FORMAT NULL
#endif

static const char *ingot_cpu_device_uri(ingot_instance_t *instance, void **state,
                                        uint32_t ordinal) {
  (void)instance;
  (void)state;
  return ordinal == 0 ? "cpu" : NULL;
}

static void ingot_cpu_device_destroy(ingot_device_t *base) {
  ingot_hal_cpu_device_t *device = (ingot_hal_cpu_device_t *)base;
  ingot_instance_t *instance = base->instance;
  ingot_hal_cpu_pool_destroy(device->pool);
  ingot_hal_cpu_device_trim(base);
  ingot_release_memory(&instance->allocator, device);
  ingot_hal_instance_release(instance);
}

#if defined(INGOT_NO_THREADS)
#define INGOT_CPU_THREAD_BEGIN NULL
#else
#define INGOT_CPU_THREAD_BEGIN ingot_cpu_thread_begin
static void ingot_cpu_thread_begin(void *device) {
  const ingot_hal_cpu_device_t *cpu = device;
  ingot_hal_cpu_place_thread(&cpu->options, &cpu->base.instance->log);
}
#endif

static const ingot_hal_device_vtable_t ingot_cpu_device_vtable = {
    .destroy = ingot_cpu_device_destroy,
    .thread_begin = INGOT_CPU_THREAD_BEGIN,
    .trim = ingot_hal_cpu_device_trim,
    .permit = ingot_hal_cpu_permits,
    .buffer_create = ingot_hal_cpu_buffer_create,
    .buffer_wrap = ingot_hal_cpu_buffer_wrap,
    .executable_create = ingot_hal_cpu_executable_create,
    .queue_create = ingot_hal_cpu_queue_create,
    .queue_destroy = ingot_hal_cpu_queue_destroy,
    .queue_wait = ingot_hal_cpu_queue_wait,
    .queue_dispatch = ingot_hal_cpu_queue_dispatch,
    .queue_copy = ingot_hal_cpu_queue_copy,
    .queue_fill = ingot_hal_cpu_queue_fill,
    .queue_write = ingot_hal_cpu_queue_write,
    .queue_read = ingot_hal_cpu_queue_read,
};

static void ingot_cpu_describe(ingot_hal_cpu_device_t *device) {
  char features[64];
  ingot_hal_cpu_features_text(device->base.features, features, sizeof(features));
  (void)snprintf(device->description, sizeof(device->description), "%s, %u thread%s", features,
                 device->base.thread_count, device->base.thread_count == 1 ? "" : "s");
  device->base.description = device->description;
}

/* Threads of the application's have their processors and priorities already. */
static ingot_status_t ingot_cpu_check_pool(const ingot_allocator_t *allocator,
                                           const ingot_hal_uri_t *uri,
                                           const ingot_hal_cpu_options_t *own,
                                           const ingot_thread_pool_t *pool) {
  const char *wrong = NULL;
  if (!pool->count) wrong = "its function count is NULL";
  else if (!pool->schedule) wrong = "its function schedule is NULL";
  else if (own->is_bound || own->priority || own->is_calm)
    wrong = "affinity=, priority= and spin= are for threads of the device's own; leave them out";
  if (!wrong) return NULL;
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "device '%.100s' with a thread_pool: %s", uri->text, wrong);
}

/* How many processors there are for the device. */
static uint32_t ingot_cpu_available(const ingot_hal_cpu_options_t *own,
                                    const ingot_thread_pool_t *pool) {
  uint32_t count = 0;
  if (pool) count = pool->count(pool->user) + 1;
  else if (own->is_bound) {
    for (uint32_t p = 0; p < 1024; ++p) count += ingot_processor_set_has(&own->processors, p);
  } else {
    count = ingot_processor_count();
  }
  return count < INGOT_HAL_CPU_MAX_THREADS ? count : INGOT_HAL_CPU_MAX_THREADS;
}

static ingot_status_t ingot_cpu_device_create(ingot_instance_t *instance,
                                              const ingot_hal_uri_t *uri,
                                              const ingot_device_options_t *options,
                                              ingot_device_t **out_device) {
  const ingot_allocator_t *allocator = &instance->allocator;
  const ingot_thread_pool_t *pool = options->thread_pool;
  ingot_hal_cpu_options_t own;
  INGOT_TRY(ingot_hal_cpu_read_options(allocator, uri, &own));
  if (pool) INGOT_TRY(ingot_cpu_check_pool(allocator, uri, &own, pool));
  uint32_t available = ingot_cpu_available(&own, pool);
  if (own.thread_count == 0 || (pool && own.thread_count > available)) own.thread_count = available;
  void *memory;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_hal_cpu_device_t), &memory));
  ingot_hal_cpu_device_t *device = memory;
  if (own.thread_count > 1 || pool) {
    ingot_status_t status = ingot_hal_cpu_pool_create(
        allocator, &instance->log, &own, own.thread_count <= available, pool, &device->pool);
    if (status) {
      ingot_release_memory(allocator, device);
      return status;
    }
  }
  device->base.vtable = &ingot_cpu_device_vtable;
  ingot_reference_count_initialize(&device->base.references);
  device->base.instance = instance;
  device->base.target = "cpu";
  device->base.format = INGOT_CPU_FORMAT;
  device->base.features = ingot_hal_cpu_features();
  device->base.slow_features = ingot_hal_cpu_slow_features(device->base.features);
  device->base.thread_count = own.thread_count;
  device->options = own;
  device->has_lent_threads = pool != NULL;
  device->base.call_count = own.thread_count;
  device->base.can_spin = own.thread_count <= available && available > 1 && !own.is_calm;
  device->base.memory_length = ingot_memory_length();
  ingot_cpu_describe(device);
  ingot_hal_instance_retain(instance);
  *out_device = &device->base;
  return NULL;
}

const ingot_hal_driver_t ingot_hal_cpu_driver = {
    .scheme = "cpu",
    .device_uri = ingot_cpu_device_uri,
    .device_create = ingot_cpu_device_create,
};
