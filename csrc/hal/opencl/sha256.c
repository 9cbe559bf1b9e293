/* SHA-256, block by block. */
#include "hal/opencl/sha256.h"

#include <string.h>

/* The first bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t ingot_sha256_rounds[64] = {
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
    0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
    0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
    0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
    0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
    0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
    0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
    0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2,
};

static uint32_t ingot_sha256_rotate(uint32_t value, int count) {
  return value >> count | value << (32 - count);
}

static void ingot_sha256_block(ingot_sha256_t *hash) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++) {
    const uint8_t *bytes = hash->block + 4 * i;
    w[i] = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
  }
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] +
           (ingot_sha256_rotate(a, 7) ^ ingot_sha256_rotate(a, 18) ^ a >> 3) +
           (ingot_sha256_rotate(b, 17) ^ ingot_sha256_rotate(b, 19) ^ b >> 10);
  }
  memcpy(s, hash->words, sizeof(s));
  for (int i = 0; i < 64; i++) {
    uint32_t a = s[0], e = s[4];
    uint32_t first =
        s[7] + ingot_sha256_rounds[i] + w[i] + ((e & s[5]) ^ (~e & s[6])) +
        (ingot_sha256_rotate(e, 6) ^ ingot_sha256_rotate(e, 11) ^ ingot_sha256_rotate(e, 25));
    uint32_t second =
        ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2])) +
        (ingot_sha256_rotate(a, 2) ^ ingot_sha256_rotate(a, 13) ^ ingot_sha256_rotate(a, 22));
    memmove(s + 1, s, 7 * sizeof(s[0]));
    s[0] = first + second;
    s[4] += first;
  }
  for (int i = 0; i < 8; i++) hash->words[i] += s[i];
}

ingot_sha256_t ingot_sha256_begin(void) {
  return (ingot_sha256_t){.words = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F,
                                    0x9B05688C, 0x1F83D9AB, 0x5BE0CD19}};
}

void ingot_sha256_add(ingot_sha256_t *hash, const void *data, size_t length) {
  const uint8_t *bytes = data;
  while (length > 0) {
    size_t used = (size_t)(hash->length % 64);
    size_t part = length < 64 - used ? length : 64 - used;
    memcpy(hash->block + used, bytes, part);
    hash->length += part;
    bytes += part;
    length -= part;
    if (hash->length % 64 == 0) ingot_sha256_block(hash);
  }
}

void ingot_sha256_finish(ingot_sha256_t *hash, uint8_t out_digest[32]) {
  static const uint8_t padding[64] = {0x80};
  uint64_t bits = 8 * hash->length;
  uint8_t tail[8];
  for (int i = 0; i < 8; i++) tail[i] = (uint8_t)(bits >> (56 - 8 * i));
  ingot_sha256_add(hash, padding, 1 + (size_t)((119 - hash->length % 64) % 64));
  ingot_sha256_add(hash, tail, sizeof(tail));
  for (int i = 0; i < 32; i++) {
    out_digest[i] = (uint8_t)(hash->words[i / 4] >> (24 - 8 * (i % 4)));
  }
}
