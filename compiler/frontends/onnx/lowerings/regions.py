"""Regions of images pooled into a fixed number of bins: RoiAlign and MaxRoiPool."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.sampling import filled, linear_weights, read_pixels
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("RoiAlign", since=10)
def roi_align(node: Node) -> Value:
    """[b, c, h, w] in regions [r, 4] of the images i64[r]: [r, c, out_h, out_w]."""
    x, rois = widen(node, node.input(0)), widen(node, node.input(1))
    ratio = node.integer("sampling_ratio", 0)
    unsupported(
        ratio < 1, "sampling_ratio 0 depends on the regions: export the model with a fixed one"
    )
    height, width = node.integer("output_height", 1), node.integer("output_width", 1)
    shifted = node.opset >= 16
    mode = node.text(
        "coordinate_transformation_mode", "half_pixel" if shifted else "output_half_pixel"
    )
    aligned = mode == "half_pixel"
    regions = shape_of(rois)[0]
    shape = (regions, height, width, ratio, ratio)
    at = []
    for axis, (low, high, size, bins, place) in enumerate(
        ((1, 3, shape_of(x)[2], height, 1), (0, 2, shape_of(x)[3], width, 2))
    ):
        first, last = (_roi_edge(node, rois, column, aligned) for column in (low, high))
        length = node.op("sub", last, first)
        if not aligned:
            length = node.op("max", length, node.fill(1, like=length))
        length = node.op("div", length, node.fill(bins, like=length))
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
    batch = node.op("broadcast", node.convert(node.input(2), _I64), shape=shape, dimensions=(0,))
    samples = _roi_samples(node, x, node.reshape(batch, (dims.product(shape),)), at)
    return narrow(node, _pool_samples(node, samples, shape), node.input(0))


def _roi_edge(node: Node, rois: Value, column: int, aligned: bool) -> Value:
    """One edge of every region, in pixels: [r]."""
    count = shape_of(rois)[0]
    edge = node.op("slice", rois, start=(0, column), limit=(count, column + 1))
    edge = node.reshape(edge, (count,))
    edge = node.op("mul", edge, node.fill(node.number("spatial_scale", 1.0), like=edge))
    return node.op("sub", edge, node.fill(0.5, like=edge)) if aligned else edge


def _roi_samples(
    node: Node, x: Value, batch: Value, at: Sequence[tuple[Value, Dim]]
) -> list[Value]:
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


def _pool_samples(node: Node, corners: Sequence[Value], shape: Sequence[Dim]) -> Value:
    """The mean of the samples of each bin, or the greatest weighted pixel: [r, c, h, w]."""
    mode = node.text("mode", "avg")
    unsupported(mode not in ("avg", "max"), f"mode '{mode}' is not known")
    total = corners[0]
    for each in corners[1:]:
        total = node.op("add" if mode == "avg" else "max", total, each)
    split = node.reshape(total, (*shape, shape_of(total)[1]))
    pooled = node.reduce(split, (3, 4), "add" if mode == "avg" else "max")
    if mode == "avg":
        number = node.size(dims.product(shape[3:]), type_of(pooled).dtype)
        pooled = node.op("div", pooled, node.broadcast_to(number, shape_of(pooled)))
    return node.transpose(pooled, (0, 3, 1, 2))


@lowering("MaxRoiPool")
def max_roi_pool(node: Node) -> Value:
    """[b, c, h, w] in regions [r, 5] (image, x, y, x, y): the greatest of each bin."""
    x, rois = node.input(0), node.input(1)
    shape = node.integers("pooled_shape") or (1, 1)
    regions = shape_of(rois)[0]
    wide = widen(node, rois)

    def column(place: int) -> Value:
        value = node.op("slice", wide, start=(0, place), limit=(regions, place + 1))
        return node.reshape(value, (regions,))

    scale = node.number("spatial_scale", 1.0)
    images = node.convert(column(0), _I64)
    result = node.op("take", x, images, axis=0, mode="wrap_check")  # [r, c, h, w]
    for axis, (low, high, bins) in enumerate(((2, 4, shape[0]), (1, 3, shape[1]))):
        edges = [
            node.op("round_away", node.op("mul", each, node.fill(scale, like=each)))
            for each in (column(low), column(high))
        ]
        result = _bin_greatest(node, result, edges, 2 + axis, bins)
    empty = node.compare("eq", result, node.fill(_lowest(x), like=result))
    return node.op("select", empty, node.fill(0, like=result), result)


def _lowest(x: Value) -> float:
    return float("-inf") if type_of(x).dtype.is_float else 0.0


def _bin_greatest(node: Node, x: Value, edges: Sequence[Value], axis: int, bins: int) -> Value:
    """One axis of [r, c, h, w] as `bins` parts between the edges [r] of each region."""
    first, last = edges
    one = node.fill(1, like=first)
    length = node.op("max", node.op("add", node.op("sub", last, first), one), one)
    length = node.op("div", length, node.fill(bins, like=length))
    own = shape_of(x)
    shape = (own[0], bins, own[axis])
    bin_number = node.convert(
        node.op("iota", dtype=_I64, shape=shape, axis=1), type_of(first).dtype
    )
    place = node.convert(node.op("iota", dtype=_I64, shape=shape, axis=2), type_of(first).dtype)
    start, size = (
        node.op("broadcast", each, shape=shape, dimensions=(0,)) for each in (first, length)
    )
    low = node.op("add", node.op("floor", node.op("mul", bin_number, size)), start)
    after = node.op("add", bin_number, node.fill(1, like=bin_number))
    high = node.op("add", node.op("ceil", node.op("mul", after, size)), start)
    limit = filled(node, own[axis], low)
    zero = node.fill(0, like=low)
    low, high = (node.op("clamp", zero, each, limit) for each in (low, high))
    within = node.op("and", node.compare("ge", place, low), node.compare("lt", place, high))
    full = (*own[:axis], bins, *own[axis:])
    mask = node.op("broadcast", within, shape=full, dimensions=(0, axis, axis + 1))
    kept = tuple(each for each in range(len(full)) if each != axis)
    values = node.op("broadcast", x, shape=full, dimensions=kept)
    masked = node.op("select", mask, values, node.fill(_lowest(x), like=values))
    return node.reduce(masked, [axis + 1], "max")
