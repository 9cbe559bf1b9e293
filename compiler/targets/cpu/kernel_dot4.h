/* Words of four bytes: c + the products of the bytes of a with those of b, exact modulo 2^32.
 * Included once per number of lanes, behind kernel_arithmetic.h, where a kernel multiplies bytes.
 *
 * With an instruction for a pair of signs, it is used. Else bytes are widened to i16, the even and
 * the odd ones of a word apart, and multiplied: by an instruction that adds pairs of products, or
 * as i16, which holds all products but those of two unsigned bytes. Else one after another.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)

#define INGOT_DOT4(left, right, value)                                                        \
  INGOT_INLINE N(i32) N(dot4_##left##_##right)(N(i32) a, N(i32) b, N(i32) c) { return value; }

/* Instructions for bytes. */
#if (defined(__AVX512VNNI__) && L == 16) || \
    (((defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)) && L == 8)
#if !defined(__clang__)
#define INGOT_DPBUSD(a, b, c) INGOT_CAT3(__builtin_ia32_vpdpbusd_v, L, si)(c, a, b)
#elif L == 16
#define INGOT_DPBUSD(a, b, c) __builtin_ia32_vpdpbusd512(c, a, b)
#else
#define INGOT_DPBUSD(a, b, c) __builtin_ia32_vpdpbusd256(c, a, b)
#endif
#define INGOT_U8_I8(a, b, c) INGOT_DPBUSD(a, b, c)
#elif defined(__ARM_FEATURE_DOTPROD) && L == 4
#define INGOT_ARM_DOT(name)                                                             \
  INGOT_INLINE i32x4 name##_words(i32x4 a, i32x4 b, i32x4 c) {                          \
    __asm__(#name " %0.4s, %1.16b, %2.16b" : "+w"(c) : "w"(a), "w"(b));                 \
    return c;                                                                           \
  }
INGOT_ARM_DOT(sdot)
INGOT_ARM_DOT(udot)
#define INGOT_I8_I8(a, b, c) sdot_words(a, b, c)
#define INGOT_U8_U8(a, b, c) udot_words(a, b, c)
#if defined(__ARM_FEATURE_MATMUL_INT8)
INGOT_ARM_DOT(usdot)
#define INGOT_U8_I8(a, b, c) usdot_words(a, b, c)
#else
/* (a - 128) * b + 128 * b: the second product is the same for all rows that meet b. */
INGOT_INLINE i32x4 sdot_from_middle(i32x4 a, i32x4 b, i32x4 c) {
  i32x4 bits = (i32x4){0} + (i32)0x80808080, ones = (i32x4){0} + 0x01010101;
  u32x4 rest = (u32x4)sdot_words(b, ones, (i32x4){0}) << 7;
  return (i32x4)((u32x4)sdot_words(a ^ bits, b, c) + rest);
}
#define INGOT_U8_I8(a, b, c) sdot_from_middle(a, b, c)
#endif
#undef INGOT_ARM_DOT
#endif

/* Instructions for pairs of i16: the sum of their products, or sums of pairs. */
#if defined(__AVX512BW__) && L == 16 && defined(__clang__)
#define INGOT_MADD(a, b) __builtin_ia32_pmaddwd512(a, b)
#elif defined(__AVX512BW__) && L == 16
#define INGOT_MADD(a, b) __builtin_ia32_pmaddwd512_mask(a, b, (N(i32)){0}, (u16)-1)
#elif defined(__AVX2__) && L == 8
#define INGOT_MADD(a, b) __builtin_ia32_pmaddwd256(a, b)
#elif defined(__SSE2__) && L == 4
#define INGOT_MADD(a, b) __builtin_ia32_pmaddwd128(a, b)
#elif defined(__wasm_simd128__) && L == 4
#define INGOT_MADD(a, b) __builtin_wasm_dot_s_i32x4_i16x8(a, b)
#elif defined(__aarch64__) && L == 4
#define INGOT_ADD_PAIRS(sign) #sign "adalp %0.4s, %1.8h"
#elif defined(__ARM_NEON) && L == 4
#define INGOT_ADD_PAIRS(sign) "vpadal." #sign "16 %q0, %q1"
#endif

