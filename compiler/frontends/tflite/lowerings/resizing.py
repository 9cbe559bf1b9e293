"""Images in another size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []

_MOST = 1 << 24  # rows or columns


def _sizes(c: Context, x: Value, size: Value) -> list[tuple[int, int, int]]:
    """Axis, size before and size after, of rows and columns."""
    wanted = c.known(size, "size")
    found = []
    for axis, after in zip((1, 2), wanted, strict=True):
        before = shape_of(x)[axis]
        if not isinstance(before, int) or not 0 < after <= _MOST:
            raise UnsupportedNode(f"it resizes {before} rows or columns to {after}: fix the sizes")
        found.append((axis, before, after))
    return found


def _ratio(c: Context, before: int, after: int) -> Any:
    if c.options.align_corners and after > 1:
        return np.float32(before - 1) / np.float32(after - 1)
    return np.float32(before) / np.float32(after)


@lowering("RESIZE_NEAREST_NEIGHBOR", codes=0)
def resize_nearest(c: Context, x: Value, size: Value) -> Value:
    for axis, before, after in _sizes(c, x, size):
        offset = np.float32(0.5 if c.options.half_pixel_centers else 0)
        at = (np.arange(after, dtype=np.float32) + offset) * _ratio(c, before, after)
        at = np.floor(at + np.float32(0.5)) if c.options.align_corners else np.floor(at)
        places = np.clip(at, 0, before - 1).astype(np.int64)
        x = c.op("take", x, c.builder.constant(places), axis=axis, mode="check")
    return x


def _places_between(c: Context, before: int, after: int) -> Any:
    """Where each new row or column lies among the old ones."""
    at: Any = np.arange(after, dtype=np.float32)
    ratio = _ratio(c, before, after)
    if c.options.half_pixel_centers:
        return (at + np.float32(0.5)) * ratio - np.float32(0.5)
    return at * ratio


_STEPS = 1 << 10  # between two old ones, that LiteRT's kernel for signed codes has


def _places_of_steps(c: Context, before: int, after: int) -> Any:
    """As `_places_between`, in whole steps."""
    is_aligned = c.options.align_corners and after > 1
    old, new = (before - 1, after - 1) if is_aligned else (before, after)
    ratio = (_STEPS * old + new // 2) // new
    at = np.arange(after) * ratio
    if c.options.half_pixel_centers:
        at = at + (ratio // 2 - _STEPS // 2)
    return (at / _STEPS).astype(np.float32)


@lowering("RESIZE_BILINEAR", codes=0)
def resize_bilinear(c: Context, x: Value, size: Value) -> Value:
    element, given = type_of(x).dtype, c.inputs[0]
    x = x if element.is_float else c.convert(x, "f32")
    is_signed = given is not None and given.dtype.kind == "i"
    for axis, before, after in _sizes(c, x, size):
        at = (_places_of_steps if is_signed else _places_between)(c, before, after)
        low = np.maximum(np.floor(at), 0).astype(np.int64)
        high = np.minimum(np.ceil(at), before - 1).astype(np.int64)
        near, far = (
            c.op("take", x, c.builder.constant(places), axis=axis, mode="check")
            for places in (low, high)
        )
        weight = c.constant(at - low.astype(np.float32), type_of(x).dtype)
        weight = c.op("broadcast", weight, shape=shape_of(near), dimensions=(axis,))
        x = c.op("add", near, c.op("mul", c.op("sub", far, near), weight))
    return x if element.is_float else c.convert(c.op("round_away", x), element)
