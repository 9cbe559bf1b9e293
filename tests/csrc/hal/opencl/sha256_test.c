/* SHA-256 against the examples of its standard. */
#include "hal/opencl/sha256.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

/* The digest of `count` times `text` as hexadecimal digits, added in parts of any length. */
static void expect_digest(const char *text, int count, const char *expected) {
  uint8_t digest[32];
  char found[65];
  ingot_sha256_t hash = ingot_sha256_begin();
  for (int i = 0; i < count; i++) ingot_sha256_add(&hash, text, strlen(text));
  ingot_sha256_finish(&hash, digest);
  for (int i = 0; i < 32; i++) (void)snprintf(found + 2 * i, 3, "%02x", digest[i]);
  EXPECT_TEXT(found, expected);
}

TEST(digests_are_those_of_the_standard) {
  expect_digest("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  expect_digest("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  expect_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  expect_digest("aaaaaaaaaa", 100000,
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
