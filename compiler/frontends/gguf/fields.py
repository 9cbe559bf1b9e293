"""Fields of bits in bytes, as graph ops: what weights that are quantised are taken apart with."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.spec import dtype

__all__ = ["Blocks", "Fields"]

Number = int | float


class Fields:
    """Writes ops on bytes where the builder is."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        return self.b.value("reshape", x, shape=tuple(shape))

    def part(self, x: Value, start: int, limit: int) -> Value:
        """Elements of the last axis."""
        shape = tensor_type(x).shape
        first = (*(0 for _ in shape[:-1]), start)
        return self.b.value("slice", x, start=first, limit=(*shape[:-1], limit))

    def float(self, x: Value) -> Value:
        return self.b.value("convert", x, dtype=dtype("f32"))

    def floats_of(self, x: Value, element: str) -> Value:
        """Bytes u8[..., n] that are one element of a dtype: f32[...]."""
        return self.float(self.b.value("reinterpret", x, dtype=dtype(element)))

    def signed(self, x: Value) -> Value:
        return self.b.value("bitcast", x, dtype=dtype("i8"))

    def apply(self, name: str, x: Value, number: Number) -> Value:
        """An op on each element and a number."""
        type = tensor_type(x)
        return self.b.value(name, x, self.b.full(number, type.dtype, type.shape))

    def compared(self, x: Value, number: int, direction: str) -> Value:
        """Whether each element stands so to a number."""
        type = tensor_type(x)
        number_like = self.b.full(number, type.dtype, type.shape)
        return self.b.value("compare", x, number_like, direction=direction)

    def fields(self, x: Value, count: int, bits: int, axis: int = -2) -> Value:
        """`count` fields of `bits` bits of each byte, low ones first, on an axis before the last
        one, or behind it (-1)."""
        *outer, length = tensor_type(x).shape
        shape = (*outer, count, length) if axis == -2 else (*outer, length, count)
        axis += len(shape)
        places = self.b.constant(np.arange(0, count * bits, bits, dtype=np.uint8))
        places = self.b.value("broadcast", places, shape=shape, dimensions=(axis,))
        wide = tuple(each for each in range(len(shape)) if each != axis)
        x = self.b.value("broadcast", x, shape=shape, dimensions=wide)
        x = self.b.value("shift_right_logical", x, places)
        return self.apply("and", x, (1 << bits) - 1)

    def stream(self, x: Value, bits: int) -> Value:
        """Codes of 2, 3, 4 or 8 bits that lie one behind another in bytes u8[..., n], the first
        in the low bits of the first byte: u8[..., 8 * n / bits]."""
        *outer, length = tensor_type(x).shape
        if bits == 8:
            return x
        count = known_dim(length) * 8 // bits
        if bits != 3:
            return self.reshape(self.fields(x, 8 // bits, bits, axis=-1), (*outer, count))
        x = self.reshape(x, (*outer, count // 8, 3))
        bytes = [self.part(x, place, place + 1) for place in range(3)]
        codes = []
        for at in range(0, 24, 3):
            low = self.apply("shift_right_logical", bytes[at // 8], at % 8)
            if at % 8 > 5:
                low = self.joined(low, bytes[at // 8 + 1], 8 - at % 8)
            codes.append(self.apply("and", low, 7))
        return self.reshape(self.behind(*codes), (*outer, count))

    def joined(self, low: Value, high: Value, bits: int) -> Value:
        """high << bits | low."""
        return self.b.value("or", low, self.apply("shift_left", high, bits))

    def behind(self, *xs: Value) -> Value:
        """The values one behind another on their last axis."""
        return self.b.value("concatenate", *xs, axis=tensor_type(xs[0]).rank - 1)

    def swapped(self, x: Value) -> Value:
        """With the last two axes in the other order."""
        rank = tensor_type(x).rank
        order = (*range(rank - 2), rank - 1, rank - 2)
        return self.b.value("transpose", x, permutation=order)

    def spread(self, x: Value, shape: tuple[Dim, ...]) -> Value:
        """Each element as often as the last dim of the shape."""
        return self.b.value("broadcast", x, shape=shape, dimensions=tuple(range(len(shape) - 1)))

    def places(self, x: Value, places: Sequence[int], bits: int) -> Value:
        """Fields of so many bits, at most 8, of each integer, from these places on: u8[..., n]."""
        type = tensor_type(x)
        shape, rank = (*type.shape, len(places)), type.rank
        downs = self.b.constant(np.array(places, type.dtype.numpy))
        downs = self.b.value("broadcast", downs, shape=shape, dimensions=(rank,))
        x = self.b.value("broadcast", x, shape=shape, dimensions=tuple(range(rank)))
        x = self.b.value("shift_right_logical", x, downs)
        mask = (1 << bits) - 1
        if type.dtype.name != "u8":
            x = self.b.value("convert", self.apply("and", x, mask), dtype=dtype("u8"))
        return self.apply("and", x, mask)

    def whole(self, x: Value, element: str) -> Value:
        """Bytes u8[..., n, bytes] as integers of a dtype: [..., n]."""
        return self.b.value("reinterpret", x, dtype=dtype(element))

    def of_table(self, codes: Value, numbers: Sequence[int]) -> Value:
        """The numbers, of a byte, that codes stand for."""
        table = self.b.constant(np.array(numbers, np.int8))
        codes = self.b.value("convert", codes, dtype=dtype("i32"))
        return self.b.value("take", table, codes, axis=0, mode="clamp")

    def half_power(self, exponents: Value) -> Value:
        """2 to the power of bytes less 128, as f32."""
        wide = self.b.value("convert", exponents, dtype=dtype("u16"))
        normal = self.apply("shift_left", self.apply("sub", wide, 1), 7)
        small = self.b.full(1 << 5, "u16", tensor_type(wide).shape)
        small = self.b.value("shift_left", small, wide)
        bits = self.b.value("select", self.compared(wide, 2, "lt"), small, normal)
        return self.float(self.b.value("bitcast", bits, dtype=dtype("bf16")))


class Blocks(Fields):
    """Fields of the blocks of rows u8[..., bytes]. `take` gives them one behind another."""

    def __init__(self, rows: Value, builder: Builder) -> None:
        super().__init__(builder)
        self.rows, self.at = rows, 0
        self.outer = tensor_type(rows).shape[:-1]

    def blocks(self, length: int) -> None:
        """Begin with blocks of so many bytes."""
        bytes = known_dim(tensor_type(self.rows).shape[-1])
        self.outer = (*self.outer, bytes // length)
        self.rows = self.reshape(self.rows, (*self.outer, length))

    def take(self, *shape: int) -> Value:
        """The next bytes, u8[..., blocks, *shape]."""
        start, self.at = self.at, self.at + prod(shape)
        part = self.part(self.rows, start, self.at)
        return part if len(shape) == 1 else self.reshape(part, (*self.outer, *shape))

    def half(self) -> Value:
        """The next two bytes as f16: f32[..., blocks]."""
        return self.floats_of(self.take(2), "f16")

    def ends(self, x: Value, *shape: int) -> Value:
        """The value with these dims behind [..., blocks]."""
        return self.reshape(x, (*self.outer, *shape))

    def times(self, x: Value, factor: Value) -> Value:
        """[..., blocks, n] times [..., blocks], as f32."""
        x = self.float(x)
        return self.b.value("mul", x, self.spread(factor, tensor_type(x).shape))

    def numbers(
        self, codes: Value, scales: Value, zero: int = 0, minima: Value | None = None
    ) -> Value:
        """(codes [..., groups, n] - zero) * scales [..., groups] - minima, f32[..., elements]."""
        shape, result = tensor_type(codes).shape, self.float(codes)
        if zero:
            result = self.apply("sub", result, zero)
        result = self.b.value("mul", result, self.spread(scales, shape))
        if minima is not None:
            result = self.b.value("sub", result, self.spread(minima, shape))
        first = len(self.outer) - 1
        elements = prod(dim for dim in shape[first:] if isinstance(dim, int))
        return self.reshape(result, (*shape[:first], elements))

    def looked_up(self, codes: Value, scale: Value, numbers: Sequence[int]) -> Value:
        """Codes that stand for these numbers, times scales."""
        return self.numbers(self.of_table(codes, numbers), scale)
