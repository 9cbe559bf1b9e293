"""Pooling over windows of images."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.frontends.tflite.lowerings.contractions import same_padding
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []


def _pooled(c: Context, x: Value, kind: str) -> Value:
    options = c.options
    window = (options.filter_height, options.filter_width)
    strides = (options.stride_h, options.stride_w)
    if min(*window, *strides) < 1:
        raise UnsupportedNode(f"its window is {window}, its strides {strides}: fix them")
    pairs: list[tuple[Dim, Dim]] = [(0, 0)] * 2
    if not options.padding:
        pairs = same_padding(shape_of(x)[1:3], window, strides, (1, 1))
    return c.op(
        "reduce_window", x, kind=kind, window=(1, *window, 1), strides=(1, *strides, 1),
        padding=((0, 0), *pairs, (0, 0)), base_dilation=(1,) * 4, window_dilation=(1,) * 4,
    )  # fmt: skip


@lowering("MAX_POOL_2D", codes=0)
def max_pool(c: Context, x: Value) -> Value:
    return _pooled(c, x, "max")


@lowering("AVERAGE_POOL_2D")
def average_pool(c: Context, x: Value) -> Value:
    """Padding does not count."""
    total = _pooled(c, x, "add")
    if c.options.padding:
        size = c.options.filter_height * c.options.filter_width
        return c.op("div", total, size)
    ones = c.full(1, type_of(x).dtype, (1, *shape_of(x)[1:3], 1))
    return c.op("div", *c.broadcast(total, _pooled(c, ones, "add")))


@lowering("L2_POOL_2D")
def l2_pool(c: Context, x: Value) -> Value:
    return c.op("sqrt", average_pool(c, c.op("mul", x, x)))
