"""Sorting, and the greatest elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.ordering import count_before, sort_with_places
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.frontends.torch.lowerings.arithmetic import promoted
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("aten.topk.default")
def top_k(
    c: Context, x: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    if not type_of(x).rank:
        return [x, c.full(0, _I64, ())]
    axis = c.axis(dim, x)
    return list(c.several("top_k", x, k=k, axis=axis, largest=largest, dtype=_I64))


@lowering("aten.sort.default")
def sort(c: Context, x: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    """Stable, as torch is where it is asked to be."""
    if not type_of(x).rank:
        return [x, c.full(0, _I64, ())]
    return list(sort_with_places(c, x, c.axis(dim, x), descending))


@lowering("aten.msort.default")
def sort_rows(c: Context, x: Value) -> Value:
    return sort(c, x, 0)[0]


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


@lowering("aten.kthvalue.default")
def kth(c: Context, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """The k-th least element of each line, and its place."""
    if not type_of(x).rank:
        return [x, c.full(0, _I64, ())]
    axis, shape = c.axis(dim, x), shape_of(x)
    parts = [c.sliced(each, axis, k - 1, k) for each in sort(c, x, dim)]
    return [
        each if keepdim else c.reshape(each, [*shape[:axis], *shape[axis + 1 :]]) for each in parts
    ]


def _greatest_so_far(kind: str) -> Callable[..., list[Value]]:
    def lower(c: Context, x: Value, dim: int) -> list[Value]:
        """What is the greatest or least so far, and its place, the last of equal ones."""
        if not type_of(x).rank:
            return [x, c.full(0, _I64, ())]
        axis = c.axis(dim, x)
        known: dict[str, Any] = {"axis": axis, "exclusive": False, "reverse": False}
        numbers = c.convert(x, "i8") if type_of(x).dtype.is_boolean else x
        best = c.op("cumulative", numbers, kind=kind, **known)
        is_best = c.compare("eq", numbers, best)
        if type_of(x).dtype.is_float:
            is_best = c.op("or", is_best, c.op("is_nan", x))
        places = c.op("iota", dtype=_I64, shape=shape_of(x), axis=axis)
        places = c.op("select", is_best, places, 0)
        return [c.convert(best, type_of(x).dtype), c.op("cumulative", places, kind="max", **known)]

    return lower


lowering("aten.cummax.default")(_greatest_so_far("max"))
lowering("aten.cummin.default")(_greatest_so_far("min"))


@lowering("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def search(
    c: Context, ordered: Value, values: Scalar, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    """How many of each line [..., n] come before each value [..., m]."""
    if sorter is not None:
        ordered = c.gather_along(ordered, sorter, type_of(ordered).rank - 1, "check")
    element = promoted(ordered, values)
    wanted = c.scalar(values, element)
    length = shape_of(wanted)[-1] if type_of(wanted).rank else 1
    wanted = c.reshape(wanted, (*shape_of(wanted)[:-1], length))
    direction = "gt" if right or side == "right" else "ge"  # NaN stands behind all numbers

    def before(a: Value, b: Value) -> Value:
        return c.op("not", c.compare(direction, a, b))

    places = count_before(c, c.convert(ordered, element), wanted, before)
    return c.reshape(c.convert(places, c.dtype), c.shape)


@lowering("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucket(c: Context, values: Scalar, ordered: Value, **named: Any) -> Value:
    return search(c, ordered, values, **named)
