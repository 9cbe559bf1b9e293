// Functions of f32 whose error bound in the op table is below what OpenCL promises for its
// own; the others are OpenCL's. No f64 is needed. The hot ones are those of kernel_math.h.
// POLY(x, c0, c1, ...) is c0 + c1 x + ... by multiply-adds.

// value * 2^power, where power is a whole number and the result may be subnormal.
F32 N(scale_f32)(F32 value, F32 power) {
  I32 whole = convert_I32(power);
  I32 half_power = whole >> 1;
  F32 first = as_F32((half_power + 127) << 23);
  return value * first * as_F32((whole - half_power + 127) << 23);
}

F32 N(exp_f32)(F32 x) {
  x = N(min_constant_f32)((F32)(89.0f), N(max_constant_f32)((F32)(-105.0f), x));
  F32 k = rint(x * 0x1.715476p+0f);
  F32 r = N(fma_f32)(k, (F32)(-0x1.62ep-1f), x);
  r = N(fma_f32)(k, (F32)(-0x1.0bfbe8p-15f), r);
  F32 q = POLY(r, 0.5f, 0x1.5554dcp-3f, 0x1.5554b8p-5f, 0x1.120c0ap-7f, 0x1.6d7614p-10f);
  q = N(fma_f32)(q, r * r, r) + 1.0f;
  return N(scale_f32)(q, k);
}

F32 N(exp2_f32)(F32 x) {
  x = N(min_constant_f32)((F32)(129.0f), N(max_constant_f32)((F32)(-152.0f), x));
  F32 k = rint(x);
  F32 r = x - k;
  F32 q = POLY(r, 1.0f, 0x1.62e430p-1f, 0x1.ebfbdap-3f, 0x1.c6aed4p-5f, 0x1.3b2dbcp-7f,
               0x1.5f4572p-10f, 0x1.41d308p-13f);
  return N(scale_f32)(q, k);
}

F32 N(log_f32)(F32 x) {
  I32 tiny = x < (F32)(0x1p-126f);
  I32 bits = as_I32(tiny ? x * 0x1p23f : x);
  I32 exponent = (bits - 0x3f3504f3) >> 23;
  F32 f = as_F32(bits - (exponent << 23)) - 1.0f;
  F32 e = convert_F32(exponent) - (tiny ? (F32)(23.0f) : (F32)(0));
  F32 q = POLY(f, 0x1.555554p-2f, -0x1.ffffe6p-3f, 0x1.999d36p-3f, -0x1.55625ep-3f,
               0x1.23dd14p-3f, -0x1.fbc46ep-4f, 0x1.dc8e38p-4f, -0x1.dd999ep-4f, 0x1.2c5a02p-4f);
  F32 square = f * f;
  F32 y = N(fma_f32)(e, (F32)(0x1.7f7d1cp-20f), q * f * square);
  y = N(fma_f32)(square, (F32)(-0.5f), y) + f;
  y = N(fma_f32)(e, (F32)(0x1.62e4p-1f), y);
  y = x < (F32)(INFINITY) ? y : x;
  y = x == (F32)(0) ? (F32)(-INFINITY) : y;
  return x < (F32)(0) ? (F32)(NAN) : y;
}

F32 N(logistic_f32)(F32 x) {
  F32 e = N(exp_f32)(-fabs(x));
  return (x < (F32)(0) ? e : (F32)(1.0f)) / (e + 1.0f);
}

F32 N(tanh_f32)(F32 x) {
  x = N(min_constant_f32)((F32)(9.02f), N(max_constant_f32)((F32)(-9.02f), x));
  F32 u = x * x;
  F32 p = POLY(u, 1.0f, 0x1.182850p-3f, 0x1.faf8bep-9f, 0x1.d5bcc0p-16f, 0x1.0689a0p-25f,
               -0x1.accd8ap-37f);
  F32 q = POLY(u, 1.0f, 0x1.e1697cp-2f, 0x1.be5e92p-6f, 0x1.9ce9ecp-12f, 0x1.596822p-20f);
  return x * p / q;
}

F32 N(erf_f32)(F32 x) {
  x = N(min_constant_f32)((F32)(3.925f), N(max_constant_f32)((F32)(-3.925f), x));
  F32 u = x * x;
  F32 p = POLY(u, 0x1.20dd76p+0f, 0x1.7b3afap-3f, 0x1.bc9da0p-5f, 0x1.f7c202p-9f,
               0x1.8c4454p-12f, 0x1.375cc2p-18f, -0x1.bd6978p-27f);
  F32 q = POLY(u, 1.0f, 0x1.fd6020p-2f, 0x1.d2949cp-4f, 0x1.fa0e76p-7f, 0x1.55d7a6p-10f,
               0x1.06ebb0p-14f);
  return x * p / q;
}

