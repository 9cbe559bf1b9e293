/* Vectors of INGOT_LANES lanes: types, memory, lanes. kernel_arithmetic.h computes with them.
 *
 * Included once per number of lanes, with INGOT_LANES defined. A function is named like
 * its scalar twin with xLANES behind: add_i32x16. A mask is a signed integer vector with
 * lanes of 0 or -1; its width is that of what was compared. What the machine has no quick
 * way for goes lane by lane.
 */
#include "kernel.h"

#ifndef INGOT_REPEAT
#define INGOT_REPEAT2(v) v, v
#define INGOT_REPEAT4(v) INGOT_REPEAT2(v), INGOT_REPEAT2(v)
#define INGOT_REPEAT8(v) INGOT_REPEAT4(v), INGOT_REPEAT4(v)
#define INGOT_REPEAT16(v) INGOT_REPEAT8(v), INGOT_REPEAT8(v)
#define INGOT_REPEAT32(v) INGOT_REPEAT16(v), INGOT_REPEAT16(v)
#define INGOT_REPEAT64(v) INGOT_REPEAT32(v), INGOT_REPEAT32(v)
#define INGOT_COUNT2(v) v, v + 1
#define INGOT_COUNT4(v) INGOT_COUNT2(v), INGOT_COUNT2(v + 2)
#define INGOT_COUNT8(v) INGOT_COUNT4(v), INGOT_COUNT4(v + 4)
#define INGOT_COUNT16(v) INGOT_COUNT8(v), INGOT_COUNT8(v + 8)
#define INGOT_COUNT32(v) INGOT_COUNT16(v), INGOT_COUNT16(v + 16)
#define INGOT_COUNT64(v) INGOT_COUNT32(v), INGOT_COUNT32(v + 32)
#define INGOT_REPEAT(lanes, v) INGOT_CAT(INGOT_REPEAT, lanes)(v)
#define INGOT_COUNT(lanes) INGOT_CAT(INGOT_COUNT, lanes)(0)
#endif

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)
#define EACH_LANE for (int lane = 0; lane < L; ++lane)

/* Bytes of a register: gcc takes comparisons of longer vectors apart, lane by lane. */
#ifndef INGOT_REGISTER
#if defined(__clang__)
#define INGOT_REGISTER 1024
#elif defined(__AVX512F__)
#define INGOT_REGISTER 64
#elif defined(__AVX2__)
#define INGOT_REGISTER 32
#else
#define INGOT_REGISTER 16
#endif
#endif

/* Lanes at places that only the kernel knows. */
#if defined(__clang__)
#define INGOT_PICKED(type)                       \
  N(type) result;                                \
  EACH_LANE result[lane] = vector[places[lane]]; \
  return result;
#else
#define INGOT_PICKED(type) \
  return __builtin_shuffle(vector, places);
#endif

/* Types, loads and stores, lanes, select: for every element type. */
#define INGOT_TYPE(type)                                                                      \
  typedef type N(type) __attribute__((vector_size(sizeof(type) * L)));                        \
  typedef N(type) INGOT_CAT(N(type), _memory) __attribute__((aligned(sizeof(type)), may_alias));
#define INGOT_VECTOR(type, mask)                                                              \
  INGOT_INLINE N(type) N(broadcast_##type)(type value) {                                      \
    return (N(type)){INGOT_REPEAT(L, value)};                                                 \
  }                                                                                           \
  INGOT_INLINE N(type) N(load_##type)(const type##_memory *memory, i64 index) {               \
    return *(const INGOT_CAT(N(type), _memory) *)(memory + index);                            \
  }                                                                                           \
  INGOT_INLINE void N(store_##type)(type##_memory *memory, i64 index, N(type) value) {        \
    *(INGOT_CAT(N(type), _memory) *)(memory + index) = value;                                 \
  }                                                                                           \
  INGOT_INLINE N(type) N(insert_##type)(N(type) vector, type value, int lane) {               \
    vector[lane] = value;                                                                     \
    return vector;                                                                            \
  }                                                                                           \
  INGOT_INLINE N(type) N(pick_##type)(N(type) vector, N(mask) places) {                       \
    INGOT_PICKED(type)                                                                        \
  }                                                                                           \
  INGOT_INLINE N(type) N(select_##type)(N(mask) m, N(type) a, N(type) b) {                    \
    return (N(type))((m & (N(mask))a) | (~m & (N(mask))b));                                   \
  }

