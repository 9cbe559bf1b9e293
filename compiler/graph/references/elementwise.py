"""References of element-wise ops, exact about NaN, infinities, signed zeros and wrapping.

Floats below f64 compute in float64, which is then rounded to f32 and to the dtype, so
that results are those of an exact f32 function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.graph.references.numbers import (
    Array,
    convert,
    dtype_of,
    is_standard,
    narrow,
    quiet,
    widen,
)
from ingot.hal.spec import DType

__all__ = ["REFERENCES"]

_erf64 = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_erf64(x), np.float64)


def _sign(x: Array) -> Array:
    return np.asarray(np.where(x == 0, x, np.sign(x)))


def _round_away(x: Array) -> Array:
    whole = np.trunc(x)
    whole = np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)
    return np.where(np.isnan(x), x, np.copysign(whole, x))


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _logistic(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _exact(function: Callable[..., Any]) -> Callable[..., Array]:
    """A reference from a function on wide arrays: widen, compute, narrow."""

    @quiet
    def reference(*operands: Array) -> Array:
        return narrow(function(*map(widen, operands)), dtype_of(operands[0]))

    return reference


def _native(function: Callable[..., Any]) -> Callable[..., Array]:
    """As `_exact` for a function that NumPy rounds right in f32 and f64 itself, and wraps in
    integers: much faster, and without longer arrays beside."""
    wide = _exact(function)

    @quiet
    def reference(*operands: Array) -> Array:
        if is_standard(element := operands[0].dtype) and element.char in "fdbBhHiIlLqQ":
            return np.asarray(function(*operands))
        return wide(*operands)

    return reference


def _test(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    @quiet
    def reference(x: Array) -> Array:
        return np.asarray(function(widen(x)))

    return reference


@quiet
def _not(x: Array) -> Array:
    return narrow(np.invert(widen(x)), dtype_of(x))


def _unsigned(x: Array) -> Array:
    """Integers as uint64 that hold just their bits."""
    bits = dtype_of(x).bits
    return np.asarray(widen(x).astype(np.uint64) & np.uint64((1 << bits) - 1))


def _popcount(x: Array) -> Array:
    rest, count = _unsigned(x), np.zeros(x.shape, np.uint64)
    for _ in range(dtype_of(x).bits):
        count = count + (rest & np.uint64(1))
        rest = rest >> np.uint64(1)
    return narrow(count, dtype_of(x))


def _count_leading_zeros(x: Array) -> Array:
    rest = _unsigned(x)
    count = np.full(x.shape, dtype_of(x).bits, np.uint64)
    for _ in range(dtype_of(x).bits):
        count = count - (rest != 0)
        rest = rest >> np.uint64(1)
    return narrow(count, dtype_of(x))


def _safe_divisor(a: Array, b: Array) -> Array:
    """b with 1 where a / b has no quotient; MIN / 1 is then MIN, as MIN / -1 wraps to."""
    bad = b == 0
    if b.dtype.kind == "i":
        bad = bad | ((b == -1) & (a == np.iinfo(a.dtype).min))
    return np.where(bad, b.dtype.type(1), b)


_true_div = _native(np.divide)


@quiet
def _div(a: Array, b: Array) -> Array:
    dtype = dtype_of(a)
    if not dtype.is_integer:
        return _true_div(a, b)
    wide_a, wide_b = widen(a), widen(b)
    divisor = _safe_divisor(wide_a, wide_b)
    quotient = wide_a // divisor
    if dtype.kind == "i":
        remainder = wide_a - quotient * divisor
        quotient = quotient + ((remainder != 0) & ((wide_a < 0) != (divisor < 0)))
    every_bit = np.invert(np.zeros_like(quotient))
    return narrow(np.where(wide_b == 0, every_bit, quotient), dtype)


@quiet
def _rem(a: Array, b: Array) -> Array:
    dtype = dtype_of(a)
    wide_a, wide_b = widen(a), widen(b)
    if not dtype.is_integer:
        return narrow(np.fmod(wide_a, wide_b), dtype)
    remainder = np.fmod(wide_a, _safe_divisor(wide_a, wide_b))
    return narrow(np.where(wide_b == 0, wide_a, remainder), dtype)


@quiet
def _pow(a: Array, b: Array) -> Array:
    dtype = dtype_of(a)
    if not dtype.is_integer:
        return narrow(np.power(widen(a), widen(b)), dtype)
    base, exponent = widen(a), widen(b)
    result, rest = np.ones_like(base), np.where(exponent < 0, 0, exponent)
    square = base
    for _ in range(dtype.bits):
        result = np.where(rest & 1, result * square, result)
        square, rest = square * square, rest >> 1
    if dtype.kind == "i":
        ones = np.where((exponent & 1) == 1, base, 1)
        below = np.where(np.abs(base) == 1, ones, 0)
        result = np.where(exponent < 0, below, result)
    return narrow(result, dtype)


@quiet
def _max(a: Array, b: Array) -> Array:
    dtype = dtype_of(a)
    a, b = widen(a), widen(b)
    greater = np.maximum(a, b)
    if dtype.is_float:  # +0 is greater than -0
        greater = np.where((a == 0) & (b == 0), a + b, greater)
    return narrow(greater, dtype)


@quiet
def _min(a: Array, b: Array) -> Array:
    dtype = dtype_of(a)
    a, b = widen(a), widen(b)
    lesser = np.minimum(a, b)
    if dtype.is_float:
        lesser = np.where((a == 0) & (b == 0), -(-a - b), lesser)
    return narrow(lesser, dtype)


def _amount(a: Array, b: Array) -> tuple[Array, Array]:
    """A shift amount within the width, and whether the given one was beyond it."""
    bits = dtype_of(a).bits
    amount = _unsigned(b)
    beyond = amount >= bits
    return np.where(beyond, np.uint64(0), amount), beyond


def _shift_left(a: Array, b: Array) -> Array:
    amount, beyond = _amount(a, b)
    return narrow(np.where(beyond, np.uint64(0), _unsigned(a) << amount), dtype_of(a))


def _shift_right_logical(a: Array, b: Array) -> Array:
    amount, beyond = _amount(a, b)
    return narrow(np.where(beyond, np.uint64(0), _unsigned(a) >> amount), dtype_of(a))


def _shift_right_arithmetic(a: Array, b: Array) -> Array:
    dtype = dtype_of(a)
    amount, beyond = _amount(a, b)
    value = widen(a).astype(np.int64)
    if dtype.kind == "u":  # the top bit counts as the sign here
        value = value << (64 - dtype.bits) >> (64 - dtype.bits)
    steps = np.where(beyond, dtype.bits - 1, amount).astype(np.int64)
    return narrow(value >> steps, dtype)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@quiet
def _compare(a: Array, b: Array, *, direction: str) -> Array:
    return np.asarray(_COMPARE[direction](widen(a), widen(b)))


def _select(predicate: Array, a: Array, b: Array) -> Array:
    return np.where(predicate, a, b)


def _clamp(low: Array, x: Array, high: Array, *, numbers: bool = False) -> Array:
    return _min(_max(x, low), high)


def _convert(x: Array, *, dtype: DType) -> Array:
    return convert(x, dtype)


def _bitcast(x: Array, *, dtype: DType) -> Array:
    flat = np.ascontiguousarray(x).reshape(-1)
    return np.reshape(flat.view(dtype.numpy), x.shape)


REFERENCES: dict[str, Callable[..., Any]] = {
    "neg": _native(np.negative),
    "abs": _native(np.abs),
    "sign": _exact(_sign),
    "exp": _exact(np.exp),
    "exp2": _exact(np.exp2),
    "expm1": _exact(np.expm1),
    "log": _exact(np.log),
    "log1p": _exact(np.log1p),
    "sqrt": _native(np.sqrt),
    "rsqrt": _exact(_rsqrt),
    "cbrt": _exact(np.cbrt),
    "sin": _exact(np.sin),
    "cos": _exact(np.cos),
    "tan": _exact(np.tan),
    "asin": _exact(np.arcsin),
    "acos": _exact(np.arccos),
    "atan": _exact(np.arctan),
    "sinh": _exact(np.sinh),
    "cosh": _exact(np.cosh),
    "tanh": _exact(np.tanh),
    "asinh": _exact(np.arcsinh),
    "acosh": _exact(np.arccosh),
    "atanh": _exact(np.arctanh),
    "logistic": _exact(_logistic),
    "erf": _exact(_erf),
    "floor": _native(np.floor),
    "ceil": _native(np.ceil),
    "round_even": _native(np.rint),
    "round_away": _exact(_round_away),
    "trunc": _native(np.trunc),
    "is_finite": _test(np.isfinite),
    "is_nan": _test(np.isnan),
    "is_inf": _test(np.isinf),
    "not": _not,
    "popcount": _popcount,
    "count_leading_zeros": _count_leading_zeros,
    "add": _native(np.add),
    "sub": _native(np.subtract),
    "mul": _native(np.multiply),
    "div": _div,
    "rem": _rem,
    "pow": _pow,
    "atan2": _exact(np.arctan2),
    "max": _max,
    "min": _min,
    "and": _native(np.bitwise_and),
    "or": _native(np.bitwise_or),
    "xor": _native(np.bitwise_xor),
    "shift_left": _shift_left,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "shift_right_logical": _shift_right_logical,
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "bitcast": _bitcast,
}
