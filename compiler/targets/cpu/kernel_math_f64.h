/* Functions of INGOT_LANES lanes in f64: exp, log, sin, pow ..., and those in f32 that go through
 * them, by halves down to four lanes.
 *
 * Included once per number of lanes, behind kernel_math.h, which says more.
 */
#include "kernel.h"

#define L INGOT_LANES
#define N(name) INGOT_CAT3(name, x, L)
#define EACH_LANE for (int lane = 0; lane < L; ++lane)
#define V32 N(f32)
#define V64 N(f64)
#define I64 N(i64)
#define U64 N(u64)
#define FMA64 N(fma_f64)
#define SELECT64 N(select_f64)
#define ALL64(c) ((V64){0} + (c))

/* ---- f64 ---- */

#if INGOT_USES(N(f64))

#define HORNER(count, x)                                                    \
  V64 q = ALL64(c[count - 1]);                                              \
  for (int i = count - 2; i >= 0; --i) {                                    \
    q = FMA64(q, x, ALL64(c[i]));                                           \
  }                                                                         \
  return q

INGOT_INLINE V64 N(scale_f64)(V64 value, V64 power) {
  I64 whole = (I64)((U64)(power + 0x1.8p52) - 0x4338000000000000u);
  I64 half = whole >> 1;
  V64 first = (V64)(((U64)half + 1023) << 52);
  return value * first * (V64)(((U64)whole - (U64)half + 1023) << 52);
}

/* r of x = k ln 2 + r */
INGOT_INLINE V64 N(reduce_exp_f64)(V64 x, V64 *k) {
  *k = FMA64(x, ALL64(0x1.71547652b82fep+0), ALL64(0x1.8p52)) - 0x1.8p52;
  return FMA64(*k, ALL64(-0x1.cf79abc9e3b3ap-40), FMA64(*k, ALL64(-0x1.62e42fefap-1), x));
}

/* e^r - 1 for |r| up to ln 2 / 2 */
INGOT_INLINE V64 N(exp_fraction_f64)(V64 r) {
  static const f64 c[] = {0x1.0p-1,
                          0x1.5555555555557p-3,
                          0x1.5555555555558p-5,
                          0x1.11111111100b5p-7,
                          0x1.6c16c16c151c0p-10,
                          0x1.a01a01abfcdc2p-13,
                          0x1.a01a01ad113a8p-16,
                          0x1.71de01ef9c6d6p-19,
                          0x1.27e4cc97c8e77p-22,
                          0x1.af4e726d9072bp-26,
                          0x1.1f8ba7d848628p-29};
  V64 q = ALL64(c[10]);
  for (int i = 9; i >= 0; --i) {
    q = FMA64(q, r, ALL64(c[i]));
  }
  return FMA64(q, r * r, r);
}

INGOT_INLINE V64 N(exp_f64)(V64 x) {
  x = N(min_constant_f64)(ALL64(710.0), N(max_constant_f64)(ALL64(-746.0), x));
  V64 k, r = N(reduce_exp_f64)(x, &k);
  return N(scale_f64)(N(exp_fraction_f64)(r) + 1.0, k);
}

INGOT_INLINE V64 N(exp2_f64)(V64 x) {
  x = N(min_constant_f64)(ALL64(1025.0), N(max_constant_f64)(ALL64(-1080.0), x));
  V64 k = (x + 0x1.8p52) - 0x1.8p52;
  V64 r = (x - k) * 0x1.62e42fefa39efp-1;
  r = FMA64(x - k, ALL64(0x1.abc9e3b39803fp-56), r);
  return N(scale_f64)(N(exp_fraction_f64)(r) + 1.0, k);
}

INGOT_INLINE V64 N(expm1_f64)(V64 x) {
  V64 c = N(min_constant_f64)(ALL64(710.0), N(max_constant_f64)(ALL64(-60.0), x));
  V64 k, r = N(reduce_exp_f64)(c, &k);
  V64 half = N(scale_f64)(ALL64(0.5), k); /* 2^1024 alone would overflow */
  return N(copy_sign_f64)(2.0 * FMA64(half, N(exp_fraction_f64)(r), half - 0.5), x);
}