/* Elements at indices. What the machine gathers takes .4 of the time of lane by lane. */
#define INGOT_GATHER_LANES(type)                                                              \
  INGOT_INLINE N(type) N(gather_##type)(const type##_memory *memory, N(i64) indices) {        \
    N(type) result;                                                                           \
    EACH_LANE result[lane] = memory[indices[lane]];                                           \
    return result;                                                                            \
  }
#if defined(__AVX512F__) && !defined(__clang__) && (L == 8 || L == 16)
#define INGOT_GATHER(type, element, name)                                                     \
  INGOT_INLINE N(type) N(gather_##type)(const type##_memory *memory, N(i64) indices) {        \
    typedef element eight __attribute__((vector_size(8 * sizeof(element))));                  \
    union {                                                                                   \
      N(i64) whole;                                                                           \
      long long __attribute__((vector_size(64))) parts[L / 8];                                \
    } at = {indices};                                                                         \
    union {                                                                                   \
      N(type) whole;                                                                          \
      eight parts[L / 8];                                                                     \
    } result;                                                                                 \
    for (int part = 0; part < L / 8; ++part) {                                                \
      result.parts[part] = __builtin_ia32_gatherdiv##name((eight){0}, memory, at.parts[part], \
                                                          -1, sizeof(element));               \
    }                                                                                         \
    return result.whole;                                                                      \
  }
#else
#define INGOT_GATHER(type, element, name) INGOT_GATHER_LANES(type)
#endif

/* Bytes of a table of 256 at places, of whose register only these are read. */
#if defined(__AVX512VBMI__) && L == 16
#if defined(__clang__)
#define INGOT_WIDE(places)                                                                    \
  __builtin_shufflevector(places, places, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,  \
                          15, INGOT_REPEAT(16, -1), INGOT_REPEAT(16, -1), INGOT_REPEAT(16, -1))
#define INGOT_LOOK_UP(low, places, high) __builtin_ia32_vpermi2varqi512(low, places, high)
#else
#define INGOT_WIDE(places) __builtin_ia32_si512_si((i32x4)places)
#define INGOT_LOOK_UP(low, places, high)                                                      \
  __builtin_ia32_vpermt2varqi512_mask(places, low, high, ~(u64)0)
#endif
#define INGOT_LOOK_UP_LANES                                                                   \
  INGOT_INLINE N(u8) N(lookup_u8)(const u8_memory *memory, N(u8) places) {                    \
    typedef char bytes __attribute__((vector_size(64)));                                      \
    typedef bytes any_bytes __attribute__((aligned(1), may_alias));                           \
    typedef int i32x4 __attribute__((vector_size(16)));                                       \
    const any_bytes *table = (const any_bytes *)memory;                                       \
    bytes at = (bytes)INGOT_WIDE(places);                                                     \
    union {                                                                                   \
      bytes whole;                                                                            \
      N(u8) first;                                                                            \
    } low = {(bytes)INGOT_LOOK_UP(table[0], at, table[1])},                                   \
      high = {(bytes)INGOT_LOOK_UP(table[2], at, table[3])};                                  \
    return N(select_u8)((N(i8))places < 0, high.first, low.first);                            \
  }
#else
#define INGOT_LOOK_UP_LANES                                                                   \
  INGOT_INLINE N(u8) N(lookup_u8)(const u8_memory *memory, N(u8) places) {                    \
    N(u8) result;                                                                             \
    EACH_LANE result[lane] = memory[places[lane]];                                            \
    return result;                                                                            \
  }
#endif

INGOT_TYPE(i8)
INGOT_TYPE(i16)
INGOT_TYPE(i32)
INGOT_TYPE(i64)
INGOT_TYPE(u8)
INGOT_TYPE(u16)
INGOT_TYPE(u32)
INGOT_TYPE(u64)
INGOT_TYPE(f32)
INGOT_TYPE(f64)
IF(i8, INGOT_VECTOR(i8, i8))
IF(i16, INGOT_VECTOR(i16, i16))
IF(i32, INGOT_VECTOR(i32, i32))
IF(i64, INGOT_VECTOR(i64, i64))
IF(u8, INGOT_VECTOR(u8, i8))
IF(u16, INGOT_VECTOR(u16, i16))
IF(u32, INGOT_VECTOR(u32, i32))
IF(u64, INGOT_VECTOR(u64, i64))
INGOT_VECTOR(f32, i32)
IF(f64, INGOT_VECTOR(f64, i64))
IF(i8, INGOT_GATHER_LANES(i8))
IF(i16, INGOT_GATHER_LANES(i16))
IF(u8, INGOT_GATHER_LANES(u8))
IF(lookup, INGOT_LOOK_UP_LANES)
IF(u16, INGOT_GATHER_LANES(u16))
IF(i32, INGOT_GATHER(i32, int, 16si))
IF(u32, INGOT_GATHER(u32, int, 16si))
IF(i64, INGOT_GATHER(i64, long long, 8di))
IF(u64, INGOT_GATHER(u64, long long, 8di))
INGOT_GATHER(f32, float, 16sf)
IF(f64, INGOT_GATHER(f64, double, 8df))

