"""CropAndResize: boxes of images, read at the points of a grid."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("CropAndResize", domain=MICROSOFT)
def crop_and_resize(node: Node) -> Value:
    """[images, channels, h, w] at boxes [n, 4] of y1, x1, y2, x2, whose corners are points of the
    result [n, channels, rows, columns]; what lies outside of the image is `extrapolation_value`."""
    given, boxes, images = node.input(0), widen(node, node.input(1)), node.input(2)
    mode = node.text("mode", "bilinear")
    unsupported(mode not in ("bilinear", "nearest"), f"its mode is '{mode}'")
    x = widen(node, given)
    height, width = shape_of(x)[2:]
    rows, columns = node.define_dims(3, "crop_size")
    y = _places(node, boxes, 0, height, rows)
    z = _places(node, boxes, 1, width, columns)
    shape = (shape_of(boxes)[0], rows, columns)
    inside = node.op(
        "and", _spread(node, _is_inside(node, y, height), shape, 1),
        _spread(node, _is_inside(node, z, width), shape, 2),
    )  # fmt: skip
    if mode == "nearest":
        found = _read(node, x, images, node.op("round_away", y), node.op("round_away", z), shape)
    else:
        found = _blend(node, x, images, y, z, shape)
    full = shape_of(found)
    shown = node.op("broadcast", inside, shape=full, dimensions=(0, 1, 2))
    outside = node.fill(node.number("extrapolation_value", 0.0), like=found)
    result = node.op("select", shown, found, outside)
    return narrow(node, node.transpose(result, (0, 3, 1, 2)), given)


def _places(node: Node, boxes: Value, side: int, length: Dim, count: Dim) -> Value:
    """Where along an axis of the image the points of each box are, f32[n, count]; a single one is
    in the middle."""
    shape = (shape_of(boxes)[0], count)
    low, high = (
        node.broadcast_to(node.sliced(boxes, 1, at, at + 1), shape) for at in (side, side + 2)
    )
    last = node.broadcast_to(node.size(length - 1, "f32"), shape)
    steps = node.size(count - 1, "f32")
    is_single = node.broadcast_to(node.compare("eq", steps, 0), shape)
    steps = node.broadcast_to(node.op("max", steps, 1), shape)
    middle = node.op("mul", node.op("mul", node.op("add", low, high), 0.5), last)
    first = node.op("select", is_single, middle, node.op("mul", low, last))
    step = node.op("div", node.op("mul", node.op("sub", high, low), last), steps)
    number = node.convert(node.op("iota", dtype=dtype("i32"), shape=shape, axis=1), "f32")
    return node.op("add", first, node.op("mul", number, step))


def _is_inside(node: Node, places: Value, length: Dim) -> Value:
    last = node.broadcast_to(node.size(length - 1, "f32"), shape_of(places))
    above = node.compare("ge", places, 0)
    return node.op("and", above, node.compare("le", places, last))


def _spread(node: Node, x: Value, shape: tuple[Dim, ...], axis: int) -> Value:
    return node.op("broadcast", x, shape=shape, dimensions=(0, axis))


def _read(node: Node, x: Value, images: Value, y: Value, z: Value, shape: tuple[Dim, ...]) -> Value:
    """The channels of each image at whole places y[n, rows] and z[n, columns]."""
    image = node.op("broadcast", node.convert(images, "i32"), shape=shape, dimensions=(0,))
    parts = [image, *(_spread(node, node.convert(p, "i32"), shape, a) for p, a in ((y, 1), (z, 2)))]
    index = node.op("concatenate", *(node.reshape(p, (*shape, 1)) for p in parts), axis=3)
    return node.op(
        "gather", x, index, offset_dims=(3,), collapsed_slice_dims=(0, 2, 3),
        start_index_map=(0, 2, 3), index_vector_dim=3, slice_sizes=(1, shape_of(x)[1], 1, 1),
    )  # fmt: skip


def _blend(
    node: Node, x: Value, images: Value, y: Value, z: Value, shape: tuple[Dim, ...]
) -> Value:
    """Between the four neighbours of each point."""
    ends = [(node.op("floor", p), node.op("ceil", p)) for p in (y, z)]
    corners = [_read(node, x, images, a, b, shape) for a in ends[0] for b in ends[1]]
    full = shape_of(corners[0])
    for place, axis in ((z, 2), (y, 1)):
        share = node.op("sub", place, node.op("floor", place))
        wide = node.op("broadcast", share, shape=full, dimensions=(0, axis))
        corners = [
            node.op("add", a, node.op("mul", node.op("sub", b, a), wide))
            for a, b in zip(corners[::2], corners[1::2], strict=True)
        ]
    return corners[0]