/* log(x) = high + low for normal x > 0. */
INGOT_INLINE V64 N(log_parts_f64)(V64 x, V64 *low) {
  static const f64 c[] = {0x1.5555555555558p-1, 0x1.99999999951fep-2, 0x1.2492492e08013p-2,
                          0x1.c71c62cb0101ap-3, 0x1.7462bba51baa2p-3, 0x1.39fd87dde0f98p-3,
                          0x1.2b6220cf76b04p-3};
  I64 tiny = x < 0x1p-1022;
  I64 bits = (I64)SELECT64(tiny, x * 0x1p52, x);
  I64 exponent = (I64)((U64)bits - 0x3fe6a09e667f3bcdu) >> 52;
  V64 f = (V64)((U64)bits - ((U64)exponent << 52)) - 1.0;
  V64 e = __builtin_convertvector(exponent, V64) - SELECT64(tiny, ALL64(52.0), (V64){0});
  V64 s = f / (f + 2.0);
  V64 z = s * s;
  V64 q = ALL64(c[6]);
  for (int i = 5; i >= 0; --i) {
    q = FMA64(q, z, ALL64(c[i]));
  }
  /* log(1 + f) = f - (f^2/2 - s (f^2/2 + z q)) */
  V64 half_square = 0.5 * f * f;
  V64 rest = FMA64(s, half_square + z * q, e * 0x1.ef35793c7673p-45);
  V64 high = e * 0x1.62e42fefa38p-1;
  V64 sum = high + f;
  V64 error = (high - sum) + f; /* exact where |high| >= |f| or high is 0 */
  V64 tail = error + (rest - half_square);
  V64 total = sum + tail;
  *low = (sum - total) + tail;
  return total;
}

INGOT_INLINE V64 N(log_specials_f64)(V64 x, V64 y) {
  y = SELECT64(x < __builtin_inf(), y, x);
  y = SELECT64(x == 0.0, ALL64(-__builtin_inf()), y);
  return SELECT64(x < 0.0, ALL64(__builtin_nan("")), y);
}

INGOT_INLINE V64 N(log_f64)(V64 x) {
  V64 low, high = N(log_parts_f64)(x, &low);
  return N(log_specials_f64)(x, high);
}

INGOT_INLINE V64 N(log1p_f64)(V64 x) {
  V64 u = x + 1.0;
  V64 y = N(log_f64)(u);
  V64 error = SELECT64(x > 1.0, 1.0 - (u - x), x - (u - 1.0));
  y = SELECT64((u > 0.0) & (u < __builtin_inf()), y + error / u, y);
  return SELECT64(u == 1.0, x, y);
}

INGOT_INLINE V64 N(logistic_f64)(V64 x) {
  V64 e = N(exp_f64)(-N(abs_f64)(x));
  return SELECT64(x < 0.0, e, ALL64(1.0)) / (e + 1.0);
}

INGOT_INLINE V64 N(tanh_f64)(V64 x) {
  V64 e = N(expm1_f64)(-2.0 * N(abs_f64)(x));
  return N(copy_sign_f64)(-e / (e + 2.0), x);
}

INGOT_INLINE V64 N(sinh_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  V64 e = N(expm1_f64)(a);
  V64 half = N(exp_f64)(0.5 * a);
  V64 y = SELECT64(a < 700.0, 0.5 * (e + e / (e + 1.0)), (0.5 * half) * half);
  y = SELECT64(a == a, y, x);
  return N(copy_sign_f64)(y, x);
}

INGOT_INLINE V64 N(cosh_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  V64 e = N(exp_f64)(a);
  V64 half = N(exp_f64)(0.5 * a);
  return SELECT64(a < 700.0, 0.5 * e + 0.5 / e, (0.5 * half) * half);
}

