"""Functions of complex numbers as ops on their real and imaginary parts.

Kernels compute with real numbers only. Formulas are chosen so that nothing overflows in
between where the result does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import DType, dtype

__all__ = [
    "BINARY",
    "UNARY",
    "Complex",
    "Parts",
    "absolute",
    "join",
    "ordered",
    "take_apart",
    "with_sign",
]

Parts = tuple[Value, Value]
"""The real and the imaginary part, tensors of one type."""


def take_apart(builder: Builder, x: Value) -> Parts:
    """The parts of a complex tensor, whose elements are pairs in memory."""
    type = tensor_type(x)
    element = dtype("f32" if type.dtype.bits == 64 else "f64")
    pairs = builder.value("reinterpret", x, dtype=element)
    start = (0,) * type.rank

    def part(place: int) -> Value:
        limit = (*type.shape, place + 1)
        column = builder.value("slice", pairs, start=(*start, place), limit=limit)
        return builder.value("reshape", column, shape=type.shape)

    return part(0), part(1)


def join(builder: Builder, parts: Parts) -> Value:
    """The complex tensor that has these parts."""
    type = tensor_type(parts[0])
    columns = [builder.value("reshape", each, shape=(*type.shape, 1)) for each in parts]
    pairs = builder.value("concatenate", *columns, axis=type.rank)
    wide = dtype("c64" if type.dtype.bits == 32 else "c128")
    return builder.value("reinterpret", pairs, dtype=wide)


class Complex:
    """Builds functions of complex numbers."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def op(self, name: str, *operands: Value) -> Value:
        return self.builder.value(name, *operands)

    @staticmethod
    def dtype(x: Value) -> DType:
        """The element type of a tensor, or of a scalar in the region of a sort."""
        return x.dtype

    def like(self, number: float, x: Value) -> Value:
        """`number` in the type of x."""
        return self.builder.full(number, self.dtype(x), getattr(x.type, "shape", ()))

    def scale(self, number: float, x: Value) -> Value:
        return self.op("mul", x, self.like(number, x))

    def choose(self, predicate: Value, a: Parts, b: Parts) -> Parts:
        return self.op("select", predicate, a[0], b[0]), self.op("select", predicate, a[1], b[1])

    def compare(self, direction: str, a: Value, b: Value) -> Value:
        return self.builder.value("compare", a, b, direction=direction)


def absolute(c: Complex, z: Parts) -> Value:
    """|z|, without a square of the greater part."""
    a, b = (c.op("abs", part) for part in z)
    high, low = c.op("max", a, b), c.op("min", a, b)
    zero, infinity = c.like(0, high), c.like(math.inf, high)
    ratio = c.op("div", low, high)
    root = c.op("sqrt", c.op("add", c.like(1, high), c.op("mul", ratio, ratio)))
    size = c.op("mul", high, root)
    size = c.op("select", c.compare("eq", high, zero), zero, size)
    one = c.op("or", c.compare("eq", a, infinity), c.compare("eq", b, infinity))
    return c.op("select", one, infinity, size)


def ordered(c: Complex, direction: str, a: Parts, b: Parts) -> Value:
    """Whether a is lt, le, gt or ge b: real parts decide, imaginary ones where they are equal."""
    first = c.compare(direction[0] + "t", a[0], b[0])
    second = c.op("and", c.compare("eq", a[0], b[0]), c.compare(direction, a[1], b[1]))
    return c.op("or", first, second)


def _multiply(c: Complex, a: Parts, b: Parts) -> Parts:
    real = c.op("sub", c.op("mul", a[0], b[0]), c.op("mul", a[1], b[1]))
    return real, c.op("add", c.op("mul", a[0], b[1]), c.op("mul", a[1], b[0]))


def _divide(c: Complex, a: Parts, b: Parts) -> Parts:
    """By the ratio of the divisor's lesser part to the greater one (Smith); what is finite by what
    is infinite is 0."""
    flat = c.compare("ge", c.op("abs", b[0]), c.op("abs", b[1]))
    high, low = c.choose(flat, b, (b[1], b[0]))
    ratio = c.op("div", low, high)
    size = c.op("add", high, c.op("mul", low, ratio))
    first, second = c.choose(flat, a, (a[1], a[0]))
    real = c.op("div", c.op("add", first, c.op("mul", second, ratio)), size)
    other = c.op("div", c.op("sub", second, c.op("mul", first, ratio)), size)
    other = c.op("select", flat, other, c.op("neg", other))
    length, zero = c.op("add", c.op("abs", high), c.op("abs", low)), c.like(0, high)
    by_zero = c.op("div", a[0], length), c.op("div", a[1], length)
    result = c.choose(c.compare("eq", length, zero), by_zero, (real, other))
    finite = c.op("and", c.op("is_finite", a[0]), c.op("is_finite", a[1]))
    endless = c.op("or", c.op("is_inf", high), c.op("is_inf", low))
    return c.choose(c.op("and", finite, endless), (zero, zero), result)


