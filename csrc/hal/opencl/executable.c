/* Executables of an OpenCL device: the object's tables, its kernels, and which of them the
 * device cannot run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hal/opencl/program.h"
#include "hal/opencl/self_test.h"

static ingot_opencl_device_t *ingot_opencl_executable_device(
    const ingot_opencl_executable_t *executable) {
  return (ingot_opencl_device_t *)executable->base.device;
}

static void ingot_opencl_executable_free(ingot_opencl_executable_t *executable) {
  const ingot_opencl_device_t *device = ingot_opencl_executable_device(executable);
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  for (uint32_t e = 0; executable->kernels && e < executable->base.entry_count; e++) {
    for (uint32_t width = 0; width < INGOT_OPENCL_WIDTH_COUNT; width++) {
      ingot_cl_kernel_t kernel = executable->kernels[e].kernels[width];
      if (kernel) (void)device->cl->ReleaseKernel(kernel);
    }
  }
  ingot_mutex_deinitialize(&executable->mutex);
  ingot_release_memory(allocator, (void *)(uintptr_t)executable->base.variant_name);
  ingot_release_memory(allocator, executable->base.entries);
  ingot_release_memory(allocator, executable->kernels);
  ingot_release_memory(allocator, executable->object);
  ingot_release_memory(allocator, executable);
}

static void ingot_opencl_executable_destroy(ingot_hal_executable_t *base) {
  ingot_device_t *device = base->device;
  ingot_opencl_executable_free((ingot_opencl_executable_t *)base);
  ingot_hal_device_release(device);
}

static const ingot_hal_executable_vtable_t ingot_opencl_executable_vtable = {
    .destroy = ingot_opencl_executable_destroy,
};

/* -- what the device cannot run -------------------------------------------------------------- */

static void ingot_opencl_set_reason(ingot_hal_entry_t *entry, const char *reason) {
  (void)snprintf(entry->host_reason, sizeof(entry->host_reason), "%s", reason);
}

static const char *ingot_opencl_missing_feature(uint64_t missing) {
  if (missing & INGOT_OPENCL_FP64) return "the device has no f64";
  if (missing & INGOT_OPENCL_FP16) return "the device has no f16 arithmetic";
  if (missing & INGOT_OPENCL_INT64_ATOMICS) return "the device has no 64-bit atomics";
  if (missing & INGOT_OPENCL_SUBGROUPS) return "the device has no subgroups";
  return "it needs a feature that this runtime does not know";
}

/* Bytes of a kernel's arguments, by the signature in opencl_object.h. */
static uint64_t ingot_opencl_parameter_length(const ingot_opencl_entry_t *entry) {
  return 16 * (uint64_t)entry->binding_count + 8 * entry->constant_count + 3 * 8 + 3 * 8;
}

/* Before the build: limits and features. */
static void ingot_opencl_check_limits(const ingot_opencl_device_t *device,
                                      const ingot_opencl_entry_t *kernel,
                                      ingot_hal_entry_t *entry) {
  uint64_t group_size = 1;
  bool is_large = false;
  for (int axis = 0; axis < 3 && !is_large; axis++) {
    is_large = kernel->local_size[axis] > device->group_sizes[axis] ||
               kernel->local_size[axis] > device->group_size / group_size;
    group_size *= kernel->local_size[axis];
  }
  if (kernel->flags & INGOT_OPENCL_HOST) {
    ingot_opencl_set_reason(entry, "there is no OpenCL kernel for it");
  } else if (kernel->features & ~device->features) {
    ingot_opencl_set_reason(entry,
                            ingot_opencl_missing_feature(kernel->features & ~device->features));
  } else if (is_large) {
    (void)snprintf(entry->host_reason, sizeof(entry->host_reason),
                   "its groups of %u x %u x %u work items are too large for the device",
                   kernel->local_size[0], kernel->local_size[1], kernel->local_size[2]);
  } else if (kernel->local_length > device->local_length) {
    (void)snprintf(entry->host_reason, sizeof(entry->host_reason),
                   "it needs %" PRIu64 " bytes of local memory, the device has %" PRIu64,
                   kernel->local_length, device->local_length);
  } else if (ingot_opencl_parameter_length(kernel) > device->max_parameter_length) {
    (void)snprintf(entry->host_reason, sizeof(entry->host_reason),
                   "its arguments take %" PRIu64 " bytes, the device allows %" PRIu64,
                   ingot_opencl_parameter_length(kernel), device->max_parameter_length);
  }
}

/* -- kernels --------------------------------------------------------------------------------- */