INGOT_INLINE V64 N(asinh_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  V64 near = N(log1p_f64)(a + a * a / (N(sqrt_f64)(a * a + 1.0) + 1.0));
  V64 far = N(log_f64)(a) + 0x1.62e42fefa39efp-1;
  return N(copy_sign_f64)(SELECT64(a < 0x1p28, near, far), x);
}

INGOT_INLINE V64 N(acosh_f64)(V64 x) {
  V64 t = x - 1.0;
  V64 near = N(log1p_f64)(t + N(sqrt_f64)(2.0 * t + t * t));
  V64 far = N(log_f64)(x) + 0x1.62e42fefa39efp-1;
  V64 y = SELECT64(x < 0x1p28, near, far);
  return SELECT64(x < 1.0, ALL64(__builtin_nan("")), y);
}

INGOT_INLINE V64 N(atanh_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  return N(copy_sign_f64)(0.5 * N(log1p_f64)(2.0 * a / (1.0 - a)), x);
}

INGOT_INLINE V64 N(erf_near_f64)(V64 z) {
  static const f64 c[] = {0x1.20dd750429b6dp+0,   -0x1.812746b0379bdp-2, 0x1.ce2f21a040d21p-4,
                          -0x1.b82ce311fab6fp-6,  0x1.565bccf92eaadp-8,  -0x1.c02db03e3cd72p-11,
                          0x1.f9a2bab00ed8ep-14,  -0x1.f4ca4dbca9a02p-17, 0x1.b97fd5d5cea58p-20,
                          -0x1.5c072df7c0e9ep-23, 0x1.d71b21cf3dcd1p-27, -0x1.abae353b8c9f6p-31};
  HORNER(12, z);
}

/* erfc(a) e^(a^2) (a + 1) for a in [1, 6], t = (a - 3) / (a + 3) */
INGOT_INLINE V64 N(erf_far_f64)(V64 t) {
  static const f64 c[] = {0x1.6e9827d229d2dp-1,   -0x1.d8f06dfac798ep-3,  0x1.9596c92adae36p-4,
                          -0x1.4f64aa4aa0a64p-7,  -0x1.8600d9142ab60p-6,  0x1.67c18994d6d3cp-6,
                          -0x1.3f82b5e565e2dp-7,  0x1.a84c55b3ec73dp-10,  0x1.5297d62a5d765p-11,
                          -0x1.81210851bcbd2p-12, -0x1.58fbda2e7224bp-16, 0x1.d6a11c22a30e5p-15,
                          -0x1.8490b94a4de42p-20, -0x1.292a98271968fp-17, 0x1.d17a38ed8fa20p-24,
                          0x1.320224a8a190ep-20};
  HORNER(16, t);
}

INGOT_INLINE V64 N(erf_f64)(V64 x) {
  V64 a = N(min_constant_f64)(ALL64(6.0), N(abs_f64)(x));
  V64 near = x * N(erf_near_f64)(x * x);
  V64 far = N(exp_f64)(-a * a) * N(erf_far_f64)((a - 3.0) / (a + 3.0)) / (a + 1.0);
  return SELECT64(a < 1.0, near, N(copy_sign_f64)(1.0 - far, x));
}

/* The nearest multiple of pi / 2 and what is left of x, for any finite x. */
#ifndef INGOT_REDUCE_LARGE
#define INGOT_REDUCE_LARGE
/* Bits of 2 / pi: 64 before the point, then from 2^-1 on. */
static const u64 ingot_two_over_pi[] __attribute__((unused)) = {
    0,
    0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u, 0xfe5163abdebbc561u,
    0xb7246e3a424dd2e0u, 0x06492eea09d1921cu, 0xfe1deb1cb129a73eu, 0xe88235f52ebb4484u,
    0xe99c7026b45f7e41u, 0x3991d639835339f4u, 0x9c845f8bbdf9283bu, 0x1ff897ffde05980fu,
    0xef2f118b5a0a6d1fu, 0x6d367ecf27cb09b7u, 0x4f463f669e5fea2du, 0x7527bac7ebe5f17bu,
    0x3d0739f78a5292eau, 0x6bfb5fb11f8d5d08u, 0x56033046fc7b6babu, 0xf0cfbc209af4361du};