def _add(c: Complex, a: Parts, b: Parts) -> Parts:
    return c.op("add", a[0], b[0]), c.op("add", a[1], b[1])


def _subtract(c: Complex, a: Parts, b: Parts) -> Parts:
    return c.op("sub", a[0], b[0]), c.op("sub", a[1], b[1])


def _negate(c: Complex, z: Parts) -> Parts:
    return c.op("neg", z[0]), c.op("neg", z[1])


def _conjugate(c: Complex, z: Parts) -> Parts:
    return z[0], c.op("neg", z[1])


def _scaled(c: Complex, name: str, x: Value, size: Value, angle: Value) -> Value:
    """size times `angle`, a sine or cosine, where size is exp, cosh or sinh of x; of a large x in
    two steps, as the product may be in range where size is not."""
    length = x if name == "exp" else c.op("abs", x)
    large = c.compare("gt", length, c.like(80 if c.dtype(x).bits == 32 else 700, x))
    root = c.op("exp", c.scale(0.5, length))
    first = root if name == "exp" else c.scale(0.5, root)
    if name == "sinh":
        first = c.op("mul", first, c.op("sign", x))
    product = c.op("mul", c.op("select", large, first, size), angle)
    return c.op("select", large, c.op("mul", product, root), product)


def _along(c: Complex, name: str, x: Value, angle: Value) -> Value:
    """A function of x times cos(angle): if the angle is not finite, 0 and what infinity has made
    stay as they are."""
    size, cosine = c.op(name, x), c.op("cos", angle)
    fixed = c.op("or", c.compare("eq", size, c.like(0, size)), c.op("is_inf", x))
    fixed = c.op("and", fixed, c.op("is_nan", cosine))
    return c.op("select", fixed, size, _scaled(c, name, x, size, cosine))


def _across(c: Complex, name: str, x: Value, angle: Value) -> Value:
    """A function of x times sin(angle): 0 times what is not finite is 0."""
    size, sine, zero = c.op(name, x), c.op("sin", angle), c.like(0, x)
    endless = c.op("not", c.op("is_finite", size))
    flat = c.op("and", c.compare("eq", angle, zero), endless)
    none = c.op("and", c.compare("eq", size, zero), c.op("is_nan", sine))
    result = c.op("select", none, size, _scaled(c, name, x, size, sine))
    signed = c.op("select", c.compare("lt", size, zero), c.op("neg", angle), angle)
    return c.op("select", flat, signed, result)


def _exponential(c: Complex, z: Parts) -> Parts:
    return _along(c, "exp", *z), _across(c, "exp", *z)


def _exponential_minus_one(c: Complex, z: Parts) -> Parts:
    """e^a cos b - 1 = expm1(a) cos b - 2 sin^2(b / 2)."""
    sine = c.op("sin", c.scale(0.5, z[1]))
    less = c.scale(2, c.op("mul", sine, sine))
    real = c.op("sub", c.op("mul", c.op("expm1", z[0]), c.op("cos", z[1])), less)
    return real, _exponential(c, z)[1]


def _log_of_size(c: Complex, z: Parts) -> Value:
    """log|z| as log(high) + log1p((low / high)^2) / 2, of which no part overflows."""
    a, b = (c.op("abs", part) for part in z)
    high, low = c.op("max", a, b), c.op("min", a, b)
    infinity = c.like(math.inf, high)
    ratio = c.op("div", low, high)  # not a number for two zeros, or for two infinities
    ratio = c.op("select", c.compare("eq", low, high), c.like(1, high), ratio)
    rest = c.scale(0.5, c.op("log1p", c.op("mul", ratio, ratio)))
    size = c.op("add", c.op("log", high), rest)
    one = c.op("or", c.compare("eq", a, infinity), c.compare("eq", b, infinity))
    return c.op("select", one, infinity, size)


def _logarithm(c: Complex, z: Parts) -> Parts:
    return _log_of_size(c, z), c.op("atan2", z[1], z[0])