INGOT_INLINE N(i64) N(lanes_i64)(void) { return (N(i64)){INGOT_COUNT(L)}; }

/* Comparisons, register by register. */
#define INGOT_COMPARE(type, mask, name, operator)                                             \
  INGOT_INLINE N(mask) N(name##_##type)(N(type) a, N(type) b) {                               \
    enum { length = sizeof a < INGOT_REGISTER ? sizeof a : INGOT_REGISTER };                  \
    union {                                                                                   \
      N(type) whole;                                                                          \
      type __attribute__((vector_size(length))) parts[sizeof a / length];                     \
    } left = {a}, right = {b};                                                                \
    union {                                                                                   \
      N(mask) whole;                                                                          \
      mask __attribute__((vector_size(length))) parts[sizeof a / length];                     \
    } result;                                                                                 \
    for (int at = 0; at < (int)(sizeof a / length); ++at) {                                   \
      result.parts[at] = left.parts[at] operator right.parts[at];                             \
    }                                                                                         \
    return result.whole;                                                                      \
  }
#define INGOT_COMPARE_ALL(type, mask)                                                         \
  INGOT_COMPARE(type, mask, eq, ==)                                                           \
  INGOT_COMPARE(type, mask, ne, !=)                                                           \
  INGOT_COMPARE(type, mask, lt, <)                                                            \
  INGOT_COMPARE(type, mask, le, <=)                                                           \
  INGOT_COMPARE(type, mask, gt, >)                                                            \
  INGOT_COMPARE(type, mask, ge, >=)
IF(i8, INGOT_COMPARE_ALL(i8, i8))
IF(i16, INGOT_COMPARE_ALL(i16, i16))
IF(i32, INGOT_COMPARE_ALL(i32, i32))
IF(i64, INGOT_COMPARE_ALL(i64, i64))
IF(u8, INGOT_COMPARE_ALL(u8, i8))
IF(u16, INGOT_COMPARE_ALL(u16, i16))
IF(u32, INGOT_COMPARE_ALL(u32, i32))
IF(u64, INGOT_COMPARE_ALL(u64, i64))
IF(f64, INGOT_COMPARE_ALL(f64, i64))

/* The first `count` lanes only; the others are not touched, and read as zero. */
#define INGOT_PARTIAL_BY_LANE(type)                                                           \
  INGOT_INLINE N(type) N(load_partial_##type)(const type##_memory *memory, i64 index, i64 count) { \
    N(type) result = {0};                                                                     \
    EACH_LANE if (lane < count) result[lane] = memory[index + lane];                          \
    return result;                                                                            \
  }                                                                                           \
  INGOT_INLINE void N(store_partial_##type)(type##_memory *memory, i64 index, N(type) value,  \
                                            i64 count) {                                      \
    EACH_LANE if (lane < count) memory[index + lane] = value[lane];                           \
  }
#define INGOT_PARTIAL_BY_BITS(type, load, store, memory_type, vector_type, mask)              \
  INGOT_INLINE N(type) N(load_partial_##type)(const type##_memory *memory, i64 index, i64 count) { \
    mask lanes = count >= L ? (mask)~(mask)0 : (mask)(((u64)1 << count) - 1u);                \
    return (N(type))load((memory_type const *)(memory + index), (vector_type){0}, lanes);     \
  }                                                                                           \
  INGOT_INLINE void N(store_partial_##type)(type##_memory *memory, i64 index, N(type) value,  \
                                            i64 count) {                                      \
    mask lanes = count >= L ? (mask)~(mask)0 : (mask)(((u64)1 << count) - 1u);                \
    store((memory_type *)(memory + index), (vector_type)value, lanes);                        \
  }