static __attribute__((unused, noinline)) f64 ingot_reduce_large(f64 x, i64 *quadrant) {
  u64 bits = bitcast_f64_u64(x);
  i64 exponent = (i64)((bits >> 52) & 0x7ff) - 1075; /* |x| = mantissa * 2^exponent */
  u64 mantissa = (bits & 0x000fffffffffffffu) | 0x0010000000000000u;
  if (exponent > 971) {
    *quadrant = 0;
    return x - x;
  }
  /* Bits of 2/pi before 2^(2 - exponent) give multiples of 4 and are left out. The exponent
   * is at least -34: smaller angles do not come here. */
  i64 skip = exponent - 2 + 64;
  u64 window[3];
  for (int word = 0; word < 3; ++word) {
    i64 at = skip + 64 * word;
    u64 high = ingot_two_over_pi[at / 64] << (at % 64);
    window[word] = at % 64 == 0 ? high : high | ingot_two_over_pi[at / 64 + 1] >> (64 - at % 64);
  }
  /* mantissa * window, kept modulo 2^192, in pieces of 32 bits. */
  u32 factor[2] = {(u32)mantissa, (u32)(mantissa >> 32)};
  u32 product[6] = {0};
  for (int i = 0; i < 6; ++i) {
    u32 digit = (u32)(window[2 - i / 2] >> (32 * (i % 2)));
    u64 carry = 0;
    for (int j = 0; j < 2 && i + j < 6; ++j) {
      carry += (u64)digit * factor[j] + product[i + j];
      product[i + j] = (u32)carry;
      carry >>= 32;
    }
    for (int at = i + 2; at < 6 && carry != 0; ++at) {
      carry += product[at];
      product[at] = (u32)carry;
      carry >>= 32;
    }
  }
  /* x * 2/pi = product * 2^-190 modulo 4 */
  u64 top = (u64)product[5] << 32 | product[4], middle = (u64)product[3] << 32 | product[2];
  u64 low = (u64)product[1] << 32 | product[0];
  u64 whole = top >> 62;
  top = top << 2 | middle >> 62;
  middle = middle << 2 | low >> 62;
  u64 negative = top >> 63; /* above one half: count from the next one */
  if (negative) {
    ++whole;
    middle = ~middle;
    top = ~top;
  }
  f64 fraction = (f64)top * 0x1p-64 + (f64)middle * 0x1p-128;
  f64 r = fraction * 0x1.921fb54442d18p+0;
  r = negative ? -r : r;
  if (x < 0) {
    r = -r;
    whole = 0 - whole;
  }
  *quadrant = (i64)(whole & 3);
  return r;
}
#endif

INGOT_INLINE V64 N(reduce_sin_f64)(V64 x, I64 *quadrant) {
  V64 t = FMA64(x, ALL64(0x1.45f306dc9c883p-1), ALL64(0x1.8p52));
  V64 k = t - 0x1.8p52;
  *quadrant = (I64)t & 3;
  V64 r0 = FMA64(k, ALL64(-0x1.921fb544p+0), x);
  V64 w = k * 0x1.0b4611a6p-34;
  V64 r = r0 - w;
  V64 low = (r0 - r) - w;
  r = r + FMA64(k, ALL64(-0x1.3198a2e037073p-69), low);
  I64 large = ~(N(abs_f64)(x) < 0x1p20);
  if (N(reduce_or_i64)(large) != 0) {
    EACH_LANE if (large[lane]) {
      i64 which;
      r[lane] = ingot_reduce_large(x[lane], &which);
      (*quadrant)[lane] = which;
    }
  }
  return r;
}

