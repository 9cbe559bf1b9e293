"""sin, cos, tan and their inverses."""

from __future__ import annotations

import math
from itertools import pairwise

from ingot.compiler.kernels.math.number import Functions, Number, coefficients, horner, select

__all__ = ["FUNCTIONS"]

_TWO_OVER_PI = {"f32": float.fromhex("0x1.45f306p-1"), "f64": float.fromhex("0x1.45f306dc9c883p-1")}
# pi / 2 in three parts
_HALF_PI = {
    "f32": coefficients("0x1.921fb6p+0 -0x1.777a5cp-25 -0x1.ee59dap-50"),
    "f64": coefficients("0x1.921fb544p+0 0x1.0b4611a6p-34 0x1.3198a2e037073p-69"),
}
# pi / 2 in two parts
_RIGHT_ANGLE = {
    "f32": coefficients("0x1.921fb6p+0 -0x1.777a5cp-25"),
    "f64": coefficients("0x1.921fb54442d18p+0 0x1.1a62633145c07p-54"),
}
_SMALL_ANGLE = {"f32": 2.0**15, "f64": 2.0**20}
_SIN = {
    "f32": coefficients("-0x1.555556p-3 0x1.111174p-7 -0x1.a05954p-13 0x1.7c2c4ep-19"),
    "f64": coefficients(
        """-0x1.5555555555555p-3 0x1.1111111111110p-7 -0x1.a01a01a019937p-13
        0x1.71de3a54606acp-19 -0x1.ae64541276bbbp-26 0x1.61217eca85f70p-33
        -0x1.ab17ac6a78e4ep-41"""
    ),
}
_COS = {
    "f32": coefficients(
        "0x1p+0 -0x1p-1 0x1.555556p-5 -0x1.6c175ep-10 0x1.a071c4p-16 -0x1.361b2ep-22"
    ),
    "f64": coefficients(
        """0x1.5555555555555p-5 -0x1.6c16c16c16c16p-10 0x1.a01a01a019d0ap-16
        -0x1.27e4fb7712c23p-22 0x1.1eed8deb730a8p-29 -0x1.9394b9d0ac859p-37
        0x1.ab78367ee48aep-45"""
    ),
}
_ATAN = {
    "f32": coefficients(
        """-0x1.55553ep-2 0x1.9991e4p-3 -0x1.242086p-3 0x1.c08cd0p-4 -0x1.580df2p-4
        0x1.da4ce0p-5 -0x1.fdf576p-6 0x1.64e81cp-7 -0x1.d543acp-10"""
    ),
    "f64": coefficients(
        """-0x1.5555555555555p-2 0x1.9999999999957p-3 -0x1.249249248dbafp-3 0x1.c71c71c32f2d8p-4
        -0x1.745d1665a6eafp-4 0x1.3b1393aa76f7dp-4 -0x1.110e95cdf089cp-4 0x1.e19b3e7927168p-5
        -0x1.ac82b6d546491p-5 0x1.750112b8dd044p-5 -0x1.1b8a0026aea93p-5 0x1.0b89d98523dc8p-6"""
    ),
}
_ASIN = {
    "f32": coefficients(
        "0x1.555554p-3 0x1.333430p-4 0x1.6d5bbap-5 0x1.fd8da2p-6 0x1.18f91ep-6 0x1.13fed4p-5"
    ),
    "f64": coefficients(
        """0x1.5555555555556p-3 0x1.3333333332e43p-4 0x1.6db6db6e3e982p-5 0x1.f1c71c164142fp-6
        0x1.6e8bb2e8b0cf1p-6 0x1.1c4d1c0472f0bp-6 0x1.c9d1f332c084bp-7 0x1.780a7662e6f55p-7
        0x1.52f32c6f9f846p-7 0x1.5fda8fc679123p-8 0x1.20f60d7898f09p-6 -0x1.f27b2e1fde7a0p-7
        0x1.db1e17ff5868ap-6"""
    ),
}
_TAN_EIGHTH = float.fromhex("0x1.a827999fcef32p-2")  # tan(pi / 8)
_BITS_OF_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561"
    "b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484"
    "e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b"
    "3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
"""64 in front of the point, which are 0, and 1280 behind it."""


def _as_float(digit: Number, like: Number) -> Number:
    """A number that is not large."""
    return (digit + like.format.magic_bits).as_float() - like.format.magic


