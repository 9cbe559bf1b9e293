/* Allocation helpers over the instance's allocator. */
#include "base/allocator.h"

#include "platform/platform.h"

#if !defined(INGOT_NO_MALLOC)
#include <stdlib.h>
#endif
#include <string.h>

#include "base/arithmetic.h"

static void *ingot_system_resize(void *user, void *pointer, size_t length) {
  (void)user;
#if defined(INGOT_NO_MALLOC)
  (void)pointer;
  (void)length;
#else
  if (length) return realloc(pointer, length);
  free(pointer);
#endif
  return NULL;
}

ingot_allocator_t ingot_allocator_system(void) {
  ingot_allocator_t allocator = {NULL, ingot_system_resize};
  return allocator;
}

bool ingot_allocator_is_system(const ingot_allocator_t *allocator) {
  return allocator->resize == ingot_system_resize;
}

ingot_status_t ingot_allocate(const ingot_allocator_t *allocator, size_t length,
                              void **out_pointer) {
  *out_pointer = allocator->resize(allocator->user, NULL, length ? length : 1);
  if (!*out_pointer) return ingot_status_out_of_memory();
  memset(*out_pointer, 0, length);
  return NULL;
}

ingot_status_t ingot_allocate_array(const ingot_allocator_t *allocator, size_t count,
                                    size_t item_length, void **out_pointer) {
  size_t length;
  *out_pointer = NULL;
  if (!ingot_multiply_size(count, item_length, &length)) return ingot_status_out_of_memory();
  return ingot_allocate(allocator, length, out_pointer);
}

ingot_status_t ingot_reallocate_array(const ingot_allocator_t *allocator, size_t count,
                                      size_t item_length, void **pointer) {
  size_t length;
  if (!ingot_multiply_size(count, item_length, &length)) return ingot_status_out_of_memory();
  void *resized = allocator->resize(allocator->user, *pointer, length ? length : 1);
  if (!resized) return ingot_status_out_of_memory();
  *pointer = resized;
  return NULL;
}

void ingot_release_memory(const ingot_allocator_t *allocator, void *pointer) {
  if (pointer) (void)allocator->resize(allocator->user, pointer, 0);
}

/* The block's own address is kept in front of the aligned bytes. */
ingot_status_t ingot_allocate_aligned(const ingot_allocator_t *allocator, size_t length,
                                      size_t alignment, void **out_pointer) {
  size_t total;
  *out_pointer = NULL;
  if (!ingot_add_size(length, alignment + sizeof(void *), &total)) {
    return ingot_status_out_of_memory();
  }
  char *block = allocator->resize(allocator->user, NULL, total);
  if (!block) return ingot_status_out_of_memory();
  uintptr_t first = (uintptr_t)block + sizeof(void *);
  char *aligned = block + sizeof(void *) + (-first & (alignment - 1));
  memcpy(aligned - sizeof(void *), &block, sizeof(void *));
  *out_pointer = aligned;
  return NULL;
}

void ingot_release_aligned(const ingot_allocator_t *allocator, void *pointer) {
  if (!pointer) return;
  void *block;
  memcpy(&block, (char *)pointer - sizeof(void *), sizeof(void *));
  (void)allocator->resize(allocator->user, block, 0);
}

ingot_status_t ingot_allocate_string(const ingot_allocator_t *allocator, const char *text,
                                     char **out_text) {
  size_t length = strlen(text) + 1;
  char *copy = allocator->resize(allocator->user, NULL, length);
  *out_text = copy;
  if (!copy) return ingot_status_out_of_memory();
  memcpy(copy, text, length);
  return NULL;
}
