/* What every generated C kernel is built on: scalar types and the ops on them.
 *
 * Stands alone with kernel_abi.h; includes no system intrinsics header (they cost 160 ms a
 * file) and needs no library. Integer arithmetic is done unsigned, so nothing here is
 * undefined for any input. f16 and bf16 live in registers as f32 that was rounded.
 * Vectors are in kernel_vector.h and kernel_arithmetic.h, once per number of lanes. Functions
 * such as exp are printed where they are used: compiler/kernels/math.
 *
 * Reading all of it takes longer than compiling a small kernel. So what stands in INGOT_IF(part,
 * ...) is for files whose kernels use that part, see headers.py, and a file says in front of it
 * what they use: INGOT_USE_PART is 1 or 0 for each part that c_printer.py lists, which are the
 * element types, those with a number of lanes behind, and some words in names of functions.
 */
#ifndef INGOT_KERNEL_H_
#define INGOT_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#include "ingot/kernel_abi.h"

#define INGOT_INLINE static inline __attribute__((always_inline, unused))
#define INGOT_RARE static __attribute__((cold, noinline, unused))
#define INGOT_CAT_(a, b) a##b
#define INGOT_CAT(a, b) INGOT_CAT_(a, b)
#define INGOT_CAT3(a, b, c) INGOT_CAT(INGOT_CAT(a, b), c)
#define INGOT_USES(part) INGOT_CAT(INGOT_USE_, part)

typedef uint8_t i1; /* 0 or 1 */
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef float f32;
typedef double f64;

/* Bits of one type read as another. */
#define INGOT_BITCAST(from, to)                    \
  INGOT_INLINE to bitcast_##from##_##to(from value) { \
    union {                                        \
      from source;                                 \
      to target;                                   \
    } bits;                                        \
    bits.source = value;                           \
    return bits.target;                            \
  }
INGOT_BITCAST(f32, u32)
INGOT_BITCAST(u32, f32)
INGOT_BITCAST(f32, i32)
INGOT_BITCAST(i32, f32)
INGOT_BITCAST(f64, u64)
INGOT_BITCAST(u64, f64)
INGOT_BITCAST(f64, i64)
INGOT_BITCAST(i64, f64)
INGOT_BITCAST(i8, u8)
INGOT_BITCAST(u8, i8)
INGOT_BITCAST(i16, u16)
INGOT_BITCAST(u16, i16)
INGOT_BITCAST(i32, u32)
INGOT_BITCAST(u32, i32)
INGOT_BITCAST(i64, u64)
INGOT_BITCAST(u64, i64)

/* Index arithmetic. */
INGOT_INLINE i64 index_min(i64 a, i64 b) { return a < b ? a : b; }
INGOT_INLINE i64 index_max(i64 a, i64 b) { return a > b ? a : b; }

/* Work is counted in ops, about. A kernel asks whether its call is to end when it has done
 * INGOT_POLL_FUEL of them: every few dozen microseconds, at a cost of some nanoseconds. */
#define INGOT_POLL_FUEL 262144
#define INGOT_POLL(work)                                \
  do {                                                  \
    if (__builtin_expect((fuel -= (work)) < 0, 0)) {    \
      if (dispatch->poll(dispatch) != 0) return 0;      \
      fuel = INGOT_POLL_FUEL;                           \
    }                                                   \
  } while (0)

/* Between the heads of two loops: compilers make one of them otherwise, that is worse. */
#define INGOT_KEEP_APART() __asm__ volatile("")

/* Whether compilers have a type for f16 with instructions that convert it, and ops on vectors of any
 * length that have instructions. */
#if defined(__ARM_FP16_FORMAT_IEEE)
#define INGOT_HAS_HALF 1
#define INGOT_HALF_TYPE __fp16
#elif defined(__F16C__) && defined(__clang__) && __clang_major__ >= 15
#define INGOT_HAS_HALF 1
#define INGOT_HALF_TYPE _Float16
#else
#define INGOT_HAS_HALF 0
#endif
#if defined(__clang__) && __clang_major__ >= 17
#define INGOT_HAS_ELEMENTWISE 1
#else
#define INGOT_HAS_ELEMENTWISE 0
#endif

/* f16 and bf16. Round to nearest even; NaN stays NaN. */
INGOT_INLINE f32 load_bits_bf16(u16 bits) { return bitcast_u32_f32((u32)bits << 16); }

