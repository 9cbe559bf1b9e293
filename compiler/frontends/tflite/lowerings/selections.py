"""Choices among elements: the greatest, and by chance."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
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
