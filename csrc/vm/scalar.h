/* Scalar arithmetic of the instruction set where C's own would be undefined, or where a
 * narrower dtype is kept in a wide register.
 */
#ifndef INGOT_VM_SCALAR_H_
#define INGOT_VM_SCALAR_H_

#include "base/dtype.h"

/* Toward zero; b = 0 gives -1, MIN / -1 gives MIN. */
static inline int64_t ingot_scalar_divide(int64_t a, int64_t b) {
  if (b == 0) return -1;
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b;
}

/* a - b * (a / b): b = 0 gives a, MIN / -1 gives 0. */
static inline int64_t ingot_scalar_remainder(int64_t a, int64_t b) {
  if (b == 0) return a;
  if (b == -1) return 0;
  return a % b;
}

static inline int64_t ingot_scalar_shift_left(int64_t a, int64_t b) {
  return b >= 0 && b < 64 ? (int64_t)((uint64_t)a << b) : 0;
}

static inline int64_t ingot_scalar_shift_right(int64_t a, int64_t b) {
  uint64_t sign = a < 0 ? ~UINT64_C(0) : 0;
  if (b < 0 || b >= 64) return (int64_t)sign;
  return (int64_t)(((uint64_t)a ^ sign) >> b ^ sign);
}

/* The value modulo 2^bits in an integer dtype's range; a boolean keeps its lowest bit. */
int64_t ingot_scalar_wrap(int64_t value, ingot_dtype_t dtype);

/* Toward zero, saturating; NaN gives 0. */
int64_t ingot_scalar_f64_to_i64(double value);

/* An element's bytes in the low bytes of a word. */
uint64_t ingot_scalar_encode_i64(int64_t value, ingot_dtype_t dtype);
int64_t ingot_scalar_decode_i64(uint64_t bits, ingot_dtype_t dtype);

#endif /* INGOT_VM_SCALAR_H_ */