INGOT_INLINE u16 store_bits_bf16(f32 value) {
  u32 bits = bitcast_f32_u32(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return (u16)((bits >> 16) | 0x40u);
  }
  return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if INGOT_HAS_HALF
INGOT_INLINE f32 load_bits_f16(u16 half) {
  union {
    u16 bits;
    INGOT_HALF_TYPE half;
  } value = {half};
  return (f32)value.half;
}
INGOT_INLINE u16 store_bits_f16(f32 value) {
  union {
    INGOT_HALF_TYPE half;
    u16 bits;
  } result = {(INGOT_HALF_TYPE)value};
  return result.bits;
}
#elif defined(__F16C__)
typedef i16 f16c_halves __attribute__((vector_size(16)));
typedef f32 f16c_floats __attribute__((vector_size(16)));
INGOT_INLINE f32 load_bits_f16(u16 half) {
  return __builtin_ia32_vcvtph2ps((f16c_halves){(i16)half})[0];
}
INGOT_INLINE u16 store_bits_f16(f32 value) {
  return (u16)__builtin_ia32_vcvtps2ph((f16c_floats){value}, 0)[0];
}
#else
INGOT_INLINE f32 load_bits_f16(u16 half) {
  u32 sign = ((u32)half & 0x8000u) << 16;
  u32 magnitude = (u32)half & 0x7fffu;
  if (magnitude >= 0x7c00u) { /* infinity, NaN */
    return bitcast_u32_f32(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  /* The exponent is rebased by a product, which makes subnormals normal as well. */
  return bitcast_u32_f32(sign | bitcast_f32_u32(bitcast_u32_f32(magnitude << 13) * 0x1p112f));
}

INGOT_INLINE u16 store_bits_f16(f32 value) {
  u32 bits = bitcast_f32_u32(value);
  u16 sign = (u16)((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) {
    return (u16)(sign | 0x7e00u);
  }
  if (bits >= 0x477ff000u) { /* rounds to more than 65504 */
    return (u16)(sign | 0x7c00u);
  }
  if (bits < 0x38800000u) { /* subnormal: the addition rounds at the right place */
    f32 shifted = bitcast_u32_f32(bits) + 0.5f;
    return (u16)(sign | (bitcast_f32_u32(shifted) - 0x3f000000u));
  }
  return (u16)(sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13));
}
#endif

INGOT_INLINE f32 round_bf16(f32 value) { return load_bits_bf16(store_bits_bf16(value)); }
INGOT_INLINE f32 round_f16(f32 value) { return load_bits_f16(store_bits_f16(value)); }
INGOT_INLINE f32 round_f32(f32 value) { return value; }
INGOT_INLINE f64 round_f64(f64 value) { return value; }

/* Memory by element index. */
#define INGOT_MEMORY(type, alignment)                                                         \
  typedef type type##_memory __attribute__((may_alias, aligned(alignment)));                  \
  INGOT_INLINE type load_##type(const type##_memory *memory, i64 index) { return memory[index]; } \
  INGOT_INLINE void store_##type(type##_memory *memory, i64 index, type value) {              \
    memory[index] = value;                                                                    \
  }
INGOT_MEMORY(i8, 1)
INGOT_MEMORY(i16, 2)
INGOT_MEMORY(i32, 1) /* words of bytes, too */
INGOT_MEMORY(i64, 8)
INGOT_MEMORY(u8, 1)
INGOT_MEMORY(u16, 2)
INGOT_MEMORY(u32, 4)
INGOT_MEMORY(u64, 8)
INGOT_MEMORY(f32, 4)
INGOT_MEMORY(f64, 8)
typedef u8 i1_memory __attribute__((may_alias));
typedef u16 f16_memory __attribute__((may_alias));
typedef u16 bf16_memory __attribute__((may_alias));
INGOT_INLINE i1 load_i1(const i1_memory *memory, i64 index) { return memory[index] != 0; }
INGOT_INLINE void store_i1(i1_memory *memory, i64 index, i1 value) { memory[index] = value; }
INGOT_INLINE f32 load_f16(const f16_memory *memory, i64 index) {
  return load_bits_f16(memory[index]);
}
INGOT_INLINE void store_f16(f16_memory *memory, i64 index, f32 value) {
  memory[index] = store_bits_f16(value);
}
INGOT_INLINE f32 load_bf16(const bf16_memory *memory, i64 index) {
  return load_bits_bf16(memory[index]);
}
INGOT_INLINE void store_bf16(bf16_memory *memory, i64 index, f32 value) {
  memory[index] = store_bits_bf16(value);
}

/* Elements of `bits` bits, the first one in the low bits of a byte. */
#define INGOT_PACKED(type, element, word, bits)                                               \
  typedef u8 packed_##type##_memory __attribute__((may_alias));                               \
  INGOT_INLINE element load_packed_##type(const packed_##type##_memory *memory, i64 index) {  \
    u32 place = (u32)index % (8 / bits) * bits;                                               \
    u32 high = (u32)memory[(u64)index / (8 / bits)] << (32 - bits - place);                   \
    return (element)((word)high >> (32 - bits));                                              \
  }
INGOT_PACKED(i4, i8, i32, 4)
INGOT_PACKED(i2, i8, i32, 2)
INGOT_PACKED(u4, u8, u32, 4)
INGOT_PACKED(u2, u8, u32, 2)

/* Integer ops. Division by zero gives -1 (all bits), the remainder the dividend; MIN / -1
 * is MIN. A shift by the width or more gives 0, or the sign. */
#define INGOT_INTEGER(type, unsigned_type, bits)                                              \
  INGOT_INLINE type add_##type(type a, type b) {                                              \
    return (type)(unsigned_type)((u64)(unsigned_type)a + (u64)(unsigned_type)b);              \
  }                                                                                           \
  INGOT_INLINE type sub_##type(type a, type b) {                                              \
    return (type)(unsigned_type)((u64)(unsigned_type)a - (u64)(unsigned_type)b);              \
  }                                                                                           \
  INGOT_INLINE type mul_##type(type a, type b) {                                              \
    return (type)(unsigned_type)((u64)(unsigned_type)a * (u64)(unsigned_type)b);              \
  }                                                                                           \
  INGOT_INLINE type neg_##type(type a) { return sub_##type(0, a); }                           \
  INGOT_INLINE type not_##type(type a) { return (type)~a; }                                   \
  INGOT_INLINE type and_##type(type a, type b) { return (type)(a & b); }                      \
  INGOT_INLINE type or_##type(type a, type b) { return (type)(a | b); }                       \
  INGOT_INLINE type xor_##type(type a, type b) { return (type)(a ^ b); }                      \
  INGOT_INLINE type max_##type(type a, type b) { return a > b ? a : b; }                      \
  INGOT_INLINE type min_##type(type a, type b) { return a < b ? a : b; }                      \
  INGOT_INLINE type shift_left_##type(type a, type b) {                                       \
    return (u64)(unsigned_type)b < bits                                                       \
               ? (type)(unsigned_type)((u64)(unsigned_type)a << (unsigned_type)b)             \
               : (type)0;                                                                     \
  }                                                                                           \
  INGOT_INLINE type shift_right_logical_##type(type a, type b) {                              \
    return (u64)(unsigned_type)b < bits ? (type)((unsigned_type)a >> (unsigned_type)b) : (type)0; \
  }                                                                                           \
  INGOT_INLINE type power_##type(type a, unsigned_type b) {                                   \
    type result = 1;                                                                          \
    for (unsigned_type left = b; left != 0; left = (unsigned_type)(left >> 1)) { \
      result = (left & 1) != 0 ? mul_##type(result, a) : result;                              \
      a = mul_##type(a, a);                                                                   \
    }                                                                                         \
    return result;                                                                            \
  }                                                                                           \
  INGOT_INLINE type popcount_##type(type a) {                                                 \
    u64 x = (u64)(unsigned_type)a;                                                            \
    x = x - ((x >> 1) & 0x5555555555555555u);                                                 \
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);                         \
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;                                                 \
    return (type)((x * 0x0101010101010101u) >> 56);                                           \
  }                                                                                           \
  INGOT_INLINE type count_leading_zeros_##type(type a) {                                      \
    u64 x = (u64)(unsigned_type)a;                                                            \
    type count = (type)(bits);                                                                \
    while (x != 0) {                                                                          \
      x >>= 1;                                                                                \
      count = (type)(count - 1);                                                              \
    }                                                                                         \
    return count;                                                                             \
  }

