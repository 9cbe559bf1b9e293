/* Tiles of AMX: up to 16 rows of up to 16 words of four bytes, or of two bf16. Included behind kernel.h
 * where a kernel multiplies in tiles, for a variant that has them.
 *
 * Tiles 0 to 3 are sums, two rows of two; 4 and 5 rows of the left side; 6 and 7 lines of two panels.
 * All tiles of a kernel have the same rows: the last ones begin so much earlier that they are whole,
 * and the sums of rows that were there before are stored once more.
 */
#include "kernel.h"

typedef struct {
  u8 palette, start, reserved[14];
  u16 lengths[16];
  u8 rows[16];
} ingot_tile_shapes;

/* Shapes the tiles of this thread, to the rows that they have, of `rows` on the left side. `others`:
 * what they were. */
INGOT_INLINE i64 shape_tiles(ingot_tile_shapes *others, i64 rows, i64 words) {
  ingot_tile_shapes shapes __attribute__((aligned(64))) = {.palette = 1};
  i64 height = index_min(rows, 16);
  for (int tile = 0; tile < 8; tile++) {
    shapes.rows[tile] = (u8)(tile < 6 ? height : words);
    shapes.lengths[tile] = (u16)(tile == 4 || tile == 5 ? 4 * words : 64);
  }
  __asm__ volatile("sttilecfg %0" : "=m"(*others));
  __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
  return height;
}

/* Code that is not ours may shape the tiles of a thread once and rely on it, though calls may change
 * them by the ABI. */
INGOT_INLINE void restore_tiles(const ingot_tile_shapes *others) {
  if (others->palette) {
    __asm__ volatile("ldtilecfg %0" : : "m"(*others));
  } else {
    __asm__ volatile("tilerelease");
  }
}

/* To the end of the block, whatever ends it. */
#define INGOT_SHAPE_TILES(rows, words)                                                \
  enum { tile_words = words };                                                        \
  ingot_tile_shapes other_tiles __attribute__((aligned(64), cleanup(restore_tiles))); \
  const i64 tile_height __attribute__((unused)) = shape_tiles(&other_tiles, rows, words)

/* AddressSanitizer does not look into instructions: it is shown both ends of each row of a tile. */
#ifdef __SANITIZE_ADDRESS__
INGOT_INLINE void show_tile(int tile, const volatile char *memory, i64 pitch) {
  ingot_tile_shapes shapes __attribute__((aligned(64)));
  __asm__ volatile("sttilecfg %0" : "=m"(shapes));
  for (i64 row = 0; row < shapes.rows[tile]; row++) {
    (void)memory[row * pitch];
    (void)memory[row * pitch + shapes.lengths[tile] - 1];
  }
}
#define INGOT_SHOW_TILE(tile, address, pitch) show_tile(tile, (const char *)(address), pitch)
#else
#define INGOT_SHOW_TILE(tile, address, pitch) (void)0
#endif

#define INGOT_ZERO_TILE(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define INGOT_TILE_ACCESS(text, tile, address, pitch)                                \
  do {                                                                               \
    INGOT_SHOW_TILE(tile, address, pitch);                                           \
    __asm__ volatile(text : : "r"(address), "r"(pitch) : "memory");                  \
  } while (0)
