/* Allocation through the instance's allocator.
 *
 * The public header declares ingot_allocator_t { user, resize }. These helpers turn its NULL
 * into a status and add alignment and overflow-checked arrays.
 * Blocks of ingot_allocate* are released by ingot_release_memory, blocks of
 * ingot_allocate_aligned by ingot_release_aligned, never the other way round.
 */
#ifndef INGOT_BASE_ALLOCATOR_H_
#define INGOT_BASE_ALLOCATOR_H_

#include "base/status.h"

/* realloc and free of libc; under INGOT_NO_MALLOC one that has no memory. */
ingot_allocator_t ingot_allocator_system(void);
bool ingot_allocator_is_system(const ingot_allocator_t *allocator);

/* `length` zeroed bytes in *out_pointer; length 0 gives a valid pointer. On OutOfMemory
 * *out_pointer is NULL. */
ingot_status_t ingot_allocate(const ingot_allocator_t *allocator, size_t length,
                              void **out_pointer);

/* As ingot_allocate, for `count` items of `item_length` bytes. */
ingot_status_t ingot_allocate_array(const ingot_allocator_t *allocator, size_t count,
                                    size_t item_length, void **out_pointer);

/* Resizes *pointer (NULL or from ingot_allocate*) to `count` items; new bytes are
 * arbitrary. On OutOfMemory *pointer is as before. */
ingot_status_t ingot_reallocate_array(const ingot_allocator_t *allocator, size_t count,
                                      size_t item_length, void **pointer);

/* `pointer` may be NULL. */
void ingot_release_memory(const ingot_allocator_t *allocator, void *pointer);

/* `length` bytes of arbitrary content on a multiple of `alignment`, a power of two of at
 * least the size of a pointer. */
ingot_status_t ingot_allocate_aligned(const ingot_allocator_t *allocator, size_t length,
                                      size_t alignment, void **out_pointer);
void ingot_release_aligned(const ingot_allocator_t *allocator, void *pointer);

/* A copy of a NUL-terminated string. */
ingot_status_t ingot_allocate_string(const ingot_allocator_t *allocator, const char *text,
                                     char **out_text);

#endif /* INGOT_BASE_ALLOCATOR_H_ */