#define INGOT_SIGNED(type, unsigned_type, bits)                                               \
  INGOT_INTEGER(type, unsigned_type, bits)                                                    \
  INGOT_INLINE type pow_##type(type a, type b) { /* a negative power gives 0, 1 or -1 */     \
    return b >= 0   ? power_##type(a, (unsigned_type)b)                                       \
           : a == 1 ? a                                                                       \
           : a == -1 ? (b & 1 ? a : (type)1)                                                  \
                     : (type)0;                                                               \
  }                                                                                           \
  INGOT_INLINE type abs_##type(type a) { return a < 0 ? neg_##type(a) : a; }                  \
  INGOT_INLINE type sign_##type(type a) { return (type)((a > 0) - (a < 0)); }                 \
  INGOT_INLINE type div_##type(type a, type b) {                                              \
    return b == 0 ? (type)-1 : b == -1 ? neg_##type(a) : (type)(a / b);                       \
  }                                                                                           \
  INGOT_INLINE type rem_##type(type a, type b) {                                              \
    return b == 0 ? a : b == -1 ? (type)0 : (type)(a % b);                                    \
  }                                                                                           \
  INGOT_INLINE type shift_right_arithmetic_##type(type a, type b) {                           \
    u64 count = (u64)(unsigned_type)b < bits ? (u64)(unsigned_type)b : bits - 1;              \
    return (type)(a < 0 ? ~(~a >> count) : a >> count);                                       \
  }

