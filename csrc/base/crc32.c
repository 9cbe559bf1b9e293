/* CRC-32 by table: eight bytes a step for large inputs, a nibble a step for small ones.
 * The large tables are made on the stack, in about the time that they save on 8 KB, so the
 * library carries 64 bytes of table instead of 8 KB. */
#include "base/crc32.h"

#define INGOT_CRC32_LARGE 16384 /* bytes from which the tables pay */

static const uint32_t ingot_crc32_nibbles[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};

static uint32_t ingot_crc32_byte(uint32_t crc, uint8_t byte) {
  crc ^= byte;
  crc = (crc >> 4) ^ ingot_crc32_nibbles[crc & 15];
  return (crc >> 4) ^ ingot_crc32_nibbles[crc & 15];
}

static uint32_t ingot_crc32_large(uint32_t crc, const uint8_t *bytes, size_t block_count) {
  uint32_t tables[8][256];
  for (uint32_t i = 0; i < 256; i++) tables[0][i] = ingot_crc32_byte(0, (uint8_t)i);
  for (uint32_t t = 1; t < 8; t++) {
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t previous = tables[t - 1][i];
      tables[t][i] = (previous >> 8) ^ tables[0][previous & 255];
    }
  }
  for (size_t block = 0; block < block_count; block++, bytes += 8) {
    uint32_t low = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                   (uint32_t)bytes[3] << 24;
    low ^= crc;
    crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
          tables[4][low >> 24] ^ tables[3][bytes[4]] ^ tables[2][bytes[5]] ^ tables[1][bytes[6]] ^
          tables[0][bytes[7]];
  }
  return crc;
}

uint32_t ingot_crc32(uint32_t seed, const void *data, size_t length) {
  const uint8_t *bytes = data;
  uint32_t crc = ~seed;
  if (length >= INGOT_CRC32_LARGE) {
    size_t block_count = length / 8;
    crc = ingot_crc32_large(crc, bytes, block_count);
    bytes += block_count * 8;
    length -= block_count * 8;
  }
  for (size_t i = 0; i < length; i++) crc = ingot_crc32_byte(crc, bytes[i]);
  return ~crc;
}
