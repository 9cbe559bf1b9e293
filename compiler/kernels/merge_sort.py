"""A stable merge sort of lines in loop IR: what sort and top_k share.

A line is read in blocks of eight elements, which are sorted in registers by exchanges of
neighbours. Passes then merge runs of twice the length each, two merges in turns, from one half
of a buffer to the other; the last pass writes the result. The buffer is scratch memory, or a
workspace of the call where a line is too long for it or has no known bound. Whatever the
comparator answers (an order that NaN breaks, say), the result is a permutation of the line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ingot.compiler.ir import TensorType, Value, dims
from ingot.compiler.ir.dataclass import dataclass
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


@dataclasses.dataclass
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
    buffers: list[Value] = dataclasses.field(default_factory=list)

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
            double, into = b.mul(width, 2), b.add(base, target)
            from_ = b.add(base, source)
            with b.for_(0, length, b.mul(double, 2)) as runs:
                merges = []
                for start in (runs.index, b.min(b.add(runs.index, double), length)):
                    middle = b.min(b.add(start, width), length)
                    end = b.min(b.add(start, double), length)
                    merges.append(self._merge(from_, (start, middle, end), into))
                _merge_two(b, *merges)
            loop.yield_(b.value(target), b.value(double))
        source, width = loop.results
        middle, place = b.min(width, length), b.add(base, source)
        last = self._merge(place, (0, middle, length), 0)
        merge_runs(b, (0, b.dim(limit)), last.runs, last.read, self.before, store)

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
        into: LoopIndex,
    ) -> _Merge:
        """Of [first, middle) and [middle, end) at `base` of the buffers."""
        b = self.builder
        first, middle, end = run
        last = b.sub(end, 1)

        def read(place: LoopIndex) -> list[Value]:
            at = b.add(base, b.min(place, last))
            return [b.load(buffer, at) for buffer in self.buffers]

        def store(place: LoopIndex, values: Sequence[Value]) -> None:
            self._write(b.add(into, place), values)

        return _Merge(b, (first, end), ((first, middle), (middle, end)), read, self.before, store)


@dataclass(frozen=True)
class _Merge:
    """Stores the elements of two sorted runs, each from its first place up to its end, in order at
    the places of `span`; of equal ones those of the first run are in front."""

    builder: LoopBuilder
    span: tuple[LoopIndex, LoopIndex]
    runs: tuple[tuple[LoopIndex, LoopIndex], tuple[LoopIndex, LoopIndex]]
    read: Callable[[LoopIndex], list[Value]]
    before: Before
    store: Store

    def start(self) -> list[Value]:
        """Where both runs begin."""
        return [self.builder.data(first) for first, _ in self.runs]

    def step(self, place: LoopIndex, carried: Sequence[Value]) -> list[Value]:
        """Store the next element, at a place; where both runs go on."""
        b, (i, j) = self.builder, carried
        (_, first_end), (_, second_end) = self.runs
        take = b.op("and", self.before(self.read(j), self.read(i)), b.compare("lt", j, second_end))
        take = b.op("or", take, b.compare("ge", i, first_end))
        # By arithmetic: of a choice compilers make a branch, foreseen half of the time only.
        step = b.convert(take, I64)
        self.store(place, self.read(b.add(i, b.mul(step, b.sub(j, i)))))
        return [b.value(b.add(i, b.sub(1, step))), b.value(b.add(j, step))]


def merge_runs(
    b: LoopBuilder,
    span: tuple[LoopIndex, LoopIndex],
    runs: tuple[tuple[LoopIndex, LoopIndex], tuple[LoopIndex, LoopIndex]],
    read: Callable[[LoopIndex], list[Value]],
    before: Before,
    store: Store,
) -> None:
    """Store the elements of two sorted runs in order: see `_Merge`."""
    merge = _Merge(b, span, runs, read, before, store)
    with b.for_(*span, 1, merge.start()) as loop:
        loop.yield_(*merge.step(loop.index, loop.carried))


def _merge_two(b: LoopBuilder, first: _Merge, second: _Merge) -> None:
    """Both, of which the second has no more elements, a step of each in turn: a step waits for the
    one before it of its own merge."""
    (start, end), (other, other_end) = first.span, second.span
    both = b.sub(other_end, other)
    with b.for_(0, both, 1, [*first.start(), *second.start()]) as loop:
        mine, others = loop.carried[:2], loop.carried[2:]
        after = first.step(b.add(start, loop.index), mine)
        loop.yield_(*after, *second.step(b.add(other, loop.index), others))
    with b.for_(b.add(start, both), end, 1, loop.results[:2]) as rest:
        rest.yield_(*first.step(rest.index, rest.carried))
