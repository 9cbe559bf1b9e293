"""Boxes of which overlapping ones are left out, and what detectors end with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import scatter_rows
from ingot.compiler.frontends.tflite.flexbuffer import count_in, read_options
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.frontends.tflite.lowerings.selections import by_falling
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(
    c: Context,
    boxes: Value,
    scores: Value,
    limit: Value,
    overlap: Value,
    threshold: Value,
    sigma: Value | None = None,
) -> list[Value]:
    """Indices (and scores, in version 5) of the boxes that are kept, then zeros; their count."""
    (count,) = shape_of(scores)
    (room,) = c.dims(limit, "max_output_size")
    corners = _ordered_corners(c, boxes)
    overlap, threshold = c.reshape(overlap, ()), c.reshape(threshold, ())
    if sigma is not None and c.walker.amounts.of(c.reshape(sigma, ())) != 0:
        return _softly(c, corners, scores, room, overlap, threshold, c.reshape(sigma, ()))
    line = c.reshape(scores, (1, count))
    ordered, order, kept = _suppressed(
        c, line, corners, "gt", threshold, c.convert(c.reshape(limit, ()), "i64"), overlap
    )
    ordered, order, kept = (c.reshape(each, (count,)) for each in (ordered, order, kept))
    number = c.op("cumulative", c.convert(kept, "i64"), axis=0, kind="add", exclusive=True)
    target = c.op("select", kept, number, c.broadcast_to(c.size(room), (count,)))
    found = c.reduce(c.convert(kept, "i32"), [0], "add")
    indices = _packed(c, c.convert(order, "i32"), target, room)
    return (
        [indices, found] if sigma is None else [indices, _packed(c, ordered, target, room), found]
    )


def _ordered_corners(c: Context, boxes: Value) -> Value:
    """[count, 4] as low y, low x, high y, high x."""
    a, b = c.sliced(boxes, 1, 0, 2), c.sliced(boxes, 1, 2, 4)
    return c.op("concatenate", c.op("min", a, b), c.op("max", a, b), axis=1)


def _suppressed(
    c: Context, scores: Value, boxes: Value, direction: str, least: Value, limit: Value,
    overlap: Value,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Lines of scores [lines, count] for the same boxes in falling order, the places that they
    had, and which are kept: at most `limit` of those whose score is in `direction` to `least`."""
    ordered, order = by_falling(c, scores, [c.places(shape_of(scores), 1)], 1)
    candidates = c.compare(direction, ordered, c.broadcast_to(least, shape_of(scores)))
    (lines, count), shape = shape_of(scores), (1, *shape_of(scores))
    kept = c.op(
        "suppress",
        c.reshape(c.transpose(boxes, (1, 0)), (1, 4, count)),
        c.reshape(order, shape),
        c.reshape(candidates, shape),
        limit,
        overlap,
    )
    return ordered, order, c.reshape(kept, (lines, count))


def _packed(c: Context, x: Value, target: Value, room: Dim) -> Value:
    """Elements of x at their targets, those that are inside; zeros elsewhere."""
    return scatter_rows(c, c.full(0, type_of(x).dtype, (room,)), target, x, "set")


def _softly(
    c: Context, boxes: Value, scores: Value, room: Dim, overlap: Value, threshold: Value,
    sigma: Value,
) -> list[Value]:  # fmt: skip
    """As the hard one; boxes that overlap one kept before have smaller scores, by a Gaussian."""
    (count,) = shape_of(scores)
    factor = c.op("div", c.constant(-0.5, "f32"), sigma)
    is_soft = c.compare("gt", sigma, 0)
    factor = c.op("select", is_soft, factor, 0)

    def above(c: Context, scores: Value, kept: Value) -> Value:
        """Scores where they are above the threshold and `kept`."""
        high = c.compare("gt", scores, c.broadcast_to(threshold, (count,)))
        return c.op("select", c.op("and", high, kept), scores, -math.inf)

    def step(builder: Builder, at: Value, carried: Sequence[Value]) -> Sequence[Value]:
        c_in = c.within(builder)
        scores, indices, chosen, found = carried
        best = c_in.op("arg_max", scores, axis=0, dtype=dtype("i32"))
        score = c_in.op("take", scores, best, axis=0, mode="clamp")
        is_found = c_in.compare("gt", score, -math.inf)
        rows = [
            c_in.op("dynamic_update_slice", whole, c_in.reshape(row, (1,)), at)
            for whole, row in (
                (indices, c_in.op("select", is_found, best, 0)),
                (chosen, c_in.op("select", is_found, score, 0)),
            )
        ]
        shared = _shared(c_in, boxes, c_in.op("take", boxes, best, axis=0, mode="clamp"))
        power = c_in.op("mul", shared, shared)
        power = c_in.op("mul", power, c_in.broadcast_to(factor, (count,)))
        kept = c_in.compare("lt", shared, c_in.broadcast_to(overlap, (count,)))
        place = c_in.places((count,), 0, "i32")
        others = c_in.compare("ne", place, c_in.broadcast_to(best, (count,)))
        less = c_in.op("mul", scores, c_in.op("exp", power))
        following = above(c_in, less, c_in.op("and", kept, others))
        return [following, *rows, c_in.op("add", found, c_in.convert(is_found, "i32"))]

    first = above(c, scores, c.full(True, "i1", (count,)))
    start = [first, c.full(0, "i32", (room,)), c.full(0, "f32", (room,)), c.constant(0, "i32")]
    _, *results = counted_loop(c.builder, c.size(room), start, step)
    return results


