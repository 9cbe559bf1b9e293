"""Which elements of a line are the best of it: those that reach a threshold, found bit by bit.

Elements become integers of the same order, their keys. 32 passes over these count how many are
not below a threshold, each of which decides a bit of it; a last one lists the places of those
above it and of the first that equal it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.loop import I64, LoopBuilder
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.radix_sort import order_key
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.hal.spec import DType, dtype

__all__ = ["Threshold", "has_threshold"]

_I32 = dtype("i32")
_ELEMENTS = ("f32", "f16", "bf16", "i8", "u8", "i16", "u16", "i32")
_LANES = 16  # a line of keys is whole vectors of any target
_LEAST = -(1 << 31)


def has_threshold(element: DType, length: Dim, k: Dim, known: Bounds) -> bool:
    """Whether lines of `length` have keys that fit scratch, beside what sorts k elements, and k is
    not most of a line."""
    most, wanted = (dims.bounds(dim, known)[1] for dim in (length, k))
    is_few = not (isinstance(length, int) and isinstance(k, int)) or 2 * k <= length
    return is_few and element.name in _ELEMENTS and most * 4 + wanted * 40 + 1024 <= MOST_SCRATCH


class Threshold:
    """The search in one line at a time. Of its scratch, `length` bytes, the keys come first."""

    def __init__(self, builder: LoopBuilder, line: Dim, k: Dim, lanes: int, known: Bounds) -> None:
        self.builder, self.k, self.lanes = builder, k, lanes
        self.padded = dims.ceildiv(line, _LANES) * _LANES
        keys = int(dims.bounds(self.padded, known)[1]) * _I32.bytes
        self.keys, self.places = builder.scratch(0, _I32), builder.scratch(keys, I64)
        self.length = keys + -(-int(dims.bounds(k + 1, known)[1]) * I64.bytes // 64) * 64

    def clear(self) -> None:
        """Make the last keys the least there are; those of elements that are there follow."""
        b = self.builder
        least = b.constant(_LEAST, _I32, _LANES)
        b.store(self.keys, b.max(b.sub(b.dim(self.padded), _LANES), 0), least)

    def put(self, place: LoopIndex, vector: Value, largest: bool, count: LoopIndex | None) -> None:
        """Store the keys of the elements from `place` on; the greater come first, or the less."""
        b = self.builder
        key = order_key(b, vector)
        b.store(self.keys, place, key if largest else b.op("not", key), count)

    def choose(self) -> None:
        """Fill `places` with those of the k best, in their order in the line."""
        b = self.builder
        k = b.value(b.dim(self.k))
        with b.for_(0, 32, 1, [b.data(_LEAST), b.data(1 << 31)]) as loop:
            least, bit = loop.carried
            tried = b.op("add", least, bit)
            enough = b.compare("ge", self._count("ge", tried), k)
            half = b.op("div", bit, b.constant(2, I64))
            loop.yield_(b.op("select", enough, tried, least), half)
        threshold = loop.results[0]
        ties = b.op("sub", b.data(b.dim(self.k)), self._count("gt", threshold))
        bound = b.broadcast(b.convert(threshold, _I32), self.lanes)
        with b.for_(0, b.dim(self.padded), self.lanes, [b.data(0), ties]) as loop:
            key, carried = b.load(self.keys, loop.index, self.lanes), list(loop.carried)
            reaches = b.op("compare", key, bound, direction="ge")

            def take(at: LoopIndex = loop.index) -> list[Value]:
                return self._take(at, key, bound, carried)

            loop.yield_(*b.if_(b.any(reaches), take, lambda: carried))

    def _count(self, direction: str, threshold: Value) -> Value:
        """i64: how many keys stand so to the threshold."""
        b = self.builder
        bound = b.broadcast(b.convert(threshold, _I32), self.lanes)
        zero, one = (b.constant(each, _I32, self.lanes) for each in (0, 1))
        with b.for_(0, b.dim(self.padded), self.lanes, [zero]) as loop:
            key = b.load(self.keys, loop.index, self.lanes)
            found = b.op("compare", key, bound, direction=direction)
            loop.yield_(b.op("add", loop.carried[0], b.op("select", found, one, zero)))
        total = loop.results[0]
        return b.convert(b.reduce(total, "add") if self.lanes > 1 else total, I64)

    def _take(
        self, at: LoopIndex, key: Value, bound: Value, carried: Sequence[Value]
    ) -> list[Value]:
        """List the places of a vector of keys that are chosen: how many there are then, and how
        many more may equal the threshold."""
        b = self.builder
        found, ties = carried
        zero = b.constant(0, I64)
        above = b.op("compare", key, bound, direction="gt")
        equal = b.op("compare", key, bound, direction="eq")
        for lane in range(self.lanes):
            is_above, is_equal = (
                b.extract(each, lane) if self.lanes > 1 else each for each in (above, equal)
            )
            b.store(self.places, found, b.value(b.add(at, lane)))
            is_tie = b.op("and", is_equal, b.op("compare", ties, zero, direction="gt"))
            found = b.op("add", found, b.convert(b.op("or", is_above, is_tie), I64))
            ties = b.op("sub", ties, b.convert(is_tie, I64))
        return [found, ties]