INGOT_INLINE V64 N(sin_poly_f64)(V64 r) {
  static const f64 c[] = {-0x1.5555555555555p-3, 0x1.1111111111110p-7,  -0x1.a01a01a019937p-13,
                          0x1.71de3a54606acp-19, -0x1.ae64541276bbbp-26, 0x1.61217eca85f70p-33,
                          -0x1.ab17ac6a78e4ep-41};
  V64 z = r * r;
  V64 q = ALL64(c[6]);
  for (int i = 5; i >= 0; --i) {
    q = FMA64(q, z, ALL64(c[i]));
  }
  return FMA64(q * z, r, r);
}

INGOT_INLINE V64 N(cos_poly_f64)(V64 r) {
  static const f64 c[] = {0x1.5555555555555p-5,  -0x1.6c16c16c16c16p-10, 0x1.a01a01a019d0ap-16,
                          -0x1.27e4fb7712c23p-22, 0x1.1eed8deb730a8p-29, -0x1.9394b9d0ac859p-37,
                          0x1.ab78367ee48aep-45};
  V64 z = r * r;
  V64 q = ALL64(c[6]);
  for (int i = 5; i >= 0; --i) {
    q = FMA64(q, z, ALL64(c[i]));
  }
  V64 half = 0.5 * z;
  V64 w = 1.0 - half;
  return w + ((1.0 - w) - half + z * z * q);
}

INGOT_INLINE V64 N(sin_f64)(V64 x) {
  I64 quadrant;
  V64 r = N(reduce_sin_f64)(x, &quadrant);
  V64 y = SELECT64((quadrant & 1) != 0, N(cos_poly_f64)(r), N(sin_poly_f64)(r));
  y = SELECT64((quadrant & 2) != 0, -y, y);
  return SELECT64(x == 0.0, x, y);
}

INGOT_INLINE V64 N(cos_f64)(V64 x) {
  I64 quadrant;
  V64 r = N(reduce_sin_f64)(x, &quadrant);
  V64 y = SELECT64((quadrant & 1) != 0, N(sin_poly_f64)(r), N(cos_poly_f64)(r));
  return SELECT64(((quadrant + 1) & 2) != 0, -y, y);
}

INGOT_INLINE V64 N(tan_f64)(V64 x) {
  I64 quadrant;
  V64 r = N(reduce_sin_f64)(x, &quadrant);
  V64 s = N(sin_poly_f64)(r), c = N(cos_poly_f64)(r);
  V64 y = SELECT64((quadrant & 1) != 0, -c, s) / SELECT64((quadrant & 1) != 0, s, c);
  return SELECT64(x == 0.0, x, y);
}

/* atan(t) of |t| up to tan(pi / 8), less t */
INGOT_INLINE V64 N(atan_poly_f64)(V64 t) {
  static const f64 c[] = {-0x1.5555555555555p-2, 0x1.9999999999957p-3,  -0x1.249249248dbafp-3,
                          0x1.c71c71c32f2d8p-4,  -0x1.745d1665a6eafp-4, 0x1.3b1393aa76f7dp-4,
                          -0x1.110e95cdf089cp-4, 0x1.e19b3e7927168p-5,  -0x1.ac82b6d546491p-5,
                          0x1.750112b8dd044p-5,  -0x1.1b8a0026aea93p-5, 0x1.0b89d98523dc8p-6};
  V64 z = t * t;
  V64 q = ALL64(c[11]);
  for (int i = 10; i >= 0; --i) {
    q = FMA64(q, z, ALL64(c[i]));
  }
  return q * z * t;
}

