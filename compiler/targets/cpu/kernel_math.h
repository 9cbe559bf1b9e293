/* Functions of INGOT_LANES lanes: roundings, and the f32 functions that have code of their own
 * (exp, log, tanh, erf, logistic). All others are in kernel_math_f64.h.
 *
 * Included once per number of lanes, behind kernel_vector.h. Polynomials are minimax fits
 * (Remez in 50 digits; rationals by Lawson's iteration), coefficients lowest first. Error
 * bounds stand in the op table and are tested.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)
#define V32 N(f32)
#define I32 N(i32)
#define U32 N(u32)
#define FMA32 N(fma_f32)
#define SELECT32 N(select_f32)
#define ALL32(c) ((V32){0} + (c))

/* ---- Rounding ---- */

#define INGOT_COPY_SIGN(type, mask)                                                           \
  INGOT_INLINE N(type) N(copy_sign_##type)(N(type) value, N(type) sign) {                     \
    N(mask) bit = (N(mask))(-(N(type)){0});                                                   \
    return (N(type))(((N(mask))value & ~bit) | ((N(mask))sign & bit));                        \
  }
INGOT_COPY_SIGN(f32, i32)
INGOT_IF(N(f64), INGOT_COPY_SIGN(f64, i64))

#define INGOT_ROUNDING(type, mask, limit)                                                     \
  INGOT_INLINE N(type) N(trunc_##type)(N(type) x) {                                           \
    N(mask) small = N(abs_##type)(x) < (type)(limit);                                         \
    N(type) inside = N(select_##type)(small, x, (N(type)){0});                                \
    N(type) whole = __builtin_convertvector(__builtin_convertvector(inside, N(mask)), N(type)); \
    return N(copy_sign_##type)(N(select_##type)(small, whole, x), x);                         \
  }                                                                                           \
  INGOT_INLINE N(type) N(floor_##type)(N(type) x) {                                           \
    N(type) whole = N(trunc_##type)(x);                                                       \
    return N(select_##type)(whole > x, whole - 1, whole);                                     \
  }                                                                                           \
  INGOT_INLINE N(type) N(ceil_##type)(N(type) x) {                                            \
    N(type) whole = N(trunc_##type)(x);                                                       \
    return N(copy_sign_##type)(N(select_##type)(whole < x, whole + 1, whole), x);             \
  }                                                                                           \
  INGOT_INLINE N(type) N(round_even_##type)(N(type) x) {                                      \
    N(type) magnitude = N(abs_##type)(x);                                                     \
    N(type) moved = (magnitude + (type)(limit)) - (type)(limit);                              \
    moved = N(select_##type)(magnitude < (type)(limit), moved, magnitude);                    \
    return N(copy_sign_##type)(moved, x);                                                     \
  }
/* The bits of the modes: 8 raises no flag; 0 is to nearest, 1 floor, 2 ceil, 3 trunc. */
#define INGOT_ROUNDING_INSTRUCTION(type, call)                                                \
  INGOT_INLINE N(type) N(round_even_##type)(N(type) x) { return call(x, 8); }                 \
  INGOT_INLINE N(type) N(floor_##type)(N(type) x) { return call(x, 9); }                      \
  INGOT_INLINE N(type) N(ceil_##type)(N(type) x) { return call(x, 10); }                      \
  INGOT_INLINE N(type) N(trunc_##type)(N(type) x) { return call(x, 11); }
#define INGOT_ROUND_PS512(x, mode) __builtin_ia32_rndscaleps_mask(x, mode, x, (u16)-1, 4)
#define INGOT_ROUND_PD512(x, mode) __builtin_ia32_rndscalepd_mask(x, mode, x, (u8)-1, 4)
#if defined(__AVX512F__) && L == 16
INGOT_ROUNDING_INSTRUCTION(f32, INGOT_ROUND_PS512)
#elif defined(__AVX__) && L == 8
INGOT_ROUNDING_INSTRUCTION(f32, __builtin_ia32_roundps256)
#elif defined(__SSE4_1__) && L == 4
INGOT_ROUNDING_INSTRUCTION(f32, __builtin_ia32_roundps)
#else
INGOT_ROUNDING(f32, i32, 0x1p23)
#endif
#if defined(__AVX512F__) && L == 8
INGOT_IF(N(f64), INGOT_ROUNDING_INSTRUCTION(f64, INGOT_ROUND_PD512))
#elif defined(__AVX__) && L == 4
INGOT_IF(N(f64), INGOT_ROUNDING_INSTRUCTION(f64, __builtin_ia32_roundpd256))
#elif defined(__SSE4_1__) && L == 2
INGOT_IF(N(f64), INGOT_ROUNDING_INSTRUCTION(f64, __builtin_ia32_roundpd))
#else
INGOT_IF(N(f64), INGOT_ROUNDING(f64, i64, 0x1p52))
#endif

#define INGOT_ROUND_AWAY(type, mask)                                                          \
  INGOT_INLINE N(type) N(round_away_##type)(N(type) x) {                                      \
    N(type) whole = N(trunc_##type)(x);                                                       \
    N(mask) half = N(abs_##type)(x - whole) >= (type)0.5;                                     \
    N(type) next = whole + N(copy_sign_##type)((N(type)){0} + 1, x);                          \
    return N(select_##type)(half, next, whole);                                               \
  }
INGOT_ROUND_AWAY(f32, i32)
INGOT_IF(N(f64), INGOT_ROUND_AWAY(f64, i64))

/* ---- f32: exp, exp2, log, logistic, tanh, erf ---- */

/* value * 2^power, where power is a whole number and the result may be subnormal. */
INGOT_INLINE V32 N(scale_f32)(V32 value, V32 power) {
#if defined(__AVX512F__) && L == 16
  return __builtin_ia32_scalefps512_mask(value, power, (V32){0}, (u16)-1, 4);
#else
  I32 whole = (I32)((U32)(power + 0x1.8p23f) - 0x4b400000u);
  I32 half = whole >> 1;
  V32 first = (V32)(((U32)half + 127) << 23);
  return value * first * (V32)(((U32)whole - (U32)half + 127) << 23);
#endif
}

INGOT_INLINE V32 N(exp_f32)(V32 x) {
  x = N(min_constant_f32)(ALL32(89.0f), N(max_constant_f32)(ALL32(-105.0f), x));
  V32 k = FMA32(x, ALL32(0x1.715476p+0f), ALL32(0x1.8p23f)) - 0x1.8p23f;
  V32 r = FMA32(k, ALL32(-0x1.62ep-1f), x);
  r = FMA32(k, ALL32(-0x1.0bfbe8p-15f), r);
  V32 q = FMA32(r, ALL32(0x1.6d7614p-10f), ALL32(0x1.120c0ap-7f));
  q = FMA32(q, r, ALL32(0x1.5554b8p-5f));
  q = FMA32(q, r, ALL32(0x1.5554dcp-3f));
  q = FMA32(q, r, ALL32(0.5f));
  q = FMA32(q, r * r, r) + 1.0f;
  return N(scale_f32)(q, k);
}

INGOT_INLINE V32 N(exp2_f32)(V32 x) {
  x = N(min_constant_f32)(ALL32(129.0f), N(max_constant_f32)(ALL32(-152.0f), x));
  V32 k = (x + 0x1.8p23f) - 0x1.8p23f;
  V32 r = x - k;
  V32 q = FMA32(r, ALL32(0x1.41d308p-13f), ALL32(0x1.5f4572p-10f));
  q = FMA32(q, r, ALL32(0x1.3b2dbcp-7f));
  q = FMA32(q, r, ALL32(0x1.c6aed4p-5f));
  q = FMA32(q, r, ALL32(0x1.ebfbdap-3f));
  q = FMA32(q, r, ALL32(0x1.62e430p-1f));
  return N(scale_f32)(FMA32(q, r, ALL32(1.0f)), k);
}

INGOT_INLINE V32 N(log_f32)(V32 x) {
  I32 tiny = x < 0x1p-126f;
  I32 bits = (I32)SELECT32(tiny, x * 0x1p23f, x);
  I32 exponent = (I32)((U32)bits - 0x3f3504f3u) >> 23; /* unsigned: x may be anything */
  V32 f = (V32)((U32)bits - ((U32)exponent << 23)) - 1.0f;
  V32 e = __builtin_convertvector(exponent, V32) - SELECT32(tiny, ALL32(23.0f), (V32){0});
  V32 q = FMA32(f, ALL32(0x1.2c5a02p-4f), ALL32(-0x1.dd999ep-4f));
  q = FMA32(q, f, ALL32(0x1.dc8e38p-4f));
  q = FMA32(q, f, ALL32(-0x1.fbc46ep-4f));
  q = FMA32(q, f, ALL32(0x1.23dd14p-3f));
  q = FMA32(q, f, ALL32(-0x1.55625ep-3f));
  q = FMA32(q, f, ALL32(0x1.999d36p-3f));
  q = FMA32(q, f, ALL32(-0x1.ffffe6p-3f));
  q = FMA32(q, f, ALL32(0x1.555554p-2f));
  V32 square = f * f;
  V32 y = FMA32(e, ALL32(0x1.7f7d1cp-20f), q * f * square);
  y = FMA32(square, ALL32(-0.5f), y) + f;
  y = FMA32(e, ALL32(0x1.62e4p-1f), y);
  y = SELECT32(x < __builtin_inff(), y, x);
  y = SELECT32(x == 0.0f, ALL32(-__builtin_inff()), y);
  return SELECT32(x < 0.0f, ALL32(__builtin_nanf("")), y);
}

INGOT_INLINE V32 N(logistic_f32)(V32 x) {
  V32 e = N(exp_f32)(-N(abs_f32)(x));
  return SELECT32(x < 0.0f, e, ALL32(1.0f)) / (e + 1.0f);
}

INGOT_INLINE V32 N(tanh_f32)(V32 x) {
  x = N(min_constant_f32)(ALL32(9.02f), N(max_constant_f32)(ALL32(-9.02f), x));
  V32 u = x * x;
  V32 p = FMA32(u, ALL32(-0x1.accd8ap-37f), ALL32(0x1.0689a0p-25f));
  p = FMA32(p, u, ALL32(0x1.d5bcc0p-16f));
  p = FMA32(p, u, ALL32(0x1.faf8bep-9f));
  p = FMA32(p, u, ALL32(0x1.182850p-3f));
  p = FMA32(p, u, ALL32(1.0f));
  V32 q = FMA32(u, ALL32(0x1.596822p-20f), ALL32(0x1.9ce9ecp-12f));
  q = FMA32(q, u, ALL32(0x1.be5e92p-6f));
  q = FMA32(q, u, ALL32(0x1.e1697cp-2f));
  q = FMA32(q, u, ALL32(1.0f));
  return x * p / q;
}

INGOT_INLINE V32 N(erf_f32)(V32 x) {
  x = N(min_constant_f32)(ALL32(3.925f), N(max_constant_f32)(ALL32(-3.925f), x));
  V32 u = x * x;
  V32 p = FMA32(u, ALL32(-0x1.bd6978p-27f), ALL32(0x1.375cc2p-18f));
  p = FMA32(p, u, ALL32(0x1.8c4454p-12f));
  p = FMA32(p, u, ALL32(0x1.f7c202p-9f));
  p = FMA32(p, u, ALL32(0x1.bc9da0p-5f));
  p = FMA32(p, u, ALL32(0x1.7b3afap-3f));
  p = FMA32(p, u, ALL32(0x1.20dd76p+0f));
  V32 q = FMA32(u, ALL32(0x1.06ebb0p-14f), ALL32(0x1.55d7a6p-10f));
  q = FMA32(q, u, ALL32(0x1.fa0e76p-7f));
  q = FMA32(q, u, ALL32(0x1.d2949cp-4f));
  q = FMA32(q, u, ALL32(0x1.fd6020p-2f));
  q = FMA32(q, u, ALL32(1.0f));
  return x * p / q;
}

/* ---- Scalars: lane 0 of four ---- */

#if L == 4
#define INGOT_SCALAR(type, name) \
  INGOT_INLINE type name##_##type(type a) { return name##_##type##x4((N(type)){a, a, a, a})[0]; }
#define INGOT_SCALAR_ROUNDINGS(type) \
  INGOT_SCALAR(type, floor)          \
  INGOT_SCALAR(type, ceil)           \
  INGOT_SCALAR(type, trunc)          \
  INGOT_SCALAR(type, round_even)     \
  INGOT_SCALAR(type, round_away)
INGOT_SCALAR_ROUNDINGS(f32)
INGOT_IF(N(f64), INGOT_SCALAR_ROUNDINGS(f64))
INGOT_SCALAR(f32, exp)
INGOT_SCALAR(f32, exp2)
INGOT_SCALAR(f32, log)
INGOT_SCALAR(f32, tanh)
INGOT_SCALAR(f32, logistic)
INGOT_SCALAR(f32, erf)
#endif

#undef INGOT_COPY_SIGN
#undef INGOT_ROUNDING
#undef INGOT_ROUNDING_INSTRUCTION
#undef INGOT_ROUND_PS512
#undef INGOT_ROUND_PD512
#undef INGOT_ROUND_AWAY
#undef INGOT_SCALAR
#undef INGOT_SCALAR_ROUNDINGS
#undef ALL32
#undef SELECT32
#undef FMA32
#undef U32
#undef I32
#undef V32
#undef N
#undef L
#undef INGOT_LANES
