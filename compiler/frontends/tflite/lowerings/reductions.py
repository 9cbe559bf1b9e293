"""Reductions, sums along an axis and places of extremes."""

from __future__ import annotations

import math

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import scatter_rows
from ingot.compiler.frontends.normalizing import mean as mean_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.ir import Value, dims

__all__: list[str] = []

_KINDS = {
    "SUM": "add",
    "REDUCE_PROD": "mul",
    "REDUCE_MAX": "max",
    "REDUCE_MIN": "min",
    "REDUCE_ANY": "or",
    "REDUCE_ALL": "and",
}


def _axes(c: Context, x: Value, axes: Value) -> list[int]:
    """The axes to reduce; a scalar has none, whatever is listed."""
    if not type_of(x).rank:
        return []
    return sorted({c.axis(each, x) for each in c.known(axes, "axes")})


def _register(name: str, kind: str) -> None:
    def reduce(c: Context, x: Value, axes: Value) -> Value:
        return c.reduce(x, _axes(c, x, axes), kind, bool(c.options.keep_dims))

    lowering(name)(reduce)


for _name, _kind in _KINDS.items():
    _register(_name, _kind)


@lowering("MEAN")
def mean(c: Context, x: Value, axes: Value) -> Value:
    reduced = _axes(c, x, axes)
    if not reduced:
        return x
    result = mean_of(c, x, reduced)
    return c.keep_axes(result, shape_of(x), reduced) if c.options.keep_dims else result


@lowering("ARG_MAX", "ARG_MIN")
def arg_extreme(c: Context, x: Value, axis: Value) -> Value:
    (place,) = c.known(axis, "axis")
    op = c.operator.name.lower()
    return c.op(op, x, axis=c.axis(place, x), dtype=c.outputs[0].dtype)


@lowering("CUMSUM")
def cumulative_sum(c: Context, x: Value, axis: Value) -> Value:
    (place,) = c.known(axis, "axis")
    flags = {"exclusive": bool(c.options.exclusive), "reverse": bool(c.options.reverse)}
    return c.op("cumulative", x, axis=c.axis(place, x), kind="add", **flags)


@lowering("REDUCE_WINDOW")
def reduce_window(c: Context, x: Value, start: Value, *given: Value) -> Value:
    window, strides, dilation = (tuple(c.known(each, "window")) for each in given)
    kind = {1: "add", 2: "mul", 3: "min", 4: "max", 5: "and", 6: "or"}.get(
        c.options.reduce_function
    )
    if kind is None:
        raise UnsupportedNode("its function is not known")
    rank = type_of(x).rank
    total = c.op(
        "reduce_window", x, kind=kind, window=window, strides=strides,
        padding=((0, 0),) * rank, base_dilation=(1,) * rank, window_dilation=dilation,
    )  # fmt: skip
    return c.op(kind, *c.broadcast(total, start))


@lowering("SEGMENT_SUM")
def segment_sum(c: Context, x: Value, segments: Value) -> Value:
    """Rows of equal numbers, which rise; as many results as the last one says."""
    known = c.walker.amounts.of(segments)
    if known is not None and known.size:
        count = c.size_of(known.reshape(-1)[-1] + 1)
    else:
        last = c.reshape(c.reduce(segments, [0], "max"), ())
        count = c.size_of(c.op("add", last, 1), "the count of segments")
    return _segments(c, x, segments, count, "add", 0)


_KINDS = {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}


@lowering("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX",
          "UNSORTED_SEGMENT_MIN")  # fmt: skip
def unsorted_segments(c: Context, x: Value, segments: Value, count: Value) -> Value:
    kind = _KINDS[c.operator.name.rpartition("_")[2]]
    (size,) = c.dims(count, "the count of segments")
    start = identity(kind, type_of(x).dtype)
    if math.isinf(start):  # there, it is the greatest finite number
        start = math.copysign(3.4028234663852886e38, start)
    return _segments(c, x, segments, size, kind, start)


def _segments(
    c: Context, x: Value, segments: Value, count: dims.Dim, kind: str, start: float
) -> Value:
    places, tail = c.flat(segments), shape_of(x)[type_of(segments).rank :]
    rows = c.reshape(x, (*shape_of(places), *tail))
    return scatter_rows(c, c.full(start, type_of(x).dtype, (count, *tail)), places, rows, kind)
