// Float ops that are exact or rounded once, f16 and bf16, and the fault record. prelude.py
// says how to read N(name), T, I, U and S(name).

F N(neg_F)(F a) { return -a; }

F N(abs_F)(F a) { return fabs(a); }

F N(sign_F)(F a) { return a > (F)(0) ? (F)(1) : (a < (F)(0) ? (F)(-1) : a); }

// NaN if one is NaN.
F N(max_F)(F a, F b) { return ((b > a) | (b != b)) ? b : a; }

F N(min_F)(F a, F b) { return ((b < a) | (b != b)) ? b : a; }

// Of a constant, which is no NaN, and a value: one comparison.
F N(max_constant_F)(F constant_, F a) { return constant_ >= a ? constant_ : a; }

F N(min_constant_F)(F constant_, F a) { return constant_ <= a ? constant_ : a; }

I N(is_nan_F)(F a) { return a != a; }

I N(is_inf_F)(F a) { return fabs(a) == (F)(INFINITY); }

I N(is_finite_F)(F a) { return fabs(a) < (F)(INFINITY); }

// NaN as 0: what the saturating conversions of OpenCL only should do.
F N(number_F)(F a) { return a == a ? a : (F)(0); }

F N(floor_F)(F a) { return floor(a); }

F N(ceil_F)(F a) { return ceil(a); }

F N(trunc_F)(F a) { return trunc(a); }

F N(round_even_F)(F a) { return rint(a); }

F N(round_away_F)(F a) { return round(a); }

F N(rem_F)(F a, F b) { return fmod(a, b); }

// A multiply-add, rounded once where the device has an instruction for it.
F32 N(fma_f32)(F32 a, F32 b, F32 c) {
#ifdef FP_FAST_FMAF
  return fma(a, b, c);
#else
#pragma OPENCL FP_CONTRACT ON
  return a * b + c;
#endif
}

F64 N(fma_f64)(F64 a, F64 b, F64 c) { return fma(a, b, c); }

F N(fma_exact_F)(F a, F b, F c) { return fma(a, b, c); }

// `/` and sqrt of f32 may be wrong by a few units in the last place; one step from the
// remainder mends it wherever that neither overflows nor underflows.
F32 N(div_f32)(F32 a, F32 b) {
  F32 q = a / b;
#ifndef INGOT_OPENCL_EXACT_DIVISION
  F32 size = fabs(b), whole = fabs(q);
  I32 usual = (size > 0x1p-40f) & (size < 0x1p60f) & (whole > 0x1p-60f) & (whole < 0x1p60f);
  F32 inverse = (F32)(1.0f) / b;
  inverse = fma(inverse, fma(-b, inverse, (F32)(1.0f)), inverse);
  F32 better = fma(fma(-b, q, a), inverse, q);
  better = fma(fma(-b, better, a), inverse, better);
  q = usual ? better : q;
#endif
  return q;
}

F64 N(div_f64)(F64 a, F64 b) { return a / b; }

F32 N(sqrt_f32)(F32 a) {
#ifdef INGOT_OPENCL_EXACT_DIVISION
  return sqrt(a);
#else
  I32 small = a < (F32)(0x1p-40f), large = a > (F32)(0x1p40f);
  F32 scaled = small ? a * 0x1p80f : (large ? a * 0x1p-80f : a);
  F32 y = sqrt(scaled);
  F32 half_inverse = (F32)(0.5f) / y;
  F32 better = fma(fma(-y, y, scaled), half_inverse, y);
  better = fma(fma(-better, better, scaled), half_inverse, better);
  y = ((scaled > (F32)(0)) & (scaled < (F32)(INFINITY))) ? better : y;
  return small ? y * 0x1p-40f : (large ? y * 0x1p40f : y);
#endif
}

F64 N(sqrt_f64)(F64 a) { return sqrt(a); }

F N(rsqrt_F)(F a) { return rsqrt(a); }

// f16 and bf16 live in registers as f32 that was rounded to nearest even; NaN stays NaN.
F32 N(widen_bf16)(U16 bits) { return as_F32(convert_U32(bits) << 16); }

F32 N(round_bf16)(F32 value) {
  U32 bits = as_U32(value);
  U32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  U32 quiet = (bits | 0x400000u) & 0xffff0000u;
  return as_F32(value != value ? quiet : rounded);
}

U16 N(narrow_bf16)(F32 value) { return convert_U16(as_U32(N(round_bf16)(value)) >> 16); }

F32 N(widen_f16)(U16 half_bits) {
  U32 bits = convert_U32(half_bits);
  U32 magnitude = bits & 0x7fffu;
  U32 special = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
  U32 normal = as_U32(as_F32(magnitude << 13) * 0x1p112f);
  U32 subnormal = as_U32(convert_F32(magnitude) * 0x1p-24f);
  U32 value = magnitude < (U32)(0x400u) ? subnormal : normal;
  value = magnitude >= (U32)(0x7c00u) ? special : value;
  return as_F32(value | ((bits & 0x8000u) << 16));
}

U16 N(narrow_f16)(F32 value) {
  U32 bits = as_U32(value) & 0x7fffffffu;
  U32 small = as_U32(as_F32(bits) + 0.5f) - 0x3f000000u;
  U32 normal = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  U32 result = bits < (U32)(0x38800000u) ? small : normal;
  U32 large = bits > (U32)(0x7f800000u) ? (U32)(0x7e00u) : (U32)(0x7c00u);
  result = bits >= (U32)(0x477ff000u) ? large : result;
  return convert_U16(result | ((as_U32(value) >> 16) & 0x8000u));
}

F32 N(round_f16)(F32 value) {
#ifdef INGOT_OPENCL_FP16
  return convert_F32(convert_F16_rte(value));
#else
  return N(widen_f16)(N(narrow_f16)(value));
#endif
}

// The first fault of a queue is kept; ingot_opencl_fault_t in opencl_object.h.
void note_fault(__global int *fault, int ticket, int operand, long index, long bound) {
  if (atomic_cmpxchg((volatile __global int *)fault, 0, ticket) == 0) {
    fault[1] = operand;
    fault[2] = FAULT_CODE;
    ((__global long *)fault)[2] = index;
    ((__global long *)fault)[3] = bound;
  }
}

// How partial loads and stores, and gathers, reach one element.
#define ELEMENT_AT(memory, index) (memory)[index]

#define PACKED_i4_AT(memory, index) \
  (char)((int)((uint)(memory)[(index) / 2] << (28 - (int)((index) % 2) * 4)) >> 28)

#define PACKED_i2_AT(memory, index) \
  (char)((int)((uint)(memory)[(index) / 4] << (30 - (int)((index) % 4) * 2)) >> 30)

#define PACKED_u4_AT(memory, index) \
  (uchar)((memory)[(index) / 2] >> ((int)((index) % 2) * 4) & 15)

#define PACKED_u2_AT(memory, index) \
  (uchar)((memory)[(index) / 4] >> ((int)((index) % 4) * 2) & 3)

#define HALF_AT(memory, index) vload_half(index, memory)

#define PUT_AT(memory, index, value) (memory)[index] = (value)

#define PUT_HALF_AT(memory, index, value) vstore_half_rte(value, index, memory)
