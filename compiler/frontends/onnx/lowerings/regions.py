"""Regions of images pooled into a fixed number of bins: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.regions import roi_align
from ingot.compiler.frontends.sampling import filled
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("RoiAlign", since=10)
def align_regions(node: Node) -> Value:
    """[b, c, h, w] in regions [r, 4] of the images i64[r]: [r, c, out_h, out_w]."""
    x, rois = widen(node, node.input(0)), widen(node, node.input(1))
    ratio, mode = node.integer("sampling_ratio", 0), node.text("mode", "avg")
    unsupported(
        ratio < 1, "sampling_ratio 0 depends on the regions: export the model with a fixed one"
    )
    unsupported(mode not in ("avg", "max"), f"mode '{mode}' is not known")
    shifted = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    result = roi_align(
        node,
        x,
        rois,
        node.input(2),
        (node.integer("output_height", 1), node.integer("output_width", 1)),
        ratio=ratio,
        scale=node.number("spatial_scale", 1.0),
        aligned=node.text("coordinate_transformation_mode", shifted) == "half_pixel",
        greatest=mode == "max",
    )
    return narrow(node, result, node.input(0))


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
