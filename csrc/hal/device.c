/* Devices: found by URI, counted. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "hal/hal.h"

static ingot_hal_uri_t ingot_hal_uri_split(const char *text) {
  ingot_hal_uri_t uri = {.text = text, .scheme = text};
  const char *separator = strstr(text, "://");
  uri.scheme_length = separator ? (size_t)(separator - text) : strlen(text);
  uri.path = separator ? separator + 3 : text + uri.scheme_length;
  uri.path_length = strcspn(uri.path, "?");
  uri.query = uri.path + uri.path_length;
  if (*uri.query == '?') uri.query++;
  return uri;
}

/* NotFound, with the schemes that exist. */
static ingot_status_t ingot_hal_device_unknown(ingot_instance_t *instance, const char *uri) {
  char known[128] = "";
  for (uint32_t d = 0; d < instance->driver_count; d++) {
    (void)ingot_text_add(known, sizeof(known), "%s%s", d > 0 ? ", " : "",
                         instance->drivers[d]->scheme);
  }
  return ingot_status_create(&instance->allocator, INGOT_STATUS_NOT_FOUND,
                             "no driver for device '%.100s': expected a URI like 'cpu', "
                             "'cpu://?threads=4' or 'opencl://0'; drivers in this build: %s",
                             uri, known[0] ? known : "none");
}

ingot_status_t ingot_hal_device_create(ingot_instance_t *instance, const char *uri,
                                       const ingot_device_options_t *options,
                                       ingot_device_t **out_device) {
  static const ingot_device_options_t no_options = {.thread_pool = NULL};
  ingot_hal_uri_t parts = ingot_hal_uri_split(uri);
  for (uint32_t d = 0; d < instance->driver_count; d++) {
    const ingot_hal_driver_t *driver = instance->drivers[d];
    if (strlen(driver->scheme) == parts.scheme_length &&
        memcmp(driver->scheme, parts.scheme, parts.scheme_length) == 0) {
      return driver->device_create(instance, &parts, options ? options : &no_options, out_device);
    }
  }
  return ingot_hal_device_unknown(instance, uri);
}

void ingot_hal_device_retain(ingot_device_t *device) {
  ingot_reference_count_retain(&device->references);
}

void ingot_hal_device_release(ingot_device_t *device) {
  if (device && ingot_reference_count_release(&device->references)) {
    ingot_executor_destroy(device->executor); /* first: its threads use the rest */
    ingot_hal_device_release(device->host);
    device->vtable->destroy(device);
  }
}

ingot_status_t ingot_hal_device_executor(ingot_device_t *device, ingot_executor_t **out_executor) {
  ingot_executor_t *executor = atomic_load(&device->executor);
  if (!executor) {
    ingot_mutex_lock(&device->instance->mutex);
    executor = atomic_load(&device->executor);
    ingot_status_t status =
        executor ? NULL
                 : ingot_executor_create(ingot_hal_device_allocator(device), device->call_count,
                                         device->can_spin, device->vtable->thread_begin, device,
                                         &executor);
    atomic_store(&device->executor, executor);
    ingot_mutex_unlock(&device->instance->mutex);
    if (status) return status;
  }
  INGOT_TRY(ingot_executor_reserve(executor));
  *out_executor = executor;
  return NULL;
}

void ingot_hal_device_trim(ingot_device_t *device) {
  if (device->vtable->trim) device->vtable->trim(device);
}

ingot_status_t ingot_hal_device_check_memory(const ingot_device_t *device, int64_t length) {
  if (device->memory_length == 0 || length <= device->memory_length) return NULL;
  return ingot_status_create(ingot_hal_device_allocator(device), INGOT_STATUS_OUT_OF_MEMORY,
                             "%" PRId64
                             " bytes of memory are asked for, but the device has no "
                             "more than %" PRId64 ": check the sizes that the call computes with",
                             length, device->memory_length);
}
