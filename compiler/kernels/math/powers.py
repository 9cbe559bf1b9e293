"""pow and the cube root."""

from __future__ import annotations

import math
from typing import NamedTuple

from ingot.compiler.kernels.math.exponential import log_parts, log_specials
from ingot.compiler.kernels.math.number import Functions, Number, select

__all__ = ["FUNCTIONS"]

# Their exp is finite by some ulp.
_EXP_MOST = {"f32": float.fromhex("0x1.62e42ep+6"), "f64": float.fromhex("0x1.62e42fefa39eep+9")}


def pow(x: Number, y: Number) -> Number:
    a = abs(x)
    high, low = log_parts(a)
    special = log_specials(a, high)
    low = select(special.equals(high), low, 0.0)
    product = y * special
    most = product.at_most(_EXP_MOST[x.dtype.name])  # the error is all that is beyond
    error = y.fma(special, -most, exact=True) + y * low
    error = select(product < math.inf, error, product)
    result = most.op("exp")
    result = select(result > 0.0, result.fma(error, result), result)
    whole = y.op("trunc").equals(y)
    half = 0.5 * y
    odd = whole & half.op("trunc").differs(half)
    result = select((x.bits("i") < 0) & odd, -result, result)
    finite = (a < math.inf) & (abs(y) < math.inf)
    result = select((x < 0.0) & ~whole & finite, math.nan, result)
    one = a.equals(1.0) & abs(y).equals(math.inf)
    return select(one | y.equals(0.0) | x.equals(1.0), 1.0, result)


class _CubeRoot(NamedTuple):
    """How the first guess is made, of the upper bits alone, and how often it is mended."""

    lower: int  # bits
    third: float  # what a third of the others needs to be those of the root
    rounds: int
    edge: float  # beyond it, and below its inverse, numbers are taken times
    step: float  # or by the cube of this


_CUBE_ROOTS = {
    "f32": _CubeRoot(16, 709958130 / 2**16, 2, 2.0**100, 2.0**20),
    "f64": _CubeRoot(32, 715094163.0, 3, 2.0**1000, 2.0**60),
}


def cbrt(x: Number) -> Number:
    form, root = x.format, _CUBE_ROOTS[x.dtype.name]
    a = abs(x)
    tiny, huge = a < 1 / root.edge, a > root.edge
    b = select(tiny, a * root.step**3, select(huge, a * root.step**-3, a))
    upper = ((b.bits("u") >> root.lower) + form.magic_bits).as_float() - form.magic
    guess = (upper * (1.0 / 3.0) + root.third) + form.magic
    t = ((guess.bits("u") - form.magic_bits) << root.lower).as_float()
    for _ in range(root.rounds):
        cube = t * t * t
        t = t * ((cube + 2.0 * b) / (2.0 * cube + b))
    t = t + (-t * t).fma(t, b) / (3.0 * t * t)
    t = select(tiny, t / root.step, select(huge, t * root.step, t))
    t = select((a > 0.0) & (a < math.inf), t, x)
    return t.with_sign_of(x)


FUNCTIONS: Functions = {"pow": pow, "cbrt": cbrt}
