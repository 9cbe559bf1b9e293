"""Images read at computed places: GridSample, AffineGrid, DeformConv."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.contractions import add_bias
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.windows import read_window
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.sampling import affine_grid, deform_conv, grid_sample
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("GridSample", since=16)
def sample(node: Node) -> Value:
    """[b, c, spatial...] at grid[b, places..., n], in -1 ... 1 and x first: [b, c, places...]."""
    x, grid = widen(node, node.input(0)), widen(node, node.input(1))
    aligned = bool(node.integer("align_corners", 0))
    padding = node.text("padding_mode", "zeros")
    kind = node.text("mode", "linear").removeprefix("bi")
    if padding not in ("zeros", "border", "reflection") or kind not in (
        "linear",
        "nearest",
        "cubic",
    ):
        raise UnsupportedNode(f"mode '{kind}' with padding_mode '{padding}' is not known")
    result = grid_sample(node, x, grid, kind, padding, aligned, is_rounded_first=True)
    return narrow(node, result, node.input(0))


@lowering("AffineGrid", since=20)
def affine_grid_of_size(node: Node) -> Value:
    """theta[b, n, n + 1] times the coordinates of an image of `size`: [b, spatial..., n]."""
    theta = widen(node, node.input(0))
    size = node.define_dims(1, "size")
    spatial = size[2:]
    count = len(spatial)
    unsupported(count not in (2, 3), f"its size has {len(size)} dims: use 4 or 5")
    theta = node.agree(theta, (size[0], count, count + 1))
    aligned = bool(node.integer("align_corners", 0))
    result = affine_grid(node, theta, spatial, aligned)
    return narrow(node, result, node.input(0))


@lowering("DeformConv", since=19)
def deformable_convolution(node: Node) -> Value:
    """A convolution that reads each element of its window at a place of its own."""
    x, w, offset = (widen(node, node.input(place)) for place in range(3))
    unsupported(type_of(x).rank != 4, f"its input is {x.type}: use rank 4")
    window = read_window(node, shape_of(x)[2:], shape_of(w)[2:])
    mask, bias = node.optional(4), node.optional(3)
    result = deform_conv(
        node,
        x,
        w,
        offset,
        None if mask is None else widen(node, mask),
        strides=window.strides,
        dilations=window.dilations,
        low=[pair[0] for pair in window.padding],
        groups=node.integer("group", 1),
        parts=node.integer("offset_group", 1),
    )
    if bias is not None:
        result = add_bias(node, result, widen(node, bias))
    return narrow(node, result, node.input(0))
