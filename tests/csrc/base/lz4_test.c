/* Blocks of LZ4: what another compressor made, and damaged ones. */
#include "base/lz4.h"

#include <stdlib.h>

#include "test.h"

#define TEXT "the end of it, 0123456789abcdefghijklmnopqrstuvwxyz"
#define LENGTH (12 + 40 + sizeof(TEXT) - 1 + 12 + 300 + 5)

/* Of LZ4 1.9: matches that overlap themselves, long lengths, distances of one and of many bytes. */
static const uint8_t block[] = {
    0x44, 0x61, 0x62, 0x63, 0x64, 0x04, 0x00, 0x1f, 0x00, 0x01, 0x00, 0x14, 0xf0, 0x0a, 0x74, 0x68,
    0x65, 0x20, 0x65, 0x6e, 0x64, 0x20, 0x6f, 0x66, 0x20, 0x69, 0x74, 0x2c, 0x20, 0x30, 0x31, 0x32,
    0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x45, 0x00, 0xfe, 0x07, 0x65, 0x66, 0x67, 0x68, 0x69,
    0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79,
    0x7a, 0x67, 0x00, 0x0f, 0x01, 0x00, 0xff, 0x14, 0x50, 0x74, 0x61, 0x69, 0x6c, 0x21};

/* Of its own size, so that sanitizers see a byte beyond it. */
static bool decompress(const uint8_t *data, size_t data_length, size_t length, uint8_t *out_copy) {
  uint8_t *in = malloc(data_length + 1), *out = malloc(length + 1);
  if (!in || !out) abort();
  memcpy(in + 1, data, data_length);
  const bool made = ingot_lz4_decompress(in + 1, data_length, out + 1, length, 0);
  if (out_copy) memcpy(out_copy, out + 1, length);
  free(out);
  free(in);
  return made;
}

TEST(a_block_of_another_compressor_is_read) {
  uint8_t out[LENGTH], zeros[300] = {0};
  REQUIRE(decompress(block, sizeof(block), LENGTH, out));
  EXPECT(memcmp(out, "abcdabcdabcd", 12) == 0);
  EXPECT(memcmp(out + 12, zeros, 40) == 0);
  EXPECT(memcmp(out + 52, TEXT, sizeof(TEXT) - 1) == 0);
  EXPECT(memcmp(out + 52 + sizeof(TEXT) - 1, "abcdabcdabcd", 12) == 0);
  EXPECT(memcmp(out + LENGTH - 305, zeros, 300) == 0);
  EXPECT(memcmp(out + LENGTH - 5, "tail!", 5) == 0);
}

TEST(a_block_is_of_one_length) {
  EXPECT(!decompress(block, sizeof(block), LENGTH - 1, NULL));
  EXPECT(!decompress(block, sizeof(block), LENGTH + 1, NULL));
  for (size_t length = 0; length < sizeof(block); ++length) {
    EXPECT(!decompress(block, length, LENGTH, NULL));
  }
  EXPECT(decompress((const uint8_t *)"", 1, 0, NULL)); /* what an empty one is */
}

TEST(damaged_blocks_stay_in_their_memory) {
  uint8_t changed[sizeof(block)];
  for (size_t bit = 0; bit < sizeof(block) * 8; ++bit) {
    memcpy(changed, block, sizeof(block));
    changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    (void)decompress(changed, sizeof(changed), LENGTH, NULL);
    (void)decompress(changed, sizeof(changed), LENGTH / 2, NULL);
  }
}

TEST(a_block_repeats_what_stands_in_front_of_it) {
  const uint8_t repeats[] = {0x00, 0x04, 0x00, 0x00};
  uint8_t *text = malloc(8);
  REQUIRE(text);
  memcpy(text, "abcd", 4);
  EXPECT(ingot_lz4_decompress(repeats, sizeof(repeats), text + 4, 4, 4));
  EXPECT(memcmp(text, "abcdabcd", 8) == 0);
  EXPECT(!ingot_lz4_decompress(repeats, sizeof(repeats), text + 4, 4, 3));
  free(text);
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