#if defined(INGOT_MADD) || defined(INGOT_ADD_PAIRS)
typedef i16 N(pairs) __attribute__((vector_size(4 * L)));
typedef u16 N(upairs) __attribute__((vector_size(4 * L)));
INGOT_INLINE N(pairs) N(even_u8)(N(i32) a) { return (N(pairs))((N(upairs))a & 255); }
INGOT_INLINE N(pairs) N(even_i8)(N(i32) a) { return (N(pairs))((N(upairs))a << 8) >> 8; }
INGOT_INLINE N(pairs) N(odd_u8)(N(i32) a) { return (N(pairs))((N(upairs))a >> 8); }
INGOT_INLINE N(pairs) N(odd_i8)(N(i32) a) { return (N(pairs))a >> 8; }
#endif
#if defined(INGOT_MADD)
#define INGOT_PAIRS(left, right, sign)                                            \
  INGOT_INLINE N(i32) N(pairs_##left##_##right)(N(i32) a, N(i32) b, N(i32) c) {   \
    N(i32) even = INGOT_MADD(N(even_##left)(a), N(even_##right)(b));              \
    N(i32) odd = INGOT_MADD(N(odd_##left)(a), N(odd_##right)(b));                 \
    return (N(i32))((N(u32))c + (N(u32))even + (N(u32))odd);                      \
  }
#elif defined(INGOT_ADD_PAIRS)
#define INGOT_PAIRS(left, right, sign)                                            \
  INGOT_INLINE N(i32) N(pairs_##left##_##right)(N(i32) a, N(i32) b, N(i32) c) {   \
    N(upairs) even = (N(upairs))N(even_##left)(a) * (N(upairs))N(even_##right)(b); \
    N(upairs) odd = (N(upairs))N(odd_##left)(a) * (N(upairs))N(odd_##right)(b);   \
    __asm__(INGOT_ADD_PAIRS(sign) : "+w"(c) : "w"(even));                         \
    __asm__(INGOT_ADD_PAIRS(sign) : "+w"(c) : "w"(odd));                          \
    return c;                                                                     \
  }
#else
#define INGOT_BYTE_u8(a, place) ((N(u32))(a) >> (place) & 255u)
#define INGOT_BYTE_i8(a, place) ((N(u32))((N(i32))((N(u32))(a) << (24 - (place))) >> 24))
#define INGOT_PAIRS(left, right, sign)                                            \
  INGOT_INLINE N(i32) N(pairs_##left##_##right)(N(i32) a, N(i32) b, N(i32) c) {   \
    N(u32) sum = (N(u32))c;                                                       \
    for (int place = 0; place < 32; place += 8) {                                 \
      sum += INGOT_BYTE_##left(a, place) * INGOT_BYTE_##right(b, place);          \
    }                                                                             \
    return (N(i32))sum;                                                           \
  }
#endif

#if !defined(INGOT_U8_I8)
INGOT_PAIRS(u8, i8, s)
#define INGOT_U8_I8(a, b, c) N(pairs_u8_i8)(a, b, c)
#endif
#if !defined(INGOT_I8_I8)
INGOT_PAIRS(i8, i8, s)
#define INGOT_I8_I8(a, b, c) N(pairs_i8_i8)(a, b, c)
#endif
#if !defined(INGOT_U8_U8)
INGOT_PAIRS(u8, u8, u)
#define INGOT_U8_U8(a, b, c) N(pairs_u8_u8)(a, b, c)
#endif
INGOT_DOT4(u8, i8, INGOT_U8_I8(a, b, c))
INGOT_DOT4(i8, u8, INGOT_U8_I8(b, a, c))
INGOT_DOT4(i8, i8, INGOT_I8_I8(a, b, c))
INGOT_DOT4(u8, u8, INGOT_U8_U8(a, b, c))

#undef INGOT_DOT4
#undef INGOT_DPBUSD
#undef INGOT_U8_I8
#undef INGOT_I8_I8
#undef INGOT_U8_U8
#undef INGOT_MADD
#undef INGOT_ADD_PAIRS
#undef INGOT_PAIRS
#undef INGOT_BYTE_u8
#undef INGOT_BYTE_i8
#undef N
#undef L
#undef INGOT_LANES
