/* Images: executables loaded, constants wrapped, and the three things that init does.
 */
#include "vm/image.h"

#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"

static const ingot_allocator_t *image_allocator(const ingot_vm_image_t *image) {
  return ingot_hal_device_allocator(image->device);
}

bool ingot_vm_image_has_target(const ingot_vm_image_t *image, uint32_t target) {
  return strcmp(ingot_module_string(image->module, target), image->device->target) == 0;
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
                                         ingot_module_t *module,
                                         const ingot_parameter_span_t *spans) {
  *image = (ingot_vm_image_t){.module = module, .device = device, .parameter_spans = spans};
  ingot_module_retain(module);
  ingot_hal_device_retain(device);
  const ingot_allocator_t *allocator = image_allocator(image);
  void *executables = NULL;
  void *globals = NULL;
  void *parameters = NULL;
  INGOT_TRY(
      ingot_allocate_array(allocator, module->executable_count, sizeof(void *), &executables));
  image->executables = executables;
  INGOT_TRY(ingot_allocate_array(allocator, module->global_count, sizeof(void *), &globals));
  image->globals = globals;
  INGOT_TRY(ingot_allocate_array(allocator, module->parameter_count, sizeof(void *), &parameters));
  image->parameters = parameters;
  const void *constants = module->constants ? module->constants : module->data;
  INGOT_TRY(ingot_hal_buffer_wrap(device, (void *)(uintptr_t)constants,
                                  (int64_t)module->constants_length, INGOT_HAL_ACCESS_READ, NULL,
                                  NULL, &image->constants));
  return load_executables(image);
}

void ingot_vm_image_finish_init(ingot_vm_image_t *image) {
  if (!image->parameters) return;
  for (uint32_t i = 0; i < image->module->parameter_count; ++i) {
    ingot_hal_buffer_release(image->parameters[i]);
  }
  ingot_release_memory(image_allocator(image), image->parameters);
  image->parameters = NULL;
  image->parameter_spans = NULL;
  /* What init alone needed of the constants need not stay on the device. */
  if (image->constants) ingot_hal_buffer_trim(image->constants);
}

void ingot_vm_image_deinitialize(ingot_vm_image_t *image) {
  if (!image->module) return; /* never initialized */
  const ingot_allocator_t *allocator = image_allocator(image);
  ingot_vm_image_finish_init(image);
  for (uint32_t i = 0; image->globals && i < image->module->global_count; ++i) {
    ingot_hal_buffer_release(image->globals[i]);
  }
  for (uint32_t i = 0; i < image->arena_count; ++i) ingot_hal_buffer_release(image->arenas[i]);
  for (uint32_t i = 0; image->executables && i < image->module->executable_count; ++i) {
    ingot_hal_executable_release(image->executables[i]);
  }
  ingot_hal_buffer_release(image->constants);
  ingot_release_memory(allocator, image->natives);
  ingot_release_memory(allocator, image->globals);
  ingot_release_memory(allocator, image->arenas);
  ingot_release_memory(allocator, image->executables);
  ingot_module_release(image->module);
  ingot_hal_device_release(image->device); /* last: it keeps the allocator alive */
}

/* -- init -------------------------------------------------------------------------------------- */

ingot_status_t ingot_vm_image_parameter(ingot_vm_image_t *image, uint32_t parameter,
                                        ingot_buffer_t **out_buffer) {
  if (!image->parameters[parameter]) {
    const ingot_parameter_span_t *span = &image->parameter_spans[parameter];
    size_t alignment = ingot_dtype_length(span->dtype);
    ingot_buffer_t *buffer = NULL;
    if ((uintptr_t)span->data % alignment == 0) {
      INGOT_TRY(ingot_hal_buffer_wrap(image->device, (void *)(uintptr_t)span->data,
                                      (int64_t)span->length, INGOT_HAL_ACCESS_READ, NULL, NULL,
                                      &buffer));
    } else { /* kernels rely on aligned elements; files do not */
      INGOT_TRY(ingot_hal_buffer_create(image->device, (int64_t)span->length, &buffer));
      ingot_status_t status = ingot_hal_buffer_write(buffer, 0, (int64_t)span->length, span->data);
      if (status) {
        ingot_hal_buffer_release(buffer);
        return status;
      }
    }
    image->parameters[parameter] = buffer;
  }
  *out_buffer = image->parameters[parameter];
  return NULL;
}

ingot_status_t ingot_vm_image_arena(ingot_vm_image_t *image, ingot_hal_queue_t *queue,
                                    int64_t length, ingot_buffer_t **out_buffer) {
  void *arenas = image->arenas;
  INGOT_TRY(ingot_reallocate_array(image_allocator(image), (size_t)image->arena_count + 1,
                                   sizeof(*image->arenas), &arenas));
  image->arenas = arenas;
  ingot_buffer_t *buffer = NULL;
  INGOT_TRY(ingot_hal_buffer_create(image->device, length, &buffer));
  image->arenas[image->arena_count++] = buffer;
  *out_buffer = buffer;
  return ingot_hal_queue_fill(queue, buffer, 0, length, 0, 1);
}

ingot_status_t ingot_vm_image_set_global(ingot_vm_image_t *image, uint32_t global,
                                         ingot_buffer_t *buffer) {
  bool lasts = buffer == image->constants;
  for (uint32_t i = 0; !lasts && i < image->arena_count; ++i) lasts = buffer == image->arenas[i];
  if (!lasts) {
    return ingot_status_create(image_allocator(image), INGOT_STATUS_INVALID_ARGUMENT,
                               "global %" PRIu32
                               " is set to a buffer that ends with init; expected an arena or the "
                               "constants",
                               global);
  }
  ingot_hal_buffer_retain(buffer);
  ingot_hal_buffer_release(image->globals[global]);
  image->globals[global] = buffer;
  return NULL;
}