#define INGOT_LOAD_TILE(tile, address, pitch) \
  INGOT_TILE_ACCESS("tileloadd (%0,%1,1), %%tmm" #tile, tile, address, pitch)
#define INGOT_STORE_TILE(tile, address, pitch) \
  INGOT_TILE_ACCESS("tilestored %%tmm" #tile ", (%0,%1,1)", tile, address, pitch)

/* A side: its first word, and the bytes from row to row, or from panel to panel, and from segment to
 * segment. */
typedef struct {
  const char *memory;
  i64 pitch, step;
} ingot_tile_side;

/* The sums of `tiles` tiles of rows and `panels` panels, tile 0 of rows that begin `first` bytes
 * behind the left side's first one, tile 1 `second`: over `words` words, `chunk` at once, of all
 * segments. And those of `rows` rows, and as many `line_pitch` bytes on if this is not 0, in rows of
 * `pitch` bytes.
 */
#define INGOT_DOT_TILES(name, instruction)                                                        \
  INGOT_INLINE void dot_block_##name(ingot_tile_side left, ingot_tile_side right, i64 first,       \
      i64 second, i64 words, i64 segments, int chunk, int tiles, int panels) {                     \
    INGOT_ZERO_TILE(0);                                                                            \
    if (panels > 1) INGOT_ZERO_TILE(1);                                                            \
    if (tiles > 1) INGOT_ZERO_TILE(2);                                                             \
    if (tiles > 1 && panels > 1) INGOT_ZERO_TILE(3);                                               \
    _Pragma("GCC unroll 1")                                                                        \
    for (i64 segment = 0; segment < segments; segment++) {                                         \
      const char *a = left.memory + segment * left.step + first;                                   \
      const char *b = right.memory + segment * right.step;                                         \
      _Pragma("GCC unroll 1")                                                                      \
      for (i64 word = 0; word < words; word += chunk) {                                            \
        INGOT_LOAD_TILE(4, a, left.pitch);                                                         \
        INGOT_LOAD_TILE(6, b, (i64)64);                                                            \
        __asm__ volatile(instruction " %%tmm6, %%tmm4, %%tmm0" : :);                               \
        if (panels > 1) {                                                                          \
          INGOT_LOAD_TILE(7, b + right.pitch, (i64)64);                                            \
          __asm__ volatile(instruction " %%tmm7, %%tmm4, %%tmm1" : :);                             \
        }                                                                                          \
        if (tiles > 1) {                                                                           \
          INGOT_LOAD_TILE(5, a + (second - first), left.pitch);                                    \
          __asm__ volatile(instruction " %%tmm6, %%tmm5, %%tmm2" : :);                             \
        }                                                                                          \
        if (tiles > 1 && panels > 1) {                                                             \
          __asm__ volatile(instruction " %%tmm7, %%tmm5, %%tmm3" : :);                             \
        }                                                                                          \
        a += 4 * chunk;                                                                            \
        b += 64 * chunk;                                                                           \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  INGOT_INLINE void dot_tiles_##name(ingot_tile_side left, ingot_tile_side right, char *sums,      \
      i64 rows, i64 words, i64 segments, i64 line_pitch, i64 height, int chunk, int panels,        \
      i64 pitch) {                                                                                 \
    i64 first = index_min(rows - height, 0);                                                       \
    i64 second = line_pitch ? rows : rows - height;                                                \
    i64 at = first * left.pitch, second_at = line_pitch ? line_pitch : second * left.pitch;        \
    if (second > 0) {                                                                              \
      dot_block_##name(left, right, at, second_at, words, segments, chunk, 2, panels);             \
    } else {                                                                                       \
      dot_block_##name(left, right, at, at, words, segments, chunk, 1, panels);                    \
    }                                                                                              \
    INGOT_STORE_TILE(0, sums + first * pitch, pitch);                                              \
    if (panels > 1) INGOT_STORE_TILE(1, sums + first * pitch + 64, pitch);                         \
    if (second > 0) {                                                                              \
      INGOT_STORE_TILE(2, sums + second * pitch, pitch);                                           \
      if (panels > 1) INGOT_STORE_TILE(3, sums + second * pitch + 64, pitch);                      \
    }                                                                                              \
  }

/* The product of 16 rows and a panel over `words` words, `chunk` at once, which stays in tile 0 or 1. */
#define INGOT_MULTIPLY_TILE(name, instruction)                                                    \
  INGOT_INLINE void multiply_tile_##name(                                                          \
      const void *left, i64 pitch, const void *right, i64 words, int chunk, int tile) {            \
    if (tile) INGOT_ZERO_TILE(1);                                                                  \
    if (!tile) INGOT_ZERO_TILE(0);                                                                 \
    _Pragma("GCC unroll 1")                                                                        \
    for (i64 word = 0; word < words; word += chunk) {                                              \
      const char *a = (const char *)left + 4 * word, *b = (const char *)right + 64 * word;         \
      if (tile) {                                                                                  \
        INGOT_LOAD_TILE(5, a, pitch);                                                              \
        INGOT_LOAD_TILE(7, b, (i64)64);                                                            \
        __asm__ volatile(instruction " %%tmm7, %%tmm5, %%tmm1" : :);                               \
      } else {                                                                                     \
        INGOT_LOAD_TILE(4, a, pitch);                                                              \
        INGOT_LOAD_TILE(6, b, (i64)64);                                                            \
        __asm__ volatile(instruction " %%tmm6, %%tmm4, %%tmm0" : :);                               \
      }                                                                                            \
    }                                                                                              \
  }

INGOT_INLINE void store_tile(void *sums, int tile) {
  if (tile) {
    INGOT_STORE_TILE(1, sums, (i64)64);
  } else {
    INGOT_STORE_TILE(0, sums, (i64)64);
  }
}

INGOT_IF(u8u8, INGOT_DOT_TILES(u8_u8, "tdpbuud"))
INGOT_IF(u8i8, INGOT_DOT_TILES(u8_i8, "tdpbusd"))
INGOT_IF(i8u8, INGOT_DOT_TILES(i8_u8, "tdpbsud"))
INGOT_IF(i8i8, INGOT_DOT_TILES(i8_i8, "tdpbssd"))
INGOT_IF(bf16bf16, INGOT_DOT_TILES(bf16_bf16, "tdpbf16ps"))

INGOT_IF(i8u8, INGOT_MULTIPLY_TILE(i8_u8, "tdpbsud"))
INGOT_IF(i8i8, INGOT_MULTIPLY_TILE(i8_i8, "tdpbssd"))
