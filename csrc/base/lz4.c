/* A block is a row of sequences: a token with two lengths, literals, and a match: how far back, in
 * two bytes, and how many bytes. The last sequence has no match. */
#include "base/lz4.h"

#include <stdint.h>
#include <string.h>

#define LEAST_MATCH 4
#define MOST_OF_A_BYTE 255 /* bytes that one byte of a block makes */
#define CHUNK 16 /* bytes that are copied at once where there is room behind them */

/* Adds the bytes that follow a length of 15 in a token; false: the block ends before they do. */
static bool read_length(const uint8_t **in, const uint8_t *end, size_t *length) {
  if (*length < 15) return true;
  for (uint8_t more = 255; more == 255; *length += more) {
    if (*in == end || *length > SIZE_MAX - 255) return false;
    more = *(*in)++;
  }
  return true;
}

/* Copies up to CHUNK - 1 bytes too many. `from` may lie CHUNK or more in front of `out`. */
static void copy_chunks(uint8_t *out, const uint8_t *from, size_t length) {
  for (size_t i = 0; i < length; i += CHUNK) memcpy(out + i, from + i, CHUNK);
}

bool ingot_lz4_length(const void *data, size_t data_length, size_t *out_length) {
  uint64_t length = 0;
  if (data_length < sizeof(length)) return false;
  memcpy(&length, data, sizeof(length));
  *out_length = (size_t)length;
  return length / MOST_OF_A_BYTE <= data_length && length <= SIZE_MAX;
}

bool ingot_lz4_decompress(const void *block, size_t block_length, void *out, size_t length,
                          size_t before) {
  const uint8_t *in = block, *end = in + block_length;
  uint8_t *at = out, *last = at + length;
  while (in < end) {
    const size_t token = *in++;
    size_t count = token >> 4;
    if (!read_length(&in, end, &count)) return false;
    if (count > (size_t)(end - in) || count > (size_t)(last - at)) return false;
    if ((size_t)(end - in) - count >= CHUNK && (size_t)(last - at) - count >= CHUNK) {
      copy_chunks(at, in, count);
    } else {
      memcpy(at, in, count);
    }
    in += count;
    at += count;
    if (in == end) return at == last;
    if (end - in < 2) return false;
    const size_t distance = in[0] | (size_t)in[1] << 8;
    in += 2;
    count = token & 15;
    if (!read_length(&in, end, &count)) return false;
    count += LEAST_MATCH;
    if (distance == 0 || distance > (size_t)(at - (uint8_t *)out) + before ||
        count > (size_t)(last - at)) {
      return false;
    }
    if (distance >= CHUNK && (size_t)(last - at) - count >= CHUNK) {
      copy_chunks(at, at - distance, count);
    } else {
      for (size_t i = 0; i < count; i++) at[i] = at[(ptrdiff_t)i - (ptrdiff_t)distance];
    }
    at += count;
  }
  return false;
}
