/* Roundings of INGOT_LANES lanes, and of scalars. Included once per number of lanes, behind
 * kernel_arithmetic.h.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)

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

/* Bytes of the nearest whole number, an even one of two; they saturate, and NaN gives 0. */
#if INGOT_USE_convert
#if defined(__AVX512F__) && L == 16
#define INGOT_NEAREST(x) __builtin_ia32_cvtps2dq512_mask(x, (N(i32)){0}, (u16)-1, 8)
#elif defined(__AVX__) && L == 8
#define INGOT_NEAREST(x) __builtin_ia32_cvtps2dq256(x)
#elif defined(__SSE2__) && L == 4
#define INGOT_NEAREST(x) __builtin_ia32_cvtps2dq(x)
#else
#define INGOT_NEAREST(x) __builtin_convertvector(N(round_even_f32)(x), N(i32))
#endif
#if defined(__AVX512F__) && L == 16
#define INGOT_NEAREST_BYTES(x)                                                                \
  N(saturate_u32_u8)((N(i32))__builtin_ia32_cvtps2udq512_mask(x, (N(i32)){0}, (u16)-1, 8))
#else
#define INGOT_NEAREST_BYTES(x)                                                                \
  N(narrow_i32_i8)(INGOT_NEAREST(N(min_constant_f32)((N(f32)){0} + 255, x)))
#endif
IF(u8, INGOT_INLINE N(u8) N(convert_even_f32_u8)(N(f32) a) {
  return (N(u8))INGOT_NEAREST_BYTES(N(max_constant_f32)(a, (N(f32)){0}));
})
IF(i8, INGOT_INLINE N(i8) N(convert_even_f32_i8)(N(f32) a) {
  N(f32) inside = N(max_constant_f32)((N(f32)){0} - 128, a);
  inside = N(min_constant_f32)((N(f32)){0} + 127, inside);
  return N(narrow_i32_i8)(INGOT_NEAREST((N(f32))((N(i32))inside & (a == a))));
})
#undef INGOT_NEAREST
#undef INGOT_NEAREST_BYTES
#endif

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
#endif

#undef INGOT_COPY_SIGN
#undef INGOT_ROUNDING
#undef INGOT_ROUNDING_INSTRUCTION
#undef INGOT_ROUND_PS512
#undef INGOT_ROUND_PD512
#undef INGOT_ROUND_AWAY
#undef INGOT_SCALAR
#undef INGOT_SCALAR_ROUNDINGS
#undef N
#undef L
#undef INGOT_LANES
