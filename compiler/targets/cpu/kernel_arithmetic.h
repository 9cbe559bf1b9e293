/* What is computed with vectors of INGOT_LANES lanes: arithmetic, masks, conversions. Included once
 * per number of lanes, behind kernel_vector.h.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)
#define EACH_LANE for (int lane = 0; lane < L; ++lane)

/* Integers. */
#define INGOT_VECTOR_INTEGER(type, unsigned_type, signed_type)                                \
  INGOT_INLINE N(type) N(add_##type)(N(type) a, N(type) b) {                                  \
    return (N(type))((N(unsigned_type))a + (N(unsigned_type))b);                              \
  }                                                                                           \
  INGOT_INLINE N(type) N(mul_##type)(N(type) a, N(type) b) {                                  \
    return (N(type))((N(unsigned_type))a * (N(unsigned_type))b);                              \
  }                                                                                           \
  INGOT_INLINE N(type) N(neg_##type)(N(type) a) { return (N(type))(-(N(unsigned_type))a); }   \
  INGOT_INLINE N(type) N(not_##type)(N(type) a) { return ~a; }                                \
  INGOT_INLINE N(type) N(and_##type)(N(type) a, N(type) b) { return a & b; }                  \
  INGOT_INLINE N(type) N(or_##type)(N(type) a, N(type) b) { return a | b; }                   \
  INGOT_INLINE N(type) N(xor_##type)(N(type) a, N(type) b) { return a ^ b; }                  \
  INGOT_INLINE N(type) N(max_##type)(N(type) a, N(type) b) {                                  \
    return N(select_##type)(N(gt_##type)(a, b), a, b);                                        \
  }                                                                                           \
  INGOT_INLINE N(type) N(min_##type)(N(type) a, N(type) b) {                                  \
    return N(select_##type)(N(lt_##type)(a, b), a, b);                                        \
  }                                                                                           \
  INGOT_INLINE N(type) N(abs_##type)(N(type) a) {                                             \
    return N(select_##type)(N(lt_##type)(a, (N(type)){0}), N(neg_##type)(a), a);              \
  }                                                                                           \
  INGOT_INLINE N(type) N(sign_##type)(N(type) a) {                                            \
    return (N(type))(N(lt_##type)(a, (N(type)){0}) - N(gt_##type)(a, (N(type)){0}));          \
  }                                                                                           \
  INGOT_LANEWISE2(type, type, div_##type)                                                     \
  INGOT_LANEWISE2(type, type, rem_##type)                                                     \
  INGOT_LANEWISE2(type, type, pow_##type)                                                     \
  INGOT_LANEWISE2(type, type, shift_left_##type)                                              \
  INGOT_LANEWISE2(type, type, shift_right_logical_##type)                                     \
  INGOT_LANEWISE2(type, type, shift_right_arithmetic_##type)                                  \
  INGOT_LANEWISE1(type, type, popcount_##type)                                                \
  INGOT_LANEWISE1(type, type, count_leading_zeros_##type)
#define INGOT_LANEWISE1(from, to, name)                                                       \
  INGOT_INLINE N(to) N(name)(N(from) a) {                                                     \
    to result[L]; /* an array: gcc 12 fails on vectors wider than the target's */             \
    EACH_LANE result[lane] = name(a[lane]);                                                   \
    return N(load_##to)((const to##_memory *)result, 0);                                      \
  }
#define INGOT_LANEWISE2(from, to, name)                                                       \
  INGOT_INLINE N(to) N(name)(N(from) a, N(from) b) {                                          \
    N(to) result;                                                                             \
    EACH_LANE result[lane] = name(a[lane], b[lane]);                                          \
    return result;                                                                            \
  }
IF(i8, INGOT_VECTOR_INTEGER(i8, u8, i8))
IF(i16, INGOT_VECTOR_INTEGER(i16, u16, i16))
IF(i32, INGOT_VECTOR_INTEGER(i32, u32, i32))
IF(i64, INGOT_VECTOR_INTEGER(i64, u64, i64))
IF(u8, INGOT_VECTOR_INTEGER(u8, u8, i8))
IF(u16, INGOT_VECTOR_INTEGER(u16, u16, i16))
IF(u32, INGOT_VECTOR_INTEGER(u32, u32, i32))
IF(u64, INGOT_VECTOR_INTEGER(u64, u64, i64))

/* Floats. */
#define INGOT_VECTOR_FLOAT(type, bits_type, mask, sign_bit)                                   \
  INGOT_INLINE N(type) N(neg_##type)(N(type) a) { return -a; }                                \
  INGOT_INLINE N(type) N(abs_##type)(N(type) a) {                                             \
    return (N(type))((N(bits_type))a & ~(sign_bit));                                          \
  }                                                                                           \
  INGOT_INLINE N(mask) N(is_nan_##type)(N(type) a) { return a != a; }                         \
  INGOT_INLINE N(mask) N(is_inf_##type)(N(type) a) {                                          \
    return N(abs_##type)(a) == (type)__builtin_inf();                                         \
  }                                                                                           \
  INGOT_INLINE N(mask) N(is_finite_##type)(N(type) a) {                                       \
    return N(abs_##type)(a) < (type)__builtin_inf();                                          \
  }                                                                                           \
  INGOT_INLINE N(type) N(sign_##type)(N(type) a) {                                            \
    N(bits_type) one = ((N(bits_type))a & (sign_bit)) | (N(bits_type))((N(type)){0} + 1);     \
    return N(select_##type)((a < 0) | (a > 0), (N(type))one, a);                              \
  }
#if INGOT_USE_rem
INGOT_LANEWISE2(f32, f32, rem_f32)
IF(f64, INGOT_LANEWISE2(f64, f64, rem_f64))
#endif

/* A multiply-add, the square root, and the larger and smaller of a constant and a value:
 * the constant is no NaN; NaN of the value stays. */
#define INGOT_INSTRUCTIONS(type, fma_call, sqrt_call, max_call, min_call)                     \
  INGOT_INLINE N(type) N(fma_##type)(N(type) a, N(type) b, N(type) c) { return fma_call; }    \
  INGOT_INLINE N(type) N(sqrt_##type)(N(type) a) { return sqrt_call; }                        \
  INGOT_INLINE N(type) N(max_constant_##type)(N(type) a, N(type) b) { return max_call; }      \
  INGOT_INLINE N(type) N(min_constant_##type)(N(type) a, N(type) b) { return min_call; }
#define INGOT_LARGER(type) N(select_##type)(a > b, a, b)
#define INGOT_SMALLER(type) N(select_##type)(a < b, a, b)
#if defined(__wasm_relaxed_simd__) && L == 4
#define INGOT_FMA(a, b, c) __builtin_wasm_relaxed_madd_f32x4(a, b, c)
#elif INGOT_HAS_FMA
#define INGOT_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#else
#define INGOT_FMA(a, b, c) ((a) * (b) + (c))
#endif
#if INGOT_HAS_ELEMENTWISE
INGOT_INSTRUCTIONS(f32, INGOT_FMA(a, b, c), __builtin_elementwise_sqrt(a), INGOT_LARGER(f32),
                   INGOT_SMALLER(f32))
#define INGOT_HAVE_F32
#elif defined(__AVX512F__) && L == 16 && !defined(__clang__)
INGOT_INSTRUCTIONS(f32, __builtin_ia32_vfmaddps512_mask(a, b, c, (u16)-1, 4),
                   __builtin_ia32_sqrtps512_mask(a, (N(f32)){0}, (u16)-1, 4),
                   __builtin_ia32_maxps512_mask(a, b, (N(f32)){0}, (u16)-1, 4),
                   __builtin_ia32_minps512_mask(a, b, (N(f32)){0}, (u16)-1, 4))
#define INGOT_HAVE_F32
#elif defined(__AVX512F__) && L == 16
INGOT_INSTRUCTIONS(f32, __builtin_ia32_vfmaddps512_mask(a, b, c, (u16)-1, 4),
                   __builtin_ia32_sqrtps512(a, 4), __builtin_ia32_maxps512(a, b, 4),
                   __builtin_ia32_minps512(a, b, 4))
#define INGOT_HAVE_F32
#elif defined(__AVX2__) && defined(__FMA__) && L == 8
INGOT_INSTRUCTIONS(f32, __builtin_ia32_vfmaddps256(a, b, c), __builtin_ia32_sqrtps256(a),
                   __builtin_ia32_maxps256(a, b), __builtin_ia32_minps256(a, b))
#define INGOT_HAVE_F32
#elif defined(__AVX2__) && defined(__FMA__) && L == 4
INGOT_INSTRUCTIONS(f32, __builtin_ia32_vfmaddps(a, b, c), __builtin_ia32_sqrtps(a),
                   __builtin_ia32_maxps(a, b), __builtin_ia32_minps(a, b))
#define INGOT_HAVE_F32
#endif
#undef INGOT_FMA
#if INGOT_HAS_FMA
#define INGOT_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#else
#define INGOT_FMA(a, b, c) ((a) * (b) + (c))
#endif
#if INGOT_HAS_ELEMENTWISE
IF(f64, INGOT_INSTRUCTIONS(f64, INGOT_FMA(a, b, c), __builtin_elementwise_sqrt(a),
                           INGOT_LARGER(f64), INGOT_SMALLER(f64)))
#define INGOT_HAVE_F64
#elif defined(__AVX512F__) && L == 8 && !defined(__clang__)
INGOT_INSTRUCTIONS(f64, __builtin_ia32_vfmaddpd512_mask(a, b, c, (u8)-1, 4),
                   __builtin_ia32_sqrtpd512_mask(a, (N(f64)){0}, (u8)-1, 4),
                   __builtin_ia32_maxpd512_mask(a, b, (N(f64)){0}, (u8)-1, 4),
                   __builtin_ia32_minpd512_mask(a, b, (N(f64)){0}, (u8)-1, 4))
#define INGOT_HAVE_F64
#elif defined(__AVX512F__) && L == 8
INGOT_INSTRUCTIONS(f64, __builtin_ia32_vfmaddpd512_mask(a, b, c, (u8)-1, 4),
                   __builtin_ia32_sqrtpd512(a, 4), __builtin_ia32_maxpd512(a, b, 4),
                   __builtin_ia32_minpd512(a, b, 4))
#define INGOT_HAVE_F64
#elif defined(__AVX2__) && defined(__FMA__) && L == 4
INGOT_INSTRUCTIONS(f64, __builtin_ia32_vfmaddpd256(a, b, c), __builtin_ia32_sqrtpd256(a),
                   __builtin_ia32_maxpd256(a, b), __builtin_ia32_minpd256(a, b))
#define INGOT_HAVE_F64
#endif

#define INGOT_WITHOUT_INSTRUCTIONS(type)                                                      \
  INGOT_INLINE N(type) N(fma_##type)(N(type) a, N(type) b, N(type) c) {                       \
    if (!INGOT_HAS_FMA) {                                                                     \
      return a * b + c;                                                                       \
    }                                                                                         \
    N(type) result;                                                                           \
    EACH_LANE result[lane] = fma_##type(a[lane], b[lane], c[lane]);                           \
    return result;                                                                            \
  }                                                                                           \
  INGOT_LANEWISE1(type, type, sqrt_##type)                                                    \
  INGOT_INLINE N(type) N(max_constant_##type)(N(type) a, N(type) b) {                         \
    return INGOT_LARGER(type);                                                                \
  }                                                                                           \
  INGOT_INLINE N(type) N(min_constant_##type)(N(type) a, N(type) b) {                         \
    return INGOT_SMALLER(type);                                                               \
  }
#ifndef INGOT_HAVE_F32
INGOT_WITHOUT_INSTRUCTIONS(f32)
#endif
#ifndef INGOT_HAVE_F64
IF(f64, INGOT_WITHOUT_INSTRUCTIONS(f64))
#endif
#undef INGOT_HAVE_F32
#undef INGOT_HAVE_F64

/* The larger and smaller, where NaN of either stays: the instructions give their second operand
 * if either is NaN. They are written for `a` that waits for other work, and `b` that does not. */
#define INGOT_EXTREMES(type, max_call, min_call)                                              \
  INGOT_INLINE N(type) N(max_##type)(N(type) a, N(type) b) { return max_call; }               \
  INGOT_INLINE N(type) N(min_##type)(N(type) a, N(type) b) { return min_call; }
#define INGOT_MASKED(kind, name, mask)                                                  \
  __builtin_ia32_##kind##name##512_mask(                                                      \
      b, a, b, __builtin_ia32_cmp##name##512_mask(b, b, 7, (mask)-1, 4), 4)
#define INGOT_BLENDED(type, kind, name)                                                       \
  __builtin_ia32_blendv##name(N(kind##_constant_##type)(b, a), b, (N(type))(b != b))
#define INGOT_CHOSEN(type, kind) N(select_##type)(b != b, b, N(kind##_constant_##type)(b, a))
#if defined(__aarch64__) && INGOT_HAS_ELEMENTWISE && __has_builtin(__builtin_elementwise_maximum)
INGOT_EXTREMES(f32, __builtin_elementwise_maximum(a, b), __builtin_elementwise_minimum(a, b))
#elif defined(__AVX512F__) && L == 16 && !defined(__clang__)
INGOT_EXTREMES(f32, INGOT_MASKED(max, ps, u16), INGOT_MASKED(min, ps, u16))
#elif defined(__AVX2__) && L == 8
INGOT_EXTREMES(f32, INGOT_BLENDED(f32, max, ps256), INGOT_BLENDED(f32, min, ps256))
#else
INGOT_EXTREMES(f32, INGOT_CHOSEN(f32, max), INGOT_CHOSEN(f32, min))
#endif
#if defined(__aarch64__) && INGOT_HAS_ELEMENTWISE && __has_builtin(__builtin_elementwise_maximum)
IF(f64, INGOT_EXTREMES(f64, __builtin_elementwise_maximum(a, b),
                       __builtin_elementwise_minimum(a, b)))
#elif defined(__AVX512F__) && L == 8 && !defined(__clang__)
IF(f64, INGOT_EXTREMES(f64, INGOT_MASKED(max, pd, u8), INGOT_MASKED(min, pd, u8)))
#elif defined(__AVX2__) && L == 4
IF(f64, INGOT_EXTREMES(f64, INGOT_BLENDED(f64, max, pd256), INGOT_BLENDED(f64, min, pd256)))
#else
IF(f64, INGOT_EXTREMES(f64, INGOT_CHOSEN(f64, max), INGOT_CHOSEN(f64, min)))
#endif

/* A multiply-add that keeps what the product alone would lose. */
INGOT_INLINE N(f32) N(fma_exact_f32)(N(f32) a, N(f32) b, N(f32) c) {
  if (INGOT_HAS_FMA) return N(fma_f32)(a, b, c);
  N(f64) product = __builtin_convertvector(a, N(f64)) * __builtin_convertvector(b, N(f64));
  return __builtin_convertvector(product + __builtin_convertvector(c, N(f64)), N(f32));
}
#if INGOT_USES(N(f64))
INGOT_INLINE N(f64) N(fma_exact_f64)(N(f64) a, N(f64) b, N(f64) c) {
  if (INGOT_HAS_FMA) return N(fma_f64)(a, b, c);
  N(i64) upper = (N(i64)){0} + (i64)0xfffffffff8000000;
  N(f64) a_high = (N(f64))((N(i64))a & upper), b_high = (N(f64))((N(i64))b & upper);
  N(f64) a_low = a - a_high, b_low = b - b_high, product = a * b;
  N(f64) error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
  return (product + c) + error;
}
#endif
INGOT_VECTOR_FLOAT(f32, u32, i32, 0x80000000u)
IF(f64, INGOT_VECTOR_FLOAT(f64, u64, i64, 0x8000000000000000u))
#if defined(__AVX512F__) && L == 16
#define INGOT_HAVE_scale_f32x16
INGOT_INLINE N(f32) N(scale_f32)(N(f32) value, N(f32) power) {
  return __builtin_ia32_scalefps512_mask(value, power, (N(f32)){0}, (u16)-1, 4);
}
/* The instruction takes as long for 2^-500 as for what is subnormal, 2^-525 is 0 at once. */
#define INGOT_HAVE_exp_floor_f32x16
INGOT_INLINE N(f32) N(exp_floor_f32)(N(f32) x) {
  return N(max_constant_f32)((N(f32)){0} - 364.0f, x);
}
#endif
INGOT_INLINE N(f32) N(rsqrt_f32)(N(f32) a) { return 1.0f / N(sqrt_f32)(a); }
IF(f64, INGOT_INLINE N(f64) N(rsqrt_f64)(N(f64) a) { return 1.0 / N(sqrt_f64)(a); })

/* Lanes combined as a tree: lane i with lane i ^ half. */
#if INGOT_USE_reduce
/* Whether a lane of a mask is set. */
#if defined(__AVX2__) && !defined(__clang__)
#if defined(__AVX512F__)
#define INGOT_TEST(part) __builtin_ia32_ptestmq512(part, part, (u8)-1) != 0
#else
#define INGOT_TEST(part) __builtin_ia32_ptestz256(part, part) == 0
#endif
#define INGOT_WORDS(length) long long __attribute__((vector_size(length)))
#define INGOT_ANY(type)                                                                       \
  INGOT_INLINE i1 N(reduce_any_##type)(N(type) mask) {                                        \
    union {                                                                                   \
      INGOT_WORDS(INGOT_REGISTER) parts[(sizeof mask + INGOT_REGISTER - 1) / INGOT_REGISTER]; \
      N(type) whole;                                                                          \
      u64 word;                                                                               \
      INGOT_WORDS(16) two;                                                                    \
      INGOT_WORDS(32) four;                                                                   \
    } from = {{{0}}};                                                                         \
    from.whole = mask;                                                                        \
    if (sizeof mask <= 8) return (i1)(from.word != 0);                                        \
    if (sizeof mask == 16) return (i1)(__builtin_ia32_ptestz128(from.two, from.two) == 0);    \
    if (sizeof mask == 32) return (i1)(__builtin_ia32_ptestz256(from.four, from.four) == 0);  \
    for (int at = 1; at < (int)(sizeof from.parts / INGOT_REGISTER); ++at) {                  \
      from.parts[0] |= from.parts[at];                                                        \
    }                                                                                         \
    return (i1)(INGOT_TEST(from.parts[0]));                                                   \
  }
#else
#define INGOT_ANY(type)                                                                       \
  INGOT_INLINE i1 N(reduce_any_##type)(N(type) mask) {                                        \
    return (i1)(N(reduce_or_##type)(mask) & 1);                                               \
  }
#endif
#if defined(__clang__)
#define INGOT_SWAP(type, mask)                                                                \
  INGOT_INLINE N(type) N(swap_##type)(N(type) vector, int half) {                             \
    N(type) result;                                                                           \
    EACH_LANE result[lane] = vector[lane ^ half];                                             \
    return result;                                                                            \
  }
#else
#define INGOT_SWAP(type, mask)                                                                \
  INGOT_INLINE N(type) N(swap_##type)(N(type) vector, int half) {                             \
    return __builtin_shuffle(vector, (N(mask)){INGOT_COUNT(L)} ^ (mask)half);                 \
  }
#endif
#define INGOT_REDUCE(type, kind, combine)                                                     \
  INGOT_INLINE type N(reduce_##kind##_##type)(N(type) v) {                                    \
    if (L > 32) v = combine(v, N(swap_##type)(v, 32 % L));                                    \
    if (L > 16) v = combine(v, N(swap_##type)(v, 16 % L));                                    \
    if (L > 8) v = combine(v, N(swap_##type)(v, 8 % L));                                      \
    if (L > 4) v = combine(v, N(swap_##type)(v, 4 % L));                                      \
    if (L > 2) v = combine(v, N(swap_##type)(v, 2 % L));                                      \
    return combine(v, N(swap_##type)(v, 1))[0];                                               \
  }
#define INGOT_ADD(a, b) ((a) + (b))
#define INGOT_MUL(a, b) ((a) * (b))
#define INGOT_REDUCE_FLOAT(type, mask)        \
  INGOT_SWAP(type, mask)                      \
  INGOT_REDUCE(type, add, INGOT_ADD)          \
  INGOT_REDUCE(type, mul, INGOT_MUL)          \
  INGOT_REDUCE(type, max, N(max_##type))      \
  INGOT_REDUCE(type, min, N(min_##type))
#define INGOT_REDUCE_INTEGER(type, mask)      \
  INGOT_SWAP(type, mask)                      \
  INGOT_REDUCE(type, add, N(add_##type))      \
  INGOT_REDUCE(type, mul, N(mul_##type))      \
  INGOT_REDUCE(type, max, N(max_##type))      \
  INGOT_REDUCE(type, min, N(min_##type))      \
  INGOT_REDUCE(type, and, N(and_##type))      \
  INGOT_REDUCE(type, or, N(or_##type))        \
  INGOT_REDUCE(type, xor, N(xor_##type))
INGOT_REDUCE_FLOAT(f32, i32)
IF(f64, INGOT_REDUCE_FLOAT(f64, i64))
IF(i8, INGOT_REDUCE_INTEGER(i8, i8))
IF(i16, INGOT_REDUCE_INTEGER(i16, i16))
IF(i32, INGOT_REDUCE_INTEGER(i32, i32))
IF(i64, INGOT_REDUCE_INTEGER(i64, i64))
IF(u8, INGOT_REDUCE_INTEGER(u8, i8))
IF(u16, INGOT_REDUCE_INTEGER(u16, i16))
IF(u32, INGOT_REDUCE_INTEGER(u32, i32))
IF(u64, INGOT_REDUCE_INTEGER(u64, i64))
IF(i8, INGOT_ANY(i8))
IF(i16, INGOT_ANY(i16))
IF(i32, INGOT_ANY(i32))
IF(i64, INGOT_ANY(i64))
#endif

/* The value of the first lane that is set in the mask. */
INGOT_INLINE i64 N(first_i64)(N(i64) mask, N(i64) values) {
  i64 value = 0;
  for (int lane = L - 1; lane >= 0; --lane) {
    value = mask[lane] != 0 ? values[lane] : value;
  }
  return value;
}

/* Wider lanes. gcc takes the general form apart. */
#define INGOT_WIDEN(from, to, value)                                                          \
  INGOT_INLINE N(to) N(widen_##from##_##to)(N(from) a) { return value; }
#if defined(__AVX512F__) && L == 16 && !defined(__clang__)
#define INGOT_BYTES(a) ((char __attribute__((vector_size(16))))(a))
#define INGOT_TO_I32(name, a) __builtin_ia32_pmov##name##512_mask(a, (N(i32)){0}, (u16)-1)
INGOT_WIDEN(u8, i32, INGOT_TO_I32(zxbd, INGOT_BYTES(a)))
INGOT_WIDEN(i8, i32, INGOT_TO_I32(sxbd, INGOT_BYTES(a)))
INGOT_WIDEN(u16, i32, INGOT_TO_I32(zxwd, (N(i16))a))
INGOT_WIDEN(i16, i32, INGOT_TO_I32(sxwd, a))
#elif defined(__AVX2__) && L == 8 && !defined(__clang__)
#define INGOT_BYTES(a) \
  ((char __attribute__((vector_size(16))))(i64 __attribute__((vector_size(16)))){(i64)(a), 0})
INGOT_WIDEN(u8, i32, __builtin_ia32_pmovzxbd256(INGOT_BYTES(a)))
INGOT_WIDEN(i8, i32, __builtin_ia32_pmovsxbd256(INGOT_BYTES(a)))
INGOT_WIDEN(u16, i32, __builtin_ia32_pmovzxwd256((N(i16))a))
INGOT_WIDEN(i16, i32, __builtin_ia32_pmovsxwd256(a))
#else
INGOT_WIDEN(u8, i32, __builtin_convertvector(a, N(i32)))
INGOT_WIDEN(i8, i32, __builtin_convertvector(a, N(i32)))
INGOT_WIDEN(u16, i32, __builtin_convertvector(a, N(i32)))
INGOT_WIDEN(i16, i32, __builtin_convertvector(a, N(i32)))
#endif
#if defined(__AVX512F__) && L == 8 && !defined(__clang__)
#define INGOT_LONGS ((long long __attribute__((vector_size(64)))){0})
INGOT_WIDEN(i32, i64, (N(i64))__builtin_ia32_pmovsxdq512_mask(a, INGOT_LONGS, (u8)-1))
INGOT_WIDEN(u32, i64, (N(i64))__builtin_ia32_pmovzxdq512_mask((N(i32))a, INGOT_LONGS, (u8)-1))
INGOT_WIDEN(i32, f64, __builtin_ia32_cvtdq2pd512_mask(a, (N(f64)){0}, (u8)-1))
INGOT_WIDEN(f32, f64, __builtin_ia32_cvtps2pd512_mask(a, (N(f64)){0}, (u8)-1, 4))
#elif defined(__AVX2__) && L == 4 && !defined(__clang__)
INGOT_WIDEN(i32, i64, (N(i64))__builtin_ia32_pmovsxdq256(a))
INGOT_WIDEN(u32, i64, (N(i64))__builtin_ia32_pmovzxdq256((N(i32))a))
INGOT_WIDEN(i32, f64, __builtin_ia32_cvtdq2pd256(a))
INGOT_WIDEN(f32, f64, __builtin_ia32_cvtps2pd256(a))
#else
INGOT_WIDEN(i32, i64, __builtin_convertvector(a, N(i64)))
INGOT_WIDEN(u32, i64, __builtin_convertvector(a, N(i64)))
INGOT_WIDEN(i32, f64, __builtin_convertvector(a, N(f64)))
INGOT_WIDEN(f32, f64, __builtin_convertvector(a, N(f64)))
#endif

/* Integers to a quarter or less of their width, modulo 2^n. gcc takes one step apart where the
 * machine has no instruction for it. */
#define INGOT_NARROW(from, half, to)                                                          \
  INGOT_INLINE N(to) N(narrow_##from##_##to)(N(from) a) {                                     \
    return __builtin_convertvector(__builtin_convertvector(a, N(half)), N(to));               \
  }
#if defined(__AVX512VL__)
INGOT_NARROW(i32, i32, i8)
INGOT_NARROW(i64, i64, i16)
INGOT_NARROW(i64, i64, i8)
#else
INGOT_NARROW(i32, i16, i8)
INGOT_NARROW(i64, i32, i16)
INGOT_INLINE N(i8) N(narrow_i64_i8)(N(i64) a) {
  return N(narrow_i32_i8)(__builtin_convertvector(a, N(i32)));
}
#endif

/* Conversions from float saturate, and NaN gives 0. */
#if INGOT_USE_convert
INGOT_INLINE N(i32) N(convert_f32_i32)(N(f32) a) {
  N(i32) inside = (a >= -2147483648.0f) & (a < 2147483648.0f);
  N(i32) value = __builtin_convertvector(N(select_f32)(inside, a, (N(f32)){0}), N(i32));
  value |= (a >= 2147483648.0f) & INT32_MAX;
  return value | ((a < -2147483648.0f) & INT32_MIN);
}
#define INGOT_NARROW_SATURATED(to, low, high, narrow)                                         \
  INGOT_INLINE N(to) N(convert_f32_##to)(N(f32) a) {                                          \
    N(f32) floor = (N(f32)){0} + (low), ceiling = (N(f32)){0} + (high);                       \
    N(f32) inside = N(min_constant_f32)(ceiling, N(max_constant_f32)(floor, a));              \
    inside = (N(f32))((N(i32))inside & (a == a));                                             \
    N(i32) whole = __builtin_convertvector(inside, N(i32));                                   \
    return (N(to))narrow(whole);                                                              \
  }
/* Where the floor is 0, NaN becomes it. */
#define INGOT_NARROW_UNSIGNED(to, high, narrow)                                               \
  INGOT_INLINE N(to) N(convert_f32_##to)(N(f32) a) {                                          \
    N(f32) floor = {0}, ceiling = (N(f32)){0} + (high);                                       \
    N(f32) inside = N(min_constant_f32)(ceiling, N(max_constant_f32)(a, floor));              \
    return (N(to))narrow(__builtin_convertvector(inside, N(i32)));                            \
  }
#define INGOT_HALVES(whole) __builtin_convertvector(whole, N(i16))
IF(i8, INGOT_NARROW_SATURATED(i8, -128, 127, N(narrow_i32_i8)))
IF(i16, INGOT_NARROW_SATURATED(i16, -32768, 32767, INGOT_HALVES))
#if defined(__AVX512F__) && L == 16
IF(u8, INGOT_INLINE N(u8) N(saturate_u32_u8)(N(i32) a) {
  typedef char bytes __attribute__((vector_size(16)));
  return (N(u8))__builtin_ia32_pmovusdb512_mask(a, (bytes){0}, (u16)-1);
})
IF(u8, INGOT_INLINE N(u8) N(convert_f32_u8)(N(f32) a) { /* both conversions saturate */
  N(f32) inside = N(max_constant_f32)(a, (N(f32)){0});
  return N(saturate_u32_u8)(
      (N(i32))__builtin_ia32_cvttps2udq512_mask(inside, (N(i32)){0}, (u16)-1, 4));
})
#else
IF(u8, INGOT_NARROW_UNSIGNED(u8, 255, N(narrow_i32_i8)))
#endif
IF(u16, INGOT_NARROW_UNSIGNED(u16, 65535, INGOT_HALVES))
/* By way of f64: gcc 12 converts that in whole vectors, f32 in halves; and it fails on vectors wider
 * than the target's. */
#if (defined(__AVX512DQ__) && L <= 8) || (defined(__AVX2__) && L <= 4)
IF(i64, INGOT_INLINE N(i64) N(convert_f64_i64)(N(f64) a) {
  N(i64) inside = (a >= -0x1p63) & (a < 0x1p63);
  N(i64) value = __builtin_convertvector((N(f64))((N(i64))a & inside), N(i64));
  value |= (a >= 0x1p63) & INT64_MAX;
  return value | ((a < -0x1p63) & INT64_MIN);
})
IF(i64, INGOT_INLINE N(i64) N(convert_f32_i64)(N(f32) a) {
  return N(convert_f64_i64)(N(widen_f32_f64)(a));
})
#else
IF(i64, INGOT_LANEWISE1(f32, i64, convert_f32_i64))
IF(i64, INGOT_LANEWISE1(f64, i64, convert_f64_i64))
#endif
IF(u32, INGOT_LANEWISE1(f32, u32, convert_f32_u32))
IF(u64, INGOT_LANEWISE1(f32, u64, convert_f32_u64))
IF(i8, INGOT_LANEWISE1(f64, i8, convert_f64_i8))
IF(i16, INGOT_LANEWISE1(f64, i16, convert_f64_i16))
IF(i32, INGOT_LANEWISE1(f64, i32, convert_f64_i32))
IF(u8, INGOT_LANEWISE1(f64, u8, convert_f64_u8))
IF(u16, INGOT_LANEWISE1(f64, u16, convert_f64_u16))
IF(u32, INGOT_LANEWISE1(f64, u32, convert_f64_u32))
IF(u64, INGOT_LANEWISE1(f64, u64, convert_f64_u64))
#endif

#undef INGOT_VECTOR_INTEGER
#undef INGOT_LANEWISE1
#undef INGOT_LANEWISE2
#undef INGOT_VECTOR_FLOAT
#undef INGOT_INSTRUCTIONS
#undef INGOT_EXTREMES
#undef INGOT_MASKED
#undef INGOT_BLENDED
#undef INGOT_CHOSEN
#undef INGOT_LARGER
#undef INGOT_SMALLER
#undef INGOT_FMA
#undef INGOT_WITHOUT_INSTRUCTIONS
#undef INGOT_SWAP
#undef INGOT_REDUCE
#undef INGOT_ADD
#undef INGOT_MUL
#undef INGOT_REDUCE_FLOAT
#undef INGOT_TEST
#undef INGOT_WORDS
#undef INGOT_ANY
#undef INGOT_REDUCE_INTEGER
#undef INGOT_WIDEN
#undef INGOT_BYTES
#undef INGOT_TO_I32
#undef INGOT_LONGS
#undef INGOT_NARROW
#undef INGOT_NARROW_SATURATED
#undef INGOT_NARROW_UNSIGNED
#undef INGOT_HALVES
#undef EACH_LANE
#undef N
#undef L
#undef INGOT_LANES
