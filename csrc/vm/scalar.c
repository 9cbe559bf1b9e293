/* Integers of registers as those of dtypes. */
#include "vm/scalar.h"

int64_t ingot_scalar_wrap(int64_t value, ingot_dtype_t dtype) {
  const ingot_dtype_facts_t *facts = ingot_dtype_facts(dtype);
  uint32_t unused = 64u - facts->bits;
  uint64_t shifted = (uint64_t)value << unused;
  if (facts->kind == 'i') return ingot_scalar_shift_right((int64_t)shifted, unused);
  return (int64_t)(shifted >> unused);
}

int64_t ingot_scalar_f64_to_i64(double value) {
  if (value != value) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  if (value < -0x1p63) return INT64_MIN;
  return (int64_t)value;
}

uint64_t ingot_scalar_encode_i64(int64_t value, ingot_dtype_t dtype) {
  return (uint64_t)ingot_scalar_wrap(value, dtype); /* sub-byte types take a byte with sign */
}

int64_t ingot_scalar_decode_i64(uint64_t bits, ingot_dtype_t dtype) {
  if (dtype == INGOT_DTYPE_I1) return (bits & 0xFF) != 0;
  return ingot_scalar_wrap((int64_t)bits, dtype);
}
