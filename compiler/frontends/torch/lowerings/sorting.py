"""Sorting, and the greatest elements."""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.emitter import type_of
from ingot.compiler.frontends.ordering import sort_with_places
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value
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
    return list(sort_with_places(c, x, c.axis(dim, x), descending))


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