static ingot_status_t ingot_opencl_create_kernel(ingot_opencl_executable_t *executable,
                                                 uint32_t entry, uint32_t width,
                                                 ingot_cl_program_t program) {
  const ingot_opencl_device_t *device = ingot_opencl_executable_device(executable);
  const char *name = executable->base.entries[entry].description.name;
  int32_t error = 0;
  ingot_cl_kernel_t kernel = device->cl->CreateKernel(program, name, &error);
  if (error) {
    return ingot_status_prefix(
        ingot_opencl_status(ingot_hal_device_allocator(&device->base), "clCreateKernel", error),
        "kernel '%s'", name);
  }
  executable->kernels[entry].kernels[width] = kernel;
  return NULL;
}

/* After the build: a kernel may need so many registers that its groups must be smaller. */
static ingot_status_t ingot_opencl_check_kernel(ingot_opencl_executable_t *executable,
                                                uint32_t entry) {
  const ingot_opencl_device_t *device = ingot_opencl_executable_device(executable);
  const ingot_opencl_kernel_t *kernel = &executable->kernels[entry];
  size_t group_size = 0;
  INGOT_OPENCL_TRY(ingot_hal_device_allocator(&device->base), device->cl, GetKernelWorkGroupInfo,
                   kernel->kernels[INGOT_OPENCL_NARROW], device->device,
                   INGOT_CL_KERNEL_WORK_GROUP_SIZE, sizeof(group_size), &group_size, NULL);
  const uint32_t *local_size = kernel->entry->local_size;
  size_t needed = (size_t)local_size[0] * local_size[1] * local_size[2]; /* within the limits */
  if (needed <= group_size) return NULL;
  ingot_hal_entry_t *described = &executable->base.entries[entry];
  (void)snprintf(described->host_reason, sizeof(described->host_reason),
                 "its groups have %zu work items, the device takes %zu of it", needed, group_size);
  return NULL;
}

ingot_status_t ingot_opencl_executable_kernel(ingot_opencl_executable_t *executable, uint32_t entry,
                                              uint32_t width, ingot_cl_kernel_t *out_kernel) {
  ingot_opencl_device_t *device = ingot_opencl_executable_device(executable);
  ingot_opencl_kernel_t *kernel = &executable->kernels[entry];
  if (!kernel->kernels[width]) {
    ingot_opencl_built_t built;
    INGOT_TRY(ingot_opencl_program_build(device, executable->object, executable->object_length,
                                         width, &built));
    if (!built.is_cached) {
      ingot_opencl_program_keep(device, &built, executable->base.entry_count);
    }
    ingot_status_t status = NULL;
    for (uint32_t e = 0; !status && e < executable->base.entry_count; e++) {
      bool is_wanted = !executable->base.entries[e].host_reason[0];
      if (!is_wanted || executable->kernels[e].kernels[width]) continue;
      status = ingot_opencl_create_kernel(executable, e, width, built.program);
    }
    ingot_opencl_program_release(device, &built);
    if (status) return status;
  }
  *out_kernel = kernel->kernels[width];
  return NULL;
}

/* -- loading --------------------------------------------------------------------------------- */

/* Copies the object and fills the tables from it. */
static ingot_status_t ingot_opencl_fill_entries(
    ingot_opencl_executable_t *executable, const ingot_hal_executable_description_t *description,
    const ingot_hal_variant_t *variant) {
  const ingot_opencl_device_t *device = ingot_opencl_executable_device(executable);
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  uint32_t count = description->entry_count;
  void *entries, *kernels, *object;
  INGOT_TRY(ingot_hal_variant_object(allocator, description, variant, &object,
                                     &executable->object_length));
  executable->object = object;
  INGOT_TRY(ingot_opencl_object_check(allocator, object, executable->object_length, description));
  INGOT_TRY(ingot_allocate_array(allocator, count, sizeof(ingot_hal_entry_t), &entries));
  executable->base.entries = entries;
  INGOT_TRY(ingot_allocate_array(allocator, count, sizeof(ingot_opencl_kernel_t), &kernels));
  executable->kernels = kernels;
  executable->base.entry_count = count;
  const ingot_opencl_header_t *header = object;
  const ingot_opencl_entry_t *table = (const void *)(executable->object + header->entry_offset);
  const ingot_opencl_binding_t *bindings =
      (const void *)(executable->object + header->binding_offset);
  const ingot_opencl_step_t *steps = (const void *)(executable->object + header->step_offset);
  for (uint32_t e = 0; e < count; e++) {
    ingot_hal_entry_t *entry = &executable->base.entries[e];
    entry->description = description->entries[e];
    memcpy(entry->tile, table[e].tile, sizeof(entry->tile));
    executable->kernels[e].entry = &table[e];
    executable->kernels[e].bindings = &bindings[table[e].first_binding];
    executable->kernels[e].steps = steps;
    steps += table[e].step_count;
    ingot_opencl_check_limits(device, &table[e], entry);
  }
  return NULL;
}

