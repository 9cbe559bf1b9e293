"""Numbers written as decimals: read from strings, and integers as strings."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from ingot.compiler.frontends.matrices.arrays import Array, Scope
from ingot.compiler.frontends.onnx.decimals import nearest_float
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.strings import flat, longest, not_empty
from ingot.compiler.frontends.onnx.structures import Strings
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
    "write_integers",
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
        for each in (flat(node, x.starts), flat(node, x.lengths), not_empty(node, x.data))
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


def write_integers(node: Node, x: Value) -> Strings:
    """Integers as decimals, i1 as 0 and 1. UnsupportedNode: they are no integers."""
    element = type_of(x).dtype
    unsupported(
        not (element.is_integer or element.is_boolean),
        f"casts {element} to strings, as only integers and i1 can be: give numbers as results",
    )
    scope = Scope(node.builder)
    shape, given = shape_of(x), scope.real(flat(node, x))
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
    data = flat(node, characters.value)
    return Strings(node.reshape(starts.value, shape), node.reshape(lengths.value, shape), data)
