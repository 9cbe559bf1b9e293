/* The kernels of a program that its device leaves to the host. */
#include "api/program.h"

/* Counts `ordinal` down over the kernels of an image. */
static bool find_host_kernel(const ingot_vm_image_t *image, uint32_t *ordinal,
                             ingot_host_kernel_t *out_kernel) {
  for (uint32_t x = 0; x < image->module->executable_count; ++x) {
    const ingot_hal_executable_t *executable = image->executables[x];
    if (!executable) continue;
    for (uint32_t e = 0; e < executable->entry_count; ++e) {
      const ingot_hal_entry_t *entry = &executable->entries[e];
      if (!entry->host_reason[0] || (*ordinal)-- > 0) continue;
      *out_kernel = (ingot_host_kernel_t){entry->description.name, entry->description.layer,
                                          entry->host_reason};
      return true;
    }
  }
  return false;
}

bool ingot_program_host_kernel(const ingot_program_t *program, uint32_t ordinal,
                               ingot_host_kernel_t *out_kernel) {
  for (uint32_t i = 0; i < program->image_count; ++i) {
    if (find_host_kernel(&program->images[i], &ordinal, out_kernel)) return true;
  }
  return false;
}