/* Tests what the cache has no verdict on, and sends what is wrong to the host. */
static ingot_status_t ingot_opencl_quarantine(ingot_opencl_executable_t *executable,
                                              const ingot_hal_executable_description_t *description,
                                              uint8_t *verdicts) {
  if (!ingot_opencl_executable_device(executable)->self_test) return NULL;
  INGOT_TRY(ingot_opencl_self_test(executable, description, verdicts));
  for (uint32_t e = 0; e < executable->base.entry_count; e++) {
    ingot_hal_entry_t *entry = &executable->base.entries[e];
    if (entry->host_reason[0] || verdicts[e] != INGOT_OPENCL_VERDICT_WRONG) continue;
    ingot_opencl_set_reason(entry,
                            "this driver computes it wrong: its self-test differs from the host's");
  }
  return NULL;
}

static bool ingot_opencl_has_kernels(const ingot_opencl_executable_t *executable) {
  for (uint32_t e = 0; e < executable->base.entry_count; e++) {
    if (!executable->base.entries[e].host_reason[0]) return true;
  }
  return false;
}

/* The kernels of a built program, tested; what was learned is kept. */
static ingot_status_t ingot_opencl_load_kernels(
    ingot_opencl_executable_t *executable, const ingot_hal_executable_description_t *description,
    const ingot_opencl_built_t *built, const uint8_t *known_verdicts) {
  const ingot_opencl_device_t *device = ingot_opencl_executable_device(executable);
  uint32_t count = executable->base.entry_count;
  for (uint32_t e = 0; e < count; e++) {
    if (executable->base.entries[e].host_reason[0]) continue;
    INGOT_TRY(ingot_opencl_create_kernel(executable, e, INGOT_OPENCL_NARROW, built->program));
    INGOT_TRY(ingot_opencl_check_kernel(executable, e));
  }
  INGOT_TRY(ingot_opencl_quarantine(executable, description, built->verdicts));
  if (!built->is_cached || memcmp(known_verdicts, built->verdicts, count) != 0) {
    ingot_opencl_program_keep(device, built, count);
  }
  return NULL;
}

static ingot_status_t ingot_opencl_executable_load(
    ingot_opencl_executable_t *executable, const ingot_hal_executable_description_t *description) {
  ingot_opencl_device_t *device = ingot_opencl_executable_device(executable);
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  const ingot_hal_variant_t *variant;
  char *name_copy;
  INGOT_TRY(ingot_hal_variant_select(&device->base, description, "--target opencl", &variant));
  INGOT_TRY(ingot_allocate_string(allocator, variant->name, &name_copy));
  executable->base.variant_name = name_copy;
  INGOT_TRY(ingot_status_prefix(ingot_opencl_fill_entries(executable, description, variant),
                                "variant '%s'", variant->name));
  if (!ingot_opencl_has_kernels(executable)) return NULL;
  ingot_opencl_built_t built;
  INGOT_TRY(ingot_opencl_program_build(device, executable->object, executable->object_length,
                                       INGOT_OPENCL_NARROW, &built));
  void *known_verdicts;
  ingot_status_t status = ingot_allocate(allocator, description->entry_count, &known_verdicts);
  if (!status) {
    memcpy(known_verdicts, built.verdicts, description->entry_count);
    status = ingot_opencl_load_kernels(executable, description, &built, known_verdicts);
    ingot_release_memory(allocator, known_verdicts);
  }
  if (!status) {
    ingot_log(&device->base.instance->log, INGOT_LOG_INFO, "kernels '%s': variant '%s', %s",
              description->name, variant->name, built.is_cached ? "from the cache" : "built");
  }
  ingot_opencl_program_release(device, &built);
  return status;
}

ingot_status_t ingot_opencl_executable_create(ingot_device_t *device,
                                              const ingot_hal_executable_description_t *description,
                                              ingot_hal_executable_t **out_executable) {
  void *memory;
  INGOT_TRY(ingot_allocate(ingot_hal_device_allocator(device), sizeof(ingot_opencl_executable_t),
                           &memory));
  ingot_opencl_executable_t *executable = memory;
  executable->base.vtable = &ingot_opencl_executable_vtable;
  executable->base.device = device;
  ingot_mutex_initialize(&executable->mutex);
  ingot_status_t status = ingot_opencl_executable_load(executable, description);
  if (status) {
    ingot_hal_executable_destroy(executable->base.host);
    ingot_opencl_executable_free(executable);
    return status;
  }
  ingot_hal_device_retain(device);
  *out_executable = &executable->base;
  return NULL;
}
