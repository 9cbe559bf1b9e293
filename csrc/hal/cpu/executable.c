/* Executables of the CPU device: a library of kernels and a table of what the core and the
 * queue need of each. */
#include <stdio.h>
#include <string.h>

#include "hal/cpu/cpu.h"
#include "hal/cpu/features.h"

static void ingot_cpu_executable_free(ingot_hal_cpu_executable_t *executable) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(executable->base.device);
  ingot_hal_cpu_library_unload(&executable->library);
  ingot_release_memory(allocator, (void *)(uintptr_t)executable->base.variant_name);
  ingot_release_memory(allocator, executable->base.entries);
  ingot_release_memory(allocator, executable->kernels);
  ingot_release_memory(allocator, executable);
}

static void ingot_cpu_executable_destroy(ingot_hal_executable_t *base) {
  ingot_device_t *device = base->device;
  ingot_cpu_executable_free((ingot_hal_cpu_executable_t *)base);
  ingot_hal_device_release(device);
}

static const ingot_hal_executable_vtable_t ingot_cpu_executable_vtable = {
    .destroy = ingot_cpu_executable_destroy,
};

/* Takes linked kernels of the executable's name, else the best variant that can run. */
static ingot_status_t ingot_cpu_load_library(ingot_hal_cpu_executable_t *executable,
                                             const ingot_hal_executable_description_t *description,
                                             const char **out_variant_name) {
  ingot_device_t *device = executable->base.device;
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(device);
  ingot_kernel_query_t query = ingot_hal_instance_find_static(device->instance, description->name);
  if (query) {
    *out_variant_name = "static";
    return ingot_hal_cpu_library_link(allocator, query, description->entry_count,
                                      &executable->library);
  }
#if defined(INGOT_NO_LOADER)
  return ingot_status_create(allocator, INGOT_STATUS_UNSUPPORTED,
                             "no code of this name is linked into the program, and this runtime "
                             "loads none: register it as one of the instance's kernels");
#else
  const ingot_hal_variant_t *variant;
  char options[64];
  (void)snprintf(options, sizeof(options), "--variants %s (variants=[...] in Python)",
                 ingot_hal_cpu_variant(device->features));
  INGOT_TRY(ingot_hal_variant_select(device, description, options, &variant));
  *out_variant_name = variant->name;
  void *object = NULL;
  size_t length = 0;
  ingot_status_t status =
      ingot_hal_variant_object(allocator, description, variant, &object, &length);
  if (!status) {
    status = ingot_hal_cpu_library_load(allocator, object, length, description->entry_count,
                                        &executable->library);
  }
  ingot_release_memory(allocator, object);
  return ingot_status_prefix(status, "variant '%s'", variant->name);
#endif
}

/* Fills the tables from the module's description and the library's. */
static ingot_status_t ingot_cpu_fill_entries(ingot_hal_cpu_executable_t *executable,
                                             const ingot_hal_executable_description_t *description,
                                             uint64_t *out_scratch_length) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(executable->base.device);
  const uint32_t count = description->entry_count;
  void *entries, *kernels;
  INGOT_TRY(ingot_allocate_array(allocator, count, sizeof(ingot_hal_entry_t), &entries));
  executable->base.entries = entries;
  INGOT_TRY(ingot_allocate_array(allocator, count, sizeof(ingot_hal_cpu_kernel_t), &kernels));
  executable->kernels = kernels;
  executable->base.entry_count = count;
  *out_scratch_length = 0;
  for (uint32_t e = 0; e < count; e++) {
    const ingot_kernel_entry_t *kernel = &executable->library.kernels->entries[e];
    const ingot_hal_entry_description_t *described = &description->entries[e];
    if (kernel->written != described->written ||
        kernel->binding_count != described->binding_count ||
        kernel->constant_count != described->constant_count) {
      return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                                 "kernel '%s' has other bindings or constants than the module "
                                 "says",
                                 described->name);
    }
    executable->base.entries[e].description = *described;
    memcpy(executable->base.entries[e].tile, kernel->tile, sizeof(kernel->tile));
    executable->kernels[e].function = kernel->function;
    executable->kernels[e].misfit = kernel->misfit;
    executable->kernels[e].scratch_length = kernel->scratch_length;
    if (kernel->scratch_length > *out_scratch_length) *out_scratch_length = kernel->scratch_length;
  }
  return NULL;
}

/* Makes sure that no call has to allocate scratch: workers get theirs now, queues that are
 * created from now on get theirs at once. */
static ingot_status_t ingot_cpu_reserve_scratch(ingot_hal_cpu_device_t *device, uint64_t length) {
  size_t largest =
      atomic_load(&device->scratch_length); /* length: INGOT_KERNEL_MAX_SCRATCH at most */
  while (length > largest &&
         !atomic_compare_exchange_weak(&device->scratch_length, &largest, (size_t)length)) {
  }
  return device->pool ? ingot_hal_cpu_pool_reserve_scratch(device->pool, length) : NULL;
}

static ingot_status_t ingot_cpu_executable_load(
    ingot_hal_cpu_executable_t *executable, const ingot_hal_executable_description_t *description) {
  ingot_hal_cpu_device_t *device = (ingot_hal_cpu_device_t *)executable->base.device;
  const char *variant_name = NULL;
  char *name_copy;
  uint64_t scratch_length;
  INGOT_TRY(ingot_cpu_load_library(executable, description, &variant_name));
  INGOT_TRY(
      ingot_allocate_string(ingot_hal_device_allocator(&device->base), variant_name, &name_copy));
  executable->base.variant_name = name_copy;
  INGOT_TRY(ingot_cpu_fill_entries(executable, description, &scratch_length));
  INGOT_TRY(ingot_cpu_reserve_scratch(device, scratch_length));
  ingot_log(&device->base.instance->log, INGOT_LOG_INFO, "kernels '%s': variant '%s'",
            description->name, variant_name);
#if defined(INGOT_LOADS_ELF)
  if (device->base.instance->profiling) {
    ingot_hal_cpu_library_name_kernels(&executable->library, description->entries);
  }
#endif
  return NULL;
}

ingot_status_t ingot_hal_cpu_executable_create(
    ingot_device_t *device, const ingot_hal_executable_description_t *description,
    ingot_hal_executable_t **out_executable) {
  void *memory;
  INGOT_TRY(ingot_allocate(ingot_hal_device_allocator(device), sizeof(ingot_hal_cpu_executable_t),
                           &memory));
  ingot_hal_cpu_executable_t *executable = memory;
  executable->base.vtable = &ingot_cpu_executable_vtable;
  executable->base.device = device;
  ingot_status_t status = ingot_cpu_executable_load(executable, description);
  if (status) {
    ingot_cpu_executable_free(executable);
    return status;
  }
  ingot_hal_device_retain(device);
  *out_executable = &executable->base;
  return NULL;
}