F32 N(expm1_f32)(F32 x) { return expm1(x); }

F32 N(log1p_f32)(F32 x) { return log1p(x); }

F32 N(cbrt_f32)(F32 x) { return cbrt(x); }

F32 N(asin_f32)(F32 x) { return asin(x); }

F32 N(acos_f32)(F32 x) { return acos(x); }

F32 N(sinh_f32)(F32 x) { return sinh(x); }

F32 N(cosh_f32)(F32 x) { return cosh(x); }

F32 N(asinh_f32)(F32 x) { return asinh(x); }

F32 N(acosh_f32)(F32 x) { return acosh(x); }

F32 N(atanh_f32)(F32 x) { return atanh(x); }

// Bits of 2 / pi: one word before the point, then from 2^-1 on.
__constant uint two_over_pi_f32[] = {
    0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u,
    0x3c439041u, 0xfe5163abu};

// What is left of x, at least 1, beside a multiple of pi / 2, counted modulo 4.
float S(reduce_large_f32)(float x, int *quadrant) {
  uint bits = as_uint(x);
  int exponent = (int)((bits >> 23) & 0xffu) - 150;  // |x| = mantissa * 2^exponent
  uint mantissa = (bits & 0x7fffffu) | 0x800000u;
  if (exponent > 104) {
    *quadrant = 0;
    return x - x;
  }
  // Bits of 2/pi before 2^(2 - exponent) give multiples of 4 and are left out.
  int skip = exponent - 2 + 32;
  uint word = (uint)skip / 32u, shift = (uint)skip % 32u;
  uint window[3];
  for (uint i = 0; i < 3; ++i) {
    ulong pair = ((ulong)two_over_pi_f32[word + i] << 32) | two_over_pi_f32[word + i + 1];
    window[i] = (uint)((pair << shift) >> 32);
  }
  // mantissa * window, kept modulo 2^96: x * 2/pi = product * 2^-94 modulo 4.
  ulong low = (ulong)mantissa * window[2];
  ulong middle = (ulong)mantissa * window[1] + (low >> 32);
  uint high = mantissa * window[0] + (uint)(middle >> 32);
  ulong top = ((ulong)high << 32) | (uint)middle;
  uint whole = high >> 30;
  top = (top << 2) | ((uint)low >> 30);
  if ((top >> 63) != 0) {  // above one half: count from the next one
    ++whole;
    top = ~top;
    x = -x;
  }
  float leading = convert_float_rtz((uint)(top >> 32));
  ulong rest = top - ((ulong)leading << 32);
  float fraction = fma(convert_float(rest), 0x1p-64f, leading * 0x1p-32f);
  *quadrant = (int)((as_int(bits) < 0 ? 0u - whole : whole) & 3u);
  float r = fma(fraction, 0x1.921fb6p+0f, fraction * -0x1.777a5cp-25f);
  return x < 0.0f ? -r : r;
}

float S(reduce_sin_f32)(float x, int *quadrant) {
  if (!(fabs(x) < 0x1p15f)) {
    return N(reduce_large_f32)(x, quadrant);
  }
  float k = rint(x * 0x1.45f306p-1f);
  float r = fma(k, -0x1.921fb6p+0f, x);
  r = fma(k, 0x1.777a5cp-25f, r);
  r = fma(k, 0x1.ee59dap-50f, r);
  *quadrant = (int)k & 3;
  return r;
}

float S(sin_poly_f32)(float r) {
  float z = r * r;
  float q = POLY(z, -0x1.555556p-3f, 0x1.111174p-7f, -0x1.a05954p-13f, 0x1.7c2c4ep-19f);
  return fma(q * z, r, r);
}

float S(cos_poly_f32)(float r) {
  float z = r * r;
  return POLY(z, 1.0f, -0.5f, 0x1.555556p-5f, -0x1.6c175ep-10f, 0x1.a071c4p-16f, -0x1.361b2ep-22f);
}

float S(sin_f32)(float x) {
  int quadrant;
  float r = N(reduce_sin_f32)(x, &quadrant);
  float y = (quadrant & 1) != 0 ? N(cos_poly_f32)(r) : N(sin_poly_f32)(r);
  y = (quadrant & 2) != 0 ? -y : y;
  return x == 0.0f ? x : y;
}

float S(cos_f32)(float x) {
  int quadrant;
  float r = N(reduce_sin_f32)(x, &quadrant);
  float y = (quadrant & 1) != 0 ? N(sin_poly_f32)(r) : N(cos_poly_f32)(r);
  return ((quadrant + 1) & 2) != 0 ? -y : y;
}

