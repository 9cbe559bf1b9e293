/* Floats of all dtypes of registers as doubles; f16 and bf16 with own integer code.
 */
#include "base/float.h"

#include <string.h>

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* What rounding to a narrow float needs to know of it. */
typedef struct float_format_t {
  int mantissa_bits;
  int least_exponent; /* of a normal number */
  double largest;
} float_format_t;

static const float_format_t format_f16 = {10, -14, 65504.0};
static const float_format_t format_bf16 = {7, -126, 0x1.FEp127};

/* Adding and subtracting 1.5 * 2^(52 + q) rounds to a multiple of 2^q, ties to even. */
static double round_narrow(double value, const float_format_t *format) {
  int exponent = (int)(bits_of(value) >> 52 & 0x7FF) - 1023;
  if (exponent == 1024) return value; /* infinity and NaN */
  if (exponent > 128) exponent = 128; /* overflows whatever it is rounded to */
  if (exponent < format->least_exponent) exponent = format->least_exponent;
  int quantum = exponent - format->mantissa_bits;
  double magic = double_of((uint64_t)(quantum + 52 + 1023) << 52) * 1.5;
  double magnitude = value < 0 ? -value : value;
  volatile double shifted = magnitude + magic; /* not to be simplified away */
  double rounded = shifted - magic;
  if (rounded > format->largest) rounded = double_of(UINT64_C(0x7FF) << 52);
  return double_of(bits_of(rounded) | (bits_of(value) & UINT64_C(1) << 63));
}

double ingot_float_round(double value, ingot_dtype_t dtype) {
  if (dtype == INGOT_DTYPE_F32) return (double)(float)value;
  if (dtype == INGOT_DTYPE_F16) return round_narrow(value, &format_f16);
  if (dtype == INGOT_DTYPE_BF16) return round_narrow(value, &format_bf16);
  return value;
}

static uint64_t encode_f32(double value) {
  float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof(bits));
  return bits;
}

static double decode_f32(uint64_t bits) {
  uint32_t low = (uint32_t)bits;
  float narrow;
  memcpy(&narrow, &low, sizeof(narrow));
  return (double)narrow;
}

/* `value` is exactly an f16, an infinity or a NaN. */
static uint64_t encode_f16(double value) {
  uint64_t bits = bits_of(value);
  uint64_t sign = bits >> 63 << 15;
  int exponent = (int)(bits >> 52 & 0x7FF) - 1023;
  if (value != value) return sign | 0x7E00;
  if (exponent > 15) return sign | 0x7C00;
  if (exponent < -14) return sign | (uint64_t)((value < 0 ? -value : value) * 0x1p24);
  return sign | (uint64_t)(exponent + 15) << 10 | (bits >> 42 & 0x3FF);
}

static double decode_f16(uint64_t bits) {
  uint64_t sign = bits >> 15 & 1;
  uint64_t exponent = bits >> 10 & 0x1F;
  uint64_t mantissa = bits & 0x3FF;
  double magnitude = (double)mantissa * 0x1p-24;
  if (exponent == 31) magnitude = double_of(UINT64_C(0x7FF) << 52 | mantissa << 42);
  else if (exponent > 0) magnitude = double_of((exponent + 1008) << 52 | mantissa << 42);
  return double_of(bits_of(magnitude) | sign << 63);
}

uint64_t ingot_float_encode(double value, ingot_dtype_t dtype) {
  double rounded = ingot_float_round(value, dtype);
  if (dtype == INGOT_DTYPE_F16) return encode_f16(rounded);
  if (dtype == INGOT_DTYPE_F32) return encode_f32(rounded);
  if (dtype == INGOT_DTYPE_BF16) {
    /* A NaN whose payload lies in the dropped half must stay one. */
    return rounded != rounded ? UINT64_C(0x7FC0) : encode_f32(rounded) >> 16;
  }
  return bits_of(rounded);
}

double ingot_float_decode(uint64_t bits, ingot_dtype_t dtype) {
  if (dtype == INGOT_DTYPE_F16) return decode_f16(bits);
  if (dtype == INGOT_DTYPE_BF16) return decode_f32(bits << 16);
  if (dtype == INGOT_DTYPE_F32) return decode_f32(bits);
  return double_of(bits);
}
