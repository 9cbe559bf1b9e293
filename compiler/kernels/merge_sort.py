"""A stable merge sort of lines in loop IR: what sort and top_k share.

A line is read in blocks of eight elements, which are sorted in registers by exchanges of
neighbours. Passes then merge runs of twice the length each, from one half of a buffer to
the other; the last pass writes the result. The buffer is scratch memory, or a workspace
of the call where a line is too long for it or has no known bound. Whatever the comparator
answers (an order that NaN breaks, say), the result is a permutation of the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ingot.compiler.ir import TensorType, Value, dims
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.lines import Lines
from ingot.compiler.kernels.loop import I64, LoopBuilder
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.hal.spec import DType

__all__ = ["MergeSort", "merge_runs"]

Read = Callable[[Emitter], list[Value]]
"""The element at which the emitter stands, a value per column."""

Before = Callable[[Sequence[Value], Sequence[Value]], Value]
"""i1: whether the first element (a value per column) must stand before the second."""

Store = Callable[[LoopIndex, Sequence[Value]], None]
"""Writes the element (a value per column) at a place of the line."""

_BLOCK = 8


@dataclass
class MergeSort:
    """Sorts the lines of `lines`; the `columns` of an element move together.

    After `plan`, `scratch_length` and `workspaces` say what the kernel needs; the first
    workspace is binding number `first_workspace`.
    """

    builder: LoopBuilder
    lines: Lines
    columns: Sequence[DType]
    read: Read
    before: Before
    first_workspace: int
    scratch_length: int = 0
    workspaces: tuple[TensorType, ...] = ()
    buffers: list[Value] = field(default_factory=list)

    def plan(self, known: Bounds, in_workspace: bool | None = None) -> None:
        """Decide where the buffers lie, unless it is decided."""
        self.half: Dim = dims.ceildiv(self.lines.length, _BLOCK) * _BLOCK
        most = dims.bounds(self.half, known)[1]
        for column in self.columns:
            self.buffers.append(self.builder.scratch(self.scratch_length, column))
            if self.scratch_length <= MOST_SCRATCH and most <= MOST_SCRATCH:
                self.scratch_length += -(-int(most) * 2 * column.bytes // 64) * 64
            else:
                self.scratch_length = MOST_SCRATCH + 1
        if in_workspace is None:
            in_workspace = self.scratch_length > MOST_SCRATCH
        if in_workspace:
            self.scratch_length = 0
            shape = (self.lines.count, 2, self.half)
            self.workspaces = tuple(TensorType(each, shape) for each in self.columns)
            self.buffers = [
                self.builder.binding(self.first_workspace + place, column)
                for place, column in enumerate(self.columns)
            ]

    def sort_line(self, emitter: Emitter, limit: Dim, store: Store) -> None:
        """Sort one line; `store` gets its first `limit` elements, in order."""
        b = self.builder
        base: LoopIndex = 0
        if self.workspaces:
            base = b.mul(emitter.index(self.lines.ordinal), b.mul(b.dim(self.half), 2))
        length, half = b.dim(self.lines.length), b.dim(self.half)
        self._sort_blocks(emitter, base, length)
        with b.for_(0, self._passes(length), 1, [b.value(0), b.value(_BLOCK)]) as loop:
            source, width = loop.carried
            target = b.sub(half, source)
            double = b.mul(width, 2)
            into = b.add(base, target)
            with b.for_(0, length, double) as runs:
                middle = b.min(b.add(runs.index, width), length)
                end = b.min(b.add(runs.index, double), length)
                bounds = (runs.index, middle, end)

                def keep(place: LoopIndex, values: Sequence[Value]) -> None:
                    self._write(b.add(into, place), values)

                self._merge(b.add(base, source), bounds, end, keep)
            loop.yield_(b.value(target), b.value(double))
        source, width = loop.results
        whole = (0, b.min(width, length), length)
        self._merge(b.add(base, source), whole, b.dim(limit), store)

    def _passes(self, length: LoopIndex) -> LoopIndex:
        """How many passes stay in the buffer: runs double until two are left."""
        b = self.builder
        if isinstance(length, int):
            blocks = -(-length // _BLOCK)
            return max((blocks - 1).bit_length() - 1, 0)
        blocks_less_one = b.max(b.div(b.sub(length, 1), _BLOCK), 0)
        zeros = b.op("count_leading_zeros", b.value(blocks_less_one))
        return b.max(b.sub(63, zeros), 0)

    def _sort_blocks(self, emitter: Emitter, base: LoopIndex, length: LoopIndex) -> None:
        """Read the line in sorted blocks into the first half of the buffer. Beyond the end of
        the line the last block repeats its last element, which stays behind all others."""
        b = self.builder
        last = b.sub(length, 1)
        with b.for_(0, length, _BLOCK) as loop:
            elements: list[list[Value]] = []
            for step in range(_BLOCK):
                with emitter.scope():
                    emitter.places[self.lines.line] = b.min(b.add(loop.index, step), last)
                    elements.append(self.read(emitter))
            live = [b.compare("lt", b.add(loop.index, step), length) for step in range(_BLOCK)]
            for turn in range(_BLOCK):
                for left in range(turn % 2, _BLOCK - 1, 2):
                    a, c = elements[left], elements[left + 1]
                    swap = b.op("and", self.before(c, a), live[left + 1])
                    pairs = list(zip(a, c, strict=True))
                    elements[left] = [b.op("select", swap, y, x) for x, y in pairs]
                    elements[left + 1] = [b.op("select", swap, x, y) for x, y in pairs]
            for step, values in enumerate(elements):
                self._write(b.add(b.add(base, loop.index), step), values)

    def _write(self, place: LoopIndex, values: Sequence[Value]) -> None:
        for buffer, value in zip(self.buffers, values, strict=True):
            self.builder.store(buffer, place, value)

    def _merge(
        self,
        base: LoopIndex,
        run: tuple[LoopIndex, LoopIndex, LoopIndex],
        limit: LoopIndex,
        store: Store,
    ) -> None:
        """Merge [first, middle) and [middle, end) at `base` of the buffers, up to `limit`."""
        b = self.builder
        first, middle, end = run
        last = b.sub(end, 1)

        def read(place: LoopIndex) -> list[Value]:
            at = b.add(base, b.min(place, last))
            return [b.load(buffer, at) for buffer in self.buffers]

        merge_runs(b, (first, limit), ((first, middle), (middle, end)), read, self.before, store)


def merge_runs(
    b: LoopBuilder,
    span: tuple[LoopIndex, LoopIndex],
    runs: tuple[tuple[LoopIndex, LoopIndex], tuple[LoopIndex, LoopIndex]],
    read: Callable[[LoopIndex], list[Value]],
    before: Before,
    store: Store,
) -> None:
    """Store the elements of two sorted runs, each from its first place up to its end, in order at
    the places of `span`; of equal ones those of the first run are in front."""
    (first, first_end), (second, second_end) = runs
    with b.for_(*span, 1, [b.data(first), b.data(second)]) as loop:
        i, j = loop.carried
        left, right = read(i), read(j)
        take = b.op("and", before(right, left), b.compare("lt", j, second_end))
        take = b.op("or", take, b.compare("ge", i, first_end))
        pairs = zip(left, right, strict=True)
        store(loop.index, [b.op("select", take, y, x) for x, y in pairs])
        step = b.convert(take, I64)
        loop.yield_(b.value(b.add(i, b.sub(1, step))), b.value(b.add(j, step)))
