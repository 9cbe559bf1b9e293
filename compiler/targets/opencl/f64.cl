// Functions of f64 whose error bound in the op table is below what OpenCL promises for its
// own; the others are OpenCL's. The algorithms are those of kernel_math.h, by lane.
// POLY(x, c0, c1, ...) is c0 + c1 x + ... by multiply-adds.

double S(scale_f64)(double value, double power) {
  int whole = (int)power;
  int half_power = whole >> 1;
  double first = as_double((long)(half_power + 1023) << 52);
  return value * first * as_double((long)(whole - half_power + 1023) << 52);
}

// e^r - 1 for |r| up to ln 2 / 2
double S(exp_fraction_f64)(double r) {
  double q = POLY(r, 0x1.0p-1, 0x1.5555555555557p-3, 0x1.5555555555558p-5, 0x1.11111111100b5p-7,
                  0x1.6c16c16c151c0p-10, 0x1.a01a01abfcdc2p-13, 0x1.a01a01ad113a8p-16,
                  0x1.71de01ef9c6d6p-19, 0x1.27e4cc97c8e77p-22, 0x1.af4e726d9072bp-26,
                  0x1.1f8ba7d848628p-29);
  return fma(q, r * r, r);
}

double S(exp_f64)(double x) {
  if (x != x) {
    return x;
  }
  x = fmin(710.0, fmax(-746.0, x));
  double k = rint(x * 0x1.71547652b82fep+0);
  double r = fma(k, -0x1.cf79abc9e3b3ap-40, fma(k, -0x1.62e42fefap-1, x));
  return N(scale_f64)(N(exp_fraction_f64)(r) + 1.0, k);
}

double S(exp2_f64)(double x) {
  if (x != x) {
    return x;
  }
  x = fmin(1025.0, fmax(-1080.0, x));
  double k = rint(x);
  double r = fma(x - k, 0x1.abc9e3b39803fp-56, (x - k) * 0x1.62e42fefa39efp-1);
  return N(scale_f64)(N(exp_fraction_f64)(r) + 1.0, k);
}

// log(x) = result + low for normal x > 0
double S(log_parts_f64)(double x, double *low) {
  int tiny = x < 0x1p-1022;
  long bits = as_long(tiny ? x * 0x1p52 : x);
  long exponent = (bits - 0x3fe6a09e667f3bcdL) >> 52;
  double f = as_double(bits - (exponent << 52)) - 1.0;
  double e = (double)exponent - (tiny ? 52.0 : 0.0);
  double s = f / (f + 2.0);
  double z = s * s;
  double q = POLY(z, 0x1.5555555555558p-1, 0x1.99999999951fep-2, 0x1.2492492e08013p-2,
                  0x1.c71c62cb0101ap-3, 0x1.7462bba51baa2p-3, 0x1.39fd87dde0f98p-3,
                  0x1.2b6220cf76b04p-3);
  // log(1 + f) = f - (f^2/2 - s (f^2/2 + z q))
  double half_square = 0.5 * f * f;
  double rest = fma(s, half_square + z * q, e * 0x1.ef35793c7673p-45);
  double high = e * 0x1.62e42fefa38p-1;
  double sum = high + f;
  double error = (high - sum) + f;  // exact where |high| >= |f| or high is 0
  double tail = error + (rest - half_square);
  double total = sum + tail;
  *low = (sum - total) + tail;
  return total;
}

double S(log_specials_f64)(double x, double y) {
  y = x < INFINITY ? y : x;
  y = x == 0.0 ? -INFINITY : y;
  return x < 0.0 ? (double)NAN : y;
}

double S(log_f64)(double x) {
  double low, high = N(log_parts_f64)(x, &low);
  return N(log_specials_f64)(x, high);
}

