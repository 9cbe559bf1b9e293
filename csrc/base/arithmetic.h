/* Size arithmetic that cannot wrap unnoticed.
 *
 * The ingot_add_* and ingot_multiply_* functions return true and set *out if the exact
 * result fits its type; else they return false and *out is arbitrary.
 */
#ifndef INGOT_BASE_ARITHMETIC_H_
#define INGOT_BASE_ARITHMETIC_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ingot_add_size(size_t a, size_t b, size_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

static inline bool ingot_multiply_size(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

static inline bool ingot_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

static inline bool ingot_multiply_u64(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

static inline bool ingot_add_i64(int64_t a, int64_t b, int64_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

static inline bool ingot_subtract_i64(int64_t a, int64_t b, int64_t *out) {
  return !__builtin_sub_overflow(a, b, out);
}

static inline bool ingot_multiply_i64(int64_t a, int64_t b, int64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

/* Whether [offset, offset + length) lies in [0, total), for any offset and length: nothing
 * overflows, negative ones are refused. `total` is not negative. */
static inline bool ingot_range_fits_i64(int64_t offset, int64_t length, int64_t total) {
  return (uint64_t)length <= (uint64_t)total && (uint64_t)offset <= (uint64_t)(total - length);
}

static inline bool ingot_range_fits_u64(uint64_t offset, uint64_t length, uint64_t total) {
  return offset <= total && length <= total - offset;
}

/* ceil(a / b) for a >= 0, b >= 1; cannot overflow. */
static inline int64_t ingot_divide_up_i64(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* floor(a / b); false for b = 0 and MIN / -1. */
static inline bool ingot_floor_divide_i64(int64_t a, int64_t b, int64_t *out_quotient) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  *out_quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
  return true;
}

/* a - b * floor(a / b); false for b = 0. */
static inline bool ingot_floor_modulo_i64(int64_t a, int64_t b, int64_t *out_remainder) {
  if (b == 0) return false;
  int64_t remainder = b == -1 ? 0 : a % b;
  *out_remainder = remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
  return true;
}

/* The dim that a and b broadcast to; false if they differ and neither is 1. */
static inline bool ingot_broadcast_i64(int64_t a, int64_t b, int64_t *out_dim) {
  *out_dim = a == 1 ? b : a;
  return a == b || a == 1 || b == 1;
}

#endif /* INGOT_BASE_ARITHMETIC_H_ */
