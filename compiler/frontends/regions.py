"""Regions of images pooled into a fixed number of bins: by interpolated samples (RoIAlign), or by
the greatest or the mean of the pixels that a bin covers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.sampling import filled, linear_weights, read_pixels
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["image_and_edges", "images_of_bins", "max_roi", "mean_roi", "roi_align"]

_I64 = dtype("i64")
Sizer = Callable[[Value], Dim]
"""The dim that a number of rank 0 is, which only the call knows."""


def image_and_edges(node: Emitter, rois: Value) -> tuple[Value, Value]:
    """Regions [r, 5] (image, x, y, x, y) as the images i64[r] and the edges [r, 4]."""
    image = node.reshape(node.sliced(rois, 1, 0, 1), (shape_of(rois)[0],))
    return node.convert(image, _I64), node.sliced(rois, 1, 1, 5)


def images_of_bins(
    node: Emitter, x: Value, batch: Value, bins: tuple[Dim, Dim]
) -> tuple[Value, Value]:
    """[b, c * bins, h, w], of whose channels every bin has its own c: images [b * bins, c, h, w],
    and which of them the bins of the regions read, of those of the images i64[r]: [r, bins...]."""
    rows, columns = bins
    count, channels, *spatial = shape_of(x)
    own = dims.floordiv(channels, rows * columns)
    split = node.reshape(x, (count, own, rows * columns, *spatial))
    images = node.reshape(
        node.transpose(split, (0, 2, 1, 3, 4)), (count * rows * columns, own, *spatial)
    )
    shape = (shape_of(batch)[0], rows, columns)
    place = node.op("broadcast", batch, shape=shape, dimensions=(0,))
    for axis, size in enumerate(bins, 1):
        step = node.op("iota", dtype=_I64, shape=shape, axis=axis)
        place = node.op("add", node.op("mul", place, filled(node, size, place)), step)
    return images, place


def roi_align(
    node: Emitter,
    x: Value,
    rois: Value,
    batch: Value,
    bins: tuple[Dim, Dim],
    *,
    ratio: int,
    scale: float,
    aligned: bool,
    sizer: Sizer,
    greatest: bool = False,
    least: int = 1,
) -> Value:
    """[b, c, h, w] in regions [r, 4] (x, y, x, y) of the images i64[r], or i64[r, bins...]:
    [r, c, bins...].

    A bin is the mean of ratio * ratio samples, or the greatest weighted pixel; for a ratio of 0,
    the mean of as many samples on each axis as there are pixels, rounded up. A sum is divided by
    `least` samples or more: where this is 0, the mean of none is NaN. Regions are multiplied by
    `scale`, and moved by half a pixel where `aligned`.
    """
    edges = []
    for axis, (low, high) in enumerate(((1, 3), (0, 2))):
        first, last = (_edge(node, rois, column, scale, aligned) for column in (low, high))
        length = node.op("sub", last, first)
        if not aligned:
            length = node.op("max", length, 1)
        edges.append((first, node.op("div", length, filled(node, bins[axis], length))))
    number: Dim = ratio
    counts = [node.fill(ratio, like=length) for _, length in edges]
    if ratio < 1:
        counts = [node.op("ceil", length) for _, length in edges]
        most = node.reduce(node.op("max", *counts), [0], "max")
        number = sizer(node.convert(node.op("max", most, 1), _I64))
    shape = (shape_of(rois)[0], *bins, number, number)
    at, unused = [], None
    for axis, ((first, length), count) in enumerate(zip(edges, counts, strict=True)):
        first, length, count = (
            node.op("broadcast", each, shape=shape, dimensions=(0,))
            for each in (first, length, count)
        )
        step, part = (
            node.convert(node.op("iota", dtype=_I64, shape=shape, axis=each), type_of(rois).dtype)
            for each in (1 + axis, 3 + axis)
        )
        if ratio < 1:
            over = node.compare("ge", part, count)
            unused = over if unused is None else node.op("or", unused, over)
        part = node.op("div", node.op("add", part, 0.5), count)
        at.append(node.op("add", first, node.op("mul", node.op("add", step, part), length)))
    batch = node.convert(batch, _I64)
    images = node.op("broadcast", batch, shape=shape, dimensions=tuple(range(type_of(batch).rank)))
    samples = _samples(node, x, images, at, unused)
    taken = node.op("mul", *counts)
    if least:
        taken = node.op("max", taken, least)
    return _pooled(node, samples, taken, greatest)


def _edge(node: Emitter, rois: Value, column: int, scale: float, aligned: bool) -> Value:
    """One edge of every region, in pixels: [r]."""
    count = shape_of(rois)[0]
    edge = node.sliced(rois, 1, column, column + 1)
    edge = node.reshape(edge, (count,))
    edge = node.op("mul", edge, scale)
    return node.op("sub", edge, 0.5) if aligned else edge


def _samples(
    node: Emitter, x: Value, batch: Value, at: Sequence[Value], unused: Value | None
) -> list[Value]:
    """The weighted pixels around each sample, four of [samples..., c]; 0 far outside of the image,
    and for those that are unused."""
    columns, outside = [], unused
    for place, size in zip(at, shape_of(x)[2:], strict=True):
        far = node.op(
            "or",
            node.compare("lt", place, -1),
            node.compare("gt", place, filled(node, size, place)),
        )
        outside = far if outside is None else node.op("or", outside, far)
        inside = node.op("clamp", node.fill(0, like=place), place, filled(node, size - 1, place))
        columns.append(linear_weights(node, inside))
    assert outside is not None
    results = []
    for corner in itertools.product(*columns):
        pixel = read_pixels(node, x, batch, [place for place, _ in corner])
        weight = node.op("mul", corner[0][1], corner[1][1])
        weight = node.op("select", outside, 0, weight)
        weight = node.convert(weight, type_of(pixel).dtype)
        own = tuple(range(type_of(weight).rank))
        spread = node.op("broadcast", weight, shape=shape_of(pixel), dimensions=own)
        results.append(node.op("mul", pixel, spread))
    return results


def _pooled(node: Emitter, corners: Sequence[Value], counts: Value, greatest: bool) -> Value:
    """The mean of the samples of each bin, of which a region has `counts`, or the greatest
    weighted pixel: [r, bins, samples, c] as [r, c, bins]."""
    total = corners[0]
    for each in corners[1:]:
        total = node.op("max" if greatest else "add", total, each)
    pooled = node.reduce(total, (3, 4), "max" if greatest else "add")
    if not greatest:
        number = node.convert(counts, type_of(pooled).dtype)
        spread = node.op("broadcast", number, shape=shape_of(pooled), dimensions=(0,))
        pooled = node.op("div", pooled, spread)
    return node.transpose(pooled, (0, 3, 1, 2))


def max_roi(
    node: Emitter, x: Value, rois: Value, batch: Value, bins: tuple[Dim, Dim], scale: float
) -> Value:
    """[b, c, h, w] in regions [r, 4] of the images i64[r]: the greatest of each bin, which is 0
    where it covers nothing."""
    result = node.op("take", x, batch, axis=0, mode="wrap_check")  # [r, c, h, w]
    lowest = float("-inf") if type_of(x).dtype.is_float else 0.0
    for place, mask in enumerate(_covered(node, rois, bins, shape_of(x)[2:], scale, 1, 0)):
        axis = 2 + place
        own = shape_of(result)
        full = (*own[:axis], bins[place], *own[axis:])
        within = node.op("broadcast", mask, shape=full, dimensions=(0, axis, axis + 1))
        kept = tuple(each for each in range(len(full)) if each != axis)
        values = node.op("broadcast", result, shape=full, dimensions=kept)
        masked = node.op("select", within, values, lowest)
        result = node.reduce(masked, [axis + 1], "max")
    empty = node.compare("eq", result, lowest)
    return node.op("select", empty, 0, result)


def mean_roi(
    node: Emitter, x: Value, rois: Value, batch: Value, bins: tuple[Dim, Dim], scale: float
) -> Value:
    """[b, c, h, w] in regions [r, 4], whose bins read the images i64[r, bins...]: the mean of each
    bin, without the last row and column of the image, which torchvision leaves out."""
    result = node.op("take", x, batch, axis=0, mode="wrap_check")  # [r, bins..., c, h, w]
    within, area = None, node.full(1, type_of(x).dtype, shape_of(batch))
    for place, mask in enumerate(_covered(node, rois, bins, shape_of(x)[2:], scale, 0, 1)):
        dimensions = (0, 1 + place, 4 + place)
        spread = node.op("broadcast", mask, shape=shape_of(result), dimensions=dimensions)
        within = spread if within is None else node.op("and", within, spread)
        count = node.reduce(node.convert(mask, type_of(x).dtype), [2], "add")
        wide = node.op("broadcast", count, shape=shape_of(batch), dimensions=(0, 1 + place))
        area = node.op("mul", area, wide)
    assert within is not None
    total = node.op("select", within, result, 0)
    total = node.reduce(total, [4, 5], "add")
    area = node.op("max", area, 1)
    spread = node.op("broadcast", area, shape=shape_of(total), dimensions=(0, 1, 2))
    return node.transpose(node.op("div", total, spread), (0, 3, 1, 2))


def _covered(
    node: Emitter, rois: Value, bins: tuple[Dim, Dim], spatial: Sequence[Dim], scale: float,
    added: int, cut: int,
) -> list[Value]:  # fmt: skip
    """For each axis, which places the bins of the regions cover: i1[r, bins, size]. Regions end
    `added` behind their last pixel, the image `cut` before its own."""
    result = []
    for (low, high), count, size in zip(((1, 3), (0, 2)), bins, spatial, strict=True):
        first, last = (
            node.op("round_away", _edge(node, rois, column, scale, False)) for column in (low, high)
        )
        length = node.op("sub", last, first)
        length = node.op("add", length, added)
        length = node.op("max", length, 1)
        length = node.op("div", length, filled(node, count, length))
        shape = (shape_of(rois)[0], count, size)
        number, place = (
            node.convert(node.op("iota", dtype=_I64, shape=shape, axis=axis), type_of(first).dtype)
            for axis in (1, 2)
        )
        first, length = (
            node.op("broadcast", each, shape=shape, dimensions=(0,)) for each in (first, length)
        )
        after = node.op("add", number, 1)
        begin = node.op("add", node.op("floor", node.op("mul", number, length)), first)
        end = node.op("add", node.op("ceil", node.op("mul", after, length)), first)
        zero, limit = node.fill(0, like=begin), filled(node, size - cut, begin)
        begin, end = (node.op("clamp", zero, each, limit) for each in (begin, end))
        result.append(
            node.op("and", node.compare("ge", place, begin), node.compare("lt", place, end))
        )
    return result
