/* Allocation helpers, checked arithmetic and crc.
 */
#include "base/allocator.h"
#include "base/arithmetic.h"
#include "base/crc32.h"
#include "test.h"

static test_allocator_t counter;
static ingot_allocator_t allocator;

TEST(allocations_are_zeroed_and_balanced) {
  void *memory = NULL;
  REQUIRE_OK(ingot_allocate_array(&allocator, 10, 8, &memory));
  for (int i = 0; i < 80; i++) EXPECT_EQUAL(((uint8_t *)memory)[i], 0);
  EXPECT_OK(ingot_reallocate_array(&allocator, 1000, 8, &memory));
  EXPECT_EQUAL(((uint8_t *)memory)[79], 0);
  ingot_release_memory(&allocator, memory);
  ingot_release_memory(&allocator, NULL);
  REQUIRE_OK(ingot_allocate(&allocator, 0, &memory));
  EXPECT(memory != NULL);
  ingot_release_memory(&allocator, memory);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(sizes_that_overflow_are_out_of_memory) {
  void *memory = NULL;
  EXPECT_STATUS(ingot_allocate_array(&allocator, SIZE_MAX / 2, 3, &memory), OUT_OF_MEMORY, "");
  EXPECT(memory == NULL);
  EXPECT_STATUS(ingot_reallocate_array(&allocator, SIZE_MAX, 2, &memory), OUT_OF_MEMORY, "");
  EXPECT_STATUS(ingot_allocate_aligned(&allocator, SIZE_MAX, 64, &memory), OUT_OF_MEMORY, "");
  EXPECT(memory == NULL);
}

TEST(failed_growth_keeps_the_old_block) {
  void *memory = NULL;
  REQUIRE_OK(ingot_allocate(&allocator, 8, &memory));
  memcpy(memory, "abcdefg", 8);
  counter.fail_at = counter.allocations + 1;
  EXPECT_STATUS(ingot_reallocate_array(&allocator, 100, 1, &memory), OUT_OF_MEMORY, "");
  EXPECT_TEXT((const char *)memory, "abcdefg");
  ingot_release_memory(&allocator, memory);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(aligned_blocks_are_aligned) {
  for (size_t alignment = sizeof(void *); alignment <= 4096; alignment *= 2) {
    void *memory = NULL;
    REQUIRE_OK(ingot_allocate_aligned(&allocator, 100, alignment, &memory));
    EXPECT_EQUAL((uintptr_t)memory % alignment, 0);
    memset(memory, 1, 100);
    ingot_release_aligned(&allocator, memory);
  }
  ingot_release_aligned(&allocator, NULL);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(strings_are_copied) {
  char *copy = NULL;
  REQUIRE_OK(ingot_allocate_string(&allocator, "text", &copy));
  EXPECT_TEXT(copy, "text");
  ingot_release_memory(&allocator, copy);
}

TEST(ranges_fit_without_wrapping) {
  EXPECT(ingot_range_fits_i64(0, 0, 0));
  EXPECT(ingot_range_fits_i64(4, 4, 8));
  EXPECT(!ingot_range_fits_i64(5, 4, 8));
  EXPECT(!ingot_range_fits_i64(-1, 1, 8));
  EXPECT(!ingot_range_fits_i64(0, -1, 8));
  EXPECT(!ingot_range_fits_i64(INT64_MAX, INT64_MAX, 8));
  EXPECT(ingot_range_fits_i64(INT64_MAX, 0, INT64_MAX));
  EXPECT(!ingot_range_fits_u64(UINT64_MAX, 2, UINT64_MAX));
  EXPECT(ingot_range_fits_u64(UINT64_MAX, 0, UINT64_MAX));
  int64_t sum;
  EXPECT(!ingot_add_i64(INT64_MAX, 1, &sum));
  EXPECT(!ingot_subtract_i64(INT64_MIN, 1, &sum));
  EXPECT(!ingot_multiply_i64(INT64_MIN, -1, &sum));
  EXPECT_EQUAL(ingot_divide_up_i64(INT64_MAX, 2), INT64_MAX / 2 + 1);
  EXPECT_EQUAL(ingot_divide_up_i64(0, 5), 0);
}

TEST(crc_is_the_ieee_one) {
  EXPECT(ingot_crc32(0, "123456789", 9) == 0xCBF43926u);
  EXPECT(ingot_crc32(0, "", 0) == 0);
  EXPECT(ingot_crc32(0, "The quick brown fox jumps over the lazy dog", 43) == 0x414FA339u);
}

TEST(crc_is_the_same_in_pieces_and_by_tables) {
  enum { LENGTH = 40000 };
  static uint8_t data[LENGTH];
  for (uint32_t i = 0; i < LENGTH; i++) data[i] = (uint8_t)(i * 2654435761u >> 13);
  uint32_t small = 0;
  for (int i = 0; i < LENGTH; i += 100) small = ingot_crc32(small, data + i, 100);
  EXPECT(ingot_crc32(0, data, LENGTH) == small);
  uint32_t odd = ingot_crc32(ingot_crc32(0, data, 20003), data + 20003, LENGTH - 20003);
  EXPECT(odd == small);
}

int main(void) {
  allocator = test_allocator(&counter);
  RUN_TESTS();
  return TEST_RESULT();
}