/* atan(numerator / denominator) for both >= 0 */
INGOT_INLINE V64 N(atan_ratio_f64)(V64 numerator, V64 denominator) {
  I64 steep = numerator > denominator;
  V64 top = SELECT64(steep, denominator, numerator);
  V64 bottom = SELECT64(steep, numerator, denominator);
  I64 middle = top > bottom * 0x1.a827999fcef32p-2;
  V64 t = SELECT64(middle, top - bottom, top) / SELECT64(middle, top + bottom, bottom);
  /* The angle is base + low + atan(t), or from pi / 2 down. */
  V64 base = SELECT64(middle, ALL64(0x1.921fb54442d18p-1), (V64){0});
  V64 low = SELECT64(middle, ALL64(0x1.1a62633145c07p-55), (V64){0});
  V64 rest = N(atan_poly_f64)(t) + low;
  V64 flat = base + (t + rest);
  V64 upright = ALL64(0x1.921fb54442d18p+0) - base;
  V64 steep_angle = upright - (t + (rest - 0x1.1a62633145c07p-54));
  return SELECT64(steep, steep_angle, flat);
}

INGOT_INLINE V64 N(atan_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  I64 infinite = a == __builtin_inf();
  V64 y = N(atan_ratio_f64)(SELECT64(infinite, ALL64(1.0), a), SELECT64(infinite, (V64){0}, ALL64(1.0)));
  return N(copy_sign_f64)(SELECT64(a == a, y, x), x);
}

INGOT_INLINE V64 N(atan2_f64)(V64 y, V64 x) {
  V64 a = N(abs_f64)(y), b = N(abs_f64)(x);
  I64 both = (a == __builtin_inf()) & (b == __builtin_inf());
  I64 tall = a == __builtin_inf();
  I64 wide = b == __builtin_inf();
  V64 top = SELECT64(both | tall, ALL64(1.0), SELECT64(wide, (V64){0}, a));
  V64 bottom = SELECT64(both | wide, ALL64(1.0), SELECT64(tall, (V64){0}, b));
  I64 zero = (top == 0.0) & (bottom == 0.0);
  bottom = SELECT64(zero, ALL64(1.0), bottom);
  V64 angle = N(atan_ratio_f64)(top, bottom);
  I64 left = (I64)x < 0;
  angle = SELECT64(left, ALL64(0x1.921fb54442d18p+1) - (angle - 0x1.1a62633145c07p-53), angle);
  angle = N(copy_sign_f64)(angle, y);
  return SELECT64((a == a) & (b == b), angle, a + b);
}

/* asin(t) of |t| up to one half */
INGOT_INLINE V64 N(asin_poly_f64)(V64 t) {
  static const f64 c[] = {0x1.5555555555556p-3, 0x1.3333333332e43p-4, 0x1.6db6db6e3e982p-5,
                          0x1.f1c71c164142fp-6, 0x1.6e8bb2e8b0cf1p-6, 0x1.1c4d1c0472f0bp-6,
                          0x1.c9d1f332c084bp-7, 0x1.780a7662e6f55p-7, 0x1.52f32c6f9f846p-7,
                          0x1.5fda8fc679123p-8, 0x1.20f60d7898f09p-6, -0x1.f27b2e1fde7a0p-7,
                          0x1.db1e17ff5868ap-6};
  V64 z = t * t;
  V64 q = ALL64(c[12]);
  for (int i = 11; i >= 0; --i) {
    q = FMA64(q, z, ALL64(c[i]));
  }
  return FMA64(q * z, t, t);
}

INGOT_INLINE V64 N(asin_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  I64 near = a <= 0.5;
  V64 t = SELECT64(near, a, N(sqrt_f64)(0.5 - 0.5 * a));
  V64 y = N(asin_poly_f64)(t);
  y = SELECT64(near, y, 0x1.921fb54442d18p+0 - (2.0 * y - 0x1.1a62633145c07p-54));
  return N(copy_sign_f64)(y, x);
}

INGOT_INLINE V64 N(acos_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  I64 near = a <= 0.5;
  V64 t = SELECT64(near, x, N(sqrt_f64)(0.5 - 0.5 * a));
  V64 y = N(asin_poly_f64)(t);
  V64 far = SELECT64(x < 0.0, 0x1.921fb54442d18p+1 - (2.0 * y - 0x1.1a62633145c07p-53), 2.0 * y);
  return SELECT64(near, 0x1.921fb54442d18p+0 - (y - 0x1.1a62633145c07p-54), far);
}