def _shared(c: Context, boxes: Value, box: Value) -> Value:
    """Intersection over union of each of [count, 4] with one [4]; 0 without an area."""
    count = shape_of(boxes)[0]
    whole = c.broadcast_to(box, (count, 4))

    def area(low: Value, high: Value) -> Value:
        sides = c.op("sub", high, low)
        return c.reduce(c.op("max", sides, 0), [1], "mul")

    (a, b), (low, high) = (
        [c.sliced(each, 1, at, at + 2) for at in (0, 2)] for each in (boxes, whole)
    )
    both = area(c.op("max", a, low), c.op("min", b, high))
    union = c.op("sub", c.op("add", area(a, b), area(low, high)), both)
    is_some = c.compare("gt", both, 0)
    return c.op("select", is_some, c.op("div", both, union), 0)


@lowering("CUSTOM 'TFLite_Detection_PostProcess'")
def detection_post_process(
    c: Context, encoded: Value, predicted: Value, anchors: Value
) -> list[Value]:
    """Of boxes [1, n, 4 or more] relative to anchors [n, 4] and scores [1, n, classes], perhaps
    with a background in front: boxes, classes and scores of the best detections, then zeros; their
    count. Overlapping boxes are left out for each class, or for the best class of each box."""
    options = {"detections_per_class": 100, "use_regular_nms": False}
    options |= read_options(c.operator.custom)
    most, several = (
        count_in(options, name) for name in ("max_detections", "max_classes_per_detection")
    )
    regular = options["use_regular_nms"]
    if several != 1 and not regular:
        raise UnsupportedNode(f"it gives {several} classes of each box, expected 1")
    count, width = shape_of(anchors)[0], shape_of(predicted)[2]
    boxes = _decoded(c, c.reshape(encoded, (count, shape_of(encoded)[2])), anchors, options)
    scores = c.reshape(predicted, (count, width))
    classes = count_in(options, "num_classes")
    scores = c.transpose(c.sliced(scores, 1, width - classes, width), (1, 0))
    lines = scores if regular else c.reduce(scores, (0,), "max", keep=True)
    numbers = (options["nms_score_threshold"], "f32"), (options["nms_iou_threshold"], "f32")
    limit = c.constant(count_in(options, "detections_per_class") if regular else most, "i64")
    least, overlap = (c.constant(*each) for each in numbers)
    ordered, order, kept = _suppressed(c, lines, boxes, "ge", least, limit, overlap)
    ordered = c.op("select", kept, ordered, -math.inf)
    total = shape_of(lines)[0] * count
    ordered = c.padded(c.reshape(ordered, (total,)), (0,), (most,), -math.inf)
    best, at = c.several("top_k", ordered, k=most, axis=0, largest=True, dtype=_I64)
    found = c.compare("gt", best, -math.inf)
    box = c.op("take", c.reshape(order, (total,)), at, axis=0, mode="clamp")
    if regular:
        label = c.op("div", at, c.broadcast_to(c.size(count), (most,)))
    else:
        likely = c.op("arg_max", scores, axis=0, dtype=_I64)
        label = c.op("take", likely, box, axis=0, mode="clamp")
    rows = c.op("take", boxes, box, axis=0, mode="clamp")
    columns = [rows, *(c.reshape(each, (most, 1)) for each in (c.convert(label, "f32"), best))]
    whole = c.op("concatenate", *columns, axis=1)
    is_found = c.op("broadcast", found, shape=(most, 6), dimensions=(0,))
    whole = c.op("select", is_found, whole, 0)
    whole = c.padded(whole, (0, 0), (most * (several - 1), 0))
    results = [c.sliced(whole, 1, *ends) for ends in ((0, 4), (4, 5), (5, 6))]
    return [
        c.reshape(results[0], (1, most * several, 4)),
        *(c.reshape(each, (1, most * several)) for each in results[1:]),
        c.reduce(c.convert(found, "f32"), (0,), "add", keep=True),
    ]


def _decoded(c: Context, encoded: Value, anchors: Value, options: dict[str, Any]) -> Value:
    """Boxes [n, 4] as low y, low x, high y, high x of centers and sizes relative to anchors."""

    def scaled(at: int, names: Sequence[str]) -> Value:
        part = c.sliced(encoded, 1, at, at + 2)
        factors = c.constant([options[name] for name in names], "f32")
        return c.op("div", part, c.broadcast_to(factors, shape_of(part)))

    centers, sizes = (c.sliced(anchors, 1, at, at + 2) for at in (0, 2))
    offset = c.op("mul", scaled(0, ("y_scale", "x_scale")), sizes)
    middle = c.op("add", offset, centers)
    size = c.op("mul", c.op("exp", scaled(2, ("h_scale", "w_scale"))), sizes)
    half = c.op("mul", size, 0.5)
    return c.op("concatenate", c.op("sub", middle, half), c.op("add", middle, half), axis=1)