def _log_plus_one(c: Complex, z: Parts) -> Parts:
    """log|1 + z| = log1p(a (a + 2) + b^2) / 2 where z is small, so that what 1 hides counts."""
    one = c.op("add", z[0], c.like(1, z[0]))
    two = c.op("add", z[0], c.like(2, z[0]))
    square = c.op("add", c.op("mul", z[0], two), c.op("mul", z[1], z[1]))
    near = c.scale(0.5, c.op("log1p", square))
    high = c.op("max", c.op("abs", z[0]), c.op("abs", z[1]))
    small = c.compare("lt", high, c.like(0.5, high))
    size = c.op("select", small, near, _log_of_size(c, (one, z[1])))
    return size, c.op("atan2", z[1], one)


def _square_root(c: Complex, z: Parts) -> Parts:
    """The root whose real part is not negative; z is scaled so that neither its size nor half
    of a part is out of range."""
    a, b = (c.op("abs", part) for part in z)
    high = c.op("max", a, b)
    great, small, factor = (126, -100, 48) if c.dtype(high).bits == 32 else (1022, -960, 108)
    large = c.compare("gt", high, c.like(2.0**great, high))
    tiny = c.compare("lt", high, c.like(2.0**small, high))

    def choice(for_large: float, for_tiny: float) -> Value:
        rest = c.op("select", tiny, c.like(for_tiny, high), c.like(1, high))
        return c.op("select", large, c.like(for_large, high), rest)

    scale, back = choice(0.25, 2.0**factor), choice(2, 2.0 ** (-factor // 2))
    a, b = c.op("mul", a, scale), c.op("mul", b, scale)
    zero, infinity = c.like(0, high), c.like(math.inf, high)
    size = absolute(c, (a, b))
    half = c.op("sqrt", c.op("add", c.scale(0.5, size), c.scale(0.5, a)))
    other = c.scale(0.5, c.op("div", b, half))
    other = c.op("select", c.compare("eq", half, zero), zero, other)
    endless = c.compare("eq", b, infinity)
    half, other = (
        c.op("select", endless, infinity, c.op("mul", part, back)) for part in (half, other)
    )
    right = c.compare("ge", z[0], zero)
    real, imaginary = c.choose(right, (half, other), (other, half))
    return real, with_sign(c, imaginary, z[1])


def with_sign(c: Complex, size: Value, of: Value) -> Value:
    """A number that is not negative with the sign of another, also of a zero: only of -0 the
    inverse is minus infinity."""
    is_zero = c.compare("eq", c.op("div", c.like(1, of), of), c.like(-math.inf, of))
    down = c.op("or", c.compare("lt", of, c.like(0, of)), is_zero)
    return c.op("select", down, c.op("neg", size), size)


def _reciprocal_root(c: Complex, z: Parts) -> Parts:
    return _divide(c, (c.like(1, z[0]), c.like(0, z[0])), _square_root(c, z))


def _cube_root(c: Complex, z: Parts) -> Parts:
    logarithm = _logarithm(c, z)
    root = _exponential(c, (c.scale(1 / 3, logarithm[0]), c.scale(1 / 3, logarithm[1])))
    zero = c.compare("eq", absolute(c, z), c.like(0, z[0]))
    return c.choose(zero, z, root)


def _power(c: Complex, a: Parts, b: Parts) -> Parts:
    """e^(b log a); of 0 it is 0 for a power whose real part is above 0, 1 for 0, else NaN."""
    result = _exponential(c, _multiply(c, b, _logarithm(c, a)))
    zero, one = c.like(0, a[0]), c.like(1, a[0])
    none = c.compare("eq", absolute(c, b), zero)
    of_zero = c.op("select", c.compare("gt", b[0], zero), zero, c.like(math.nan, zero))
    nothing = c.compare("eq", absolute(c, a), zero)
    result = c.choose(nothing, (of_zero, of_zero), result)
    return c.choose(none, (one, zero), result)


def _sine(c: Complex, z: Parts) -> Parts:
    return _across(c, "cosh", z[1], z[0]), _along(c, "sinh", z[1], z[0])


def _cosine(c: Complex, z: Parts) -> Parts:
    return _along(c, "cosh", z[1], z[0]), c.op("neg", _across(c, "sinh", z[1], z[0]))


def _hyperbolic_tangent(c: Complex, z: Parts) -> Parts:
    """(t (1 + s^2), s / cosh(a)^2) / (1 + (t s)^2) with t = tanh a, s = tan b."""
    t, s = c.op("tanh", z[0]), c.op("tan", z[1])
    one = c.like(1, t)
    square, product = c.op("mul", s, s), c.op("mul", t, s)
    size = c.op("add", one, c.op("mul", product, product))
    real = c.op("div", c.op("mul", t, c.op("add", one, square)), size)
    rest = c.op("div", one, c.op("cosh", z[0]))
    imaginary = c.op("div", c.op("mul", s, c.op("mul", rest, rest)), size)
    zero, endless = c.like(0, t), c.op("is_inf", z[0])
    flat = c.op("select", c.op("is_nan", s), zero, c.op("mul", s, zero))
    imaginary = c.op("select", endless, flat, imaginary)
    imaginary = c.op("select", c.compare("eq", z[1], zero), z[1], imaginary)
    fixed = c.op("or", endless, c.compare("eq", z[0], zero))
    return c.op("select", fixed, c.op("sign", z[0]), real), imaginary


def _logistic(c: Complex, z: Parts) -> Parts:
    real, imaginary = _exponential(c, _negate(c, z))
    one = c.like(1, real)
    return _divide(c, (one, c.like(0, one)), (c.op("add", real, one), imaginary))


def _sign(c: Complex, z: Parts) -> Parts:
    """z / |z|; of one infinite part only its sign counts."""
    size = absolute(c, z)
    zero = c.like(0, size)
    parts = c.op("div", z[0], size), c.op("div", z[1], size)
    endless = [c.op("is_inf", part) for part in z]
    one = c.op("xor", *endless)
    signs = (
        c.op("select", at, c.op("sign", part), zero) for at, part in zip(endless, z, strict=True)
    )
    real, imaginary = signs
    parts = c.choose(one, (real, imaginary), parts)
    return c.choose(c.compare("eq", size, zero), (zero, zero), parts)


def _arc_tangent(c: Complex, y: Parts, x: Parts) -> Parts:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    length = _square_root(c, _add(c, _multiply(c, x, x), _multiply(c, y, y)))
    real, imaginary = _logarithm(c, _divide(c, _add(c, x, (c.op("neg", y[1]), y[0])), length))
    return imaginary, c.op("neg", real)


# ---- inverse functions, by Kahan's formulas, which keep the signs of zeros and the branch cuts


def _roots(c: Complex, z: Parts) -> tuple[Parts, Parts]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    a, b = z
    less = c.op("sub", c.like(1, a), a), c.op("neg", b)
    return _square_root(c, less), _square_root(c, (c.op("add", c.like(1, a), a), b))


def _endless(c: Complex, z: Parts) -> Value:
    return c.op("or", c.op("is_inf", z[0]), c.op("is_inf", z[1]))


def _grown(c: Complex, z: Parts, a: Parts, b: Parts) -> Value:
    """asinh of the imaginary part of conj(a) b; infinite where z is, with the sign of its own. What
    is large is halved in both factors, so that it stays in range: asinh x is log 4 + asinh(x / 4).
    """
    large = c.compare("gt", c.op("max", *(c.op("abs", part) for part in z)), c.like(2.0**64, z[0]))
    factor = c.op("select", large, c.like(0.5, z[0]), c.like(1, z[0]))
    a = c.op("mul", a[0], factor), c.op("mul", a[1], factor)
    b = c.op("mul", b[0], factor), c.op("mul", b[1], factor)
    cross = c.op("sub", c.op("mul", a[0], b[1]), c.op("mul", a[1], b[0]))
    infinity = with_sign(c, c.like(math.inf, cross), z[1])
    area = c.op("asinh", cross)
    more = c.op("add", area, with_sign(c, c.like(math.log(4), cross), cross))
    return c.op("select", _endless(c, z), infinity, c.op("select", large, more, area))


def _arc_sine(c: Complex, z: Parts) -> Parts:
    less, more = _roots(c, z)
    a, b = z
    along = c.op("sub", c.op("mul", less[0], more[0]), c.op("mul", less[1], more[1]))
    along = c.op("select", _endless(c, z), c.op("abs", b), along)
    none = c.compare("eq", a, c.like(0, a))
    angle = c.op("select", none, a, c.op("atan2", a, along))
    return angle, _grown(c, z, less, more)


def _arc_cosine(c: Complex, z: Parts) -> Parts:
    less, more = _roots(c, z)
    a, b = z
    angle = c.scale(2, c.op("atan2", less[0], more[0]))
    angle = c.op("select", _endless(c, z), c.op("atan2", c.op("abs", b), a), angle)
    straight = c.op("and", c.compare("eq", a, c.like(0, a)), c.op("is_nan", b))
    angle = c.op("select", straight, c.like(math.pi / 2, angle), angle)
    return angle, c.op("neg", _grown(c, z, less, more))


def _area_cosine(c: Complex, z: Parts) -> Parts:
    """i acos z or -i acos z, whichever has a real part that is not negative."""
    angle, size = _arc_cosine(c, z)
    return c.op("abs", size), with_sign(c, angle, z[1])


def _area_tangent(c: Complex, z: Parts) -> Parts:
    """log1p(4 a / ((1 - a)^2 + b^2)) / 4 and atan2(2 b, (1 - a) (1 + a) - b^2) / 2 for a of at
    least 0; log(2 / |b|) / 2 beside 1, where the square of b is out of
    range; 1 / z and pi / 2 of what is so large that no more is left of the logarithm."""
    a, b = c.op("abs", z[0]), z[1]
    one, zero = c.like(1, a), c.like(0, a)
    less, square = c.op("sub", one, a), c.op("mul", b, b)
    near = c.op("add", c.op("mul", less, less), square)
    size = c.scale(0.25, c.op("log1p", c.op("div", c.scale(4, a), near)))
    beside = c.scale(0.5, c.op("sub", c.like(math.log(2), a), c.op("log", c.op("abs", b))))
    tiny = c.like(1e-20 if c.dtype(a).bits == 32 else 1e-40, a)
    size = c.op("select", c.compare("lt", near, tiny), beside, size)
    along = c.op("sub", c.op("mul", less, c.op("add", one, a)), square)
    angle = c.scale(0.5, c.op("atan2", b_twice := c.scale(2, b), along))
    far = c.compare("gt", absolute(c, z), c.like(2.0**54, a))
    inverse = c.op("abs", _divide(c, (one, zero), z)[0])
    inverse = c.op("select", _endless(c, z), zero, inverse)
    turn = with_sign(c, c.like(math.pi / 2, angle), b)
    turn = c.op("select", c.op("is_nan", b), b_twice, turn)
    size, angle = c.choose(far, (inverse, turn), (size, angle))
    size = c.op("select", c.compare("eq", a, zero), zero, size)
    return with_sign(c, size, z[0]), angle


def _turned(function: Callable[[Complex, Parts], Parts]) -> Callable[[Complex, Parts], Parts]:
    """-i f(i z)."""

    def call(c: Complex, z: Parts) -> Parts:
        real, imaginary = function(c, (c.op("neg", z[1]), z[0]))
        return imaginary, c.op("neg", real)

    return call


def _hyperbolic_cosine(c: Complex, z: Parts) -> Parts:
    """cos(i z)."""
    return _cosine(c, (c.op("neg", z[1]), z[0]))


UNARY: dict[str, Callable[[Complex, Parts], Parts]] = {
    "cbrt": _cube_root,
    "chlo.acos": _arc_cosine,
    "chlo.acosh": _area_cosine,
    "chlo.asin": _arc_sine,
    "chlo.asinh": _turned(_arc_sine),
    "chlo.atan": _turned(_area_tangent),
    "chlo.atanh": _area_tangent,
    "chlo.conj": _conjugate,
    "chlo.cosh": _hyperbolic_cosine,
    "chlo.sinh": _turned(_sine),
    "cosine": _cosine,
    "exponential": _exponential,
    "exponential_minus_one": _exponential_minus_one,
    "log": _logarithm,
    "log_plus_one": _log_plus_one,
    "logistic": _logistic,
    "negate": _negate,
    "rsqrt": _reciprocal_root,
    "sign": _sign,
    "sine": _sine,
    "sqrt": _square_root,
    "tan": _turned(_hyperbolic_tangent),
    "tanh": _hyperbolic_tangent,
}
BINARY: dict[str, Callable[[Complex, Parts, Parts], Parts]] = {
    "add": _add,
    "atan2": _arc_tangent,
    "divide": _divide,
    "maximum": lambda c, a, b: c.choose(ordered(c, "gt", a, b), a, b),
    "minimum": lambda c, a, b: c.choose(ordered(c, "lt", a, b), a, b),
    "multiply": _multiply,
    "power": _power,
    "subtract": _subtract,
}
