"""exp and log, and what is made of them.

Polynomials here and beside are minimax fits (Remez in 50 digits; rationals by Lawson's
iteration), coefficients lowest first. Error bounds stand in the op table and are tested.
"""

from __future__ import annotations

import math

from ingot.compiler.kernels.math.number import Functions, Number, coefficients, horner, select

__all__ = ["FUNCTIONS", "log_parts", "log_specials"]

_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_LOG2_E = {"f32": float.fromhex("0x1.715476p+0"), "f64": float.fromhex("0x1.71547652b82fep+0")}
# ln 2 in two parts, for exp and for log: products with whole numbers are exact
_LN2_OF_EXP = {
    "f32": coefficients("0x1.62ep-1 0x1.0bfbe8p-15"),
    "f64": coefficients("0x1.62e42fefap-1 0x1.cf79abc9e3b3ap-40"),
}
_LN2_OF_LOG = {
    "f32": coefficients("0x1.62e4p-1 0x1.7f7d1cp-20"),
    "f64": coefficients("0x1.62e42fefa38p-1 0x1.ef35793c7673p-45"),
}
# The lower ends are so low that what is scaled by their power is 0 at once: processors take about
# 300 cycles for a product that is near the subnormal numbers, and 1 for this.
_EXP_RANGE = {"f32": (-172.0, 89.0), "f64": (-1400.0, 710.0)}
_EXP2_RANGE = {"f32": (-248.0, 129.0), "f64": (-2020.0, 1025.0)}
_EXP = {
    "f32": coefficients("0x1p-1 0x1.5554dcp-3 0x1.5554b8p-5 0x1.120c0ap-7 0x1.6d7614p-10"),
    "f64": coefficients(
        """0x1.0p-1 0x1.5555555555557p-3 0x1.5555555555558p-5 0x1.11111111100b5p-7
        0x1.6c16c16c151c0p-10 0x1.a01a01abfcdc2p-13 0x1.a01a01ad113a8p-16 0x1.71de01ef9c6d6p-19
        0x1.27e4cc97c8e77p-22 0x1.af4e726d9072bp-26 0x1.1f8ba7d848628p-29"""
    ),
}
_EXP_NONPOSITIVE = coefficients(
    "0x1p+0 0x1.fffff6p-1 0x1.fffdc6p-2 0x1.555a6ap-3 0x1.573a58p-5 0x1.0fa830p-7"
)
_EXP2 = coefficients(
    """0x1p+0 0x1.62e430p-1 0x1.ebfbdap-3 0x1.c6aed4p-5 0x1.3b2dbcp-7 0x1.5f4572p-10
    0x1.41d308p-13"""
)
_LOG_F32 = coefficients(
    """0x1.555554p-2 -0x1.ffffe6p-3 0x1.999d36p-3 -0x1.55625ep-3 0x1.23dd14p-3 -0x1.fbc46ep-4
    0x1.dc8e38p-4 -0x1.dd999ep-4 0x1.2c5a02p-4"""
)
_LOG_F64 = coefficients(
    """0x1.5555555555558p-1 0x1.99999999951fep-2 0x1.2492492e08013p-2 0x1.c71c62cb0101ap-3
    0x1.7462bba51baa2p-3 0x1.39fd87dde0f98p-3 0x1.2b6220cf76b04p-3"""
)
# (2 atanh(s) - 2 s - 2/3 s^3) / s^5, of s^2
_LOG_PARTS = {
    "f32": coefficients("0x1.9996a8p-2 0x1.257f42p-2 0x1.aad868p-3"),
    "f64": coefficients(
        """0x1.999999999999ap-2 0x1.2492492492523p-2 0x1.c71c71c6ea419p-3 0x1.745d177ae1549p-3
        0x1.3b1395b5cf353p-3 0x1.1118cd58e57e5p-3 0x1.df7bbdf70e416p-4 0x1.e0387606674a5p-4"""
    ),
}
_EXPM1_LEAST = {"f32": -30.0, "f64": -60.0}
_SMALL = {"f32": 88.0, "f64": 700.0}  # exp does not overflow
_NEAR = {"f32": 2.0**12, "f64": 2.0**28}  # squares matter
_TANH = (
    coefficients(
        "0x1p+0 0x1.182850p-3 0x1.faf8bep-9 0x1.d5bcc0p-16 0x1.0689a0p-25 -0x1.accd8ap-37"
    ),
    coefficients("0x1p+0 0x1.e1697cp-2 0x1.be5e92p-6 0x1.9ce9ecp-12 0x1.596822p-20"),
)
_ERF = (
    coefficients(
        """0x1.20dd76p+0 0x1.7b3afap-3 0x1.bc9da0p-5 0x1.f7c202p-9 0x1.8c4454p-12 0x1.375cc2p-18
        -0x1.bd6978p-27"""
    ),
    coefficients("0x1p+0 0x1.fd6020p-2 0x1.d2949cp-4 0x1.fa0e76p-7 0x1.55d7a6p-10 0x1.06ebb0p-14"),
)
_ERF_NEAR = coefficients(
    """0x1.20dd750429b6dp+0 -0x1.812746b0379bdp-2 0x1.ce2f21a040d21p-4 -0x1.b82ce311fab6fp-6
    0x1.565bccf92eaadp-8 -0x1.c02db03e3cd72p-11 0x1.f9a2bab00ed8ep-14 -0x1.f4ca4dbca9a02p-17
    0x1.b97fd5d5cea58p-20 -0x1.5c072df7c0e9ep-23 0x1.d71b21cf3dcd1p-27 -0x1.abae353b8c9f6p-31"""
)
# erfc(a) e^(a^2) (a + 1) for a in [1, 6], of (a - 3) / (a + 3)
_ERF_FAR = coefficients(
    """0x1.6e9827d229d2dp-1 -0x1.d8f06dfac798ep-3 0x1.9596c92adae36p-4 -0x1.4f64aa4aa0a64p-7
    -0x1.8600d9142ab60p-6 0x1.67c18994d6d3cp-6 -0x1.3f82b5e565e2dp-7 0x1.a84c55b3ec73dp-10
    0x1.5297d62a5d765p-11 -0x1.81210851bcbd2p-12 -0x1.58fbda2e7224bp-16 0x1.d6a11c22a30e5p-15
    -0x1.8490b94a4de42p-20 -0x1.292a98271968fp-17 0x1.d17a38ed8fa20p-24 0x1.320224a8a190ep-20"""
)
_TWO_THIRDS = {
    "f32": coefficients("0x1.555556p-1 -0x1.555556p-26"),
    "f64": coefficients("0x1.5555555555555p-1 0x1.5555555555555p-55"),
}
_SQRT_HALF = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}  # its bits


