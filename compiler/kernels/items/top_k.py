"""The top_k class for work items: the best elements of lines, in order.

A short line is sorted in local memory. Of a long one a few are wanted, mostly: its elements
are looked at chunk by chunk, those that beat the worst of the best so far are gathered in
local memory, and when that is full it is sorted and cut; with every cut fewer elements get
through. Where many are wanted the line is sorted in a workspace (`line_sort.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.items.line_sort import LineShape, LineSort
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.top_k import TopKLowering
from ingot.compiler.kernels.local_sort import LocalSort, local_capacity, needs_workspace
from ingot.compiler.kernels.loop import I64
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind

__all__ = ["ItemsTopKSchedule", "lower_top_k"]


@dataclass(frozen=True)
class ItemsTopKSchedule:
    """The decisions of one top_k kernel, for people to read."""

    lines: Dim
    length: Dim
    k: Dim
    by: str  # "gathering" or "sort"
    shape: LineShape


def lower_top_k(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `top_k` and what feeds it."""
    if target.group_size == 1:
        return TopKLowering(function, target).lower()
    return _Lowering(function, target).lower()


class _Lowering(TopKLowering):
    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, target)
        items, known = target.group_size, function.symbols
        columns = self.sort.columns
        self.gathers = self.few and needs_workspace(columns, self.lines.length, known)
        self.shape = LineShape.of(self.lines, columns, items, known)
        if self.gathers:
            self.shape = LineShape((items, 1, 1), local_capacity([self.element]))
        self.group = WorkGroup(self.builder, self.shape.size)

    def lower(self) -> Kernel:
        """The kernel."""
        b, group, lines = self.builder, self.group, self.lines
        emitter = Emitter(b, {lines.line: 0})
        emitter.clamps = True
        height = group.size[1]
        number = b.add(b.mul(b.workgroup(0), height), group.item(1))
        count = b.dim(lines.count)
        lines.stand(emitter, b.min(number, b.sub(count, 1)))
        if self.gathers:
            self._gather(emitter)
        else:
            self._sort_whole(emitter, b.compare("lt", number, count))
        by = "gathering" if self.gathers else "sort"
        return replace(
            self.kernel(),
            tile=(height, 1, 1),
            scratch_length=0,
            local_size=group.size,
            local_length=group.local_length,
            schedule=ItemsTopKSchedule(lines.count, lines.length, self.k, by, self.shape),
        )

    def _sort_whole(self, emitter: Emitter, live: Value) -> None:
        sort = self.sort
        buffers = sort.buffers if sort.workspaces else []
        half = sort.half if buffers else 0
        sorter = LineSort(
            self.group, self.lines, sort.columns, self.read, self.before, self.shape, buffers, half
        )
        sorter.sort_line(emitter, live, self.k, partial(self.store, emitter))

    # A few of many.

    def _gather(self, emitter: Emitter) -> None:
        b, group, k = self.builder, self.group, known_dim(self.k)
        if k == 0:
            return
        local = LocalSort(group, [self.element], self.before, self.shape.capacity)
        steps = max(min(4, self.shape.capacity // 2 // group.count), 1)
        chunk = steps * group.count
        initial = [b.data(0), b.value(0), b.constant(0, self.element)]
        with b.for_(0, b.dim(self.lines.length), chunk, initial) as loop:
            held, is_cut, worst = loop.carried
            found = self._look(emitter, loop.index, steps, is_cut, worst)
            held = b.value(b.add(held, self._keep(local, found, held)))
            is_full = b.compare("gt", held, self.shape.capacity - chunk)

            def cut() -> list[Value]:
                local.sort(held)
                return [b.value(b.min(held, k)), b.value(1), local.get(k - 1)[0][0]]

            loop.yield_(*b.if_(is_full, cut, lambda: [held, is_cut, worst]))
        local.sort(loop.results[0])
        with group.each(0, k) as loop:
            values, place = local.get(loop.index)
            self.store(emitter, loop.index, [*values, place])

    def _look(
        self, emitter: Emitter, first: LoopIndex, steps: int, is_cut: Value, worst: Value
    ) -> list[tuple[Value, Value, LoopIndex]]:
        """The elements of an item: whether one may be among the best, itself, its place."""
        b, group = self.builder, self.group
        length = b.dim(self.lines.length)
        found = []
        for step in range(steps):
            place = b.add(first, b.add(step * group.count, group.ordinal()))
            there = emitter.fork()
            there.places[self.lines.line] = b.min(place, b.sub(length, 1))
            value = there.emit(self.node)
            wanted = b.op("or", b.compare("eq", is_cut, 0), self.better(value, worst))
            wanted = b.op("and", wanted, b.compare("lt", place, length))
            found.append((wanted, value, place))
        return found

    def _keep(
        self, local: LocalSort, found: Sequence[tuple[Value, Value, LoopIndex]], held: LoopIndex
    ) -> LoopIndex:
        """Put what was found behind the `held` elements; how many these are."""
        b = self.builder
        combine = combine_kind(b, "add")
        mine = [b.convert(wanted, I64) for wanted, _, _ in found]
        total = mine[0]
        for each in mine[1:]:
            (total,) = combine([total], [each])
        (before,), (all_found,) = self.group.scan([total], combine, [b.constant(0, I64)])
        slot = b.add(held, before)
        for (wanted, value, place), each in zip(found, mine, strict=True):

            def put(slot: LoopIndex = slot, value: Value = value, place: LoopIndex = place) -> None:
                local.put(slot, [value], place)

            b.if_(wanted, put)
            slot = b.add(slot, each)
        return all_found
