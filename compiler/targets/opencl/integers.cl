// Integer ops, as in kernel.h of the CPU: they wrap, and no operand is undefined. prelude.py
// says how to read N(name), T, I, U and S(name).

T N(add_T)(T a, T b) { return as_T(convert_U(as_U(a) + as_U(b))); }

T N(sub_T)(T a, T b) { return as_T(convert_U(as_U(a) - as_U(b))); }

T N(mul_T)(T a, T b) { return as_T(convert_U(as_U(a) * as_U(b))); }

// A scalar of 16 bits would be promoted to int, whose product overflows.
I16 N(mul_i16)(I16 a, I16 b) { return as_I16(convert_U16(convert_U32(a) * convert_U32(b))); }

U16 N(mul_u16)(U16 a, U16 b) { return convert_U16(convert_U32(a) * convert_U32(b)); }

T N(neg_T)(T a) { return as_T(convert_U((U)(0) - as_U(a))); }

T N(not_T)(T a) { return ~a; }

T N(and_T)(T a, T b) { return a & b; }

T N(or_T)(T a, T b) { return a | b; }

T N(xor_T)(T a, T b) { return a ^ b; }

T N(max_T)(T a, T b) { return max(a, b); }

T N(min_T)(T a, T b) { return min(a, b); }

T N(shift_left_T)(T a, T b) {
  return as_U(b) < (U)(BITS) ? as_T(convert_U(as_U(a) << (as_U(b) & (U)(BITS - 1)))) : (T)(0);
}

T N(shift_right_logical_T)(T a, T b) {
  return as_U(b) < (U)(BITS) ? as_T(convert_U(as_U(a) >> (as_U(b) & (U)(BITS - 1)))) : (T)(0);
}

T N(shift_right_arithmetic_T)(T a, T b) {
  return as_T(convert_I(as_I(a) >> as_I(min(as_U(b), (U)(BITS - 1)))));
}

// Words of four bytes: c + the products of the bytes of a with those of b.
uint S(byte_u8)(int a, int place) { return as_uint(a) >> place & 255u; }

uint S(byte_i8)(int a, int place) { return as_uint(as_int(as_uint(a) << (24 - place)) >> 24); }

#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
#define PRODUCTS4(left, right, packed, a, b) as_uint(packed(as_uint(a), as_uint(b)))
#else
#define PRODUCTS4(left, right, packed, a, b)                                          \
  (left(a, 0) * right(b, 0) + left(a, 8) * right(b, 8) + left(a, 16) * right(b, 16) + \
   left(a, 24) * right(b, 24))
#endif

int S(dot4_u8_i8)(int a, int b, int c) {
  return as_int(as_uint(c) + PRODUCTS4(byte_u8, byte_i8, dot_4x8packed_us_int, a, b));
}

int S(dot4_u8_u8)(int a, int b, int c) {
  return as_int(as_uint(c) + PRODUCTS4(byte_u8, byte_u8, dot_4x8packed_uu_uint, a, b));
}

int S(dot4_i8_i8)(int a, int b, int c) {
  return as_int(as_uint(c) + PRODUCTS4(byte_i8, byte_i8, dot_4x8packed_ss_int, a, b));
}

int S(dot4_i8_u8)(int a, int b, int c) {
  return as_int(as_uint(c) + PRODUCTS4(byte_i8, byte_u8, dot_4x8packed_su_int, a, b));
}

// Bytes of words, 0 to 15, as those of a table, of which `low` has the first eight.
I32 N(table4_i32)(I32 words, ulong low, ulong high) {
  U32 result = (U32)(0);
  for (int place = 0; place < 32; place += 8) {
    U64 code = convert_U64(as_U32(words) >> place & 15u);
    U64 eight = (code & 8u) != 0 ? (U64)(high) : (U64)(low);
    result |= (convert_U32(eight >> (code & 7u) * 8u) & 255u) << place;
  }
  return as_I32(result);
}

T N(popcount_T)(T a) { return popcount(a); }

T N(count_leading_zeros_T)(T a) { return clz(a); }

T S(power_T)(T a, T b) {
  T result = 1;
  for (U left = as_U(b); left != 0; left >>= 1) {
    result = (left & 1) != 0 ? N(mul_T)(result, a) : result;
    a = N(mul_T)(a, a);
  }
  return result;
}

// A negative power gives 0, 1 or -1.
T S(pow_SIGNED)(T a, T b) {
  if (b >= 0) {
    return N(power_T)(a, b);
  }
  return a == 1 ? a : a == -1 ? ((b & 1) != 0 ? a : (T)1) : (T)0;
}

T S(pow_UNSIGNED)(T a, T b) { return N(power_T)(a, b); }

T N(abs_SIGNED)(T a) { return as_T(abs(a)); }

T N(abs_UNSIGNED)(T a) { return a; }

T N(sign_SIGNED)(T a) { return max(min(a, (T)(1)), (T)(-1)); }

T N(sign_UNSIGNED)(T a) { return min(a, (T)(1)); }

// Division by zero gives -1 (all bits), the remainder the dividend; MIN / -1 is MIN.
T N(div_SIGNED)(T a, T b) {
  I unsafe = (b == (T)(0)) | (b == (T)(-1));
  T quotient = a / (unsafe ? (T)(1) : b);
  return unsafe ? (b == (T)(0) ? (T)(-1) : N(neg_T)(a)) : quotient;
}

T N(rem_SIGNED)(T a, T b) {
  I unsafe = (b == (T)(0)) | (b == (T)(-1));
  T rest = a % (unsafe ? (T)(1) : b);
  return b == (T)(0) ? a : rest;
}

T N(div_UNSIGNED)(T a, T b) {
  return b == (T)(0) ? ~(T)(0) : a / (b == (T)(0) ? (T)(1) : b);
}

T N(rem_UNSIGNED)(T a, T b) {
  return b == (T)(0) ? a : a % (b == (T)(0) ? (T)(1) : b);
}
