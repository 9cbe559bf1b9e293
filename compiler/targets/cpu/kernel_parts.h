/* Products of f32 that are sums of two or three bf16, in tiles: those of part i and part j with i + j <
 * parts. Words of the parts of either side are `step` bytes apart. Tiles as in kernel_tiles.h, behind
 * which this is included.
 */
/* Zeros in a tile of sums, or what lies at an address, to which is added. */
#define INGOT_BEGIN_TILE(tile, adds, address, pitch) \
  do {                                               \
    if (adds) INGOT_LOAD_TILE(tile, address, pitch); \
    if (!(adds)) INGOT_ZERO_TILE(tile);              \
  } while (0)

INGOT_INLINE void load_left_part(ingot_tile_side left, const char *a, i64 low, int part, int tiles) {
  INGOT_LOAD_TILE(4, a + part * left.step, left.pitch);
  if (tiles > 1) INGOT_LOAD_TILE(5, a + part * left.step + low, left.pitch);
}

INGOT_INLINE void load_right_part(ingot_tile_side right, const char *b, int part, int panels) {
  INGOT_LOAD_TILE(6, b + part * right.step, (i64)64);
  if (panels > 1) INGOT_LOAD_TILE(7, b + part * right.step + right.pitch, (i64)64);
}

INGOT_INLINE void multiply_parts(int tiles, int panels) {
  __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0" : :);
  if (panels > 1) __asm__ volatile("tdpbf16ps %%tmm7, %%tmm4, %%tmm1" : :);
  if (tiles > 1) __asm__ volatile("tdpbf16ps %%tmm6, %%tmm5, %%tmm2" : :);
  if (tiles > 1 && panels > 1) __asm__ volatile("tdpbf16ps %%tmm7, %%tmm5, %%tmm3" : :);
}

INGOT_INLINE void dot_parts_block(ingot_tile_side left, ingot_tile_side right, i64 line, char *sums,
    i64 words, i64 segments, int chunk, int tiles, int panels, i64 pitch, int adds, int parts) {
  const char *a = left.memory, *b = right.memory;
  i64 low = 16 * left.pitch;
  INGOT_BEGIN_TILE(0, adds, sums, pitch);
  if (panels > 1) INGOT_BEGIN_TILE(1, adds, sums + 64, pitch);
  if (tiles > 1) INGOT_BEGIN_TILE(2, adds, sums + 16 * pitch, pitch);
  if (tiles > 1 && panels > 1) INGOT_BEGIN_TILE(3, adds, sums + 16 * pitch + 64, pitch);
  for (i64 segment = 0; segment < segments; segment++) {
    for (i64 word = 0; word < words; word += chunk) {
      load_left_part(left, a, low, parts - 1, tiles);
      load_right_part(right, b, 0, panels);
      multiply_parts(tiles, panels);
      load_left_part(left, a, low, parts - 2, tiles);
      multiply_parts(tiles, panels);
      load_right_part(right, b, 1, panels);
      multiply_parts(tiles, panels);
      if (parts > 2) {
        load_left_part(left, a, low, 0, tiles);
        multiply_parts(tiles, panels);
        load_right_part(right, b, 2, panels);
        multiply_parts(tiles, panels);
        load_right_part(right, b, 0, panels);
        multiply_parts(tiles, panels);
      }
      a += 4 * chunk;
      b += 64 * chunk;
    }
    a += line - 4 * words;
  }
  INGOT_STORE_TILE(0, sums, pitch);
  if (panels > 1) INGOT_STORE_TILE(1, sums + 64, pitch);
  if (tiles > 1) INGOT_STORE_TILE(2, sums + 16 * pitch, pitch);
  if (tiles > 1 && panels > 1) INGOT_STORE_TILE(3, sums + 16 * pitch + 64, pitch);
}

INGOT_INLINE void dot_parts(ingot_tile_side left, ingot_tile_side right, i64 line, char *sums,
    i64 rows, i64 words, i64 segments, int chunk, int panels, i64 pitch, int adds, int parts) {
  if (rows > 16) {
    dot_parts_block(
        left, right, line, sums, words, segments, chunk, 2, panels, pitch, adds, parts);
  } else {
    dot_parts_block(
        left, right, line, sums, words, segments, chunk, 1, panels, pitch, adds, parts);
  }
}
