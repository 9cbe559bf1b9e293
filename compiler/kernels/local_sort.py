"""Sorts elements in the local memory of a work-group: a network of exchanges.

Elements are as many values as there are columns, and their number, which decides between
elements that the comparator calls equal: so the sort is stable. Every exchange keeps both
elements, so whatever the comparator answers the result is a permutation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.loop import I64
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.merge_sort import Before
from ingot.compiler.kernels.work_group import WorkGroup
from ingot.hal.spec import DType, dtype

__all__ = ["LocalSort", "local_capacity", "needs_workspace"]

_ROOM = 16384
"""Bytes of local memory for elements: what the smallest devices have twice."""

_NUMBER = dtype("i32")

_Pair = Callable[[LoopIndex, LoopIndex], tuple[LoopIndex, LoopIndex]]
"""The two slots that are compared, by the number of a block and that of a pair in it."""


def local_capacity(columns: Sequence[DType]) -> int:
    """How many elements of these columns fit, a power of two."""
    bytes = sum(column.bytes for column in columns) + _NUMBER.bytes
    return 1 << ((_ROOM // bytes).bit_length() - 1)


def needs_workspace(columns: Sequence[DType], length: Dim, known: Bounds) -> bool:
    """Whether a line may be too long for local memory."""
    return dims.bounds(length, known)[1] > local_capacity(columns)


class LocalSort:
    """Memory for `capacity` elements, a power of two, for every line of items along x."""

    def __init__(
        self, group: WorkGroup, columns: Sequence[DType], before: Before, capacity: int
    ) -> None:
        self.group, self.builder, self.capacity = group, group.builder, capacity
        self._before = before
        lines = group.count // group.size[0]
        self._memory = [group.allocate(capacity * lines, column) for column in (*columns, _NUMBER)]
        self._base = self.builder.mul(group.item(1), capacity)

    def put(self, slot: LoopIndex, values: Sequence[Value], number: LoopIndex) -> None:
        """Store an element."""
        b = self.builder
        self._write(slot, [*values, b.convert(b.value(number), _NUMBER)])

    def get(self, slot: LoopIndex) -> tuple[list[Value], Value]:
        """The element in a slot, and its number, i64."""
        *values, number = self._read(slot)
        return values, self.builder.convert(number, I64)

    def sort(self, count: LoopIndex) -> None:
        """Sort the first `count` elements, which may be none. Has barriers: before and after
        it all items see the same memory, and `count` is the same for all items."""
        b = self.builder
        self.group.barrier()
        stages: LoopIndex
        if isinstance(count, int):
            stages = max(count - 1, 0).bit_length()
        else:
            zeros = b.op("count_leading_zeros", b.value(b.max(b.sub(count, 1), 0)))
            stages = b.sub(64, zeros)
        with b.for_(0, stages, 1, [b.value(2)]) as stage:
            (size,) = stage.carried
            self._flip(size, count)
            with b.for_(0, stage.index, 1, [b.value(b.div(size, 4))]) as step:
                (half,) = step.carried
                self._halve(half, count)
                step.yield_(b.value(b.div(half, 2)))
            stage.yield_(b.value(b.mul(size, 2)))

    def _flip(self, size: LoopIndex, count: LoopIndex) -> None:
        """In blocks of `size` compare every element with its mirror image: two sorted halves
        become two, of which the first goes before the second."""
        b = self.builder
        half = b.div(size, 2)

        def pair(block: LoopIndex, step: LoopIndex) -> tuple[LoopIndex, LoopIndex]:
            start = b.mul(block, size)
            return b.add(start, step), b.sub(b.add(start, b.sub(size, 1)), step)

        self._exchange(half, count, pair)

    def _halve(self, half: LoopIndex, count: LoopIndex) -> None:
        """In blocks of two halves compare the elements of the first with those of the second."""
        b = self.builder

        def pair(block: LoopIndex, step: LoopIndex) -> tuple[LoopIndex, LoopIndex]:
            left = b.add(b.mul(block, b.mul(half, 2)), step)
            return left, b.add(left, half)

        self._exchange(half, count, pair)

    def _exchange(self, half: LoopIndex, count: LoopIndex, pair: _Pair) -> None:
        """Bring pairs into order; beyond the end there is nothing, which stays behind."""
        b = self.builder
        size = b.mul(half, 2)
        pairs = b.mul(b.div(b.add(count, b.sub(size, 1)), size), half)
        with self.group.each(0, pairs, axis=0) as loop:
            left, right = pair(b.div(loop.index, half), b.rem(loop.index, half))

            def compare() -> None:
                a, c = self._read(left), self._read(right)
                earlier = b.op("compare", c[-1], a[-1], direction="lt")
                tied = b.op("and", earlier, b.op("not", self._before(a[:-1], c[:-1])))
                swap = b.op("or", self._before(c[:-1], a[:-1]), tied)

                def exchange() -> None:
                    self._write(left, c)
                    self._write(right, a)

                b.if_(swap, exchange)

            b.if_(b.compare("lt", right, count), compare)
        self.group.barrier()

    def _read(self, slot: LoopIndex) -> list[Value]:
        place = self.builder.add(self._base, slot)
        return [self.builder.load(memory, place) for memory in self._memory]

    def _write(self, slot: LoopIndex, values: Sequence[Value]) -> None:
        place = self.builder.add(self._base, slot)
        for memory, value in zip(self._memory, values, strict=True):
            self.builder.store(memory, place, value)
