"""Random bits by counters (Salmon et al., SC 2011), and the numbers that front ends draw.

`threefry` and `philox` turn a key and counters into bits, each block by itself, so that they run
in any order on any device. What a program draws without a key of its own comes from a `Stream`:
threefry under a key that is made of a seed and of how many streams the session began before,
which is a variable of the module (docs/design/0007-random-numbers.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import VariableLoad
from ingot.compiler.ir import Module, TensorType, Value, Variable, walk
from ingot.compiler.ir import dims as ir_dims
from ingot.compiler.ir.dims import Dim
from ingot.compiler.ir.literals import literal_from_numbers
from ingot.hal.spec import DType, dtype

__all__ = [
    "POSITION",
    "Stream",
    "add_position",
    "halves",
    "number_of",
    "philox",
    "threefry",
    "whole",
]

POSITION = "random.position"
"""The variable that counts the streams that a session began."""

_TYPE = TensorType(dtype("i64"))
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

Pair = tuple[Value, Value]


def number_of(builder: Builder, value: Dim, like: Value) -> Value:
    """A number or dim in the dtype and shape of `like`."""
    type = tensor_type(like)
    return builder.number(value, type.dtype, type.shape)


def halves(builder: Builder, x: Value) -> Pair:
    """The low and the high 32 bits of 64: u64[...] -> u32[...] twice."""
    high = builder.value("shift_right_logical", x, number_of(builder, 32, x))
    low, high = (builder.value("convert", each, dtype=dtype("u32")) for each in (x, high))
    return low, high


def whole(builder: Builder, low: Value, high: Value) -> Value:
    """Both halves as 64 bits: u32[...] twice -> u64[...]."""
    low, high = (builder.value("convert", each, dtype=dtype("u64")) for each in (low, high))
    high = builder.value("shift_left", high, number_of(builder, 32, high))
    return builder.value("or", low, high)


def threefry(builder: Builder, key: Pair, counter: Pair) -> Pair:
    """Threefry2x32 of 20 rounds: u32 of one shape. The key may have rank 0."""

    def add(a: Value, b: Value) -> Value:
        return builder.value("add", a, b)

    first, second = builder.value("xor", key[0], key[1]), number_of(builder, _PARITY, key[0])
    shape = tensor_type(counter[0]).shape
    keys = [
        builder.broadcast_to(each, shape) for each in (*key, builder.value("xor", first, second))
    ]
    amounts = {
        each: number_of(builder, each, counter[0])
        for rotation in _ROTATIONS
        for each in (rotation, 32 - rotation)
    }
    x, y = add(counter[0], keys[0]), add(counter[1], keys[1])
    for turn in range(5):
        for rotation in _ROTATIONS[4 * (turn % 2) :][:4]:
            x = add(x, y)
            up = builder.value("shift_left", y, amounts[rotation])
            down = builder.value("shift_right_logical", y, amounts[32 - rotation])
            y = builder.value("xor", builder.value("or", up, down), x)
        x = add(x, keys[(turn + 1) % 3])
        y = add(add(y, keys[(turn + 2) % 3]), number_of(builder, turn + 1, y))
    return x, y


def philox(builder: Builder, key: Pair, counter: Sequence[Value]) -> list[Value]:
    """Philox4x32 of 10 rounds: four u32 of one shape. The key has rank 0."""
    shape = tensor_type(counter[0]).shape
    a, b, c, d = counter
    for _ in range(10):
        (low_a, high_a), (low_c, high_c) = (
            _product(builder, each, factor)
            for each, factor in zip((a, c), _MULTIPLIERS, strict=True)
        )
        keys = [builder.broadcast_to(each, shape) for each in key]
        a = builder.value("xor", builder.value("xor", high_c, b), keys[0])
        c = builder.value("xor", builder.value("xor", high_a, d), keys[1])
        b, d = low_c, low_a
        one, other = (
            builder.value("add", each, number_of(builder, step, each))
            for each, step in zip(key, _KEY_STEPS, strict=True)
        )
        key = one, other
    return [a, b, c, d]


def _product(builder: Builder, x: Value, factor: int) -> Pair:
    wide = builder.value("convert", x, dtype=dtype("u64"))
    return halves(builder, builder.value("mul", wide, number_of(builder, factor, wide)))


class Stream:
    """Numbers for one run of one op, each from its own counters.

    Block number k of a stream is threefry(key, k); of the key, the low word is the seed xor the
    high half of the position, and the high word is the low half. Every stream moves the position
    by one.
    """

    def __init__(self, builder: Builder, seed: int = 0) -> None:
        self._builder = builder
        position = builder.append(
            "variable.load", (), (), {"name": POSITION, "dtype": _TYPE.dtype, "shape": ()}
        ).result
        after = builder.value("add", position, builder.constant(1, _TYPE.dtype))
        builder.append("variable.store", (after,), (), {"name": POSITION})
        low, high = halves(builder, builder.value("bitcast", position, dtype=dtype("u64")))
        seeds = builder.constant(seed & 0xFFFFFFFF, "u32")
        self._key = builder.value("xor", high, seeds), low

    def words(self, shape: Sequence[Dim], count: int) -> list[Value]:
        """`count` words of 32 random bits for each element (2 or 4), flat: u32[n]."""
        builder, blocks = self._builder, count // 2
        flat = (ir_dims.product(shape),)
        index = builder.value("iota", dtype=dtype("u64"), shape=flat, axis=0)
        words: list[Value] = []
        for block in range(blocks):
            place = builder.value("mul", index, number_of(builder, blocks, index))
            place = builder.value("add", place, number_of(builder, block, place))
            words += threefry(builder, self._key, halves(builder, place))
        return words

    def fractions(self, shape: Sequence[Dim], element: DType) -> Value:
        """Uniform in [0, 1), flat: all multiples of 2^-53 in f64, else of 2^-24 in f32."""
        return self._fraction(self.words(shape, 2), element.bits == 64)

    def _fraction(self, words: Sequence[Value], is_wide: bool) -> Value:
        builder = self._builder
        bits = whole(builder, *words[:2]) if is_wide else words[0]
        kind, drop, kept = ("f64", 11, 53) if is_wide else ("f32", 8, 24)
        bits = builder.value("shift_right_logical", bits, number_of(builder, drop, bits))
        return self._scaled(bits, kind, 2.0**-kept)

    def _scaled(self, bits: Value, kind: str, factor: float) -> Value:
        builder = self._builder
        x = builder.value("convert", bits, dtype=dtype(kind))
        return builder.value("mul", x, builder.full(factor, kind, tensor_type(x).shape))

    def uniform(self, shape: Sequence[Dim], low: Value, high: Value) -> Value:
        """Numbers of the dtype of `low`, low <= x < high; both have rank 0."""
        builder, element = self._builder, tensor_type(low).dtype
        if not element.is_float:
            return self._integers(shape, low, high)
        x = self.fractions(shape, element)
        # In halves, since the width of the whole range may overflow.
        half = _spread(builder, builder.full(0.5, tensor_type(x).dtype, ()), x)
        ends = (_spread(builder, each, x) for each in (low, high))
        start, end = (builder.value("mul", each, half) for each in ends)
        x = builder.value("mul", x, builder.value("sub", end, start))
        x = builder.value("add", x, start)
        x = _converted(builder, builder.value("add", x, x), element)
        low, high = (_spread(builder, each, x) for each in (low, high))
        x = builder.value("max", x, low)
        below = builder.value("compare", x, high, direction="lt")  # rounding may reach the end
        return builder.value("reshape", builder.value("select", below, x, low), shape=tuple(shape))

    def _integers(self, shape: Sequence[Dim], low: Value, high: Value) -> Value:
        """As `uniform`: what is left of 64 bits when they are divided by the range."""
        builder, element = self._builder, tensor_type(low).dtype
        bits = whole(builder, *self.words(shape, 2))
        low, high = (_spread(builder, each, bits) for each in (low, high))
        rest = builder.value("rem", bits, builder.value("sub", high, low))
        found = _converted(builder, builder.value("add", low, rest), element)
        return builder.value("reshape", found, shape=tuple(shape))

    def normal(self, shape: Sequence[Dim], mean: Value, deviation: Value) -> Value:
        """Normally distributed numbers of the dtype of `mean`, by Box and Muller's transform;
        mean and deviation have rank 0."""
        builder, element = self._builder, tensor_type(mean).dtype
        is_wide = element.bits == 64
        kind = dtype("f64" if is_wide else "f32")
        words = self.words(shape, 4 if is_wide else 2)
        half = len(words) // 2
        bits = whole(builder, *words[:2]) if is_wide else words[0]
        width = 32 * half

        def number(value: float) -> Value:
            return builder.full(value, kind, tensor_type(bits).shape)

        near_zero = builder.value(
            "add", self._scaled(bits, kind.name, 2.0**-width), number(2.0 ** -(width + 1))
        )
        square = builder.value("mul", builder.value("log", near_zero), number(-2.0))
        angle = builder.value("mul", self._fraction(words[half:], is_wide), number(2 * math.pi))
        x = builder.value("mul", builder.value("sqrt", square), builder.value("cos", angle))
        mean, deviation = (_spread(builder, each, x) for each in (mean, deviation))
        x = builder.value("add", builder.value("mul", x, deviation), mean)
        return builder.value("reshape", _converted(builder, x, element), shape=tuple(shape))


def _spread(builder: Builder, scalar: Value, like: Value) -> Value:
    """A number of rank 0 in the dtype and shape of `like`."""
    type = tensor_type(like)
    return builder.broadcast_to(_converted(builder, scalar, type.dtype), type.shape)


def _converted(builder: Builder, x: Value, wanted: DType) -> Value:
    own = tensor_type(x).dtype
    return x if own is wanted else builder.value("convert", x, dtype=wanted)


def add_position(module: Module) -> None:
    """Give the module the variable that its streams count in, if it has any."""
    ops = (
        each
        for function in module.functions.values()
        for op in function.block.ops
        for each in walk(op)
    )
    if any(op.name == "variable.load" and VariableLoad.of(op).name == POSITION for op in ops):
        module.variables[POSITION] = Variable(_TYPE, literal_from_numbers([0], (), _TYPE.dtype))