def scale(value: Number, power: Number) -> Number:
    """value * 2^power, where power is a whole number and the result may be subnormal."""
    form = value.format
    whole = ((power + form.magic).bits("u") - form.magic_bits).bits("i")
    half = whole >> 1
    first = (half.bits("u") + form.bias) << form.mantissa
    second = ((whole.bits("u") - half.bits("u")) + form.bias) << form.mantissa
    return value * first.as_float() * second.as_float()


def _reduced(x: Number) -> tuple[Number, Number]:
    """k and r of x = k ln 2 + r."""
    name = x.dtype.name
    k = x.fma(_LOG2_E[name], x.format.magic) - x.format.magic
    high, low = _LN2_OF_EXP[name]
    return k, k.fma(-low, k.fma(-high, x))


def _fraction(r: Number) -> Number:
    """e^r - 1 for |r| up to ln 2 / 2."""
    return horner(r, _EXP[r.dtype.name]).fma(r * r, r)


def exp_floor(x: Number) -> Number:
    return x.at_least(_EXP_RANGE[x.dtype.name][0])


def exp(x: Number) -> Number:
    k, r = _reduced(x.part("loop.exp_floor").at_most(_EXP_RANGE[x.dtype.name][1]))
    return (_fraction(r) + 1.0).part("loop.scale", k)


