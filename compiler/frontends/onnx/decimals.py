"""Decimal numbers as the nearest floats, in integers: the method of Eisel and Lemire ("Number
Parsing at a Gigabyte per Second", 2021; that it is exact for every 64-bit `w` is shown in "Fast
Number Parsing Without Fallback", 2023).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ingot.compiler.frontends.matrices.arrays import Array
from ingot.hal.spec import DType, dtype

__all__ = ["nearest_float"]

_I64, _U64 = dtype("i64"), dtype("u64")
_LEAST, _GREATEST = -342, 308  # powers of ten that do not make every w 0, or every w infinite


def nearest_float(w: Array, q: Array, element: DType) -> Array:
    """w * 10**q, u64 and i64, as f32 or f64: the nearest one, of two the even one."""
    scope = w.scope
    digits, ties = {32: (23, (-17, 10)), 64: (52, (-4, 23))}[element.bits]
    bias = (1 << element.bits - digits - 2) - 1
    power = q.greater_of(_LEAST)
    power = scope.where(power > _GREATEST, _GREATEST, power)
    zeros = w.each("count_leading_zeros")
    high, low = _product(w.each("shift_left", zeros.value), power - _LEAST)
    upper = high.each("shift_right_logical", scope.like(63, high).value)
    shift = upper + (64 - digits - 3)
    mantissa = high.each("shift_right_logical", shift.value)
    exponent = (power * 217706).each("shift_right_arithmetic", scope.like(16, power).value)
    exponent = exponent + 63 + upper.convert(_I64) - zeros.convert(_I64) + bias

    halfway = (low <= 1) & (q >= ties[0]) & (q <= ties[1])
    halfway = halfway & (mantissa & scope.like(3, mantissa)).equals(1)
    halfway = halfway & mantissa.each("shift_left", shift.value).equals(high)
    tiny = exponent <= 0
    less = (-exponent + 1).greater_of(0).convert(_U64)
    small = _rounded(mantissa.each("shift_right_logical", less.value))
    normal = _rounded(scope.where(halfway, mantissa - 1, mantissa))
    grown = normal >= 2 << digits
    normal = scope.where(grown, 1 << digits, normal)
    carried = scope.where(tiny, small >= 1 << digits, grown).convert(_I64)
    exponent = exponent.greater_of(0) + carried
    fraction = scope.where(tiny, small, normal) & scope.like((1 << digits) - 1, w)

    infinite = (exponent >= 2 * bias + 1) | (q > _GREATEST)
    exponent = scope.where(infinite, 2 * bias + 1, exponent)
    fraction = scope.where(infinite, 0, fraction)
    bits = exponent.convert(_U64).each("shift_left", scope.like(digits, w).value) | fraction
    bits = scope.where(w.equals(0) | (q < _LEAST), 0, bits)
    whole = bits.convert(dtype(f"u{element.bits}"))
    return whole.each("bitcast", dtype=element)


def _rounded(mantissa: Array) -> Array:
    """Half of it, up where it is odd."""
    one = mantissa.scope.like(1, mantissa)
    return (mantissa + (mantissa & one)).each("shift_right_logical", one.value)


def _product(w: Array, place: Array) -> tuple[Array, Array]:
    """The upper 128 bits of w times a power of five, as two words."""
    scope = w.scope
    high_power, low_power = (
        scope.real(scope.builder.constant(column, _U64)).take(place, 0) for column in _powers()
    )
    high, low = _wide(w, high_power)
    carried, _ = _wide(w, low_power)
    low = low + carried
    return high + (carried > low).convert(_U64), low


def _wide(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b as two words."""
    scope = a.scope
    half, mask = scope.like(32, a).value, scope.like(0xFFFFFFFF, a)
    a1, b1 = (each.each("shift_right_logical", half) for each in (a, b))
    a0, b0 = a & mask, b & mask
    lowest, first, second = a0 * b0, a1 * b0, a0 * b1
    middle = lowest.each("shift_right_logical", half) + (first & mask) + (second & mask)
    high = a1 * b1 + first.each("shift_right_logical", half)
    high = high + second.each("shift_right_logical", half)
    return high + middle.each("shift_right_logical", half), a * b


@cache
def _powers() -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint64]], ...]:
    """The first 128 bits of 5**q: upper and lower words."""
    values = []
    for q in range(_LEAST, _GREATEST + 1):
        power = 5 ** abs(q)
        bits = power.bit_length()
        if q >= 0:
            values.append(power << 128 - bits if bits <= 128 else power >> bits - 128)
        elif q >= -27:  # what is exact with the powers that fit into a word is rounded up
            values.append((1 << bits + 127) // power + 1)
        else:
            values.append((1 << bits + 127) // power)
    words = ([each >> 64 for each in values], [each & (1 << 64) - 1 for each in values])
    return tuple(np.array(each, np.uint64) for each in words)