#define INGOT_PARTIAL_BY_MASK(type, name, memory_type, mask, mask_type)                       \
  INGOT_INLINE mask_type N(inside_##type)(i64 count) {                                        \
    return (mask_type)((N(mask)){INGOT_COUNT(L)} < (mask)(count > L ? L : count));            \
  }                                                                                           \
  INGOT_INLINE N(type) N(load_partial_##type)(const type##_memory *memory, i64 index, i64 count) { \
    return (N(type))__builtin_ia32_maskload##name((memory_type const *)(memory + index),      \
                                                  N(inside_##type)(count));                   \
  }                                                                                           \
  INGOT_INLINE void N(store_partial_##type)(type##_memory *memory, i64 index, N(type) value,  \
                                            i64 count) {                                      \
    __builtin_ia32_maskstore##name((memory_type *)(memory + index), N(inside_##type)(count),  \
                                   (memory_type)value);                                       \
  }
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && L == 16
INGOT_PARTIAL_BY_BITS(f32, __builtin_ia32_loadups512_mask, __builtin_ia32_storeups512_mask, f32,
                      N(f32), u16)
IF(i32, INGOT_PARTIAL_BY_BITS(i32, __builtin_ia32_loaddqusi512_mask,
                              __builtin_ia32_storedqusi512_mask, i32, N(i32), u16))
IF(u32, INGOT_PARTIAL_BY_BITS(u32, __builtin_ia32_loaddqusi512_mask,
                              __builtin_ia32_storedqusi512_mask, i32, N(i32), u16))
#elif defined(__AVX2__) && L == 8
INGOT_PARTIAL_BY_MASK(f32, ps256, N(f32), i32, N(i32))
IF(i32, INGOT_PARTIAL_BY_MASK(i32, d256, N(i32), i32, N(i32)))
IF(u32, INGOT_PARTIAL_BY_MASK(u32, d256, N(i32), i32, N(i32)))
#else
INGOT_PARTIAL_BY_LANE(f32)
IF(i32, INGOT_PARTIAL_BY_LANE(i32))
IF(u32, INGOT_PARTIAL_BY_LANE(u32))
#endif
#if defined(__AVX2__) && L == 4
typedef long long N(words) __attribute__((vector_size(32))); /* the builtins', not i64 */
IF(f64, INGOT_PARTIAL_BY_MASK(f64, pd256, N(f64), i64, N(words)))
IF(i64, INGOT_PARTIAL_BY_MASK(i64, q256, N(words), i64, N(words)))
IF(u64, INGOT_PARTIAL_BY_MASK(u64, q256, N(words), i64, N(words)))
#else
IF(f64, INGOT_PARTIAL_BY_LANE(f64))
IF(i64, INGOT_PARTIAL_BY_LANE(i64))
IF(u64, INGOT_PARTIAL_BY_LANE(u64))
#endif
#if defined(__AVX512BW__) && defined(__AVX512VL__) && (L == 16 || L == 32 || L == 64)
typedef char N(chars) __attribute__((vector_size(L))); /* the builtins', not i8 */
#if defined(__clang__)
#define INGOT_CHARS N(chars)
#else
#define INGOT_CHARS char
#endif
#if L == 16
#define INGOT_PARTIAL_BYTES(type)                                                             \
  INGOT_PARTIAL_BY_BITS(type, __builtin_ia32_loaddquqi128_mask,                               \
                        __builtin_ia32_storedquqi128_mask, INGOT_CHARS, N(chars), u16)
#elif L == 32
#define INGOT_PARTIAL_BYTES(type)                                                             \
  INGOT_PARTIAL_BY_BITS(type, __builtin_ia32_loaddquqi256_mask,                               \
                        __builtin_ia32_storedquqi256_mask, INGOT_CHARS, N(chars), u32)
#else
#define INGOT_PARTIAL_BYTES(type)                                                             \
  INGOT_PARTIAL_BY_BITS(type, __builtin_ia32_loaddquqi512_mask,                               \
                        __builtin_ia32_storedquqi512_mask, INGOT_CHARS, N(chars), u64)
#endif
#else
#define INGOT_PARTIAL_BYTES(type) INGOT_PARTIAL_BY_LANE(type)
#endif
IF(i8, INGOT_PARTIAL_BYTES(i8))
IF(i16, INGOT_PARTIAL_BY_LANE(i16))
IF(u8, INGOT_PARTIAL_BYTES(u8))
IF(u16, INGOT_PARTIAL_BY_LANE(u16))