#define INGOT_UNSIGNED(type, signed_type, bits)                                               \
  INGOT_INTEGER(type, type, bits)                                                             \
  INGOT_INLINE type pow_##type(type a, type b) { return power_##type(a, b); }                 \
  INGOT_INLINE type abs_##type(type a) { return a; }                                          \
  INGOT_INLINE type sign_##type(type a) { return (type)(a != 0); }                            \
  INGOT_INLINE type div_##type(type a, type b) {                                              \
    return b == 0 ? (type)~(type)0 : (type)(a / b);                                           \
  }                                                                                           \
  INGOT_INLINE type rem_##type(type a, type b) { return b == 0 ? a : (type)(a % b); }         \
  INGOT_INLINE type shift_right_arithmetic_##type(type a, type b) {                           \
    return (type)shift_right_arithmetic_##signed_type((signed_type)a, (signed_type)b);        \
  }
INGOT_IF(i8, INGOT_SIGNED(i8, u8, 8))
INGOT_IF(i16, INGOT_SIGNED(i16, u16, 16))
INGOT_IF(i32, INGOT_SIGNED(i32, u32, 32))
INGOT_IF(i64, INGOT_SIGNED(i64, u64, 64))
INGOT_IF(u8, INGOT_UNSIGNED(u8, i8, 8))
INGOT_IF(u16, INGOT_UNSIGNED(u16, i16, 16))
INGOT_IF(u32, INGOT_UNSIGNED(u32, i32, 32))
INGOT_IF(u64, INGOT_UNSIGNED(u64, i64, 64))

/* Float ops. max and min give NaN if either is NaN. */
#define INGOT_FLOAT(type, bits_type, sign_bit)                                                \
  INGOT_INLINE type neg_##type(type a) { return -a; }                                         \
  INGOT_INLINE type abs_##type(type a) {                                                      \
    return bitcast_##bits_type##_##type(bitcast_##type##_##bits_type(a) & ~(sign_bit));       \
  }                                                                                           \
  INGOT_INLINE type max_##type(type a, type b) {                                              \
    return a > b || a != a ? a : b;                                                           \
  }                                                                                           \
  INGOT_INLINE type min_##type(type a, type b) {                                              \
    return a < b || a != a ? a : b;                                                           \
  }                                                                                           \
  INGOT_INLINE type sign_##type(type a) { return a > 0 ? (type)1 : a < 0 ? (type)-1 : a; }    \
  INGOT_INLINE i1 is_nan_##type(type a) { return a != a; }                                    \
  INGOT_INLINE i1 is_inf_##type(type a) {                                                     \
    return abs_##type(a) == (type)__builtin_inf();                                            \
  }                                                                                           \
  INGOT_INLINE i1 is_finite_##type(type a) { return abs_##type(a) < (type)__builtin_inf(); }
INGOT_FLOAT(f32, u32, 0x80000000u)
INGOT_FLOAT(f64, u64, 0x8000000000000000u)

