"""Numbers written as decimals: read from strings, and as strings."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from ingot.compiler.frontends.matrices.arrays import Array, Scope
from ingot.compiler.frontends.onnx.decimals import DIGITS, first_digits, nearest_float
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.strings import Strings, longest, not_empty
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import DType, dtype

__all__ = [
    "INFINITY",
    "INTEGER",
    "NAN",
    "NUMBER",
    "as_float",
    "as_integer",
    "read_decimals",
    "write_numbers",
]

_BLANK = r"[\t-\r ]*"
INTEGER = rf"{_BLANK}[+-]?[0-9]+{_BLANK}"
NUMBER = rf"{_BLANK}[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?{_BLANK}"
INFINITY = rf"(?i){_BLANK}[+-]?inf(inity)?{_BLANK}"
NAN = rf"(?i){_BLANK}[+-]?nan{_BLANK}"
"""Patterns of strings that are read, and those of floats that have no digits."""

_I1, _I64, _U8, _U64 = dtype("i1"), dtype("i64"), dtype("u8"), dtype("u64")
_MOST_EXPONENT = 1 << 20
_GREATEST = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class Decimal:
    """Per string: -1**negative * digits * 10**scale, where `lost` says that digits behind are left
    out that are not all 0, and `full` that any are. `exponent` is the one that is written."""

    digits: Array
    scale: Array
    exponent: Array
    negative: Array
    below: Array  # the exponent is negative
    behind: Array  # the point has come
    raised: Array  # the exponent has begun
    full: Array
    lost: Array

    @property
    def power(self) -> Array:
        """Of ten."""
        exponent = self.exponent.scope.where(self.below, -self.exponent, self.exponent)
        return self.scale + exponent


def read_decimals(node: Node, x: Strings) -> Decimal:
    """The strings [n], which are numbers; what comes of others means nothing."""
    scope = Scope(node.builder)
    starts, lengths, data = (
        scope.real(each)
        for each in (node.flat(x.starts), node.flat(x.lengths), not_empty(node, x.data))
    )
    zero, no = (scope.full(0, element, starts.shape) for element in (_I64, _I1))
    first = Decimal(zero.convert(_U64), zero, zero, no, no, no, no, no, no)
    names = [field.name for field in fields(Decimal)]

    def step(index: Array, *carried: Array) -> list[Array]:
        byte = data.take(starts + index, 0)
        byte = scope.where((lengths - index) > 0, byte, ord(" "))
        after = _read_byte(Decimal(*carried), byte)
        return [getattr(after, name) for name in names]

    initial = [getattr(first, name) for name in names]
    count = scope.real(longest(node, lengths.value))
    return Decimal(*scope.loop(count, initial, step))


def _read_byte(d: Decimal, byte: Array) -> Decimal:
    scope = byte.scope
    digit = byte - ord("0")
    is_digit, digit = digit < 10, digit.convert(_U64)
    counts = is_digit & ~d.raised
    tenth = _GREATEST // 10
    room = (d.digits < tenth) | (d.digits.equals(tenth) & (digit <= _GREATEST % 10))
    kept = counts & room & ~d.full
    dropped = counts & ~kept
    minus = byte.equals(ord("-"))
    exponent = d.exponent * 10 + digit.convert(_I64)
    exponent = scope.where(exponent > _MOST_EXPONENT, _MOST_EXPONENT, exponent)
    scale = d.scale + (dropped & ~d.behind).convert(_I64) - (kept & d.behind).convert(_I64)
    return Decimal(
        digits=scope.where(kept, d.digits * 10 + digit, d.digits),
        scale=scale,
        exponent=scope.where(is_digit & d.raised, exponent, d.exponent),
        negative=d.negative | (minus & ~d.raised),
        below=d.below | (minus & d.raised),
        behind=d.behind | byte.equals(ord(".")),
        raised=d.raised | byte.equals(ord("e")) | byte.equals(ord("E")),
        full=d.full | dropped,
        lost=d.lost | (dropped & (digit > 0)),
    )


def as_integer(d: Decimal, element: DType) -> tuple[Array, Array]:
    """What has the digits of an integer as one, and whether it is in the range."""
    scope = d.digits.scope
    limits = np.iinfo(element.numpy)
    greatest = scope.full(int(limits.max), _U64, d.digits.shape)
    greatest = scope.where(d.negative, -int(limits.min), greatest)
    signed = scope.where(d.negative, scope.like(0, d.digits) - d.digits, d.digits)
    return signed.convert(element), ~d.full & (d.digits <= greatest)


def as_float(d: Decimal, element: DType, infinite: Value) -> tuple[Array, Array]:
    """The nearest float, and whether the digits that were read tell it."""
    scope = d.digits.scope
    power = d.power
    found, above = (nearest_float(each, power, element) for each in (d.digits, d.digits + 1))
    known = ~d.lost | found.equals(above)
    found = scope.where(scope.real(infinite), math.inf, found)
    return scope.where(d.negative, -found, found), known


def write_numbers(node: Node, x: Value) -> Strings:
    """Integers as decimals, i1 as 0 and 1, and floats with up to DIGITS digits, as C's "%.8g" has
    them, which onnxruntime writes; NaN, INF and -INF."""
    return _write_floats(node, x) if type_of(x).dtype.is_float else _write_integers(node, x)


def _write_integers(node: Node, x: Value) -> Strings:
    element = type_of(x).dtype
    scope = Scope(node.builder)
    shape, given = shape_of(x), scope.real(node.flat(x))
    (count,) = given.shape
    wide = given.convert(_U64 if element.kind == "u" else _I64)
    negative = wide < 0
    digits = wide.convert(_U64)
    digits = scope.where(negative, scope.like(0, digits) - digits, digits)
    powers = np.array([10**each for each in range(19, -1, -1)], np.uint64)
    power = scope.real(node.constant(powers, "u64")).broadcast_to((count, 20))
    parts = digits.unsqueeze(1).broadcast_to((count, 20)).each("div", power.value)
    last = parts.each("rem", scope.like(10, parts).value).convert(_U8) + ord("0")
    lengths = (parts > 0).convert(_I64).sum(1).greater_of(1)
    sign = scope.full(ord("-"), _U8, (count, 1))
    place = scope.count((count, 21), 1)
    characters = scope.concatenate([sign, last], 1)
    is_sign = place.equals((scope.like(20, lengths) - lengths).unsqueeze(1))
    characters = scope.where(is_sign, ord("-"), characters)
    lengths = lengths + negative.convert(_I64)
    rows = scope.count((count,), 0)
    starts = (rows + 1) * 21 - lengths
    data = node.flat(characters.value)
    return Strings(node.reshape(starts.value, shape), node.reshape(lengths.value, shape), data)


_WIDTH = 16  # characters of "-1.2345679e-324", and one more


def _write_floats(node: Node, x: Value) -> Strings:
    shape = shape_of(x)
    scope = Scope(node.builder)
    wide = node.convert(node.flat(x), "f64")
    bits = scope.real(node.op("bitcast", wide, dtype=_U64))
    negative = bits.each("shift_right_logical", scope.like(63, bits).value).convert(_I1)
    given = scope.real(wide)
    finite = scope.real(node.op("is_finite", wide))
    digits, power = first_digits(scope.where(finite, given, 0).each("abs"))
    characters, lengths = _decimal(digits, power)
    is_nan = scope.real(node.op("is_nan", wide))
    for texts, chosen in (("NaN", is_nan), ("INF", ~finite & ~is_nan)):
        codes = scope.real(node.constant([*texts.encode().ljust(_WIDTH)], "u8"))
        codes = codes.unsqueeze(0).broadcast_to(characters.shape)
        characters = scope.where(chosen.unsqueeze(1).broadcast_to(codes.shape), codes, characters)
        lengths = scope.where(chosen, 3, lengths)
    (count,) = given.shape
    signed = (negative & ~is_nan).convert(_I64)
    sign = scope.full(ord("-"), _U8, (count, 1))
    data = scope.concatenate([sign, characters], 1)
    starts = scope.count((count,), 0) * (_WIDTH + 1) - signed + 1
    ends = [node.reshape(each.value, shape) for each in (starts, lengths + signed)]
    return Strings(ends[0], ends[1], node.flat(data.value))


def _decimal(digits: Array, power: Array) -> tuple[Array, Array]:
    """u8[n, _WIDTH] and how many are used: DIGITS digits, of which the first counts 10**power, as
    digits with a point, or with an exponent behind one that is large or small."""
    scope = digits.scope
    (count,) = digits.shape
    powers = scope.real(scope.builder.constant([10**each for each in range(DIGITS)][::-1], _U64))
    columns = digits.unsqueeze(1).broadcast_to((count, DIGITS))
    columns = columns.each("div", powers.unsqueeze(0).broadcast_to((count, DIGITS)).value)
    columns = columns.each("rem", scope.like(10, columns).value)
    place = scope.count((count, DIGITS), 1)
    kept = scope.where(columns > 0, place + 1, 1).max(1)

    small, large = power < -4, power >= DIGITS
    is_short = small | large  # written with an exponent
    inner = scope.where(is_short, 0, power)
    lead = (-inner).greater_of(0)
    before = (inner + 1).greater_of(1)
    total = (lead + kept).greater_of(before)
    body = total + (total > before).convert(_I64)

    def spread(x: Array) -> Array:
        return x.unsqueeze(1).broadcast_to((count, _WIDTH))

    at = scope.count((count, _WIDTH), 1)
    behind = at > spread(before)
    digit_at = at - behind.convert(_I64) - spread(lead)
    inside = scope.where(digit_at > DIGITS - 1, DIGITS - 1, digit_at.greater_of(0))
    digit = spread(digits).each("div", powers.take(inside, 0).value)
    digit = digit.each("rem", scope.like(10, digit).value).convert(_I64)
    digit = scope.where(digit_at < 0, 0, digit) + ord("0")
    characters = scope.where(at.equals(spread(before)), ord("."), digit)
    size = scope.where(power < 0, -power, power)
    width = (size >= 100).convert(_I64) + 2
    tail = at - spread(body)
    divisor = scope.where(tail.equals(spread(width) - 1), 100, scope.like(10, tail))
    divisor = scope.where(tail.equals(spread(width) + 1), 1, divisor)
    number = spread(size).each("div", divisor.value)
    number = number.each("rem", scope.like(10, number).value) + ord("0")
    sign = scope.where(spread(power < 0), ord("-"), scope.like(ord("+"), tail))
    number = scope.where(tail.equals(1), sign, number)
    number = scope.where(tail.equals(0), ord("e"), number)
    characters = scope.where(spread(is_short) & (tail >= 0), number, characters)
    lengths = body + scope.where(is_short, width + 2, 0)
    return characters.convert(_U8), lengths