/* f16 and bf16. */
#define INGOT_HALF(type)                                                                      \
  INGOT_INLINE N(f32) N(load_##type)(const type##_memory *memory, i64 index) {                \
    return N(widen_##type)(N(load_u16)(memory, index));                                       \
  }                                                                                           \
  INGOT_INLINE void N(store_##type)(type##_memory *memory, i64 index, N(f32) value) {         \
    N(store_u16)(memory, index, N(narrow_##type)(value));                                     \
  }                                                                                           \
  INGOT_INLINE N(f32) N(load_partial_##type)(const type##_memory *memory, i64 index, i64 count) { \
    return N(widen_##type)(N(load_partial_u16)(memory, index, count));                        \
  }                                                                                           \
  INGOT_INLINE void N(store_partial_##type)(type##_memory *memory, i64 index, N(f32) value,   \
                                            i64 count) {                                      \
    N(store_partial_u16)(memory, index, N(narrow_##type)(value), count);                      \
  }                                                                                           \
  INGOT_INLINE N(f32) N(gather_##type)(const type##_memory *memory, N(i64) indices) {         \
    return N(widen_##type)(N(gather_u16)(memory, indices));                                   \
  }
#if INGOT_USES(N(bf16))
INGOT_INLINE N(f32) N(widen_bf16)(N(u16) bits) {
#if defined(__AVX512F__) && L == 16 && !defined(__clang__) /* gcc: else in two halves */
  return (N(f32))(__builtin_ia32_pmovzxwd512_mask((N(i16))bits, (N(i32)){0}, (u16)-1) << 16);
#else
  return (N(f32))(__builtin_convertvector(bits, N(u32)) << 16);
#endif
}
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && L == 4
INGOT_INLINE N(u16) N(narrow_bf16)(N(f32) value) {
  N(u16) result;
  __asm__("bfcvtn %0.4h, %1.4s" : "=w"(result) : "w"(value));
  return result;
}
INGOT_INLINE N(f32) N(round_bf16)(N(f32) value) { return N(widen_bf16)(N(narrow_bf16)(value)); }
#else
INGOT_INLINE N(f32) N(round_bf16)(N(f32) value) {
  N(u32) bits = (N(u32))value;
  N(u32) rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  N(i32) nan = value != value;
  return (N(f32))(((N(u32))nan & ((bits | 0x400000u) & 0xffff0000u)) | (~(N(u32))nan & rounded));
}
INGOT_INLINE N(u16) N(narrow_bf16)(N(f32) value) {
#if (defined(__AVX512BF16__) || defined(__AMX_BF16__)) && L == 16
  u16 subnormal = __builtin_ia32_fpclassps512_mask(value, 0x20, (u16)-1); /* taken for 0 */
  if (__builtin_expect(subnormal == 0, 1)) {
    N(u16) result;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(result) : "v"(value));
    return result;
  }
#endif
  return __builtin_convertvector((N(u32))N(round_bf16)(value) >> 16, N(u16));
}
#endif
INGOT_HALF(bf16)
#endif
#if INGOT_USES(N(f16))
#if INGOT_HAS_HALF
typedef INGOT_HALF_TYPE N(half) __attribute__((vector_size(2 * L)));
INGOT_INLINE N(f32) N(widen_f16)(N(u16) bits) {
  return __builtin_convertvector((N(half))bits, N(f32));
}
INGOT_INLINE N(u16) N(narrow_f16)(N(f32) value) {
  return (N(u16))__builtin_convertvector(value, N(half));
}
#elif defined(__AVX512F__) && L == 16
INGOT_INLINE N(f32) N(widen_f16)(N(u16) bits) {
  return __builtin_ia32_vcvtph2ps512_mask((N(i16))bits, (N(f32)){0}, (u16)-1, 4);
}
INGOT_INLINE N(u16) N(narrow_f16)(N(f32) value) {
  return (N(u16))__builtin_ia32_vcvtps2ph512_mask(value, 0, (N(i16)){0}, (u16)-1);
}
#elif defined(__F16C__) && L == 8
INGOT_INLINE N(f32) N(widen_f16)(N(u16) bits) {
  return __builtin_ia32_vcvtph2ps256((N(i16))bits);
}
INGOT_INLINE N(u16) N(narrow_f16)(N(f32) value) {
  return (N(u16))__builtin_ia32_vcvtps2ph256(value, 0);
}
#else
INGOT_INLINE N(f32) N(widen_f16)(N(u16) half) {
  N(u32) bits = __builtin_convertvector(half, N(u32));
  N(u32) magnitude = bits & 0x7fffu;
  N(u32) special = (N(u32))(magnitude >= 0x7c00u);
  N(u32) normal = (N(u32))((N(f32))(magnitude << 13) * 0x1p112f);
  N(u32) value = (special & (0x7f800000u | ((magnitude & 0x3ffu) << 13))) | (~special & normal);
  return (N(f32))(value | ((bits & 0x8000u) << 16));
}
INGOT_INLINE N(u16) N(narrow_f16)(N(f32) value) {
  N(u32) bits = (N(u32))value & 0x7fffffffu;
  N(u32) small = (N(u32))((N(f32))bits + 0.5f) - 0x3f000000u;
  N(u32) normal = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  N(u32) is_small = (N(u32))(bits < 0x38800000u);
  N(u32) result = (is_small & small) | (~is_small & normal);
  N(u32) large = (N(u32))(bits >= 0x477ff000u);
  N(u32) nan = (N(u32))(bits > 0x7f800000u);
  result = (large & ((nan & 0x7e00u) | (~nan & 0x7c00u))) | (~large & result);
  return __builtin_convertvector(result | (((N(u32))value >> 16) & 0x8000u), N(u16));
}
#endif
INGOT_INLINE N(f32) N(round_f16)(N(f32) value) { return N(widen_f16)(N(narrow_f16)(value)); }
INGOT_HALF(f16)
#endif

/* Packed elements, at any place in a byte: no byte without a live one is touched. */
#define INGOT_PACKED_VECTOR(type, element)                                                    \
  INGOT_INLINE N(element) N(load_packed_##type)(const packed_##type##_memory *memory, i64 index) { \
    N(element) result;                                                                        \
    EACH_LANE result[lane] = load_packed_##type(memory, index + lane);                        \
    return result;                                                                            \
  }                                                                                           \
  INGOT_INLINE N(element) N(load_partial_packed_##type)(const packed_##type##_memory *memory, \
                                                        i64 index, i64 count) {               \
    N(element) result = {0};                                                                  \
    EACH_LANE if (lane < count) result[lane] = load_packed_##type(memory, index + lane);      \
    return result;                                                                            \
  }                                                                                           \
  INGOT_INLINE N(element) N(gather_packed_##type)(const packed_##type##_memory *memory,       \
                                                  N(i64) indices) {                           \
    N(element) result;                                                                        \
    EACH_LANE result[lane] = load_packed_##type(memory, indices[lane]);                       \
    return result;                                                                            \
  }
#if INGOT_USE_packed
INGOT_PACKED_VECTOR(i4, i8)
INGOT_PACKED_VECTOR(i2, i8)
INGOT_PACKED_VECTOR(u4, u8)
INGOT_PACKED_VECTOR(u2, u8)
#endif

/* i1 in memory is a byte of 0 or 1, in a register a mask of 8-bit lanes. */
#if INGOT_USES(N(i1))
INGOT_INLINE N(i8) N(load_i1)(const i1_memory *memory, i64 index) {
  return (N(i8))(N(load_u8)(memory, index) != 0);
}
INGOT_INLINE N(i8) N(load_partial_i1)(const i1_memory *memory, i64 index, i64 count) {
  return (N(i8))(N(load_partial_u8)(memory, index, count) != 0);
}
INGOT_INLINE N(i8) N(gather_i1)(const i1_memory *memory, N(i64) indices) {
  return (N(i8))(N(gather_u8)(memory, indices) != 0);
}
INGOT_INLINE void N(store_i1)(i1_memory *memory, i64 index, N(i8) value) {
  N(store_u8)(memory, index, (N(u8))value & 1);
}
INGOT_INLINE void N(store_partial_i1)(i1_memory *memory, i64 index, N(i8) value, i64 count) {
  N(store_partial_u8)(memory, index, (N(u8))value & 1, count);
}
#endif

#undef INGOT_COMPARE
#undef INGOT_COMPARE_ALL
#undef INGOT_PICKED
#undef INGOT_TYPE
#undef INGOT_VECTOR
#undef INGOT_GATHER
#undef INGOT_GATHER_LANES
#undef INGOT_LOOK_UP
#undef INGOT_WIDE
#undef INGOT_LOOK_UP_LANES
#undef INGOT_PARTIAL_BY_LANE
#undef INGOT_PARTIAL_BYTES
#undef INGOT_CHARS
#undef INGOT_PARTIAL_BY_BITS
#undef INGOT_PARTIAL_BY_MASK
#undef INGOT_HALF
#undef EACH_LANE
#undef N
#undef L
#undef INGOT_LANES