INGOT_INLINE V64 N(cbrt_f64)(V64 x) {
  V64 a = N(abs_f64)(x);
  I64 tiny = a < 0x1p-1000;
  a = SELECT64(tiny, a * 0x1p180, a);
  V64 exponent = __builtin_convertvector((I64)a >> 32, V64);
  I64 guess = __builtin_convertvector(exponent * (1.0 / 3.0) + 715094163.0, I64);
  V64 t = (V64)((U64)guess << 32);
  for (int round = 0; round < 3; ++round) {
    V64 cube = t * t * t;
    t = t * ((cube + 2.0 * a) / (2.0 * cube + a));
  }
  t = FMA64(FMA64(-t * t, t, a) / (3.0 * t * t), ALL64(1.0), t);
  t = SELECT64(tiny, t * 0x1p-60, t);
  t = SELECT64((a > 0.0) & (a < __builtin_inf()), t, x);
  return N(copy_sign_f64)(t, x);
}

/* a * b - product, exactly */
INGOT_INLINE V64 N(product_error_f64)(V64 a, V64 b, V64 product) {
  if (INGOT_HAS_FMA) {
    return FMA64(a, b, -product);
  }
  I64 upper = (I64){0} + (i64)0xfffffffff8000000;
  V64 a_high = (V64)((I64)a & upper), b_high = (V64)((I64)b & upper);
  V64 a_low = a - a_high, b_low = b - b_high;
  return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
}

INGOT_INLINE V64 N(pow_f64)(V64 x, V64 y) {
  V64 a = N(abs_f64)(x);
  V64 low, high = N(log_parts_f64)(a, &low);
  V64 special = N(log_specials_f64)(a, high);
  low = SELECT64(special == high, low, (V64){0});
  V64 product = y * special;
  V64 error = N(product_error_f64)(y, special, product) + y * low;
  V64 result = N(exp_f64)(product);
  I64 inside = (result > 0.0) & (result < __builtin_inf()) & (error == error);
  result = SELECT64(inside, FMA64(result, error, result), result);
  I64 whole = N(trunc_f64)(y) == y;
  I64 odd = whole & (N(trunc_f64)(0.5 * y) != 0.5 * y);
  result = SELECT64(((I64)x < 0) & odd, -result, result);
  I64 undefined = (x < 0.0) & (a < __builtin_inf()) & ~whole & (N(abs_f64)(y) < __builtin_inf());
  result = SELECT64(undefined, ALL64(__builtin_nan("")), result);
  result = SELECT64((a == 1.0) & (N(abs_f64)(y) == __builtin_inf()), ALL64(1.0), result);
  return SELECT64((y == 0.0) | (x == 1.0), ALL64(1.0), result);
}
#endif

/* ---- f32 through f64 ---- */

