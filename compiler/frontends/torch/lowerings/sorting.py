"""Sorting, and the greatest elements."""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("aten.topk.default")
def top_k(
    c: Context, x: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    axis = c.axis(dim, x)
    return list(c.several("top_k", x, k=k, axis=axis, largest=largest, dtype=_I64))


@lowering("aten.sort.default")
def sort(c: Context, x: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    """Stable, as torch is where it is asked to be."""
    if not type_of(x).rank:
        return [x, c.full(0, _I64, ())]
    axis = c.axis(dim, x)
    places = c.op("iota", dtype=_I64, shape=shape_of(x), axis=axis)
    block = Block([ScalarType(type_of(each).dtype) for each in (x, places) for _ in range(2)])
    inner = Builder(block)
    a, b = block.arguments[:2]
    inner.yield_(_before(inner, b, a) if descending else _before(inner, a, b))
    return list(c.several("sort", x, places, axis=axis, regions=[Region([block])]))


def _before(inner: Builder, a: Value, b: Value) -> Value:
    """a < b, with NaN behind all other numbers."""
    element = a.type.dtype  # type: ignore[union-attr]
    if element.is_boolean:
        return inner.value("and", inner.value("not", a), b)
    less = inner.value("compare", a, b, direction="lt")
    if not element.is_float:
        return less
    only_b = inner.value("and", inner.value("not", inner.value("is_nan", a)),
                         inner.value("is_nan", b))  # fmt: skip
    return inner.value("or", less, only_b)


@lowering("aten.sort.stable")
def stable_sort(
    c: Context, x: Value, *, stable: Any = None, dim: int = -1, descending: bool = False
) -> list[Value]:
    return sort(c, x, dim, descending)


@lowering("aten.argsort.default", "aten.argsort.stable")
def arg_sort(
    c: Context, x: Value, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> Value:
    return sort(c, x, dim, descending)[1]
