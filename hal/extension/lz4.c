/* The shortest blocks of the matches that are looked at: see lz4.h. A module is written once and
 * loaded often, so all of the time is spent here. */
#include "lz4.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/lz4.h"

#define LEAST_MATCH 4
#define LITERALS_AT_END 5 /* as the format wants it */
#define LAST_MATCH 12     /* bytes before the end, at least, where the last match begins */
#define MOST_DISTANCE 65535
#define MOST_LENGTH (1u << 30)
#define HASH_BITS 15
#define MOST_TRIES 64 /* earlier places with the same hash that are looked at */
#define GOOD_LENGTH \
  64   /* of a match: shorter parts of it are not tried, its inner places not searched */

/* Of a place: the longest match that begins there, then what the block does there. */
typedef struct place_t {
  uint32_t length; /* 0: a literal */
  uint32_t distance;
  uint32_t cost; /* bytes of the block for all from here on */
} place_t;

static uint32_t hash_of(const uint8_t *data) {
  uint32_t word;
  memcpy(&word, data, sizeof(word));
  return word * 2654435761u >> (32 - HASH_BITS);
}

static uint32_t matching(const uint8_t *a, const uint8_t *b, uint32_t most) {
  uint32_t length = 0;
  while (length < most && a[length] == b[length]) length++;
  return length;
}

/* Finds the longest match of every place. `previous`: i32[length], `heads`: i32[1 << HASH_BITS]. */
static void find_matches(const uint8_t *data, uint32_t length, place_t *places, int32_t *previous,
                         int32_t *heads) {
  memset(heads, -1, sizeof(int32_t) << HASH_BITS);
  for (uint32_t i = 0; i + LAST_MATCH <= length; i++) {
    const uint32_t hash = hash_of(data + i), most = length - LITERALS_AT_END - i;
    place_t *place = &places[i];
    previous[i] = heads[hash];
    heads[hash] = (int32_t)i;
    if (i > 0 && places[i - 1].length > GOOD_LENGTH) {
      *place = (place_t){.length = places[i - 1].length - 1, .distance = places[i - 1].distance};
      continue;
    }
    int32_t other = previous[i];
    for (int tries = 0; tries < MOST_TRIES && other >= 0; tries++, other = previous[other]) {
      const uint32_t distance = i - (uint32_t)other;
      if (distance > MOST_DISTANCE || place->length == most) break;
      if (data[(uint32_t)other + place->length] != data[i + place->length]) continue;
      const uint32_t found = matching(data + other, data + i, most);
      if (found >= LEAST_MATCH && found > place->length) {
        *place = (place_t){.length = found, .distance = distance};
      }
    }
  }
}

/* Bytes behind the token that a length takes of which it has room for 15. */
static uint32_t bytes_of(uint32_t length) { return length < 15 ? 0 : 1 + (length - 15) / 255; }

/* Decides what the block does at each place, from the end. Literals count as a byte each: more
 * than 14 in a row, whose length takes another, are rare. */
static void choose(place_t *places, uint32_t length) {
  for (uint32_t i = length; i-- > 0;) {
    place_t *place = &places[i];
    const uint32_t longest = place->length;
    place->cost = 1 + (i + 1 < length ? places[i + 1].cost : 0);
    place->length = 0;
    for (uint32_t size = longest; size >= LEAST_MATCH; size--) {
      const uint32_t cost = 3 + bytes_of(size - LEAST_MATCH) + places[i + size].cost;
      if (cost < place->cost) {
        place->cost = cost;
        place->length = size;
      }
      if (longest > GOOD_LENGTH) break;
    }
  }
}

static uint8_t *write_length(uint8_t *out, uint32_t length) {
  if (length < 15) return out;
  for (length -= 15; length >= 255; length -= 255) *out++ = 255;
  *out++ = (uint8_t)length;
  return out;
}

/* The block's length; 0: it has more than `capacity` bytes. */
static size_t write_block(const uint8_t *data, uint32_t start, uint32_t length,
                          const place_t *places, uint8_t *block, size_t capacity) {
  uint8_t *out = block, *end = block + capacity;
  for (uint32_t i = start, first = start;; i += places[i].length) {
    while (i < length && places[i].length == 0) i++;
    const uint32_t literals = i - first, match = i < length ? places[i].length - LEAST_MATCH : 0;
    if ((size_t)(end - out) < 3 + (size_t)literals + bytes_of(literals) + bytes_of(match)) return 0;
    *out++ = (uint8_t)((literals < 15 ? literals : 15) << 4 | (match < 15 ? match : 15));
    out = write_length(out, literals);
    memcpy(out, data + first, literals);
    out += literals;
    if (i == length) return (size_t)(out - block);
    *out++ = (uint8_t)places[i].distance;
    *out++ = (uint8_t)(places[i].distance >> 8);
    out = write_length(out, match);
    first = i + places[i].length;
  }
}

size_t ingot_python_lz4_compress(const void *data, size_t before, size_t length, void *block,
                                 size_t capacity) {
  if (length > MOST_LENGTH) return 0;
  place_t *places = calloc(length + 1, sizeof(*places));
  int32_t *previous = malloc((length + 1) * sizeof(*previous));
  int32_t *heads = malloc(sizeof(*heads) << HASH_BITS);
  size_t made = 0;
  if (places && previous && heads) {
    find_matches(data, (uint32_t)length, places, previous, heads);
    choose(places, (uint32_t)length);
    made = write_block(data, (uint32_t)before, (uint32_t)length, places, block, capacity);
  }
  free(heads);
  free(previous);
  free(places);
  return made;
}

bool ingot_python_lz4_decompress(const void *block, size_t block_length, void *out, size_t length,
                                 size_t before) {
  return ingot_lz4_decompress(block, block_length, out, length, before);
}
