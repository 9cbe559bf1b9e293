"""Images read at computed places: GridSample, AffineGrid, DeformConv."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.contractions import add_bias
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.windows import read_window
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.sampling import (
    filled,
    grid_sample,
    inside_of,
    linear_weights,
    read_pixels,
    weighted,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
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
def affine_grid(node: Node) -> Value:
    """theta[b, n, n + 1] times the coordinates of an image of `size`: [b, spatial..., n]."""
    theta = widen(node, node.input(0))
    size = node.define_dims(1, "size")
    spatial = size[2:]
    count = len(spatial)
    unsupported(count not in (2, 3), f"its size has {len(size)} dims: use 4 or 5")
    theta = node.agree(theta, (size[0], count, count + 1))
    aligned = bool(node.integer("align_corners", 0))
    element = type_of(theta).dtype
    columns = []
    for axis in reversed(range(count)):  # x first
        steps = node.convert(node.op("iota", dtype=_I64, shape=tuple(spatial), axis=axis), element)
        dim = filled(node, spatial[axis], steps)
        one = node.fill(1, like=steps)
        if aligned:
            span = node.op("max", node.op("sub", dim, one), one)
            value = node.op("div", node.op("add", steps, steps), span)
        else:
            value = node.op("div", node.op("add", node.op("add", steps, steps), one), dim)
        columns.append(node.reshape(node.op("sub", value, one), (dims.product(spatial), 1)))
    columns.append(node.full(1, element, (dims.product(spatial), 1)))
    points = node.op("concatenate", *columns, axis=1)
    product = node.op(
        "dot_general", theta, points, lhs_contract=(2,), rhs_contract=(1,), dtype=element
    )  # [b, n, points]
    moved = node.transpose(product, (0, 2, 1))
    result = node.reshape(moved, (shape_of(theta)[0], *spatial, count))
    return narrow(node, result, node.input(0))


@lowering("DeformConv", since=19)
def deformable_convolution(node: Node) -> Value:
    """A convolution that reads each element of its window at a place of its own."""
    x, w, offset = (widen(node, node.input(place)) for place in range(3))
    unsupported(type_of(x).rank != 4, f"its input is {x.type}: use rank 4")
    window = read_window(node, shape_of(x)[2:], shape_of(w)[2:])
    batch, channels = shape_of(x)[:2]
    rows, columns = shape_of(offset)[2:]
    groups, parts = node.integer("group", 1), node.integer("offset_group", 1)
    taps = dims.product(shape_of(w)[2:])
    if not isinstance(channels, int) or not isinstance(taps, int) or channels % parts:
        raise UnsupportedNode(
            f"{x.type} with {parts} offset groups: use known channels and windows"
        )
    shape = (batch, parts, taps, rows, columns)
    offsets = node.reshape(offset, (batch, parts, taps, 2, rows, columns))
    split = node.reshape(x, (batch, parts, channels // parts, *shape_of(x)[2:]))
    images = node.reshape(split, (batch * parts, channels // parts, *shape_of(x)[2:]))
    at = []
    for axis in (0, 1):
        moved = node.op(
            "slice",
            offsets,
            start=(0, 0, 0, axis, 0, 0),
            limit=(batch, parts, taps, axis + 1, rows, columns),
        )
        base = _tap_places(node, shape, axis, shape_of(w)[2:], window.strides, window.dilations)
        low = window.padding[axis][0]
        base = node.op("sub", base, filled(node, low, base))
        base = node.convert(base, type_of(offset).dtype)
        at.append(
            node.reshape(node.op("add", node.reshape(moved, shape), base), (dims.product(shape),))
        )
    image = node.op("iota", dtype=_I64, shape=(batch * parts, taps * rows * columns), axis=0)
    image = node.reshape(image, (dims.product(shape),))

    def read(places: Sequence[Value]) -> Value:
        pixels = read_pixels(node, images, image, places)
        inside = inside_of(node, places, shape_of(x)[2:])
        spread = node.op("broadcast", inside, shape=shape_of(pixels), dimensions=(0,))
        return node.op("select", spread, pixels, node.fill(0, like=pixels))

    sampled = weighted(node, read, [linear_weights(node, each) for each in at])
    sampled = node.reshape(sampled, (*shape, channels // parts))
    mask = node.optional(4)
    if mask is not None:
        factor = node.reshape(widen(node, mask), shape)
        factor = node.op("broadcast", factor, shape=shape_of(sampled), dimensions=tuple(range(5)))
        sampled = node.op("mul", sampled, factor)
    ordered = node.transpose(sampled, (0, 1, 5, 2, 3, 4))  # [b, parts, c / parts, taps, h, w]
    result = _grouped_product(
        node, node.reshape(ordered, (batch, channels, taps, rows, columns)), w, groups
    )
    bias = node.optional(3)
    if bias is not None:
        result = add_bias(node, result, widen(node, bias))
    return narrow(node, result, node.input(0))


def _tap_places(
    node: Node,
    shape: Sequence[Dim],
    axis: int,
    sizes: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Value:
    """Where each element of each window lies along an axis, without padding: i64[shape]."""
    tap = node.op("iota", dtype=_I64, shape=tuple(shape), axis=2)
    width = filled(node, sizes[1], tap)
    tap = node.op("div" if axis == 0 else "rem", tap, width)
    place = node.op("iota", dtype=_I64, shape=tuple(shape), axis=3 + axis)
    moved = node.op("mul", place, node.fill(strides[axis], like=place))
    return node.op("add", moved, node.op("mul", tap, node.fill(dilations[axis], like=tap)))


def _grouped_product(node: Node, columns: Value, w: Value, groups: int) -> Value:
    """[b, c, taps, h, w] times [o, c / groups, taps...] -> [b, o, h, w]."""
    batch, channels, taps, rows, width = shape_of(columns)
    outputs = shape_of(w)[0]
    depth = dims.floordiv(channels * taps, groups)
    split = node.reshape(columns, (batch, groups, depth, rows * width))
    weights = node.reshape(w, (groups, dims.floordiv(outputs, groups), depth))
    product = node.op(
        "dot_general",
        weights,
        split,
        lhs_batch=(0,),
        rhs_batch=(1,),
        lhs_contract=(2,),
        rhs_contract=(2,),
        dtype=type_of(columns).dtype,
    )  # [groups, o / groups, b, h * w]
    moved = node.transpose(product, (2, 0, 1, 3))
    return node.reshape(moved, (batch, outputs, rows, width))
