"""Fields of bits in bytes, as graph ops: what weights that are quantised are taken apart with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.spec import dtype

__all__ = ["Fields"]

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
