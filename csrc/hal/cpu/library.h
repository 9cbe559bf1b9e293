/* Kernel libraries: where the machine code of an executable comes from, and how it goes.
 */
#ifndef INGOT_HAL_CPU_LIBRARY_H_
#define INGOT_HAL_CPU_LIBRARY_H_

#include "hal/cpu/elf.h"
#include "hal/hal.h"
#include "platform/platform.h"

typedef struct ingot_hal_cpu_library_t {
  const ingot_kernel_library_t *kernels; /* checked: count, tiles, scratch lengths */
#if defined(INGOT_LOADS_ELF)
  ingot_elf_image_t image;        /* length 0 if it is not ours */
#endif
#if !defined(INGOT_NO_LOADER)
  ingot_dynamic_library_t system; /* without handle if it is not the system's */
#endif
} ingot_hal_cpu_library_t;

#if !defined(INGOT_NO_LOADER)

/* Loads an ELF object with this runtime's loader; where the system refuses executable
 * memory, through an anonymous file and dlopen; else PermissionDenied, which names static
 * linking as the way out. Of WebAssembly the host loads it. `entry_count` is what the module
 * says. */
ingot_status_t ingot_hal_cpu_library_load(const ingot_allocator_t *allocator, const void *data,
                                          size_t length, uint32_t entry_count,
                                          ingot_hal_cpu_library_t *out_library);

#endif /* INGOT_NO_LOADER */

#if defined(INGOT_LOADS_ELF)

/* Tells the system's profiler (perf) the kernels' addresses and names. Best effort: a profile
 * without names is no failure of the program. */
void ingot_hal_cpu_library_name_kernels(const ingot_hal_cpu_library_t *library,
                                        const ingot_hal_entry_description_t *entries);

#endif /* INGOT_LOADS_ELF */

/* Kernels that are linked into the program. */
ingot_status_t ingot_hal_cpu_library_link(const ingot_allocator_t *allocator,
                                          ingot_kernel_query_t query, uint32_t entry_count,
                                          ingot_hal_cpu_library_t *out_library);
void ingot_hal_cpu_library_unload(ingot_hal_cpu_library_t *library);

#endif /* INGOT_HAL_CPU_LIBRARY_H_ */
