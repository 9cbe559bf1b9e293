/* Codes of a few bits at a place of words, as floats. With AVX-512 one instruction looks 16 or 32
 * floats up by the low bits of each lane: what stands above a code need not go, and what it finds
 * is converted already.
 * Included once per number of lanes, behind kernel_arithmetic.h, where a kernel makes such numbers.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)

INGOT_INLINE N(f32) N(code_number)(N(i32) words, int place, int bits, int is_signed) {
  if (is_signed) {
    words = (N(i32))((N(u32))words << (32 - bits - place)) >> (32 - bits);
  } else {
    words = (N(i32))((N(u32))words >> place) & (int)(~0u >> (32 - bits));
  }
  return __builtin_convertvector(words, N(f32));
}

INGOT_INLINE N(f32) N(code_f32)(N(i32) words, int place, int bits, int is_signed) {
#if defined(__AVX512F__) && L == 16
  const i32x16 all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const f32x16 numbers = code_numberx16(all, 0, bits, is_signed);
  i32x16 codes = (i32x16)((u32x16)words >> place);
  if (bits <= 4) {
    f32x16 result;
    __asm__("vpermps %2, %1, %0" : "=v"(result) : "v"(codes), "v"(numbers));
    return result;
  }
  if (bits == 5) {
    const f32x16 above = code_numberx16(all + 16, 0, bits, is_signed);
    __asm__("vpermi2ps %2, %1, %0" : "+v"(codes) : "v"(numbers), "v"(above));
    return (f32x16)codes;
  }
#endif
  return N(code_number)(words, place, bits, is_signed);
}

#undef N
#undef L
#undef INGOT_LANES
