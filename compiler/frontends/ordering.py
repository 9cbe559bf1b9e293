"""Sorting along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import dtype

__all__ = ["sort_by", "sort_with_places"]

_I64 = dtype("i64")


def sort_with_places(c: Emitter, x: Value, axis: int, descending: bool) -> tuple[Value, Value]:
    """x sorted along an axis, stable, with NaN behind all other numbers (in front of them, if
    `descending`), and where each element was."""
    values, order = sort_by(c, [x], axis, descending)
    return values, order


def sort_by(c: Emitter, keys: Sequence[Value], axis: int, descending: bool) -> tuple[Value, ...]:
    """As `sort_with_places`, by several keys, of which one decides where those before are equal."""
    places = c.op("iota", dtype=_I64, shape=shape_of(keys[0]), axis=axis)
    block = Block([ScalarType(type_of(each).dtype) for each in (*keys, places) for _ in range(2)])
    inner, given = Builder(block), block.arguments
    pairs = [(given[at], given[at + 1]) for at in range(0, 2 * len(keys), 2)]
    if descending:
        pairs = [(b, a) for a, b in pairs]
    before = _before(inner, *pairs[-1])
    for a, b in reversed(pairs[:-1]):
        before = inner.value("and", inner.value("not", _before(inner, b, a)), before)
        before = inner.value("or", _before(inner, a, b), before)
    inner.yield_(before)
    return tuple(c.several("sort", *keys, places, axis=axis, regions=[Region([block])]))


def _before(inner: Builder, a: Value, b: Value) -> Value:
    """a < b, with NaN behind all other numbers."""
    element = a.dtype
    if element.is_boolean:
        return inner.value("and", inner.value("not", a), b)
    less = inner.value("compare", a, b, direction="lt")
    if not element.is_float:
        return less
    only_b = inner.value("and", inner.value("not", inner.value("is_nan", a)),
                         inner.value("is_nan", b))  # fmt: skip
    return inner.value("or", less, only_b)
