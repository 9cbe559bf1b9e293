"""Choices among elements: the greatest, and boxes that do not overlap."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["by_falling"]


@lowering("TOPK_V2", raw=True)
def top_k(c: Context, x: Value, count: Value) -> tuple[Value, ...]:
    (k,) = c.dims(count, "k")
    axis, index = type_of(x).rank - 1, c.outputs[1].dtype
    return c.several("top_k", x, k=k, axis=axis, largest=True, dtype=index)


def by_falling(c: Context, scores: Value, others: Sequence[Value], axis: int) -> tuple[Value, ...]:
    """Scores in falling order, equal ones in the order they have, and the others with them."""
    operands = (scores, *others)
    block = Block([ScalarType(type_of(each).dtype) for each in operands for _ in range(2)])
    inner = Builder(block)
    inner.yield_(inner.value("compare", *block.arguments[:2], direction="gt"))
    return c.several("sort", *operands, axis=axis, regions=[Region([block])])


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
    if sigma is not None and c.walker.amounts.of(c.reshape(sigma, ())) != 0:
        raise UnsupportedNode("it is soft (soft_nms_sigma is not 0), which is not supported")
    (count,) = shape_of(scores)
    (room,) = c.dims(limit, "max_output_size")
    ordered, order = by_falling(c, scores, [c.places((count,), 0)], 0)
    corners = _ordered_corners(c, c.op("take", boxes, order, axis=0, mode="check"), count)
    least = c.broadcast_to(c.reshape(threshold, ()), (count,))
    kept = c.op(
        "suppress",
        c.reshape(corners, (1, count, 4)),
        c.reshape(c.compare("gt", ordered, least), (1, count)),
        c.convert(c.reshape(limit, ()), "i64"),
        c.reshape(overlap, ()),
    )
    kept = c.reshape(kept, (count,))
    number = c.op("cumulative", c.convert(kept, "i64"), axis=0, kind="add", exclusive=True)
    outside = c.broadcast_to(c.size(room), (count,))
    target = c.op("select", kept, number, outside)
    found = c.reduce(c.convert(kept, "i32"), [0], "add")
    indices = _packed(c, c.convert(order, "i32"), target, room)
    if sigma is None:
        return [indices, found]
    return [indices, _packed(c, ordered, target, room), found]


def _ordered_corners(c: Context, boxes: Value, count: Dim) -> Value:
    """[count, 4] as low y, low x, high y, high x."""
    a, b = c.sliced(boxes, 1, 0, 2), c.sliced(boxes, 1, 2, 4)
    return c.op("concatenate", c.op("min", a, b), c.op("max", a, b), axis=1)


def _packed(c: Context, x: Value, target: Value, room: Dim) -> Value:
    """Elements of x at their targets, those that are inside; zeros elsewhere."""
    return c.op(
        "scatter",
        c.full(0, type_of(x).dtype, (room,)),
        c.reshape(target, (*shape_of(target), 1)),
        x,
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        kind="set",
        mode="skip",
    )


@lowering("MULTINOMIAL", raw=True)
def multinomial(c: Context, logits: Value, count: Value) -> Value:
    """Draws by the greatest of logits plus Gumbel noise."""
    from ingot.compiler.frontends.random_numbers import Stream

    (draws,) = c.dims(count, "num_samples")
    batch, classes = shape_of(logits)
    shape = (batch, draws, classes)
    stream = Stream(c.builder, c.options.seed ^ c.options.seed2)
    u = c.reshape(stream.fractions(shape, dtype("f32")), shape)
    u = c.op("max", u, c.fill(1e-30, like=u))
    noise = c.op("neg", c.op("log", c.op("neg", c.op("log", u))))
    wide = c.op("broadcast", c.convert(logits, "f32"), shape=shape, dimensions=(0, 2))
    return c.op("arg_max", c.op("add", wide, noise), axis=2, dtype=c.outputs[0].dtype)


@lowering("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", raw=True)
def random(c: Context, shape: Value) -> Value:
    from ingot.compiler.frontends.random_numbers import Stream

    stream = Stream(c.builder, c.options.seed ^ c.options.seed2)
    zero, one = (c.constant(each, "f32") for each in (0, 1))
    draw = stream.uniform if c.operator.name == "RANDOM_UNIFORM" else stream.normal
    return draw(c.dims(shape), zero, one)
