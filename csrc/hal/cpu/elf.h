/* A loader for kernel objects: ELF shared objects of the machine from memory, without the
 * system's, and on systems whose own objects are of another format.
 *
 * It takes only what kernels are: position-independent code with relative relocations.
 * Imports, needed libraries, thread-local storage, constructors and text relocations are
 * refused. Any bytes may be given: what is wrong with them becomes a status, and no byte
 * outside of them is read. (Running the code of an object that loads is another matter.)
 */
#ifndef INGOT_HAL_CPU_ELF_H_
#define INGOT_HAL_CPU_ELF_H_

#include "base/allocator.h"
#include "base/status.h"
#include "platform/platform.h"

#define INGOT_ELF_MAX_SEGMENTS 16

typedef struct ingot_elf_segment_t {
  uint64_t address; /* offset of the first byte in the image */
  uint64_t length;  /* in memory */
  uint32_t flags;   /* INGOT_PAGES_* */
} ingot_elf_segment_t;

/* A loaded object. Addresses count from the image's first byte. */
typedef struct ingot_elf_image_t {
  uint8_t *base;
  size_t length; /* of the mapping; 0 if there is none */
  uint32_t segment_count;
  ingot_elf_segment_t segments[INGOT_ELF_MAX_SEGMENTS];
} ingot_elf_image_t;

/* Maps, relocates and protects the object and finds the function `name` in it. The object
 * is not needed afterwards. DataLoss for bytes that are no proper object, Incompatible for
 * another machine, Unsupported for what kernels must not have, NotFound without the
 * function, PermissionDenied if the system refuses executable memory. On failure nothing
 * is left mapped. */
ingot_status_t ingot_elf_load(const ingot_allocator_t *allocator, const void *data, size_t length,
                              const char *name, ingot_elf_image_t *out_image, void **out_function);
void ingot_elf_unload(ingot_elf_image_t *image);

/* Whether `length` bytes at `pointer` lie in one segment that has all of `flags`. */
bool ingot_elf_contains(const ingot_elf_image_t *image, const void *pointer, size_t length,
                        uint32_t flags);

#endif /* INGOT_HAL_CPU_ELF_H_ */
