/* Executables: creation, the choice of the variant, and the variant for the host. */
#include <string.h>

#include "base/lz4.h"
#include "base/text.h"
#include "hal/hal.h"
#include "ingot/module_layout.h"

static ingot_status_t ingot_hal_check_entries(
    ingot_device_t *device, const ingot_hal_executable_description_t *description) {
  for (uint32_t e = 0; e < description->entry_count; e++) {
    const ingot_hal_entry_description_t *entry = &description->entries[e];
    if (entry->binding_count > INGOT_HAL_MAX_BINDINGS) {
      return ingot_status_create(ingot_hal_device_allocator(device), INGOT_STATUS_INVALID_ARGUMENT,
                                 "kernel '%s' has %u bindings, expected at most %d", entry->name,
                                 entry->binding_count, INGOT_HAL_MAX_BINDINGS);
    }
  }
  return NULL;
}

/* The device's host device; made once. */
static ingot_status_t ingot_hal_host_device(ingot_device_t *device, ingot_device_t **out_host) {
  ingot_instance_t *instance = device->instance;
  ingot_mutex_lock(&instance->mutex);
  *out_host = device->host;
  ingot_mutex_unlock(&instance->mutex);
  if (*out_host) return NULL;
  ingot_device_t *host = NULL;
  INGOT_TRY(ingot_hal_device_create(instance, "cpu", NULL, &host));
  ingot_mutex_lock(&instance->mutex);
  ingot_device_t *superfluous = device->host ? host : NULL; /* another thread was faster */
  if (!superfluous) device->host = host;
  *out_host = device->host;
  ingot_mutex_unlock(&instance->mutex);
  ingot_hal_device_release(superfluous);
  return NULL;
}

ingot_status_t ingot_hal_executable_load_host(
    ingot_hal_executable_t *executable, const ingot_hal_executable_description_t *description) {
  if (executable->host) return NULL;
  ingot_device_t *host = NULL;
  INGOT_TRY(
      ingot_status_prefix(ingot_hal_host_device(executable->device, &host), "the device for it"));
  return ingot_status_prefix(ingot_hal_executable_create(host, description, &executable->host),
                             "its variant for the host");
}

/* Brings the other variant for what the device cannot run, and says so: never silently. */
static ingot_status_t ingot_hal_load_host_entries(
    ingot_hal_executable_t *executable, const ingot_hal_executable_description_t *description) {
  for (uint32_t e = 0; e < executable->entry_count; e++) {
    const ingot_hal_entry_t *entry = &executable->entries[e];
    if (!entry->host_reason[0]) continue;
    const char *layer = entry->description.layer ? entry->description.layer : "";
    INGOT_TRY(ingot_status_prefix(ingot_hal_executable_load_host(executable, description),
                                  "kernel '%s' of layer '%s' cannot run on this device (%s), nor "
                                  "on the host",
                                  entry->description.name, layer, entry->host_reason));
    ingot_log(&executable->device->instance->log, INGOT_LOG_WARNING,
              "kernel '%s' of layer '%s' runs on the host: %s", entry->description.name, layer,
              entry->host_reason);
  }
  return NULL;
}

ingot_status_t ingot_hal_executable_create(ingot_device_t *device,
                                           const ingot_hal_executable_description_t *description,
                                           ingot_hal_executable_t **out_executable) {
  INGOT_TRY(ingot_hal_check_entries(device, description));
  ingot_hal_executable_t *executable = NULL;
  ingot_status_t status = device->vtable->executable_create(device, description, &executable);
  if (!status) status = ingot_hal_load_host_entries(executable, description);
  if (status) {
    ingot_hal_executable_destroy(executable);
    return ingot_status_prefix(status, "kernels '%s'", description->name);
  }
  *out_executable = executable;
  return NULL;
}

void ingot_hal_executable_destroy(ingot_hal_executable_t *executable) {
  if (!executable) return;
  ingot_hal_executable_destroy(executable->host);
  executable->vtable->destroy(executable);
}

/* Whether the object behind a format is compressed; the format is without saying so then. */
static bool ingot_format_compressed(const char **format) {
  const size_t length = sizeof(INGOT_VARIANT_COMPRESSED) - 1;
  if (strncmp(*format, INGOT_VARIANT_COMPRESSED, length) != 0) return false;
  *format += length;
  return true;
}

bool ingot_hal_device_runs(const ingot_device_t *device, const char *format, uint64_t features) {
  (void)ingot_format_compressed(&format);
  return device->format && strcmp(device->format, format) == 0 && !(features & ~device->features);
}

bool ingot_hal_device_avoids(const ingot_device_t *device, uint64_t features) {
  return (features & device->slow_features) != 0;
}

static bool ingot_variant_permitted(ingot_device_t *device, const ingot_hal_variant_t *variant) {
  if (!device->vtable->permit || device->vtable->permit(variant->features)) return true;
  ingot_log(&device->instance->log, INGOT_LOG_WARNING,
            "the system does not permit variant '%s', which is left out", variant->name);
  return false;
}

ingot_status_t ingot_hal_variant_select(ingot_device_t *device,
                                        const ingot_hal_executable_description_t *description,
                                        const char *options,
                                        const ingot_hal_variant_t **out_variant) {
  char names[160] = "";
  bool is_known = false; /* right format, but too demanding */
  *out_variant = NULL;
  for (uint32_t v = 0; v < description->variant_count; v++) {
    const ingot_hal_variant_t *variant = &description->variants[v];
    if (ingot_hal_device_runs(device, variant->format, variant->features) &&
        ingot_variant_permitted(device, variant)) {
      const bool is_last = ingot_hal_device_avoids(device, variant->features);
      if (!is_last || !*out_variant) *out_variant = variant;
      if (!is_last) return NULL;
    }
    if (ingot_hal_device_runs(device, variant->format, 0)) is_known = true;
    (void)ingot_text_add(names, sizeof(names), "%s%s", v ? ", " : "", variant->name);
  }
  if (*out_variant) return NULL;
  return ingot_status_create(
      ingot_hal_device_allocator(device), INGOT_STATUS_UNSUPPORTED,
      "the module has code for %s, which %s this device (%s): compile with %s",
      names[0] ? names : "no variant", is_known ? "use instructions that are not in" : "is not for",
      device->description, options);
}

ingot_status_t ingot_hal_variant_object(const ingot_allocator_t *allocator,
                                        const ingot_hal_variant_t *variant, void **out_object,
                                        size_t *out_length) {
  const char *format = variant->format;
  const bool is_compressed = ingot_format_compressed(&format);
  size_t length = variant->length;
  if (is_compressed && !ingot_lz4_length(variant->data, variant->length, &length)) {
    return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                               "the object of %zu bytes is damaged: it cannot hold %zu",
                               variant->length, length);
  }
  void *object;
  INGOT_TRY(ingot_allocate(allocator, length, &object));
  const uint8_t *block = (const uint8_t *)variant->data + sizeof(uint64_t);
  if (!is_compressed) {
    memcpy(object, variant->data, variant->length);
  } else if (!ingot_lz4_decompress(block, variant->length - sizeof(uint64_t), object, length)) {
    ingot_release_memory(allocator, object);
    return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                               "the object of %zu bytes is damaged: it is no block of LZ4",
                               variant->length);
  }
  *out_object = object;
  *out_length = length;
  return NULL;
}