double S(logistic_f64)(double x) {
  double e = N(exp_f64)(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (e + 1.0);
}

double S(tanh_f64)(double x) { return tanh(x); }

double S(expm1_f64)(double x) { return expm1(x); }

double S(log1p_f64)(double x) { return log1p(x); }

double S(cbrt_f64)(double x) { return cbrt(x); }

double S(asin_f64)(double x) { return asin(x); }

double S(acos_f64)(double x) { return acos(x); }

double S(sinh_f64)(double x) { return sinh(x); }

double S(cosh_f64)(double x) { return cosh(x); }

double S(asinh_f64)(double x) { return asinh(x); }

double S(acosh_f64)(double x) { return acosh(x); }

double S(atanh_f64)(double x) { return atanh(x); }

double S(erf_near_f64)(double z) {
  return POLY(z, 0x1.20dd750429b6dp+0, -0x1.812746b0379bdp-2, 0x1.ce2f21a040d21p-4,
              -0x1.b82ce311fab6fp-6, 0x1.565bccf92eaadp-8, -0x1.c02db03e3cd72p-11,
              0x1.f9a2bab00ed8ep-14, -0x1.f4ca4dbca9a02p-17, 0x1.b97fd5d5cea58p-20,
              -0x1.5c072df7c0e9ep-23, 0x1.d71b21cf3dcd1p-27, -0x1.abae353b8c9f6p-31);
}

// erfc(a) e^(a^2) (a + 1) for a in [1, 6], t = (a - 3) / (a + 3)
double S(erf_far_f64)(double t) {
  return POLY(t, 0x1.6e9827d229d2dp-1, -0x1.d8f06dfac798ep-3, 0x1.9596c92adae36p-4,
              -0x1.4f64aa4aa0a64p-7, -0x1.8600d9142ab60p-6, 0x1.67c18994d6d3cp-6,
              -0x1.3f82b5e565e2dp-7, 0x1.a84c55b3ec73dp-10, 0x1.5297d62a5d765p-11,
              -0x1.81210851bcbd2p-12, -0x1.58fbda2e7224bp-16, 0x1.d6a11c22a30e5p-15,
              -0x1.8490b94a4de42p-20, -0x1.292a98271968fp-17, 0x1.d17a38ed8fa20p-24,
              0x1.320224a8a190ep-20);
}

double S(erf_f64)(double x) {
  double a = fabs(x);
  if (a < 1.0) {
    return x * N(erf_near_f64)(x * x);
  }
  a = a == a ? fmin(6.0, a) : a;
  double far = N(exp_f64)(-a * a) * N(erf_far_f64)((a - 3.0) / (a + 3.0)) / (a + 1.0);
  return copysign(1.0 - far, x);
}

// Bits of 2 / pi: 64 before the point, then from 2^-1 on.
__constant ulong two_over_pi_f64[] = {
    0,
    0xa2f9836e4e441529ul, 0xfc2757d1f534ddc0ul, 0xdb6295993c439041ul, 0xfe5163abdebbc561ul,
    0xb7246e3a424dd2e0ul, 0x06492eea09d1921cul, 0xfe1deb1cb129a73eul, 0xe88235f52ebb4484ul,
    0xe99c7026b45f7e41ul, 0x3991d639835339f4ul, 0x9c845f8bbdf9283bul, 0x1ff897ffde05980ful,
    0xef2f118b5a0a6d1ful, 0x6d367ecf27cb09b7ul, 0x4f463f669e5fea2dul, 0x7527bac7ebe5f17bul,
    0x3d0739f78a5292eaul, 0x6bfb5fb11f8d5d08ul, 0x56033046fc7b6babul, 0xf0cfbc209af4361dul};

// What is left of a large x beside a multiple of pi / 2, counted modulo 4.
double S(reduce_large_f64)(double x, int *quadrant) {
  ulong bits = as_ulong(x);
  int exponent = (int)((bits >> 52) & 0x7ff) - 1075;  // |x| = mantissa * 2^exponent
  ulong mantissa = (bits & 0x000ffffffffffffful) | 0x0010000000000000ul;
  if (exponent > 971) {
    *quadrant = 0;
    return x - x;
  }
  // Bits of 2/pi before 2^(2 - exponent) give multiples of 4 and are left out.
  uint skip = (uint)(exponent - 2 + 64);
  uint word = skip / 64, shift = skip % 64;
  ulong window[3];
  for (uint i = 0; i < 3; ++i) {
    ulong next = shift == 0 ? 0 : two_over_pi_f64[word + i + 1] >> (64 - shift);
    window[i] = two_over_pi_f64[word + i] << shift | next;
  }
  // mantissa * window, kept modulo 2^192: x * 2/pi = product * 2^-190 modulo 4.
  ulong low = mantissa * window[2];
  ulong carry = mul_hi(mantissa, window[2]);
  ulong middle = mantissa * window[1] + carry;
  ulong top = mantissa * window[0] + mul_hi(mantissa, window[1]) + (middle < carry ? 1 : 0);
  int whole = (int)(top >> 62);
  top = top << 2 | middle >> 62;
  middle = middle << 2 | low >> 62;
  int negative = (int)(top >> 63);  // above one half: count from the next one
  if (negative != 0) {
    ++whole;
    middle = ~middle;
    top = ~top;
  }
  double fraction = (double)top * 0x1p-64 + (double)middle * 0x1p-128;
  double r = fraction * 0x1.921fb54442d18p+0;
  r = (negative != 0) != (x < 0) ? -r : r;
  *quadrant = (x < 0 ? -whole : whole) & 3;
  return r;
}

double S(reduce_sin_f64)(double x, int *quadrant) {
  if (!(fabs(x) < 0x1p20)) {
    return N(reduce_large_f64)(x, quadrant);
  }
  double k = rint(x * 0x1.45f306dc9c883p-1);
  *quadrant = (int)k & 3;
  double r0 = fma(k, -0x1.921fb544p+0, x);
  double w = k * 0x1.0b4611a6p-34;
  double r = r0 - w;
  double low = (r0 - r) - w;
  return r + fma(k, -0x1.3198a2e037073p-69, low);
}

double S(sin_poly_f64)(double r) {
  double z = r * r;
  double q = POLY(z, -0x1.5555555555555p-3, 0x1.1111111111110p-7, -0x1.a01a01a019937p-13,
                  0x1.71de3a54606acp-19, -0x1.ae64541276bbbp-26, 0x1.61217eca85f70p-33,
                  -0x1.ab17ac6a78e4ep-41);
  return fma(q * z, r, r);
}

double S(cos_poly_f64)(double r) {
  double z = r * r;
  double q = POLY(z, 0x1.5555555555555p-5, -0x1.6c16c16c16c16p-10, 0x1.a01a01a019d0ap-16,
                  -0x1.27e4fb7712c23p-22, 0x1.1eed8deb730a8p-29, -0x1.9394b9d0ac859p-37,
                  0x1.ab78367ee48aep-45);
  double half_z = 0.5 * z;
  double w = 1.0 - half_z;
  return w + ((1.0 - w) - half_z + z * z * q);
}

double S(sin_f64)(double x) {
  int quadrant;
  double r = N(reduce_sin_f64)(x, &quadrant);
  double y = (quadrant & 1) != 0 ? N(cos_poly_f64)(r) : N(sin_poly_f64)(r);
  y = (quadrant & 2) != 0 ? -y : y;
  return x == 0.0 ? x : y;
}

double S(cos_f64)(double x) {
  int quadrant;
  double r = N(reduce_sin_f64)(x, &quadrant);
  double y = (quadrant & 1) != 0 ? N(sin_poly_f64)(r) : N(cos_poly_f64)(r);
  return ((quadrant + 1) & 2) != 0 ? -y : y;
}

double S(tan_f64)(double x) {
  int quadrant;
  double r = N(reduce_sin_f64)(x, &quadrant);
  double s = N(sin_poly_f64)(r), c = N(cos_poly_f64)(r);
  return x == 0.0 ? x : ((quadrant & 1) != 0 ? -c / s : s / c);
}

// atan(t) of |t| up to tan(pi / 8), less t
double S(atan_poly_f64)(double t) {
  double z = t * t;
  double q = POLY(z, -0x1.5555555555555p-2, 0x1.9999999999957p-3, -0x1.249249248dbafp-3,
                  0x1.c71c71c32f2d8p-4, -0x1.745d1665a6eafp-4, 0x1.3b1393aa76f7dp-4,
                  -0x1.110e95cdf089cp-4, 0x1.e19b3e7927168p-5, -0x1.ac82b6d546491p-5,
                  0x1.750112b8dd044p-5, -0x1.1b8a0026aea93p-5, 0x1.0b89d98523dc8p-6);
  return q * z * t;
}

// atan(numerator / denominator) for both >= 0
double S(atan_ratio_f64)(double numerator, double denominator) {
  int steep = numerator > denominator;
  double top = steep ? denominator : numerator;
  double bottom = steep ? numerator : denominator;
  int middle = top > bottom * 0x1.a827999fcef32p-2;
  double t = (middle ? top - bottom : top) / (middle ? top + bottom : bottom);
  // The angle is base + low + atan(t), or from pi / 2 down.
  double base = middle ? 0x1.921fb54442d18p-1 : 0.0;
  double rest = N(atan_poly_f64)(t) + (middle ? 0x1.1a62633145c07p-55 : 0.0);
  if (steep) {
    return (0x1.921fb54442d18p+0 - base) - (t + (rest - 0x1.1a62633145c07p-54));
  }
  return base + (t + rest);
}

double S(atan_f64)(double x) {
  double a = fabs(x);
  double y = a == INFINITY ? 0x1.921fb54442d18p+0 : N(atan_ratio_f64)(a, 1.0);
  return copysign(a == a ? y : x, x);
}

double S(atan2_f64)(double y, double x) {
  double a = fabs(y), b = fabs(x);
  if (a != a || b != b) {
    return a + b;
  }
  int both = a == INFINITY && b == INFINITY;
  double top = both || a == INFINITY ? 1.0 : (b == INFINITY ? 0.0 : a);
  double bottom = both || b == INFINITY ? 1.0 : (a == INFINITY ? 0.0 : b);
  bottom = top == 0.0 && bottom == 0.0 ? 1.0 : bottom;
  double angle = N(atan_ratio_f64)(top, bottom);
  angle = as_long(x) < 0 ? 0x1.921fb54442d18p+1 - (angle - 0x1.1a62633145c07p-53) : angle;
  return copysign(angle, y);
}

double S(pow_f64)(double x, double y) {
  double a = fabs(x), low, result;
  int whole = trunc(y) == y;
  int odd = whole && trunc(0.5 * y) != 0.5 * y;
  if (y == 0.0 || x == 1.0 || (a == 1.0 && fabs(y) == INFINITY)) {
    return 1.0;
  }
  if (x != x || y != y || (x < 0.0 && a < INFINITY && !whole && fabs(y) < INFINITY)) {
    return NAN;
  }
  if (a == 0.0 || a == INFINITY || fabs(y) == INFINITY) {
    result = (a > 1.0) == (y > 0.0) ? INFINITY : 0.0;
  } else {
    double high = N(log_parts_f64)(a, &low);
    double product = y * high;
    double error = fma(y, high, -product) + y * low;
    result = N(exp_f64)(product);
    result = result > 0.0 && result < INFINITY ? fma(result, error, result) : result;
  }
  return as_long(x) < 0 && odd ? -result : result;
}
