"""Looks rows of a table up in the panels of a weight whose columns they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.narrow_codes import decode
from ingot.compiler.graph.forms.pack_weights import pack
from ingot.compiler.graph.forms.repeats import repeated
from ingot.compiler.graph.forms.weight_functions import Made
from ingot.compiler.graph.ops import PANEL, Take, code_planes
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dims import known_dim
from ingot.hal.spec import dtype

__all__ = ["PanelRows"]


class PanelRows:
    """The rows that a lookup takes of a table [n, k], built where `builder` is: [*outer, k]."""

    def __init__(self, op: Op, builder: Builder) -> None:
        table, ids = op.operands
        self.builder = builder
        # Which row an index is, by the rules of the lookup.
        shape = (known_dim(tensor_type(table).shape[0]),)
        numbers = builder.value("iota", dtype=dtype("i32"), shape=shape, axis=0)
        row = builder.value("take", numbers, ids, axis=0, mode=Take.of(op).mode)
        self.outer = tensor_type(row).shape
        lanes = builder.full(PANEL, "i32", self.outer)
        places = [builder.value(name, row, lanes) for name in ("div", "rem")]
        pairs = [builder.value("reshape", each, shape=(*self.outer, 1)) for each in places]
        self.places = builder.value("concatenate", *pairs, axis=len(self.outer))

    def of(self, panels: Value) -> Value:
        """Their columns of panels [ceil(n/16), lines, 16, ...]: [*outer, lines, ...]."""
        _, lines, _, *rest = tensor_type(panels).shape
        rank = len(self.outer)
        return self.builder.value(
            "gather", panels, self.places,
            offset_dims=tuple(range(rank, rank + 1 + len(rest))), collapsed_slice_dims=(0, 2),
            operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=(0, 2),
            index_vector_dim=rank, slice_sizes=(1, lines, 1, *rest), mode="clamp",
        )  # fmt: skip

    def first(self, x: Value, count: int) -> Value:
        """The first elements of [*outer, ...], as [*outer, count]."""
        length = prod(map(known_dim, tensor_type(x).shape[len(self.outer) :]))
        x = self.builder.value("reshape", x, shape=(*self.outer, length))
        if length == count:
            return x
        start = (0,) * len(self.outer)
        return self.builder.value("slice", x, start=(*start, 0), limit=(*self.outer, count))

    def numbers(self, made: Sequence[Made]) -> Value:
        """The rows of a weight that is codes, less minima, if there are some: f32."""
        weight, *others = made
        result = self._coded(weight)
        for minima in others:
            if minima.attributes:
                small = self._coded(minima)
            else:
                panels = pack(minima.values[0], self.builder)
                small = self._float(self.first(self.of(panels), minima.k))
            small = self._repeated(small, weight.k // minima.k, weight.k)
            result = self.builder.value("sub", result, small)
        return result

    def _coded(self, weight: Made) -> Value:
        """(codes - zeros) * scales, as `dot_coded` has them."""
        b, k, attributes = self.builder, weight.k, weight.attributes
        codes, scales, *others = map(self.of, weight.values)
        coding, group, block = (attributes[each] for each in ("coding", "group", "block"))
        bits = attributes["bits"] or coding.bits
        result = self._codes(codes, bits, k)
        if attributes["table"]:
            table = b.constant(np.array(attributes["table"], np.float32))
            places = b.value("convert", result, dtype=dtype("i32"))
            result = b.value("take", table, places, axis=0, mode="clamp")
        if coding.is_float:
            result = decode(b, result, coding)
        result = self._float(result)
        scales, *others = map(self._float, (scales, *others))
        if block:
            factors = self._repeated(others.pop(0), block // group, -(-k // group))
            scales = b.value("mul", scales, factors)
        zeros = [self._repeated(each, group, k) for each in others]
        if coding.kind == "i":
            zeros.append(b.full(1 << (bits - 1), "f32", (*self.outer, k)))
        for each in zeros:
            result = b.value("sub", result, each)
        return b.value("mul", result, self._repeated(scales, group, k))

    def _codes(self, words: Value, bits: int, k: int) -> Value:
        """The codes in words [*outer, lines, 4], u8[*outer, k]."""
        b, planes, outer = self.builder, code_planes(bits), self.outer
        runs, at, parts = -(-k * planes[-1] // 32), bits, []
        words = b.value("reshape", words, shape=(*outer, runs, bits // planes[-1], 1, 4))
        start = (0,) * len(outer)
        first = 0
        for width in reversed(planes):  # upper bits lie before the low ones of their steps
            last, at, shape = first + width // planes[-1], at - width, (*outer, runs)
            limit = (*shape, last, 1, 4)
            part = b.value("slice", words, start=(*start, 0, first, 0, 0), limit=limit)
            part = b.broadcast_to(part, (*shape, last - first, 8 // width, 4))
            if width < 8:
                shape = tensor_type(part).shape
                downs = b.constant(np.arange(0, 8, width, dtype=np.uint8).reshape(-1, 1))
                part = b.value("shift_right_logical", part, b.broadcast_to(downs, shape))
                part = b.value("and", part, b.full((1 << width) - 1, "u8", shape))
                part = b.value("shift_left", part, b.full(at, "u8", shape))
            parts.append(self.first(part, k))
            first = last
        return parts[0] if len(parts) == 1 else b.value("or", *parts)

    def _repeated(self, x: Value, length: int, count: int) -> Value:
        """[*outer, groups] with each element so often, and so many of these."""
        return repeated(x, len(self.outer), length, count, self.builder)

    def _float(self, x: Value) -> Value:
        return self.builder.value("convert", x, dtype=dtype("f32"))
