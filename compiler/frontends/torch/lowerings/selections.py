"""Bags of rows, elements by a mask or by strides, and distances between rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import scatter_elements, scatter_rows
from ingot.compiler.frontends.normalizing import narrow, vector_norm, widen
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.frontends.torch.memory import strided_places
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")
_SUM, _MEAN, _GREATEST = range(3)  # modes of bags


@lowering("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default",
          "aten.embedding_bag.padding_idx", "aten.embedding_bag.default")  # fmt: skip
def embedding_bag(
    c: Context, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False,
    mode: int = _SUM, sparse: bool = False, per_sample_weights: Value | None = None,
    include_last_offset: bool = False, padding_idx: int | None = -1,
) -> list[Value | None]:  # fmt: skip
    """Rows of `weight` at i[n], of which bag number b begins at offsets[b], combined: [b, d].

    The bags' sizes and places, which gradients need, are not given.
    """
    count, width = shape_of(indices)[0], shape_of(weight)[1]
    bags = shape_of(offsets)[0] - (1 if include_last_offset else 0)
    bag = _bag_of_each(c, c.sliced(offsets, 0, 0, bags), count)
    rows = widen(c, c.op("take", weight, indices, axis=0, mode="check"))
    if per_sample_weights is not None:
        factor = c.convert(per_sample_weights, type_of(rows).dtype)
        spread = c.op("broadcast", factor, shape=shape_of(rows), dimensions=(0,))
        rows = c.op("mul", rows, spread)
    if padding_idx is not None and padding_idx >= 0:  # its rows go to a bag that does not exist
        is_padding = c.compare("eq", indices, padding_idx)
        bag = c.op("select", is_padding, -1, bag)
    ones = c.full(1, type_of(rows).dtype, (count,))
    sizes = _summed(c, ones, bag, (bags,), "add", 0)
    kind, start = ("max", -math.inf) if mode == _GREATEST else ("add", 0)
    found = _summed(c, rows, bag, (bags, width), kind, start)
    spread = c.op("broadcast", sizes, shape=(bags, width), dimensions=(0,))
    if mode == _GREATEST:
        empty = c.compare("eq", spread, 0)
        found = c.op("select", empty, 0, found)
    elif mode == _MEAN:
        found = c.op("div", found, c.op("max", spread, 1))
    return [narrow(c, found, weight), None, None, None]


def _bag_of_each(c: Context, offsets: Value, count: Dim) -> Value:
    """Which bag each of `count` places is in: i64[count]."""
    begins = _summed(
        c, c.full(1, _I64, shape_of(offsets)), c.convert(offsets, _I64), (count,), "add", 0
    )
    sums = c.op("cumulative", begins, axis=0, kind="add")
    return c.op("sub", sums, 1)


def _summed(
    c: Context, rows: Value, places: Value, shape: tuple[Dim, ...], kind: str, start: float
) -> Value:
    """Rows combined by the places [n] that they go to; those outside are left out."""
    return scatter_rows(c, c.full(start, type_of(rows).dtype, shape), places, rows, kind)


@lowering("aten.masked_scatter.default")
def masked_scatter(c: Context, x: Value, mask: Value, source: Value) -> Value:
    """The elements of `source`, in order, where the mask holds."""
    wide, chosen = c.broadcast(x, c.convert(mask, "i1"))
    shape = shape_of(wide)
    flat = c.reshape(chosen, (dims.product(shape),))
    sums = c.op("cumulative", c.convert(flat, _I64), axis=0, kind="add", exclusive=True,
                reverse=False)  # fmt: skip
    places = c.op("select", flat, sums, 0)
    values = c.convert(c.flat(source), type_of(x).dtype)
    if shape_of(values) == (0,):
        return wide
    taken = c.reshape(c.op("take", values, places, axis=0, mode="check"), shape)
    return c.op("select", chosen, taken, wide)


@lowering("aten.as_strided.default", view=False)
@lowering("aten.as_strided_copy.default")
def as_strided(
    c: Context, x: Value, size: list[Dim], stride: list[Dim], storage_offset: Dim | None = None
) -> Value:
    """The elements of x at sums of indices times strides, where x lies row by row."""
    places = _strided(c, x, size, stride, storage_offset)
    return c.op("take", c.flat(x), places, axis=0, mode="check")


@lowering("aten.as_strided_scatter.default")
def as_strided_scatter(
    c: Context, x: Value, source: Value, size: list[Dim], stride: list[Dim],
    storage_offset: Dim | None = None,
) -> Value:  # fmt: skip
    """x with `source` at the places that `as_strided` reads."""
    places = c.flat(_strided(c, x, size, stride, storage_offset))
    written = scatter_elements(c, c.flat(x), 0, places, c.flat(source), "set")
    return c.reshape(written, shape_of(x))


def _strided(
    c: Context, x: Value, size: list[Dim], stride: list[Dim], storage_offset: Dim | None
) -> Value:
    """Places in x, the first operand, counted row by row."""
    strides, first = c.layout(0)
    if not is_contiguous(c, x):
        raise UnsupportedNode(
            f"it reads memory with the strides {strides} of {x.type}: call contiguous() before"
        )
    start = (first if storage_offset is None else storage_offset) - first
    return strided_places(c, start, size, stride)


@lowering("aten.sym_is_contiguous.default", "aten.is_contiguous.default")
def is_contiguous(c: Context, x: Value, *_: Any, **__: Any) -> bool:
    """Whether x lies row by row."""
    shape = shape_of(x)
    rows = [dims.product(shape[axis + 1 :]) for axis in range(len(shape))]
    pairs = zip(c.layout(0)[0], rows, shape, strict=True)
    return all(own == row for own, row, dim in pairs if dim != 1)


@lowering("aten.sym_stride.int", "aten.stride.int")
def stride(c: Context, x: Value, axis: int) -> Dim:
    return c.layout(0)[0][c.axis(axis, x)]


@lowering("aten.sym_storage_offset.default", "aten.storage_offset.default")
def offset(c: Context, x: Value) -> Dim:
    return c.layout(0)[1]


def _distances(c: Context, difference: Value, p: float) -> Value:
    """The p-norm over the last axis."""
    return vector_norm(c, difference, [type_of(difference).rank - 1], p, keep=False)


@lowering("aten.embedding_renorm.default")
def shorten_rows(
    c: Context, weight: Value, indices: Value, max_norm: float, norm_type: float
) -> Value:
    """The table with the rows that are read no longer than `max_norm`."""
    places, (count, _) = c.flat(indices), shape_of(weight)
    ones = c.full(1, _I64, shape_of(places))
    reads = scatter_elements(c, c.full(0, _I64, (count,)), 0, places, ones, "set")
    length = _distances(c, widen(c, weight), norm_type)
    limit = c.fill(max_norm, like=length)
    is_long = c.op("and", c.convert(reads, "i1"), c.compare("gt", length, limit))
    ratio = c.op("div", limit, c.op("add", length, 1e-7))
    ratio = c.op("select", is_long, ratio, 1)
    spread = c.op("broadcast", ratio, shape=shape_of(weight), dimensions=(0,))
    return narrow(c, c.op("mul", widen(c, weight), spread), weight)


@lowering("aten.dist.default")
def distance(c: Context, a: Value, b: Value, p: float = 2) -> Value:
    difference = c.op("sub", *c.broadcast(widen(c, a), widen(c, b)))
    return narrow(c, _distances(c, c.flat(difference), p), a)


@lowering("aten._cdist_forward.default", "aten.cdist.default")
def distances(c: Context, a: Value, b: Value, p: float = 2.0, compute_mode: Any = None) -> Value:
    """[..., m, k] and [..., n, k]: [..., m, n]."""
    *first, rows, width = shape_of(a)
    *second, columns, _ = shape_of(b)
    left = c.reshape(widen(c, a), (*first, rows, 1, width))
    right = c.reshape(widen(c, b), (*second, 1, columns, width))
    return narrow(c, _distances(c, c.op("sub", *c.broadcast(left, right)), p), a)


@lowering("aten._pdist_forward.default", "aten.pdist.default")
def distances_of_pairs(c: Context, x: Value, p: float = 2.0) -> Value:
    """[n, k]: [n * (n - 1) / 2], in the order (0, 1), (0, 2), ..."""
    count = shape_of(x)[0]
    if not isinstance(count, int):
        raise UnsupportedNode("the count of rows is symbolic, which is not supported: fix it")
    wide = widen(c, x)
    pairs = np.triu_indices(count, 1)
    a, b = (
        c.op("take", wide, c.builder.constant(each.astype(np.int64)), axis=0, mode="check")
        for each in pairs
    )
    return narrow(c, _distances(c, c.op("sub", a, b), p), x)
