"""Sorting along one axis."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import dtype

__all__ = ["sort_with_places"]

_I64 = dtype("i64")


def sort_with_places(c: Emitter, x: Value, axis: int, descending: bool) -> tuple[Value, Value]:
    """x sorted along an axis, stable, with NaN behind all other numbers (in front of them, if
    `descending`), and where each element was."""
    places = c.op("iota", dtype=_I64, shape=shape_of(x), axis=axis)
    block = Block([ScalarType(type_of(each).dtype) for each in (x, places) for _ in range(2)])
    inner = Builder(block)
    a, b = block.arguments[:2]
    inner.yield_(_before(inner, b, a) if descending else _before(inner, a, b))
    values, order = c.several("sort", x, places, axis=axis, regions=[Region([block])])
    return values, order


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