#if INGOT_USE_through
#if L <= 4
#define INGOT_THROUGH_F64_1(name)                                                             \
  INGOT_INLINE V32 N(name##_f32)(V32 a) {                                                     \
    return __builtin_convertvector(N(name##_f64)(__builtin_convertvector(a, V64)), V32);      \
  }
#define INGOT_THROUGH_F64_2(name)                                                             \
  INGOT_INLINE V32 N(name##_f32)(V32 a, V32 b) {                                              \
    return __builtin_convertvector(                                                           \
        N(name##_f64)(__builtin_convertvector(a, V64), __builtin_convertvector(b, V64)), V32); \
  }
#else
#if L == 8
#define HALF(name) name##x4
#elif L == 16
#define HALF(name) name##x8
#elif L == 32
#define HALF(name) name##x16
#else
#define HALF(name) name##x32
#endif
typedef union {
  V32 whole;
  HALF(f32) half[2];
} N(halves_f32);
#define INGOT_THROUGH_F64_1(name)                                                             \
  INGOT_INLINE V32 N(name##_f32)(V32 a) {                                                     \
    N(halves_f32) value = {.whole = a};                                                       \
    value.half[0] = HALF(name##_f32)(value.half[0]);                                          \
    value.half[1] = HALF(name##_f32)(value.half[1]);                                          \
    return value.whole;                                                                       \
  }
#define INGOT_THROUGH_F64_2(name)                                                             \
  INGOT_INLINE V32 N(name##_f32)(V32 a, V32 b) {                                              \
    N(halves_f32) value = {.whole = a}, other = {.whole = b};                                 \
    value.half[0] = HALF(name##_f32)(value.half[0], other.half[0]);                           \
    value.half[1] = HALF(name##_f32)(value.half[1], other.half[1]);                           \
    return value.whole;                                                                       \
  }
#endif
INGOT_THROUGH_F64_1(expm1)
INGOT_THROUGH_F64_1(log1p)
INGOT_THROUGH_F64_1(cbrt)
INGOT_THROUGH_F64_1(sin)
INGOT_THROUGH_F64_1(cos)
INGOT_THROUGH_F64_1(tan)
INGOT_THROUGH_F64_1(asin)
INGOT_THROUGH_F64_1(acos)
INGOT_THROUGH_F64_1(atan)
INGOT_THROUGH_F64_1(sinh)
INGOT_THROUGH_F64_1(cosh)
INGOT_THROUGH_F64_1(asinh)
INGOT_THROUGH_F64_1(acosh)
INGOT_THROUGH_F64_1(atanh)
INGOT_THROUGH_F64_2(pow)
INGOT_THROUGH_F64_2(atan2)
#endif

/* ---- Scalars: lane 0 of four ---- */

#if L == 4
#define INGOT_SCALAR_1(type, name) \
  INGOT_INLINE type name##_##type(type a) { return name##_##type##x4((N(type)){a, a, a, a})[0]; }
#define INGOT_SCALAR_2(type, name)                                                  \
  INGOT_INLINE type name##_##type(type a, type b) {                                 \
    return name##_##type##x4((N(type)){a, a, a, a}, (N(type)){b, b, b, b})[0];      \
  }
#define INGOT_SCALARS(type)       \
  INGOT_SCALAR_1(type, expm1)     \
  INGOT_SCALAR_1(type, log1p)     \
  INGOT_SCALAR_1(type, cbrt)      \
  INGOT_SCALAR_1(type, sin)       \
  INGOT_SCALAR_1(type, cos)       \
  INGOT_SCALAR_1(type, tan)       \
  INGOT_SCALAR_1(type, asin)      \
  INGOT_SCALAR_1(type, acos)      \
  INGOT_SCALAR_1(type, atan)      \
  INGOT_SCALAR_1(type, sinh)      \
  INGOT_SCALAR_1(type, cosh)      \
  INGOT_SCALAR_1(type, asinh)     \
  INGOT_SCALAR_1(type, acosh)     \
  INGOT_SCALAR_1(type, atanh)     \
  INGOT_SCALAR_2(type, pow)       \
  INGOT_SCALAR_2(type, atan2)
INGOT_IF(through, INGOT_SCALARS(f32))
INGOT_SCALARS(f64)
INGOT_SCALAR_1(f64, exp)
INGOT_SCALAR_1(f64, exp2)
INGOT_SCALAR_1(f64, log)
INGOT_SCALAR_1(f64, tanh)
INGOT_SCALAR_1(f64, logistic)
INGOT_SCALAR_1(f64, erf)
#endif

#undef INGOT_THROUGH_F64_1
#undef INGOT_THROUGH_F64_2
#undef INGOT_SCALAR_1
#undef INGOT_SCALAR_2
#undef INGOT_SCALARS
#undef HALF
#undef HORNER
#undef ALL64
#undef SELECT64
#undef FMA64
#undef U64
#undef I64
#undef V64
#undef V32
#undef EACH_LANE
#undef N
#undef L
#undef INGOT_LANES
