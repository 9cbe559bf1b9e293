/* Kernel libraries from memory, from dlopen, or linked in; checked once before use. */
#include "hal/cpu/library.h"

#include <inttypes.h>
#include <stdio.h>

/* Whether every pointer of the table stays in the object: cheap, and it turns a mangled
 * object into a message. */
static bool ingot_library_is_inside(const ingot_hal_cpu_library_t *library,
                                    const ingot_kernel_library_t *kernels) {
#if !defined(INGOT_LOADS_ELF)
  (void)library;
  (void)kernels;
#else
  const ingot_elf_image_t *image = &library->image;
  if (image->length == 0) return true;
  if (!ingot_elf_contains(image, kernels, sizeof(*kernels), 0) ||
      !ingot_elf_contains(image, kernels->entries,
                          kernels->entry_count * sizeof(ingot_kernel_entry_t), 0)) {
    return false;
  }
  for (uint32_t e = 0; e < kernels->entry_count; e++) {
    const ingot_kernel_entry_t *entry = &kernels->entries[e];
    if (!ingot_elf_contains(image, (const void *)(uintptr_t)entry->function, 1,
                            INGOT_PAGES_EXECUTE) ||
        !ingot_elf_contains(image, (const void *)(uintptr_t)entry->misfit, 1,
                            INGOT_PAGES_EXECUTE)) {
      return false;
    }
  }
#endif
  return true;
}

static ingot_status_t ingot_library_check_entry(const ingot_allocator_t *allocator,
                                                const ingot_kernel_entry_t *entry, uint32_t e) {
  if (!entry->function || !entry->misfit || entry->tile[0] < 1 || entry->tile[1] < 1 ||
      entry->tile[2] < 1 || entry->scratch_length > INGOT_KERNEL_MAX_SCRATCH) {
    return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                               "kernel %u has tile [%" PRId64 ", %" PRId64 ", %" PRId64
                               "] and %" PRIu64
                               " bytes of scratch: expected functions, sizes "
                               "of at least 1 and at most %u bytes",
                               e, entry->tile[0], entry->tile[1], entry->tile[2],
                               entry->scratch_length, INGOT_KERNEL_MAX_SCRATCH);
  }
  return NULL;
}

/* Asks the library for its table and checks it. */
static ingot_status_t ingot_library_query(const ingot_allocator_t *allocator,
                                          ingot_kernel_query_t query, uint32_t entry_count,
                                          ingot_hal_cpu_library_t *library) {
  const ingot_kernel_library_t *kernels = query(INGOT_KERNEL_ABI_VERSION);
  if (!kernels || kernels->abi_version != INGOT_KERNEL_ABI_VERSION) {
    return ingot_status_create(allocator, INGOT_STATUS_INCOMPATIBLE,
                               "the kernels do not speak kernel ABI version %u: compile the "
                               "model again with this version of Ingot",
                               INGOT_KERNEL_ABI_VERSION);
  }
  if (kernels->entry_count != entry_count || !ingot_library_is_inside(library, kernels)) {
    return ingot_status_create(
        allocator, INGOT_STATUS_DATA_LOSS, "the object has %u kernels%s, but the module says %u",
        kernels->entry_count, kernels->entry_count == entry_count ? " outside of itself" : "",
        entry_count);
  }
  for (uint32_t e = 0; e < entry_count; e++) {
    INGOT_TRY(ingot_library_check_entry(allocator, &kernels->entries[e], e));
  }
  library->kernels = kernels;
  return NULL;
}

ingot_status_t ingot_hal_cpu_library_link(const ingot_allocator_t *allocator,
                                          ingot_kernel_query_t query, uint32_t entry_count,
                                          ingot_hal_cpu_library_t *out_library) {
  *out_library = (ingot_hal_cpu_library_t){.kernels = NULL};
  return ingot_library_query(allocator, query, entry_count, out_library);
}

#if defined(INGOT_NO_LOADER)

void ingot_hal_cpu_library_unload(ingot_hal_cpu_library_t *library) { (void)library; }

#else

#if defined(INGOT_LOADS_ELF)

/* Kernels import nothing, except in a build that looks for errors: there they may call the
 * sanitizers, which the system's loader binds. */
#if defined(INGOT_SANITIZE)
#define INGOT_LIBRARY_MAY_IMPORT true
#else
#define INGOT_LIBRARY_MAY_IMPORT false
#endif