def exp_nonpositive(x: Number) -> Number:
    """e^x for x <= 0: a product, a sum and a test less, within the bound of exp."""
    k, r = _reduced(x.part("loop.exp_floor"))
    y = horner(r, _EXP_NONPOSITIVE) if x.is_f32 else _fraction(r) + 1.0
    return y.part("loop.scale", k)


def exp2(x: Number) -> Number:
    low, high = _EXP2_RANGE[x.dtype.name]
    x = x.at_least(low).at_most(high)
    k = (x + x.format.magic) - x.format.magic
    rest = x - k
    if x.is_f32:
        return horner(rest, _EXP2).part("loop.scale", k)
    r = rest.fma(float.fromhex("0x1.abc9e3b39803fp-56"), rest * _LN2)
    return (_fraction(r) + 1.0).part("loop.scale", k)


def _split(x: Number) -> tuple[Number, Number]:
    """f and e of x = (1 + f) 2^e, f about 0, for x > 0."""
    form = x.format
    least, more = 2.0 ** (1 - form.bias), float(form.mantissa)
    tiny = x < least
    bits = select(tiny, x * 2.0**form.mantissa, x).bits("u")  # unsigned: x may be anything
    exponent = (bits - _SQRT_HALF[x.dtype.name]).bits("i") >> form.mantissa
    f = (bits - (exponent.bits("u") << form.mantissa)).as_float() - 1.0
    return f, exponent.to(x.dtype.name) - select(tiny, more, x.like(0.0))


def log_specials(x: Number, y: Number) -> Number:
    """y = log(x) of finite x > 0, and what it is of others."""
    y = select(x < math.inf, y, x)
    y = select(x.equals(0.0), -math.inf, y)
    return select(x < 0.0, math.nan, y)


def log(x: Number) -> Number:
    f, e = _split(x)
    return log_specials(x, _log_f32(f, e) if x.is_f32 else _log_f64(f, e))


def _log_f32(f: Number, e: Number) -> Number:
    high, low = _LN2_OF_LOG["f32"]
    square = f * f
    y = e.fma(low, horner(f, _LOG_F32) * f * square)
    y = square.fma(-0.5, y) + f
    return e.fma(high, y)


def _log_f64(f: Number, e: Number) -> Number:
    ln2_high, ln2_low = _LN2_OF_LOG["f64"]
    s = f / (f + 2.0)
    z = s * s
    q = horner(z, _LOG_F64)
    # log(1 + f) = f - (f^2/2 - s (f^2/2 + z q))
    half_square = 0.5 * f * f
    rest = s.fma(half_square + z * q, e * ln2_low)
    high = e * ln2_high
    sum = high + f
    error = (high - sum) + f  # exact where |high| >= |f| or high is 0
    return sum + (error + (rest - half_square))


def log_parts(x: Number) -> tuple[Number, Number]:
    """log(x) = high + low for x > 0, with 10 bits or more beyond those of x."""
    f, e = _split(x)
    name = x.dtype.name
    ln2_high, ln2_low = _LN2_OF_LOG[name]
    third, third_low = _TWO_THIRDS[name]
    # log(1 + f) = 2 atanh(s), s = f / (2 + f), to its fifth power in two parts
    d = f + 2.0
    d_low = f - (d - 2.0)
    inverse = 1.0 / d
    s = f * inverse
    s_low = (-s).fma(d_low, (-s).fma(d, f, exact=True), exact=True) * inverse
    z = s * s
    z_low = s.fma(s, -z, exact=True) + 2.0 * s * s_low
    cube = s * z
    cube_low = s.fma(z, -cube, exact=True) + s.fma(z_low, s_low * z)
    part = cube * third
    part_low = cube.fma(third, -part, exact=True) + cube_low.fma(third, cube * third_low)
    rest = (cube * z).fma(horner(z, _LOG_PARTS[name]), part_low)
    rest = rest + s_low.fma(2.0, e * ln2_low)
    high = e * ln2_high
    sum = high + 2.0 * s
    error = (high - sum) + 2.0 * s  # exact where |high| >= |2 s| or high is 0
    total = sum + part
    rest = rest + (error + ((sum - total) + part))
    sum = total + rest
    return sum, (total - sum) + rest


