"""Images read at computed places, blocks that are summed to images, regions and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.indexed import blocks_along
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.regions import (
    image_and_edges,
    images_of_bins,
    max_roi,
    mean_roi,
    roi_align,
)
from ingot.compiler.frontends.sampling import affine_grid, deform_conv, grid_sample
from ingot.compiler.frontends.sum_blocks import lay_blocks
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.frontends.torch.lowerings.sizes import as_dim
from ingot.compiler.frontends.torch.lowerings.sorting import sort
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []

_KINDS = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


@lowering("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default",
          "aten.grid_sampler.default", "aten.cudnn_grid_sampler.default")  # fmt: skip
def sample(
    c: Context, x: Value, grid: Value, mode: int = 0, padding: int = 0, aligned: bool = False
) -> Value:
    """[b, c, spatial...] at grid[b, places..., n]: [b, c, places...]."""
    kind, outside = _KINDS[mode], _PADDINGS[padding]
    wide = (widen(c, x), widen(c, grid))
    return narrow(c, grid_sample(c, *wide, kind, outside, aligned, is_rounded_first=False), x)


@lowering("aten.im2col.default")
def image_to_column(
    c: Context, x: Value, block: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Value:  # fmt: skip
    """[b, c, image...] -> [b, c * taps, places]: the blocks of the image."""
    rank, count = type_of(x).rank, len(block)
    first = rank - count
    ends = [*[0] * first, *padding]
    columns = c.padded(x, ends, ends)
    for place in reversed(range(count)):
        columns = blocks_along(
            c, columns, first + place, block[place], stride[place], dilation[place]
        )
    order = [*range(first), *range(first + 1, rank + count, 2), *range(first, rank + count, 2)]
    return c.reshape(c.transpose(columns, order), c.shape)


@lowering("aten.col2im.default")
def column_to_image(
    c: Context, x: Value, image: Sequence[Dim], block: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> Value:  # fmt: skip
    """[b, c * taps, places] -> [b, c, image...]: blocks laid over each other and summed."""
    columns = zip(image, block, dilation, padding, stride, strict=True)
    places = [
        dims.floordiv(size + 2 * pad - (taps - 1) * apart - 1, step) + 1
        for size, taps, apart, pad, step in columns
    ]
    *batch, width, _ = shape_of(x)
    taps = dims.product(block)
    split = c.reshaped(x, (*(batch or [1]), dims.floordiv(width, taps), taps, *places))
    laid = lay_blocks(c, widen(c, split), block, image, stride, dilation, padding)
    return c.reshape(narrow(c, laid, x), c.shape)


@lowering("torchvision.roi_align.default")
def align_regions(
    c: Context, x: Value, rois: Value, scale: float, height: Dim, width: Dim, ratio: int,
    aligned: bool,
) -> Value:  # fmt: skip
    """[b, c, h, w] in regions [r, 5] (image, x, y, x, y): [r, c, height, width]."""
    images, edges = image_and_edges(c, widen(c, rois))
    found = roi_align(
        c, widen(c, x), edges, images, (height, width), ratio=ratio, scale=scale, aligned=aligned,
        sizer=partial(as_dim, c),
    )  # fmt: skip
    return narrow(c, found, x)


@lowering("torchvision.ps_roi_align.default")
def align_regions_of_bins(
    c: Context, x: Value, rois: Value, scale: float, height: Dim, width: Dim, ratio: int
) -> list[Any]:
    """As `roi_align`, of which every bin reads channels of its own: [r, c / bins, bins...]."""
    bins = (height, width)
    images, edges = image_and_edges(c, widen(c, rois))
    own, places = images_of_bins(c, widen(c, x), images, bins)
    found = roi_align(
        c, own, edges, places, bins, ratio=ratio, scale=scale, aligned=True, least=0,
        sizer=partial(as_dim, c),
    )  # fmt: skip
    return [narrow(c, found, x), None]


@lowering("torchvision.roi_pool.default")
def greatest_of_regions(
    c: Context, x: Value, rois: Value, scale: float, height: Dim, width: Dim
) -> list[Any]:
    images, edges = image_and_edges(c, widen(c, rois))
    return [max_roi(c, x, edges, images, (height, width), scale), None]


@lowering("torchvision.ps_roi_pool.default")
def means_of_regions(
    c: Context, x: Value, rois: Value, scale: float, height: Dim, width: Dim
) -> list[Any]:
    """Of which every bin reads channels of its own: [r, c / bins, bins...]."""
    bins = (height, width)
    images, edges = image_and_edges(c, widen(c, rois))
    own, places = images_of_bins(c, widen(c, x), images, bins)
    return [narrow(c, mean_roi(c, own, edges, places, bins, scale), x), None]


@lowering("torchvision.deform_conv2d.default")
def deformable_convolution(
    c: Context, x: Value, weight: Value, offset: Value, mask: Value, bias: Value, *numbers: Any
) -> Value:
    """`numbers` are strides, paddings and dilations, rows first, groups, those of offsets, and
    whether there is a mask."""
    *pairs, groups, parts, is_masked = numbers
    factor = widen(c, mask) if is_masked else None
    result = deform_conv(
        c, widen(c, x), widen(c, weight), widen(c, offset), factor, strides=pairs[:2],
        low=pairs[2:4], dilations=pairs[4:], groups=groups, parts=parts,
    )  # fmt: skip
    column = c.op("broadcast", widen(c, bias), shape=shape_of(result), dimensions=(1,))
    return narrow(c, c.op("add", result, column), x)


@lowering("torchvision.nms.default")
def suppress(c: Context, boxes: Value, scores: Value, threshold: float) -> Value:
    """The places of the boxes [n, 4] that are kept, by falling score. Overlaps are f32, which are
    above an f64 where they are above the f32 below it."""
    count = shape_of(scores)[0]
    _, order = sort(c, scores, 0, descending=True)
    limit = np.float32(threshold)
    if float(limit) > threshold:
        limit = np.nextafter(limit, np.float32(-np.inf))
    kept = c.op(
        "suppress",
        c.reshape(c.transpose(widen(c, boxes), (1, 0)), (1, 4, count)),
        c.reshape(order, (1, 1, count)),
        c.full(True, "i1", (1, 1, count)),
        c.size(count),
        c.constant(limit, "f32"),
    )
    places = c.op("nonzero", c.reshape(kept, (count,)), symbols=(next(c.fresh_names()),))
    found = shape_of(places)[1]
    return c.op("take", order, c.reshape(places, (found,)), axis=0, mode="check")


@lowering("aten.affine_grid_generator.default")
def affine_grid_of_size(c: Context, theta: Value, size: Sequence[Dim], aligned: Any) -> Value:
    return narrow(c, affine_grid(c, widen(c, theta), size[2:], aligned), theta)
