/* The CPU device: its options, its features, its thread pool. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hal/cpu/cpu.h"
#include "hal/cpu/features.h"
#include "platform/platform.h"

#define INGOT_CPU_MAX_THREADS 1024

static const char *ingot_cpu_device_uri(ingot_instance_t *instance, void **state,
                                        uint32_t ordinal) {
  (void)instance;
  (void)state;
  return ordinal == 0 ? "cpu" : NULL;
}

/* Reads "threads=COUNT", the driver's only option. *threads stays if it is not there. */
static ingot_status_t ingot_cpu_parse_options(const ingot_allocator_t *allocator,
                                              const ingot_hal_uri_t *uri, uint32_t *threads) {
  if (uri->path_length > 0) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "device '%.100s': the cpu has no path; write options as "
                               "'cpu://?threads=4'",
                               uri->text);
  }
  for (const char *option = uri->query; *option;) {
    size_t length = strcspn(option, "&");
    if (length < 8 || memcmp(option, "threads=", 8) != 0) {
      return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                 "device '%.100s': unknown option at '%.60s', expected "
                                 "threads=COUNT",
                                 uri->text, option);
    }
    uint32_t value = 0;
    size_t digit = 8;
    for (; digit < length && option[digit] >= '0' && option[digit] <= '9' && digit < 16; digit++) {
      value = value * 10 + (uint32_t)(option[digit] - '0');
    }
    if (digit != length || digit == 8 || value < 1 || value > INGOT_CPU_MAX_THREADS) {
      return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                 "device '%.100s': bad option '%.60s', expected threads= and a "
                                 "number from 1 to %d",
                                 uri->text, option, INGOT_CPU_MAX_THREADS);
    }
    *threads = value;
    option += length + (option[length] == '&');
  }
  return NULL;
}

static void ingot_cpu_device_destroy(ingot_device_t *base) {
  ingot_hal_cpu_device_t *device = (ingot_hal_cpu_device_t *)base;
  ingot_instance_t *instance = base->instance;
  ingot_hal_cpu_pool_destroy(device->pool);
  ingot_hal_cpu_device_trim(base);
  ingot_release_memory(&instance->allocator, device);
  ingot_hal_instance_release(instance);
}

static const ingot_hal_device_vtable_t ingot_cpu_device_vtable = {
    .destroy = ingot_cpu_device_destroy,
    .trim = ingot_hal_cpu_device_trim,
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

static ingot_status_t ingot_cpu_device_create(ingot_instance_t *instance,
                                              const ingot_hal_uri_t *uri,
                                              const ingot_device_options_t *options,
                                              ingot_device_t **out_device) {
  const ingot_allocator_t *allocator = &instance->allocator;
  uint32_t available = ingot_processor_count();
  uint32_t threads = available < INGOT_CPU_MAX_THREADS ? available : INGOT_CPU_MAX_THREADS;
  INGOT_TRY(ingot_cpu_parse_options(allocator, uri, &threads));
  void *memory;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_hal_cpu_device_t), &memory));
  ingot_hal_cpu_device_t *device = memory;
  if (threads > 1) {
    ingot_status_t status =
        ingot_hal_cpu_pool_create(allocator, &instance->log, threads - 1,
                                  threads <= available && !options->no_spin, &device->pool);
    if (status) {
      ingot_release_memory(allocator, device);
      return status;
    }
  }
  device->base.vtable = &ingot_cpu_device_vtable;
  ingot_reference_count_initialize(&device->base.references);
  device->base.instance = instance;
  device->base.target = "cpu";
  device->base.features = ingot_hal_cpu_features();
  device->base.thread_count = threads;
  device->base.call_count = threads;
  device->base.can_spin = threads <= available && available > 1 && !options->no_spin;
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
