/* An allocator in one block of the program's memory, for programs without malloc.
 *
 *   static _Alignas(16) unsigned char memory[300 * 1024];
 *   ingot_arena_t arena;
 *   ingot_allocator_t allocator = ingot_arena_initialize(&arena, memory, sizeof(memory));
 *   const ingot_instance_options_t options = {.allocator = &allocator};
 *   status = ingot_instance_create(&options, &instance);
 *
 * Everything is in this header, and compiled into the file that includes it. arena.peak says how
 * much of the block was needed so far. An arena is for one thread at a time: where several threads
 * use an instance, its allocator must lock.
 */
#ifndef INGOT_ARENA_H_
#define INGOT_ARENA_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ingot/ingot.h"

/* The head of every block; what follows it is aligned to its length, 8 or 16. */
typedef struct ingot_arena_block_t {
  size_t length; /* with the head */
  struct ingot_arena_block_t *next; /* of free ones, by address */
} ingot_arena_block_t;

typedef struct ingot_arena_t {
  ingot_arena_block_t *free;
  size_t used; /* bytes, with heads */
  size_t peak; /* the most there ever were */
} ingot_arena_t;

/* The first free block that is long enough, or its first part; NULL if there is none. */
static inline void *ingot_arena_allocate(ingot_arena_t *arena, size_t length) {
  const size_t head = sizeof(ingot_arena_block_t);
  if (length > SIZE_MAX - 2 * head) return NULL;
  const size_t total = (length + 2 * head - 1) & ~(head - 1);
  ingot_arena_block_t **at = &arena->free;
  while (*at && (*at)->length < total) at = &(*at)->next;
  ingot_arena_block_t *block = *at;
  if (!block) return NULL;
  if (block->length >= total + 2 * head) {
    ingot_arena_block_t *rest = (ingot_arena_block_t *)(void *)((char *)block + total);
    rest->length = block->length - total;
    rest->next = block->next;
    block->length = total;
    *at = rest;
  } else {
    *at = block->next;
  }
  arena->used += block->length;
  if (arena->used > arena->peak) arena->peak = arena->used;
  return block + 1;
}

/* Makes one of a free block and the next one if they touch. */
static inline void ingot_arena_join(ingot_arena_block_t *block) {
  ingot_arena_block_t *next = block->next;
  if (!next || (char *)block + block->length != (char *)next) return;
  block->length += next->length;
  block->next = next->next;
}

static inline void ingot_arena_free(ingot_arena_t *arena, void *pointer) {
  ingot_arena_block_t *block = (ingot_arena_block_t *)pointer - 1;
  ingot_arena_block_t *before = NULL;
  ingot_arena_block_t *next = arena->free;
  for (; next && next < block; next = next->next) before = next;
  arena->used -= block->length;
  block->next = next;
  ingot_arena_join(block);
  if (before) {
    before->next = block;
    ingot_arena_join(before);
  } else {
    arena->free = block;
  }
}

/* `resize` of ingot_allocator_t. */
static inline void *ingot_arena_resize(void *user, void *pointer, size_t length) {
  ingot_arena_t *arena = (ingot_arena_t *)user;
  if (length == 0) {
    if (pointer) ingot_arena_free(arena, pointer);
    return NULL;
  }
  size_t before = 0;
  if (pointer) before = ((ingot_arena_block_t *)pointer - 1)->length - sizeof(ingot_arena_block_t);
  if (pointer && length <= before) return pointer;
  void *resized = ingot_arena_allocate(arena, length);
  if (!resized || !pointer) return resized;
  memcpy(resized, pointer, before);
  ingot_arena_free(arena, pointer);
  return resized;
}

/* An allocator of `length` bytes at `memory`, which stay as long as it is used, like the arena. */
static inline ingot_allocator_t ingot_arena_initialize(ingot_arena_t *arena, void *memory,
                                                       size_t length) {
  const size_t head = sizeof(ingot_arena_block_t);
  const size_t skipped = (size_t)(-(uintptr_t)memory & (head - 1));
  arena->free = NULL;
  arena->used = arena->peak = 0;
  if (length >= skipped + 2 * head) {
    arena->free = (ingot_arena_block_t *)(void *)((char *)memory + skipped);
    arena->free->length = (length - skipped) & ~(head - 1);
    arena->free->next = NULL;
  }
  ingot_allocator_t allocator = {arena, ingot_arena_resize};
  return allocator;
}

#endif /* INGOT_ARENA_H_ */