float S(tan_f32)(float x) {
  int quadrant;
  float r = N(reduce_sin_f32)(x, &quadrant);
  float s = N(sin_poly_f32)(r), c = N(cos_poly_f32)(r);
  float y = (quadrant & 1) != 0 ? N(div_f32)(-c, s) : N(div_f32)(s, c);
  return x == 0.0f ? x : y;
}

// atan(top / bottom) for both >= 0, one of them not 0
float S(atan_ratio_f32)(float top, float bottom) {
  int steep = top > bottom;
  float t = N(div_f32)(steep ? bottom : top, steep ? top : bottom);
  float z = t * t;
  float q = POLY(z, -0x1.55553ep-2f, 0x1.9991e4p-3f, -0x1.242086p-3f, 0x1.c08cd0p-4f,
                 -0x1.580df2p-4f, 0x1.da4ce0p-5f, -0x1.fdf576p-6f, 0x1.64e81cp-7f,
                 -0x1.d543acp-10f);
  float y = fma(q * z, t, t);
  return steep ? 0x1.921fb6p+0f - (y + 0x1.777a5cp-25f) : y;
}

float S(atan_f32)(float x) {
  float a = fabs(x);
  float y = a == INFINITY ? 0x1.921fb6p+0f : N(atan_ratio_f32)(a, 1.0f);
  return copysign(a == a ? y : x, x);
}

float S(atan2_f32)(float y, float x) {
  float a = fabs(y), b = fabs(x);
  if (a != a || b != b) {
    return a + b;
  }
  int both = a == INFINITY && b == INFINITY;
  float top = both || a == INFINITY ? 1.0f : (b == INFINITY ? 0.0f : a);
  float bottom = both || b == INFINITY ? 1.0f : (a == INFINITY ? 0.0f : b);
  bottom = top == 0.0f && bottom == 0.0f ? 1.0f : bottom;
  float angle = N(atan_ratio_f32)(top, bottom);
  angle = as_int(x) < 0 ? 0x1.921fb6p+1f - (angle + 0x1.777a5cp-24f) : angle;
  return copysign(angle, y);
}

// log(x) = result + low for x > 0, with 34 bits or more.
float S(log_parts_f32)(float x, float *low) {
  int tiny = x < 0x1p-126f;
  int bits = as_int(tiny ? x * 0x1p23f : x);
  int exponent = (bits - 0x3f3504f3) >> 23;
  float f = as_float(bits - (exponent << 23)) - 1.0f;
  float e = (float)exponent - (tiny ? 23.0f : 0.0f);
  // log(1 + f) = 2 atanh(s), s = f / (2 + f), to twice the bits of a float
  float d = f + 2.0f;
  float d_low = f - (d - 2.0f);
  float s = f / d;
  float s_low = fma(-s, d_low, fma(-s, d, f)) / d;
  float z = s * s;
  float z_low = fma(s, s, -z) + 2.0f * s * s_low;
  float cube = s * z;
  float cube_low = fma(s, z, -cube) + fma(s, z_low, s_low * z);
  float q = POLY(z, 0x1.9996a8p-2f, 0x1.257f42p-2f, 0x1.aad868p-3f);
  // cube * 2/3, with the constant in two parts
  float third = cube * 0x1.555556p-1f;
  float third_low = fma(cube, 0x1.555556p-1f, -third);
  third_low += fma(cube_low, 0x1.555556p-1f, cube * -0x1.555556p-26f);
  float rest = fma(cube * z, q, third_low) + fma(2.0f, s_low, e * 0x1.7f7d1cp-20f);
  float high = e * 0x1.62e4p-1f;
  float sum = high + 2.0f * s;
  float error = (high - sum) + 2.0f * s;  // exact where |high| >= |2 s| or high is 0
  float total = sum + third;
  error += (sum - total) + third;
  rest += error;
  sum = total + rest;
  *low = (total - sum) + rest;
  return sum;
}

float S(pow_f32)(float x, float y) {
  float a = fabs(x), low, result;
  int whole = trunc(y) == y;
  int odd = whole && trunc(0.5f * y) != 0.5f * y;
  if (y == 0.0f || x == 1.0f || (a == 1.0f && fabs(y) == INFINITY)) {
    return 1.0f;
  }
  if (x != x || y != y || (x < 0.0f && a < INFINITY && !whole && fabs(y) < INFINITY)) {
    return NAN;
  }
  if (a == 0.0f || a == INFINITY || fabs(y) == INFINITY) {
    result = (a > 1.0f) == (y > 0.0f) ? INFINITY : 0.0f;
  } else {
    float high = N(log_parts_f32)(a, &low);
    float product = y * high;
    float error = fma(y, high, -product) + y * low;
    result = N(exp_f32)(product);
    result = result > 0.0f && result < INFINITY ? fma(result, error, result) : result;
  }
  return as_int(x) < 0 && odd ? -result : result;
}
