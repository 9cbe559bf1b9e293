/* Words of two bf16: c + the products of those of a with those of b, by an instruction. What is
 * subnormal counts as 0, and each sum is rounded to f32 (or, with NEON, once for both products).
 * Included once per number of lanes, behind kernel_arithmetic.h, where a kernel multiplies bf16 for
 * a variant that has it. Vectors without one of their length are multiplied as f32.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)

INGOT_INLINE N(f32) N(dot2)(N(i32) a, N(i32) b, N(f32) c) {
#if defined(__AVX512BF16__) && defined(__AVX512VL__) && L <= 16
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && L == 4
  __asm__("bfdot %0.4s, %1.8h, %2.8h" : "+w"(c) : "w"(a), "w"(b));
  return c;
#else
  N(f32) low = (N(f32))((N(u32))a << 16) * (N(f32))((N(u32))b << 16);
  return c + low + (N(f32))(a & ~0xffff) * (N(f32))(b & ~0xffff);
#endif
}

#undef N
#undef L
#undef INGOT_LANES
