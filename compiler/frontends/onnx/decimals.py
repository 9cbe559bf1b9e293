"""Decimal numbers as the nearest floats, in integers: the method of Eisel and Lemire ("Number
Parsing at a Gigabyte per Second", 2021; that it is exact for every 64-bit `w` is shown in "Fast
Number Parsing Without Fallback", 2023). And the first digits of floats, with the same powers.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ingot.compiler.frontends.matrices.arrays import Array
from ingot.hal.spec import DType, dtype

__all__ = ["DIGITS", "first_digits", "nearest_float"]

_I64, _U64 = dtype("i64"), dtype("u64")
_LEAST, _GREATEST = -342, 308  # powers of ten that do not make every w 0, or every w infinite
_LAST = 331  # that makes the least f64 a number of DIGITS digits
DIGITS = 8


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


def first_digits(x: Array) -> tuple[Array, Array]:
    """Of finite f64 not below 0 the first DIGITS digits, of two the even ones, as u64, and the
    power of ten of the first of them; 0 and 0 of 0."""
    scope = x.scope
    bits = x.each("bitcast", dtype=_U64)
    field = bits.each("shift_right_logical", scope.like(52, bits).value)
    mantissa = bits & scope.like((1 << 52) - 1, bits)
    is_normal = field > 0
    mantissa = scope.where(is_normal, mantissa | scope.like(1 << 52, bits), mantissa)
    zeros = mantissa.each("count_leading_zeros")
    w = mantissa.each("shift_left", zeros.value)
    top = scope.where(is_normal, field, 1).convert(_I64) - zeros.convert(_I64) - 1012
    power = (top * 78913).each("shift_right_arithmetic", scope.like(18, top).value)
    (digits, whole), (fewer, _) = (_scaled(w, top, each) for each in (power, power + 1))
    fits = whole < 10**DIGITS
    power = scope.where(fits, power, power + 1)
    digits = scope.where(fits, digits, fewer)
    grown = digits >= 10**DIGITS
    digits = scope.where(grown, 10 ** (DIGITS - 1), digits)
    power = power + grown.convert(_I64)
    is_zero = mantissa.equals(0)
    return scope.where(is_zero, 0, digits), scope.where(is_zero, 0, power)


def _scaled(w: Array, top: Array, power: Array) -> tuple[Array, Array]:
    """w * 2**(top - 63) with the digit of `power` as the first of DIGITS: rounded, and cut. Only
    ties are within 2**20 units of the lower word around the half."""
    scope = w.scope
    tens = -power + (DIGITS - 1)
    high, low = _product(w, tens - _LEAST)
    binary = (tens * 217706).each("shift_right_arithmetic", scope.like(16, tens).value)
    shift = (-(top + binary) + 62).convert(_U64)
    whole = high.each("shift_right_logical", shift.value)
    rest = high - whole.each("shift_left", shift.value)
    half = scope.like(1, high).each("shift_left", (shift - 1).value)
    near = scope.like(1 << 20, low)
    is_tie = (rest.equals(half) & (low < near)) | (rest.equals(half - 1) & (low > -near))
    is_odd = (whole & scope.like(1, whole)).equals(1)
    up = ((rest >= half) & ~is_tie) | (is_tie & is_odd)
    return whole + up.convert(_U64), whole


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
    for q in range(_LEAST, _LAST + 1):
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
