"""Choices among elements: the greatest, and by chance."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value, dims
from ingot.hal.spec import dtype

__all__ = ["by_falling", "in_order"]

_THREEFRY = 2


@lowering("TOPK_V2", raw=True)
def top_k(c: Context, x: Value, count: Value) -> tuple[Value, ...]:
    (k,) = c.dims(count, "k")
    axis, index = type_of(x).rank - 1, c.outputs[1].dtype
    return c.several("top_k", x, k=k, axis=axis, largest=True, dtype=index)


def by_falling(c: Context, scores: Value, others: Sequence[Value], axis: int) -> tuple[Value, ...]:
    """Scores in falling order, equal ones in the order they have, and the others with them."""
    return in_order(c, (scores, *others), 0, "gt", axis)


def in_order(
    c: Context, operands: Sequence[Value], key: int, direction: str, axis: int
) -> tuple[Value, ...]:
    """Sorted together by operand `key`, equal ones in the order they have."""
    block = Block([ScalarType(type_of(each).dtype) for each in operands for _ in range(2)])
    inner = Builder(block)
    inner.yield_(
        inner.value("compare", *block.arguments[2 * key : 2 * key + 2], direction=direction)
    )
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
    u = c.op("max", u, 1e-30)
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


@lowering("STABLEHLO_RNG_BIT_GENERATOR", raw=True)
def rng_bit_generator(c: Context, state: Value) -> list[Value]:
    """The next state, and bits: a row of words of 32, the lower half of one of 64 first. The
    state is the key and the counter, whose upper half never changes."""
    from ingot.compiler.frontends.random_numbers import halves, philox, threefry, whole

    type, size = c.outputs[1].type, shape_of(state)[0]
    is_threefry = c.options.algorithm == _THREEFRY
    if type.dtype.bits not in (32, 64) or size not in ((2,) if is_threefry else (2, 3)):
        raise UnsupportedNode(f"it makes {type} of a state of {size}")
    key, low = (c.sliced(state, 0, at, at + 1) for at in range(2))
    words = dims.product(type.shape) * (type.dtype.bits // 32)
    blocks = dims.ceildiv(words, 2 if is_threefry else 4)
    lows = c.op("add", c.places((blocks,), 0, "u64"), c.broadcast_to(low, (blocks,)))
    scalars = halves(c.builder, c.reshape(key, ()))
    if is_threefry:
        made = list(threefry(c.builder, scalars, halves(c.builder, lows)))
    else:
        high = key if size == 2 else c.sliced(state, 0, 2, 3)
        high = c.broadcast_to(high, (blocks,))
        counter = [half for each in (lows, high) for half in halves(c.builder, each)]
        made = philox(c.builder, scalars, counter)
    columns = [c.reshape(each, (blocks, 1)) for each in made]
    bits = c.reshape(c.op("concatenate", *columns, axis=1), (blocks * len(made),))
    bits = c.sliced(bits, 0, 0, words)
    if type.dtype.bits == 64:
        halved = c.reshape(bits, (dims.product(type.shape), 2))
        bits = whole(c.builder, *(c.sliced(halved, 1, at, at + 1) for at in range(2)))
    bits = bits if type_of(bits).dtype is type.dtype else c.op("bitcast", bits, dtype=type.dtype)
    after = c.op("add", low, c.broadcast_to(c.size(blocks, "u64"), (1,)))
    rest = [c.sliced(state, 0, 2, 3)] if size == 3 else []
    return [c.op("concatenate", key, after, *rest, axis=0), c.reshape(bits, type.shape)]