def logistic(x: Number) -> Number:
    e = (-abs(x)).op("exp")
    return select(x < 0.0, e, 1.0) / (e + 1.0)


def expm1(x: Number) -> Number:
    k, r = _reduced(x.at_least(_EXPM1_LEAST[x.dtype.name]).at_most(_EXP_RANGE[x.dtype.name][1]))
    half = x.like(0.5).part("loop.scale", k)  # twice of it may overflow
    return (2.0 * half.fma(_fraction(r), half - 0.5)).with_sign_of(x)


def log1p(x: Number) -> Number:
    u = x + 1.0
    y = u.op("log")
    error = select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    y = select((u > 0.0) & (u < math.inf), y + error / u, y)
    return select(u.equals(1.0), x, y)


def tanh(x: Number) -> Number:
    if not x.is_f32:
        e = (-2.0 * abs(x)).op("expm1")
        return (-e / (e + 2.0)).with_sign_of(x)
    x = x.at_least(-9.02).at_most(9.02)
    u = x * x
    top, bottom = (horner(u, each) for each in _TANH)
    return x * top / bottom


def sinh(x: Number) -> Number:
    a = abs(x)
    e, half = a.op("expm1"), (0.5 * a).op("exp")
    small = a < _SMALL[x.dtype.name]
    y = select(small, 0.5 * (e + e / (e + 1.0)), (0.5 * half) * half)
    return select(a.equals(a), y, x).with_sign_of(x)


def cosh(x: Number) -> Number:
    a = abs(x)
    e, half = a.op("exp"), (0.5 * a).op("exp")
    return select(a < _SMALL[x.dtype.name], 0.5 * e + 0.5 / e, (0.5 * half) * half)


def asinh(x: Number) -> Number:
    a = abs(x)
    near = (a + a * a / ((a * a + 1.0).op("sqrt") + 1.0)).op("log1p")
    far = a.op("log") + _LN2
    return select(a < _NEAR[x.dtype.name], near, far).with_sign_of(x)


def acosh(x: Number) -> Number:
    t = x - 1.0
    near = (t + (2.0 * t + t * t).op("sqrt")).op("log1p")
    y = select(x < _NEAR[x.dtype.name], near, x.op("log") + _LN2)
    return select(x < 1.0, math.nan, y)


def atanh(x: Number) -> Number:
    a = abs(x)
    return (0.5 * (2.0 * a / (1.0 - a)).op("log1p")).with_sign_of(x)


def erf(x: Number) -> Number:
    if x.is_f32:
        x = x.at_least(-3.925).at_most(3.925)
        u = x * x
        top, bottom = (horner(u, each) for each in _ERF)
        return x * top / bottom
    a = abs(x).at_most(6.0)
    near = x * horner(x * x, _ERF_NEAR)
    far = (-a * a).op("exp") * horner((a - 3.0) / (a + 3.0), _ERF_FAR) / (a + 1.0)
    return select(a < 1.0, near, (1.0 - far).with_sign_of(x))


FUNCTIONS: Functions = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "logistic": logistic,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "erf": erf,
    "loop.exp_floor": exp_floor,
    "loop.exp_nonpositive": exp_nonpositive,
    "loop.scale": scale,
}