def _window(skip: Number, like: Number) -> list[Number]:
    """Six digits of 2/pi from bit `skip` on. A digit has half of the bits of a float `like`."""
    form = like.format
    width, count = form.bits // 2, 7
    greatest = form.bias - form.mantissa + 62
    place, mask = skip >> (width.bit_length() - 1), (1 << width) - 1
    chosen = [
        skip.like(_BITS_OF_TWO_OVER_PI >> (1280 + 64 - width * (at + 1)) & mask)
        for at in range(greatest // width + count)
    ]
    step = 1 << (greatest // width).bit_length()
    while step > 1:
        step //= 2
        is_far = (place & step).differs(0)
        chosen = [
            select(is_far, chosen[at + step], near) if at + step < len(chosen) else near
            for at, near in enumerate(chosen[: count + step - 1])
        ]
    power = ((skip & (width - 1)) + form.bias) << form.mantissa
    factor = (power.as_float() + form.magic).bits("u") - form.magic_bits
    moved = [each * factor for each in chosen]
    return [(a & mask) | (b >> width) for a, b in pairwise(moved)]


def _product(window: list[Number], factor: Number, width: int) -> list[Number]:
    """Their product, in digits from the highest one on, modulo the length of the window."""
    mask = (1 << width) - 1
    digits = [factor.like(0)] * (len(window) + 2)  # lowest first
    for place, digit in enumerate(reversed(window)):
        carry = factor.like(0)
        for at, other in enumerate((factor & mask, factor >> width), place):
            sum = digit * other + digits[at] + carry
            digits[at], carry = sum & mask, sum >> width
        digits[place + 2] = carry
    return digits[len(window) - 1 :: -1]


def _turned(x: Number) -> tuple[Number, Number, list[Number]]:
    """|x| * 2/pi for finite x that is not small: the nearest whole number modulo 4; all bits of a
    digit if it is the next one; how far it is, as digits behind the point."""
    form = x.format
    width, mask = form.bits // 2, (1 << form.bits // 2) - 1
    bits = abs(x).bits("u")
    power = bits >> form.mantissa  # |x| = mantissa * 2^(power - bias - form.mantissa)
    mantissa = (bits & ((1 << form.mantissa) - 1)) | 1 << form.mantissa
    # Bits of 2/pi that give multiples of 4 are left out.
    window = _window(power - (form.bias + form.mantissa + 2 - 64), x)
    digits = _product(window, mantissa, width)  # two bits are in front of the point
    behind = [((a << 2) & mask) | (b >> (width - 2)) for a, b in pairwise(digits[:5])]
    next = behind[0] >> (width - 1)
    flip = next.like(0) - next & mask
    return (digits[0] >> (width - 2)) + next, flip, [each.op("xor", flip) for each in behind]


def angle(x: Number) -> Number:
    _, flip, digits = _turned(x)
    width = x.format.bits // 2
    parts = [_as_float(d, x) * 2.0 ** (-width * at) for at, d in enumerate(digits, 1)]
    fraction = parts[0] + (parts[1] + (parts[2] + parts[3]))
    high, low = _RIGHT_ANGLE[x.dtype.name]
    r = fraction.fma(high, fraction * low)
    r = select(flip.differs(0), -r, r)
    return select(abs(x) < math.inf, select(x < 0.0, -r, r), x - x)


def quadrant(x: Number) -> Number:
    whole = _as_float(_turned(x)[0], x)
    return select(x < 0.0, 4.0 - whole, whole)


def _reduced(x: Number) -> tuple[Number, Number]:
    """What is left of x beside the nearest multiple of pi / 2, and which one modulo 4."""
    name = x.dtype.name
    first, second, third = _HALF_PI[name]
    t = x.fma(_TWO_OVER_PI[name], x.format.magic)
    k, t = t - x.format.magic, t.bits("i")
    if x.is_f32:
        r = k.fma(-first, x, exact=True)
        r = k.fma(-third, k.fma(-second, r, exact=True), exact=True)
    else:
        start = k.fma(-first, x)
        w = k * second
        r = start - w
        r = r + k.fma(-third, (start - r) - w)
    large = ~(abs(x) < _SMALL_ANGLE[name])

    r, quadrant = large.where_any(
        lambda: [
            select(large, x.part("loop.angle"), r),
            select(large, (x.part("loop.quadrant") + x.format.magic).bits("i"), t),
        ],
        [r, t],
    )
    return r, quadrant & 3


def _sin(r: Number) -> Number:
    z = r * r
    return (horner(z, _SIN[r.dtype.name]) * z).fma(r, r)


def _cos(r: Number) -> Number:
    z = r * r
    q = horner(z, _COS[r.dtype.name])
    if r.is_f32:
        return q
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + z * z * q)


def sin(x: Number) -> Number:
    r, quadrant = _reduced(x)
    y = select((quadrant & 1).differs(0), _cos(r), _sin(r))
    y = select((quadrant & 2).differs(0), -y, y)
    return select(x.equals(0.0), x, y)


def cos(x: Number) -> Number:
    r, quadrant = _reduced(x)
    y = select((quadrant & 1).differs(0), _sin(r), _cos(r))
    return select(((quadrant + 1) & 2).differs(0), -y, y)


def tan(x: Number) -> Number:
    r, quadrant = _reduced(x)
    s, c = _sin(r), _cos(r)
    odd = (quadrant & 1).differs(0)
    return select(x.equals(0.0), x, select(odd, -c, s) / select(odd, s, c))


def _atan_ratio(numerator: Number, denominator: Number) -> Number:
    """atan(numerator / denominator) for both >= 0, one of them not 0."""
    right, right_low = _RIGHT_ANGLE[numerator.dtype.name]
    steep = numerator > denominator
    top, bottom = select(steep, denominator, numerator), select(steep, numerator, denominator)
    if numerator.is_f32:
        t = top / bottom
        z = t * t
        y = (horner(z, _ATAN["f32"]) * z).fma(t, t)
        return select(steep, right - (y - right_low), y)
    middle = top > bottom * _TAN_EIGHTH
    t = select(middle, top - bottom, top) / select(middle, top + bottom, bottom)
    # The angle is base + low + atan(t), or from pi / 2 down.
    base, low = (select(middle, each / 2, t.like(0.0)) for each in (right, right_low))
    z = t * t
    rest = horner(z, _ATAN["f64"]) * z * t + low
    return select(steep, (right - base) - (t + (rest - right_low)), base + (t + rest))


def atan(x: Number) -> Number:
    a = abs(x)
    infinite = a.equals(math.inf)
    y = _atan_ratio(select(infinite, 1.0, a), select(infinite, 0.0, a.like(1.0)))
    return select(a.equals(a), y, x).with_sign_of(x)


def atan2(y: Number, x: Number) -> Number:
    a, b = abs(y), abs(x)
    tall, wide = a.equals(math.inf), b.equals(math.inf)
    both = tall & wide
    top = select(both | tall, 1.0, select(wide, 0.0, a))
    bottom = select(both | wide, 1.0, select(tall, 0.0, b))
    bottom = select(top.equals(0.0) & bottom.equals(0.0), 1.0, bottom)
    angle = _atan_ratio(top, bottom)
    high, low = _RIGHT_ANGLE[x.dtype.name]
    left = x.bits("i") < 0
    angle = select(left, 2 * high - (angle - 2 * low), angle).with_sign_of(y)
    return select(a.equals(a) & b.equals(b), angle, a + b)


def _asin(t: Number) -> Number:
    """asin(t) of |t| up to one half."""
    z = t * t
    return (horner(z, _ASIN[t.dtype.name]) * z).fma(t, t)


def asin(x: Number) -> Number:
    high, low = _RIGHT_ANGLE[x.dtype.name]
    a = abs(x)
    near = a <= 0.5
    y = _asin(select(near, a, (0.5 - 0.5 * a).op("sqrt")))
    return select(near, y, high - (2.0 * y - low)).with_sign_of(x)


def acos(x: Number) -> Number:
    high, low = _RIGHT_ANGLE[x.dtype.name]
    a = abs(x)
    near = a <= 0.5
    y = _asin(select(near, x, (0.5 - 0.5 * a).op("sqrt")))
    far = select(x < 0.0, 2 * high - (2.0 * y - 2 * low), 2.0 * y)
    return select(near, high - (y - low), far)


FUNCTIONS: Functions = {
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "atan2": atan2,
    "loop.angle": angle,
    "loop.quadrant": quadrant,
}
