"""Lowerings of random numbers: bits as XLA makes them on CPUs, numbers from the own stream."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.random_numbers import (
    Stream,
    halves,
    number_of,
    philox,
    threefry,
    whole,
)
from ingot.compiler.frontends.stablehlo.lowering import Context, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, known_dims
from ingot.hal.spec import DType, dtype

__all__ = ["check_generator", "rng_bit_generator"]

_U64 = dtype("u64")
_STATES = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}


def check_generator(op: SourceOp, program: SourceProgram) -> str | None:
    state, bits = op.operands[0].tensor, op.results[1].tensor
    algorithm = str(op.attributes["rng_algorithm"])
    if state.element != "u64" or state.shape not in [(n,) for n in _STATES[algorithm]]:
        wanted = " or ".join(f"u64[{n}]" for n in _STATES[algorithm])
        return f"the state of {algorithm} is {state}, expected {wanted}"
    if None in bits.shape and len(op.operands) == 1:
        return f"nothing tells how many bits {bits} are: fix the program"
    if None in bits.shape and algorithm == "THREE_FRY" and dtype(bits.element).bits < 64:
        return f"bits of THREE_FRY lie as the dims of {bits} are even or odd: use PHILOX"
    if dtype(bits.element).is_boolean or dtype(bits.element).is_complex:
        return f"it makes bits of {bits.element}: make integers, and compare or join them"
    return None


@lowering("rng_bit_generator", check=check_generator)
def rng_bit_generator(context: Context, op: SourceOp) -> list[Value]:
    """The next state, and bits as XLA makes them on CPUs, where the default is Philox; in a
    dynamic one, the second operand is the shape of the bits."""
    builder, state = context.builder, context.operand(op, 0)
    type = op.results[1].tensor
    element = dtype(type.element)
    shape = context.sizes(op, 1) if len(op.operands) > 1 else tuple(dim or 0 for dim in type.shape)
    (count,) = known_dims(tensor_type(state).shape)
    rows = [
        builder.value("slice", state, start=(place,), limit=(place + 1,)) for place in range(count)
    ]
    parts = [builder.value("reshape", row, shape=()) for row in rows]
    is_threefry = op.attributes["rng_algorithm"] == "THREE_FRY"
    make = _threefry_bits if is_threefry else _philox_bits
    bits, after = make(builder, parts, shape, element.bits == 64)
    rows[1:] = [builder.value("reshape", part, shape=(1,)) for part in after[: count - 1]]
    bits = builder.value("reshape", bits, shape=shape)
    return [builder.value("concatenate", *rows, axis=0), _as_element(builder, bits, element)]


def _as_element(builder: Builder, bits: Value, element: DType) -> Value:
    """The lowest of the bits as an element of that width."""
    unsigned = dtype(f"u{element.bits}")
    if unsigned is not tensor_type(bits).dtype:
        bits = builder.value("convert", bits, dtype=unsigned)
    return bits if element is unsigned else builder.value("bitcast", bits, dtype=element)


def _counted(builder: Builder, start: Value, count: Dim) -> Value:
    """start, start + 1, ...: u64[] -> u64[count]."""
    places = builder.value("iota", dtype=_U64, shape=(count,), axis=0)
    return builder.value("add", places, builder.broadcast_to(start, (count,)))


def _threefry_bits(
    builder: Builder, state: Sequence[Value], shape: tuple[Dim, ...], is_wide: bool
) -> tuple[Value, list[Value]]:
    """A block for each element of 64 bits, or for two of 32: neighbours along one axis."""
    key, start = state
    axis = 0
    if shape and not is_wide:  # the first even axis, else the first of the longest
        known = [int(dim) for dim in shape if isinstance(dim, int)]
        assert len(known) == len(shape), "the check refuses symbolic dims"
        even = [place for place, dim in enumerate(known) if dim % 2 == 0]
        axis = even[0] if even else known.index(max(known))
    before, along, behind = shape[:axis], (*shape, 1)[axis], shape[axis + 1 :]
    half = (*before, along if is_wide else dims.ceildiv(along, 2), *behind)
    count = dims.product(half)
    counter = halves(builder, _counted(builder, start, count))
    words = threefry(builder, halves(builder, key), counter)
    after = [builder.value("add", start, number_of(builder, count, start))]
    if is_wide:
        return whole(builder, *words), after
    columns = [
        builder.value("reshape", word, shape=(*half[: axis + 1], 1, *behind)) for word in words
    ]
    bits = builder.value("concatenate", *columns, axis=axis + 1)
    bits = builder.value("reshape", bits, shape=(*before, 2 * half[axis], *behind))
    limit = (*before, along, *behind)
    return builder.value("slice", bits, start=(0,) * len(limit), limit=limit), after


def _philox_bits(
    builder: Builder, state: Sequence[Value], shape: tuple[Dim, ...], is_wide: bool
) -> tuple[Value, list[Value]]:
    """A block for every four words in row-major order. The upper half of the counter is the
    third element of the state, or without one the key."""
    key, low, high = state[0], state[1], state[-1] if len(state) == 3 else state[0]
    count = dims.product(shape)
    blocks = dims.ceildiv(count, 2 if is_wide else 4)
    lows = _counted(builder, low, blocks)
    counter = [*halves(builder, lows), *halves(builder, _carried(builder, lows, low, high))]
    words = philox(builder, halves(builder, key), counter)
    if is_wide:
        words = [whole(builder, *words[:2]), whole(builder, *words[2:])]
    columns = [builder.value("reshape", word, shape=(blocks, 1)) for word in words]
    bits = builder.value("concatenate", *columns, axis=1)
    bits = builder.value("reshape", bits, shape=(blocks * len(words),))
    next_low = builder.value("add", low, number_of(builder, blocks, low))
    after = [next_low, _carried(builder, next_low, low, high)]
    return builder.value("slice", bits, start=(0,), limit=(count,)), after


def _carried(builder: Builder, sum: Value, low: Value, high: Value) -> Value:
    """The upper half of a counter whose lower one went from `low` to `sum`."""
    more = builder.value("add", high, number_of(builder, 1, high))
    low, high, more = (
        builder.broadcast_to(each, tensor_type(sum).shape) for each in (low, high, more)
    )
    wrapped = builder.value("compare", sum, low, direction="lt")
    return builder.value("select", wrapped, more, high)


def _check_rng(op: SourceOp, program: SourceProgram) -> str | None:
    type = op.results[0].tensor
    if dtype(type.element).is_complex or dtype(type.element).is_boolean:
        return f"it draws {type.element}: draw real numbers, and join or compare them"
    is_normal = op.attributes["rng_distribution"] == "NORMAL"
    if is_normal and not dtype(type.element).is_float:
        return f"it draws normal {type.element}: draw floats and convert them"
    return None


@lowering("rng", check=_check_rng)
def rng(context: Context, op: SourceOp) -> Value:
    """Uniform numbers from a to b, or normal ones of mean a and deviation b."""
    a, b = context.operand(op, 0), context.operand(op, 1)
    shape = context.sizes(op, 2)
    stream = Stream(context.builder)
    if op.attributes["rng_distribution"] == "NORMAL":
        return stream.normal(shape, a, b)
    return stream.uniform(shape, a, b)