/* The second way, for systems that refuse to make memory executable. Takes `refusal`. */
static ingot_status_t ingot_library_load_by_system(const void *data, size_t length,
                                                   ingot_status_t refusal,
                                                   ingot_hal_cpu_library_t *library,
                                                   void **out_function) {
  if (!ingot_dynamic_library_open_bytes(data, length, &library->system)) {
    return ingot_status_prefix(refusal,
                               "cannot load native kernels here, neither directly nor by dlopen; "
                               "link them statically into the program and register them");
  }
  ingot_status_free(refusal);
  *out_function = ingot_dynamic_library_symbol(&library->system, INGOT_KERNEL_QUERY_NAME);
  return NULL; /* the own loader found the function already */
}

#endif /* INGOT_LOADS_ELF */

/* The address of the query function. */
static ingot_status_t ingot_library_open(const ingot_allocator_t *allocator, const void *data,
                                         size_t length, ingot_hal_cpu_library_t *library,
                                         void **out_function) {
#if defined(INGOT_LOADS_ELF)
  ingot_status_t status = ingot_elf_load(allocator, data, length, INGOT_KERNEL_QUERY_NAME,
                                         &library->image, out_function);
  if (ingot_status_code(status) == INGOT_STATUS_PERMISSION_DENIED ||
      (INGOT_LIBRARY_MAY_IMPORT && ingot_status_code(status) == INGOT_STATUS_UNSUPPORTED)) {
    status = ingot_library_load_by_system(data, length, status, library, out_function);
  }
  return status;
#else
  if (ingot_dynamic_library_open_bytes(data, length, &library->system)) {
    *out_function = ingot_dynamic_library_symbol(&library->system, INGOT_KERNEL_QUERY_NAME);
    if (*out_function) return NULL;
    ingot_dynamic_library_close(&library->system);
  }
  return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                             "the host cannot load the code, of %zu bytes", length);
#endif
}

ingot_status_t ingot_hal_cpu_library_load(const ingot_allocator_t *allocator, const void *data,
                                          size_t length, uint32_t entry_count,
                                          ingot_hal_cpu_library_t *out_library) {
  ingot_hal_cpu_library_t library = {.kernels = NULL};
  void *function = NULL;
  INGOT_TRY(ingot_library_open(allocator, data, length, &library, &function));
  ingot_status_t status = ingot_library_query(allocator, (ingot_kernel_query_t)(uintptr_t)function,
                                              entry_count, &library);
  if (status) {
    ingot_hal_cpu_library_unload(&library);
  } else {
    *out_library = library;
  }
  return status;
}

void ingot_hal_cpu_library_unload(ingot_hal_cpu_library_t *library) {
#if defined(INGOT_LOADS_ELF)
  ingot_elf_unload(&library->image);
#endif
  ingot_dynamic_library_close(&library->system);
}

#endif /* INGOT_NO_LOADER */

#if defined(INGOT_LOADS_ELF)

/* Bytes from a kernel to the next one or to the end of its segment: perf wants a size. */
static size_t ingot_library_code_length(const ingot_hal_cpu_library_t *library,
                                        uintptr_t function) {
  uintptr_t end = function + 1;
  for (uint32_t s = 0; s < library->image.segment_count; s++) {
    const ingot_elf_segment_t *segment = &library->image.segments[s];
    uintptr_t first = (uintptr_t)library->image.base + (uintptr_t)segment->address;
    if (function >= first && function < first + segment->length)
      end = first + (uintptr_t)segment->length;
  }
  for (uint32_t e = 0; e < library->kernels->entry_count; e++) {
    uintptr_t other = (uintptr_t)library->kernels->entries[e].function;
    if (other > function && other < end) end = other;
  }
  return end - function;
}

void ingot_hal_cpu_library_name_kernels(const ingot_hal_cpu_library_t *library,
                                        const ingot_hal_entry_description_t *entries) {
  for (uint32_t e = 0; library->image.length > 0 && e < library->kernels->entry_count; e++) {
    uintptr_t function = (uintptr_t)library->kernels->entries[e].function;
    char name[192];
    (void)snprintf(name, sizeof(name), "ingot:%.180s", entries[e].name);
    ingot_profiler_name_code((const void *)function, ingot_library_code_length(library, function),
                             name);
  }
}

#endif /* INGOT_LOADS_ELF */
