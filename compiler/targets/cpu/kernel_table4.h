/* Bytes of words, 0 to 15, as those of a table, of which `low` has the first eight. Without an
 * instruction for it, each bit of the codes halves what is left of the table.
 * Included once per number of lanes, behind kernel_arithmetic.h, where a kernel looks codes up.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)

#if defined(__AVX512BW__) && L == 16 && defined(__clang__)
#define INGOT_SHUFFLE(table, codes) __builtin_ia32_pshufb512(table, codes)
#elif defined(__AVX512BW__) && L == 16
#define INGOT_SHUFFLE(table, codes) __builtin_ia32_pshufb512_mask(table, codes, codes, ~(u64)0)
#elif defined(__AVX2__) && L == 8
#define INGOT_SHUFFLE(table, codes) __builtin_ia32_pshufb256(table, codes)
#elif defined(__SSSE3__) && L == 4
#define INGOT_SHUFFLE(table, codes) __builtin_ia32_pshufb128(table, codes)
#elif defined(__aarch64__) && L == 4
INGOT_INLINE i32x4 table_words(i32x4 table, i32x4 codes) {
  __asm__("tbl %0.16b, {%1.16b}, %0.16b" : "+w"(codes) : "w"(table));
  return codes;
}
#define INGOT_SHUFFLE(table, codes) table_words((i32x4)table, (i32x4)codes)
#elif defined(__wasm_simd128__) && L == 4
#define INGOT_SHUFFLE(table, codes) __builtin_wasm_swizzle_i8x16(table, codes)
#endif

INGOT_INLINE N(i32) N(table4_i32)(N(i32) words, u64 low, u64 high) {
  typedef char bytes __attribute__((vector_size(4 * L)));
  bytes codes = (bytes)words;
#if defined(INGOT_SHUFFLE)
  typedef u64 longs __attribute__((vector_size(4 * L)));
  longs table = {0};
  for (int place = 0; place < L / 2; ++place) table[place] = place % 2 ? high : low;
  codes = (bytes)INGOT_SHUFFLE((bytes)table, codes);
#else
  bytes none = {0}, found[16];
  for (int place = 0; place < 16; ++place) {
    found[place] = none + (char)((place < 8 ? low : high) >> 8 * (place % 8));
  }
  for (int bit = 1; bit < 16; bit *= 2) {
    bytes mask = (bytes)((codes & (none + (char)bit)) != none);
    for (int place = 0; place < 8 / bit; ++place) {
      bytes first = found[2 * place];
      found[place] = first ^ (mask & (first ^ found[2 * place + 1]));
    }
  }
  codes = found[0];
#endif
  return (N(i32))codes;
}

#undef INGOT_SHUFFLE
#undef N
#undef L
#undef INGOT_LANES
