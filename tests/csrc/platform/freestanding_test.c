/* The functions for compilers without a C library, beside those of this system's library. */
#include "test.h"

typedef int (*print_t)(char *text, size_t capacity, const char *format, ...);
static const print_t print_here = snprintf;

#include "platform/freestanding/stdio.h"
#include "platform/freestanding/stdlib.h"
#include "platform/freestanding/string.h"

#include "platform/freestanding/libc.c"

static int sign(int number) { return (number > 0) - (number < 0); }

#define EXPECT_PRINTED(...)                                             \
  do {                                                                  \
    char got[64], wanted[64];                                           \
    for (size_t capacity = 0; capacity <= sizeof(got); capacity += 8) { \
      memset(got, '#', sizeof(got));                                    \
      memset(wanted, '#', sizeof(wanted));                              \
      EXPECT_EQUAL(snprintf(got, capacity, __VA_ARGS__),                \
                   print_here(wanted, capacity, __VA_ARGS__));          \
      EXPECT(memcmp(got, wanted, sizeof(got)) == 0);                    \
    }                                                                   \
  } while (0)

TEST(formats_are_those_of_c) {
  EXPECT_PRINTED("nothing");
  EXPECT_PRINTED("%d %d %d", 0, -1, INT32_MIN);
  EXPECT_PRINTED("%u %x %08x %02x %3u|", UINT32_MAX, 0xBEEFu, 0xBEEFu, 5u, 7u);
  EXPECT_PRINTED("%lld %llu %llx", (long long)INT64_MIN, UINT64_MAX + 0ull, UINT64_MAX + 0ull);
  EXPECT_PRINTED("%ld %lu %zu", -5l, 5ul, SIZE_MAX);
  EXPECT_PRINTED("'%s' %.3s %.*s %.0s %c %%", "text", "shorter", 2, "ab", "none", '!');
}

TEST(texts_compare_and_are_searched) {
  const char *const texts[] = {"", "a", "ab", "abc", "abd", "b", "\xff", "aab"};
  for (int i = 0; i < 8; i++) {
    EXPECT_EQUAL(strlen(texts[i]), __builtin_strlen(texts[i]));
    for (int j = 0; j < 8; j++) {
      EXPECT_EQUAL(sign(strcmp(texts[i], texts[j])), sign(__builtin_strcmp(texts[i], texts[j])));
      for (size_t n = 0; n < 4; n++) {
        EXPECT_EQUAL(sign(strncmp(texts[i], texts[j], n)),
                     sign(__builtin_strncmp(texts[i], texts[j], n)));
      }
      EXPECT(strstr(texts[i], texts[j]) == __builtin_strstr(texts[i], texts[j]));
      EXPECT(strpbrk(texts[i], texts[j]) == __builtin_strpbrk(texts[i], texts[j]));
      EXPECT_EQUAL(strcspn(texts[i], texts[j]), __builtin_strcspn(texts[i], texts[j]));
    }
    for (const char *c = "ab\xff"; *c; c++) {
      EXPECT(strchr(texts[i], *c) == __builtin_strchr(texts[i], *c));
      EXPECT(strrchr(texts[i], *c) == __builtin_strrchr(texts[i], *c));
      EXPECT(memchr(texts[i], *c, 1) == __builtin_memchr(texts[i], *c, 1));
    }
  }
}

static int compare_numbers(const void *left, const void *right) {
  uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return (a > b) - (a < b);
}

TEST(anything_is_sorted) {
  uint32_t numbers[100], random = 1;
  for (uint32_t count = 0; count <= 100; count++) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
      random = random * 1664525u + 1013904223u;
      sum += numbers[i] = random >> 28;
    }
    qsort(numbers, count, sizeof(uint32_t), compare_numbers);
    for (uint32_t i = 0; i < count; i++) {
      sum -= numbers[i];
      EXPECT(i == 0 || numbers[i - 1] <= numbers[i]);
    }
    EXPECT_EQUAL(sum, 0);
  }
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
