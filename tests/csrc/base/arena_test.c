/* The allocator in one block: nothing overlaps, nothing is lost, and a runtime lives in it. */
#include "ingot/arena.h"

#include "test.h"

enum { LENGTH = 1 << 16, BLOCKS = 64 };

static _Alignas(16) unsigned char memory[LENGTH];

static bool holds(const unsigned char *data, size_t length, unsigned char value) {
  for (size_t i = 0; i < length; ++i) {
    if (data[i] != value) return false;
  }
  return true;
}

TEST(blocks_neither_overlap_nor_get_lost) {
  unsigned char *blocks[BLOCKS] = {NULL};
  size_t lengths[BLOCKS] = {0};
  ingot_arena_t arena;
  ingot_allocator_t allocator = ingot_arena_initialize(&arena, memory + 1, LENGTH - 1);
  uint32_t random = 1, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    random = random * 1664525u + 1013904223u;
    uint32_t b = (random >> 8) % BLOCKS;
    size_t length = (random >> 16) % 3 == 0 ? 0 : (random >> 14) % 3000;
    size_t kept = length < lengths[b] ? length : lengths[b];
    unsigned char *resized = allocator.resize(allocator.user, blocks[b], length);
    if (length > 0 && !resized) {
      ++refused;
      EXPECT(holds(blocks[b], lengths[b], (unsigned char)b));
      continue;
    }
    EXPECT((uintptr_t)resized % sizeof(ingot_arena_block_t) == 0);
    EXPECT(length == 0 || holds(resized, kept, (unsigned char)b));
    if (length > 0) memset(resized, (int)b, length);
    blocks[b] = length > 0 ? resized : NULL;
    lengths[b] = length;
  }
  EXPECT(refused > 0 && arena.peak > LENGTH / 2 && arena.peak < LENGTH);
  for (uint32_t b = 0; b < BLOCKS; ++b) {
    EXPECT(holds(blocks[b], lengths[b], (unsigned char)b));
    (void)allocator.resize(allocator.user, blocks[b], 0);
  }
  EXPECT_EQUAL(arena.used, 0);
  REQUIRE(arena.free);
  EXPECT(!arena.free->next && arena.free->length == LENGTH - sizeof(ingot_arena_block_t));
}

TEST(too_little_memory_is_none) {
  ingot_arena_t arena;
  ingot_allocator_t allocator = ingot_arena_initialize(&arena, memory, 8);
  EXPECT(!allocator.resize(allocator.user, NULL, 1));
  allocator = ingot_arena_initialize(&arena, memory, LENGTH);
  EXPECT(!allocator.resize(allocator.user, NULL, SIZE_MAX));
  EXPECT(!allocator.resize(allocator.user, NULL, LENGTH));
}

TEST(runtime_lives_in_it) {
  ingot_arena_t arena;
  ingot_allocator_t allocator = ingot_arena_initialize(&arena, memory, LENGTH);
  const ingot_instance_options_t options = {.allocator = &allocator};
  ingot_instance_t *instance;
  ingot_device_t *device;
  REQUIRE_OK(ingot_instance_create(&options, &instance));
  EXPECT_OK(ingot_device_create(instance, "cpu://?threads=1", NULL, &device));
  EXPECT(arena.used > 0);
  ingot_device_release(device);
  ingot_instance_release(instance);
  EXPECT_EQUAL(arena.used, 0);
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
