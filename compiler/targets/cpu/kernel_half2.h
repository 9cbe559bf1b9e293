/* Words of two f16, by instructions for their arithmetic: fma2 multiplies and adds each half, rounded
 * to f16 once; sum2 is c + the halves of words, which are added as f16 first. Included once per
 * number of lanes, behind kernel_arithmetic.h, where a kernel multiplies f16 for a variant that has
 * them; schedules use registers of the variant's length.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)

#if defined(__AVX512FP16__) && L == 16
INGOT_INLINE N(i32) N(fma2)(N(i32) a, N(i32) b, N(i32) c) {
  __asm__("vfmadd231ph %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
INGOT_INLINE N(f32) N(sum2)(N(i32) words, N(f32) c) {
  N(u32) sum, turned = (N(u32))words << 16 | (N(u32))words >> 16;
  N(f32) wide;
  __asm__("vaddph %2, %1, %0" : "=v"(sum) : "v"(words), "v"(turned));
  N(u16) halves = __builtin_convertvector(sum, N(u16));
  __asm__("vcvtph2psx %1, %0" : "=v"(wide) : "v"(halves));
  return c + wide;
}
#elif defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC) && L == 4
INGOT_INLINE N(i32) N(fma2)(N(i32) a, N(i32) b, N(i32) c) {
  __asm__("fmla %0.8h, %1.8h, %2.8h" : "+w"(c) : "w"(a), "w"(b));
  return c;
}
INGOT_INLINE N(f32) N(sum2)(N(i32) words, N(f32) c) {
  N(f32) wide;
  __asm__("faddp %0.8h, %1.8h, %1.8h\n\tfcvtl %0.4s, %0.4h" : "=w"(wide) : "w"(words));
  return c + wide;
}
#endif

#undef N
#undef L
#undef INGOT_LANES
