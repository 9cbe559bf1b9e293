"""NonMaxSuppression: boxes by falling score, of which overlapping ones are left out."""

from __future__ import annotations

import math

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("NonMaxSuppression")
def non_max_suppression(node: Node) -> Value:
    """Rows (batch, class, box) of the boxes that are kept, per class by falling score."""
    boxes, scores = node.input(0), node.input(1)
    for what, value in (("boxes", boxes), ("scores", scores)):
        unsupported(type_of(value).rank != 3, f"its {what} are {value.type}, expected rank 3")
    batch, classes, count = shape_of(scores)
    boxes = node.agree(boxes, (batch, count, 4))
    place = node.op("iota", dtype=_I64, shape=(batch, classes, count), axis=2)
    if node.optional(4) is not None:  # those left out are equal, which is sorted faster
        none = node.fill(-math.inf, like=scores)
        scores = node.op("select", _candidates(node, scores), scores, none)
    ordered, order = _by_falling_score(node, scores, place)
    kept = node.op(
        "suppress",
        _corners(node, boxes),
        order,
        _candidates(node, ordered),
        _number(node, 2, 0, "i64"),
        _number(node, 3, 0, "f32"),
    )
    places = node.nonzero(kept, f"{node.proto.output[0]}_count")
    found = shape_of(places)[1]
    rows = [_row(node, places, axis) for axis in range(3)]
    flat = node.op(
        "add", node.op("mul", rows[0], node.broadcast_to(node.size(classes), (found,))), rows[1]
    )
    flat = node.op(
        "add", node.op("mul", flat, node.broadcast_to(node.size(count), (found,))), rows[2]
    )
    order = node.reshape(order, (batch * classes * count,))
    box = node.op("take", order, flat, axis=0, mode="check")
    columns = [node.reshape(each, (found, 1)) for each in (rows[0], rows[1], box)]
    return node.op("concatenate", *columns, axis=1)


def _by_falling_score(node: Node, scores: Value, place: Value) -> tuple[Value, ...]:
    block = Block([ScalarType(type_of(each).dtype) for each in (scores, place) for _ in range(2)])
    inner = Builder(block)
    inner.yield_(inner.value("compare", *block.arguments[:2], direction="gt"))
    return node.several("sort", scores, place, axis=2, regions=[Region([block])])


def _candidates(node: Node, scores: Value) -> Value:
    """Where the score is above the threshold; everywhere without one."""
    if node.optional(4) is None:
        return node.full(1, "i1", shape_of(scores))
    threshold = node.reshape(node.input(4), ())
    return node.compare("gt", scores, node.broadcast_to(threshold, shape_of(scores)))


def _corners(node: Node, boxes: Value) -> Value:
    """[batch, count, 4] as rows of low y, low x, high y, high x: [batch, 4, count]."""
    batch, count, _ = shape_of(boxes)
    sides = node.op("transpose", boxes, permutation=(0, 2, 1))

    def rows(first: int) -> Value:
        return node.op(
            "slice", sides, start=(0, first, 0), limit=(batch, first + 2, count), stride=(1, 1, 1)
        )

    a, b = rows(0), rows(2)
    if node.integer("center_point_box", 0):  # x, y of the center, then width and height
        half = node.op("mul", b, 0.5)
        low, high = (
            node.op("reverse", node.op(name, a, half), axes=(1,)) for name in ("sub", "add")
        )
    else:
        low, high = node.op("min", a, b), node.op("max", a, b)
    return node.op("concatenate", low, high, axis=1)


def _number(node: Node, index: int, default: float, element: str) -> Value:
    """An optional input of one element as rank 0."""
    value = node.optional(index)
    if value is None:
        return node.constant(default, element)
    unsupported(type_of(value).rank > 1, f"input {index} is {value.type}, not a number")
    return node.convert(node.reshape(node.agree(value, [1] * type_of(value).rank), ()), element)


def _row(node: Node, places: Value, axis: int) -> Value:
    found = shape_of(places)[1]
    row = node.sliced(places, 0, axis, axis + 1)
    return node.reshape(row, (found,))
