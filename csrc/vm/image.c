/* Images: executables loaded, constants wrapped.
 */
#include "vm/image.h"

#include <string.h>

#include "hal/account.h"

static const ingot_allocator_t *image_allocator(const ingot_vm_image_t *image) {
  return ingot_hal_device_allocator(image->device);
}

bool ingot_vm_image_has_target(const ingot_vm_image_t *image, uint32_t target) {
  return strcmp(ingot_module_string(image->module, target), image->device->target) == 0;
}

bool ingot_vm_image_is_init(const ingot_vm_image_t *image,
                            const ingot_layout_function_t *function) {
  return (function->flags & INGOT_FUNCTION_INIT) &&
         ingot_vm_image_has_target(image, function->target);
}

/* -- executables ----------------------------------------------------------------------------- */

/* Describes executable `ordinal` in the caller's arrays and loads it. */
static ingot_status_t load_executable(ingot_vm_image_t *image, uint32_t ordinal,
                                      ingot_hal_entry_description_t *entries,
                                      ingot_hal_variant_t *variants) {
  const ingot_module_t *module = image->module;
  const ingot_layout_executable_t *layout = &module->executables[ordinal];
  for (uint32_t e = 0; e < layout->entry_count; ++e) {
    const ingot_layout_entry_t *entry = &module->entries[layout->first_entry + e];
    entries[e] = (ingot_hal_entry_description_t){
        .name = ingot_module_string(module, entry->name),
        .layer = ingot_module_string(module, entry->layer),
        .binding_count = entry->binding_count,
        .constant_count = entry->constant_count,
        .written = entry->written,
    };
  }
  for (uint32_t v = 0; v < layout->variant_count; ++v) {
    const ingot_layout_variant_t *variant = &module->variants[layout->first_variant + v];
    variants[v] = (ingot_hal_variant_t){
        .name = ingot_module_string(module, variant->name),
        .format = ingot_module_string(module, variant->format),
        .features = variant->features,
        .data = module->objects + variant->offset,
        .length = (size_t)variant->length,
    };
  }
  ingot_hal_executable_description_t description = {
      .name = ingot_module_string(module, layout->name),
      .entries = entries,
      .entry_count = layout->entry_count,
      .variant_count = layout->variant_count,
      .variants = variants,
  };
  return ingot_hal_executable_create(image->device, &description, &image->executables[ordinal]);
}

static ingot_status_t load_executables(ingot_vm_image_t *image) {
  const ingot_module_t *module = image->module;
  void *entries = NULL;
  void *variants = NULL;
  ingot_status_t status = ingot_allocate_array(image_allocator(image), module->entry_count,
                                               sizeof(ingot_hal_entry_description_t), &entries);
  if (!status) {
    status = ingot_allocate_array(image_allocator(image), module->variant_count,
                                  sizeof(ingot_hal_variant_t), &variants);
  }
  for (uint32_t i = 0; !status && i < module->executable_count; ++i) {
    if (!ingot_vm_image_has_target(image, module->executables[i].target)) continue;
    status = load_executable(image, i, entries, variants);
  }
  ingot_release_memory(image_allocator(image), variants);
  ingot_release_memory(image_allocator(image), entries);
  return status;
}

/* -- lifetime -------------------------------------------------------------------------------- */

ingot_status_t ingot_vm_image_initialize(ingot_vm_image_t *image, ingot_device_t *device,
                                         ingot_hal_account_t *account, ingot_module_t *module) {
  image->account = account;
  image->module = module;
  image->device = device;
  ingot_module_retain(module);
  ingot_hal_device_retain(device);
  void *executables = NULL;
  INGOT_TRY(ingot_allocate_array(image_allocator(image), module->executable_count, sizeof(void *),
                                 &executables));
  image->executables = executables;
  const void *constants = module->constants ? module->constants : module->data;
  INGOT_TRY(ingot_hal_buffer_wrap(device, (void *)(uintptr_t)constants,
                                  (int64_t)module->constants_length, INGOT_HAL_ACCESS_READ, NULL,
                                  NULL, &image->constants));
  INGOT_TRY(ingot_hal_account_add(account, INGOT_MEMORY_CONSTANTS, image->constants));
  return load_executables(image);
}

void ingot_vm_image_deinitialize(ingot_vm_image_t *image) {
  if (!image->module) return; /* never initialized */
  const ingot_allocator_t *allocator = image_allocator(image);
  for (uint32_t i = 0; image->executables && i < image->module->executable_count; ++i) {
    ingot_hal_executable_destroy(image->executables[i]);
  }
  ingot_hal_buffer_release(image->constants);
  ingot_release_memory(allocator, image->natives);
  ingot_release_memory(allocator, image->executables);
  ingot_module_release(image->module);
  ingot_hal_device_release(image->device); /* last: it keeps the allocator alive */
}