/* sqrt compiles to an instruction wherever there is one: -fno-math-errno. */
INGOT_INLINE f32 sqrt_f32(f32 a) { return __builtin_sqrtf(a); }
INGOT_INLINE f64 sqrt_f64(f64 a) { return __builtin_sqrt(a); }
INGOT_INLINE f32 rsqrt_f32(f32 a) { return 1.0f / __builtin_sqrtf(a); }
INGOT_INLINE f64 rsqrt_f64(f64 a) { return 1.0 / __builtin_sqrt(a); }

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__riscv_f)
#define INGOT_HAS_FMA 1
INGOT_INLINE f32 fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
INGOT_INLINE f64 fma_f64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
#else
#define INGOT_HAS_FMA 0
INGOT_INLINE f32 fma_f32(f32 a, f32 b, f32 c) { return a * b + c; }
INGOT_INLINE f64 fma_f64(f64 a, f64 b, f64 c) { return a * b + c; }
#endif

#if INGOT_USE_rem
/* The remainder has the sign of the dividend and is exact. */
INGOT_INLINE f64 rem_f64(f64 a, f64 b) {
  u64 sign = bitcast_f64_u64(a) & 0x8000000000000000u;
  u64 x = bitcast_f64_u64(a) ^ sign, y = bitcast_f64_u64(abs_f64(b));
  if (y == 0 || x >= 0x7ff0000000000000u || y > 0x7ff0000000000000u) {
    return (a * b) / (a * b);
  }
  if (x < y) {
    return a;
  }
  i64 x_exponent = (i64)(x >> 52), y_exponent = (i64)(y >> 52);
  u64 low = 0x000fffffffffffffu, one = 0x0010000000000000u;
  x = x_exponent == 0 ? x : (x & low) | one;
  y = y_exponent == 0 ? y : (y & low) | one;
  x_exponent += x_exponent == 0;
  y_exponent += y_exponent == 0;
  for (; x_exponent > y_exponent; --x_exponent) {
    x = (x >= y ? x - y : x) << 1;
  }
  x = x >= y ? x - y : x;
  if (x == 0) {
    return bitcast_u64_f64(sign);
  }
  for (; x < one && x_exponent > 1; --x_exponent) {
    x <<= 1;
  }
  x = x < one ? x : (x & low) | (u64)x_exponent << 52;
  return bitcast_u64_f64(x | sign);
}
INGOT_INLINE f32 rem_f32(f32 a, f32 b) { return (f32)rem_f64(a, b); }
#endif

/* i1 */
INGOT_INLINE i1 not_i1(i1 a) { return a ^ 1; }
INGOT_INLINE i1 and_i1(i1 a, i1 b) { return a & b; }
INGOT_INLINE i1 or_i1(i1 a, i1 b) { return a | b; }
INGOT_INLINE i1 xor_i1(i1 a, i1 b) { return a ^ b; }

#if INGOT_USE_convert
/* Conversions. From float to integer: toward zero, saturating, NaN gives 0. */
#define INGOT_SATURATE(from, to, low, high, below, above)                                     \
  INGOT_INLINE to convert_##from##_##to(from a) {                                             \
    return a != a ? (to)0 : a <= (from)(low) ? (to)(below) : a >= (from)(high) ? (to)(above) : (to)a; \
  }
#define INGOT_SATURATE_ALL(from)                                                              \
  INGOT_SATURATE(from, i8, -128, 127, INT8_MIN, INT8_MAX)                                     \
  INGOT_SATURATE(from, i16, -32768, 32767, INT16_MIN, INT16_MAX)                              \
  INGOT_SATURATE(from, i32, -2147483648.0, 2147483648.0, INT32_MIN, INT32_MAX)                \
  INGOT_SATURATE(from, i64, -9223372036854775808.0, 9223372036854775808.0, INT64_MIN, INT64_MAX) \
  INGOT_SATURATE(from, u8, 0, 255, 0, UINT8_MAX)                                              \
  INGOT_SATURATE(from, u16, 0, 65535, 0, UINT16_MAX)                                          \
  INGOT_SATURATE(from, u32, 0, 4294967296.0, 0, UINT32_MAX)                                   \
  INGOT_SATURATE(from, u64, 0, 18446744073709551616.0, 0, UINT64_MAX)
INGOT_SATURATE_ALL(f32)
INGOT_SATURATE_ALL(f64)
#endif

/* Compilers emit calls of these four. */
void *memcpy(void *restrict target, const void *restrict source, size_t length);
void *memmove(void *target, const void *source, size_t length);
void *memset(void *target, int value, size_t length);
int memcmp(const void *a, const void *b, size_t length);

#endif /* INGOT_KERNEL_H_ */
