/* Executables: creation, counting, and the choice of the variant. */
#include <inttypes.h>
#include <string.h>

#include "hal/hal.h"

static ingot_status_t ingot_hal_check_entries(
    ingot_device_t *device, const ingot_hal_executable_description_t *description) {
  for (uint32_t e = 0; e < description->entry_count; e++) {
    const ingot_hal_entry_description_t *entry = &description->entries[e];
    if (entry->binding_count > INGOT_HAL_MAX_BINDINGS) {
      return ingot_status_create(ingot_hal_device_allocator(device),
                                 INGOT_STATUS_INVALID_ARGUMENT,
                                 "kernel '%s' has %u bindings, expected at most %d", entry->name,
                                 entry->binding_count, INGOT_HAL_MAX_BINDINGS);
    }
  }
  return NULL;
}

ingot_status_t ingot_hal_executable_create(ingot_device_t *device,
                                           const ingot_hal_executable_description_t *description,
                                           ingot_hal_executable_t **out_executable) {
  INGOT_TRY(ingot_hal_check_entries(device, description));
  return ingot_status_prefix(
      device->vtable->executable_create(device, description, out_executable), "kernels '%s'",
      description->name);
}

void ingot_hal_executable_retain(ingot_hal_executable_t *executable) {
  ingot_reference_count_retain(&executable->references);
}

void ingot_hal_executable_release(ingot_hal_executable_t *executable) {
  if (executable && ingot_reference_count_release(&executable->references)) {
    executable->vtable->destroy(executable);
  }
}

static bool ingot_hal_format_is_known(const char *const *formats, const char *format) {
  while (*formats && strcmp(*formats, format) != 0) formats++;
  return *formats != NULL;
}

ingot_status_t ingot_hal_variant_select(ingot_device_t *device,
                                        const ingot_hal_executable_description_t *description,
                                        const char *const *formats,
                                        const ingot_hal_variant_t **out_variant) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(device);
  const ingot_hal_variant_t *nearest = NULL; /* right format, but too demanding */
  for (uint32_t v = 0; v < description->variant_count; v++) {
    const ingot_hal_variant_t *variant = &description->variants[v];
    if (!ingot_hal_format_is_known(formats, variant->format)) continue;
    nearest = variant;
    if (variant->features & ~device->features) continue;
    *out_variant = variant;
    return NULL;
  }
  if (nearest) {
    return ingot_status_create(allocator, INGOT_STATUS_UNSUPPORTED,
                               "the least demanding variant, '%s', needs features 0x%" PRIx64
                               ", but this device (%s) has 0x%" PRIx64
                               ": compile for this machine",
                               nearest->name, nearest->features, device->description,
                               device->features);
  }
  return ingot_status_create(allocator, INGOT_STATUS_UNSUPPORTED,
                             "none of the %u variants is code for this device (%s), which runs "
                             "'%s'%s: compile for this machine",
                             description->variant_count, device->description,
                             formats[0] ? formats[0] : "statically linked kernels",
                             description->variant_count ? "" : " (the module has none)");
}
