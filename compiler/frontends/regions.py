"""Regions of images pooled into a fixed number of bins, by interpolated samples (RoIAlign)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.sampling import filled, linear_weights, read_pixels
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["roi_align"]

_I64 = dtype("i64")


def roi_align(
    node: Emitter,
    x: Value,
    rois: Value,
    batch: Value,
    bins: tuple[int, int],
    *,
    ratio: int,
    scale: float,
    aligned: bool,
    greatest: bool = False,
) -> Value:
    """[b, c, h, w] in regions [r, 4] (x, y, x, y) of the images i64[r]: [r, c, bins...].

    A bin is the mean of ratio * ratio samples, or the greatest weighted pixel. Regions are
    multiplied by `scale`, and moved by half a pixel where `aligned`.
    """
    shape = (shape_of(rois)[0], *bins, ratio, ratio)
    at = []
    for axis, (low, high, size, place) in enumerate(
        ((1, 3, shape_of(x)[2], 1), (0, 2, shape_of(x)[3], 2))
    ):
        first, last = (_edge(node, rois, column, scale, aligned) for column in (low, high))
        length = node.op("sub", last, first)
        if not aligned:
            length = node.op("max", length, node.fill(1, like=length))
        length = node.op("div", length, node.fill(bins[axis], like=length))
        step = node.op("iota", dtype=_I64, shape=shape, axis=place)
        part = node.op("iota", dtype=_I64, shape=shape, axis=3 + axis)
        element = type_of(rois).dtype
        part = node.convert(part, element)
        part = node.op("add", part, node.fill(0.5, like=part))
        part = node.op("div", part, node.fill(ratio, like=part))
        inner = node.op("add", node.convert(step, element), part)
        wide = [
            node.op("broadcast", each, shape=shape, dimensions=(0,)) for each in (first, length)
        ]
        at.append((node.op("add", wide[0], node.op("mul", inner, wide[1])), size))
    images = node.op("broadcast", node.convert(batch, _I64), shape=shape, dimensions=(0,))
    samples = _samples(node, x, node.reshape(images, (dims.product(shape),)), at)
    return _pooled(node, samples, shape, greatest)


def _edge(node: Emitter, rois: Value, column: int, scale: float, aligned: bool) -> Value:
    """One edge of every region, in pixels: [r]."""
    count = shape_of(rois)[0]
    edge = node.op("slice", rois, start=(0, column), limit=(count, column + 1))
    edge = node.reshape(edge, (count,))
    edge = node.op("mul", edge, node.fill(scale, like=edge))
    return node.op("sub", edge, node.fill(0.5, like=edge)) if aligned else edge


def _samples(node: Emitter, x: Value, batch: Value, at: Sequence[tuple[Value, Dim]]) -> list[Value]:
    """The weighted pixels around each sample, four of [p, c]; 0 far outside of the image."""
    count = shape_of(batch)[0]
    columns, outside = [], None
    for value, size in at:
        flat = node.reshape(value, (count,))
        far = node.op(
            "or",
            node.compare("lt", flat, node.fill(-1, like=flat)),
            node.compare("gt", flat, filled(node, size, flat)),
        )
        outside = far if outside is None else node.op("or", outside, far)
        inside = node.op("clamp", node.fill(0, like=flat), flat, filled(node, size - 1, flat))
        columns.append(linear_weights(node, inside))
    assert outside is not None
    results = []
    for corner in itertools.product(*columns):
        pixel = read_pixels(node, x, batch, [place for place, _ in corner])
        weight = node.op("mul", corner[0][1], corner[1][1])
        weight = node.op("select", outside, node.fill(0, like=weight), weight)
        weight = node.convert(weight, type_of(pixel).dtype)
        spread = node.op("broadcast", weight, shape=shape_of(pixel), dimensions=(0,))
        results.append(node.op("mul", pixel, spread))
    return results


def _pooled(node: Emitter, corners: Sequence[Value], shape: Sequence[Dim], greatest: bool) -> Value:
    """The mean of the samples of each bin, or the greatest weighted pixel: [r, c, h, w]."""
    total = corners[0]
    for each in corners[1:]:
        total = node.op("max" if greatest else "add", total, each)
    split = node.reshape(total, (*shape, shape_of(total)[1]))
    pooled = node.reduce(split, (3, 4), "max" if greatest else "add")
    if not greatest:
        number = node.size(dims.product(shape[3:]), type_of(pooled).dtype)
        pooled = node.op("div", pooled, node.broadcast_to(number, shape_of(pooled)))
    return node.transpose(pooled, (0, 3, 1, 2))
