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

typedef enum variant_form_t { VARIANT_PLAIN, VARIANT_COMPRESSED, VARIANT_CONTINUED } variant_form_t;

/* How the object behind a format stands in the file; the format is without saying so then. */
static variant_form_t ingot_variant_form(const char **format) {
  static const char *const marks[] = {INGOT_VARIANT_COMPRESSED, INGOT_VARIANT_CONTINUED};
  for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); ++i) {
    const size_t length = strlen(marks[i]);
    if (strncmp(*format, marks[i], length) != 0) continue;
    *format += length;
    return i == 0 ? VARIANT_COMPRESSED : VARIANT_CONTINUED;
  }
  return VARIANT_PLAIN;
}

static variant_form_t ingot_form_of(const ingot_hal_variant_t *variant) {
  const char *format = variant->format;
  return ingot_variant_form(&format);
}

bool ingot_hal_device_runs(const ingot_device_t *device, const char *format, uint64_t features) {
  (void)ingot_variant_form(&format);
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

/* The length of a variant's object; false: it is damaged. */
static bool ingot_variant_length(const ingot_hal_variant_t *variant, size_t *out_length) {
  *out_length = variant->length;
  if (ingot_form_of(variant) == VARIANT_PLAIN) return true;
  return ingot_lz4_length(variant->data, variant->length, out_length);
}

/* Writes a variant's object behind `before` bytes of those that it continues; false: it is damaged. */
static bool ingot_variant_write(const ingot_hal_variant_t *variant, uint8_t *out, size_t length,
                                size_t before) {
  const uint8_t *block = (const uint8_t *)variant->data + sizeof(uint64_t);
  if (ingot_form_of(variant) != VARIANT_PLAIN) {
    return ingot_lz4_decompress(block, variant->length - sizeof(uint64_t), out, length, before);
  }
  memcpy(out, variant->data, length);
  return true;
}

ingot_status_t ingot_hal_variant_object(const ingot_allocator_t *allocator,
                                        const ingot_hal_executable_description_t *description,
                                        const ingot_hal_variant_t *variant, void **out_object,
                                        size_t *out_length) {
  const ingot_hal_variant_t *first = variant, *each = variant;
  while (first > description->variants && ingot_form_of(first) == VARIANT_CONTINUED) first--;
  bool is_whole = true;
  size_t length = 0, all = 0;
  for (each = first; is_whole && each <= variant; each++, all += length) {
    is_whole = ingot_variant_length(each, &length) && length <= SIZE_MAX - all;
  }
  void *objects = NULL;
  if (is_whole) {
    INGOT_TRY(ingot_allocate(allocator, all, &objects));
    size_t before = 0;
    for (each = first; is_whole && each <= variant; each++, before += length) {
      is_whole = ingot_variant_length(each, &length) &&
                 ingot_variant_write(each, (uint8_t *)objects + before, length, before);
    }
  }
  if (!is_whole) {
    ingot_release_memory(allocator, objects);
    return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                               "the object of %zu bytes, or one that it continues, is damaged: it "
                               "is no block of LZ4 of its length",
                               variant->length);
  }
  memmove(objects, (uint8_t *)objects + (all - length), length);
  *out_object = objects;
  *out_length = length;
  return NULL;
}
