"""Pooling over windows of images."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of
from ingot.compiler.frontends.pooling import Window, averaged, pooled, same_padding
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


def _window(c: Context, x: Value) -> Window:
    options = c.options
    sizes = (options.filter_height, options.filter_width)
    strides = (options.stride_h, options.stride_w)
    if min(*sizes, *strides) < 1:
        raise UnsupportedNode(f"its window is {sizes}, its strides {strides}: fix them")
    is_valid, ones = bool(options.padding), (1, 1)
    pairs = ((0, 0),) * 2 if is_valid else same_padding(shape_of(x)[1:3], sizes, strides, ones)
    return Window(sizes, strides, pairs, ones)


@lowering("MAX_POOL_2D", codes=0)
def max_pool(c: Context, x: Value) -> Value:
    return pooled(c, x, "max", _window(c, x), first=1)


@lowering("AVERAGE_POOL_2D")
def average_pool(c: Context, x: Value) -> Value:
    return averaged(c, x, _window(c, x), first=1)


@lowering("L2_POOL_2D")
def l2_pool(c: Context, x: Value) -> Value:
    return c.op("sqrt", average_pool(c, c.op("mul", x, x)))
