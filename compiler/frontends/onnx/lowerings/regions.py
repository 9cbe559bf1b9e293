"""Regions of images pooled into a fixed number of bins: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.regions import image_and_edges, max_roi, roi_align
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("RoiAlign", since=10)
def align_regions(node: Node) -> Value:
    """[b, c, h, w] in regions [r, 4] of the images i64[r]: [r, c, out_h, out_w]."""
    x, rois = widen(node, node.input(0)), widen(node, node.input(1))
    ratio, mode = node.integer("sampling_ratio", 0), node.text("mode", "avg")
    unsupported(mode not in ("avg", "max"), f"mode '{mode}' is not known")
    unsupported(
        ratio < 1 and mode == "max",
        "the greatest of samples of which each region has others: "
        "export the model with a sampling_ratio",
    )
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
        sizer=lambda most: node.define_size(most, "samples", "the count of samples"),
        greatest=mode == "max",
    )
    return narrow(node, result, node.input(0))


@lowering("MaxRoiPool")
def max_roi_pool(node: Node) -> Value:
    """[b, c, h, w] in regions [r, 5] (image, x, y, x, y): the greatest of each bin."""
    rois = widen(node, node.input(1))
    shape = node.integers("pooled_shape") or (1, 1)
    images, edges = image_and_edges(node, rois)
    bins = (int(shape[0]), int(shape[1]))
    return max_roi(node, node.input(0), edges, images, bins, node.number("spatial_scale", 1.0))
