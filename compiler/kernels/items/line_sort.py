"""A stable sort of lines by work-groups: what sort and top_k share.

A line that fits into local memory is sorted there. A longer one is sorted there in blocks,
which are then merged in a workspace, pass by pass; the items of a group share each merge by
the place at which their part of the result begins (a merge path). Items agree on these
places first, in an order that leaves no element out and takes none twice whatever the
comparator answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.lines import Lines
from ingot.compiler.kernels.local_sort import LocalSort, local_capacity
from ingot.compiler.kernels.loop import I64, LoopBuilder
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.merge_sort import Before, Read, Store, merge_runs
from ingot.compiler.kernels.schedule import guess, power_of_two
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind
from ingot.hal.spec import DType

__all__ = ["LineShape", "LineSort"]


@dataclass(frozen=True)
class LineShape:
    """How items share lines, for people to read: `size` are the items of a group, along the
    line and the lines; `capacity` elements of a line are sorted in local memory."""

    size: tuple[int, int, int]
    capacity: int

    @staticmethod
    def of(lines: Lines, columns: Sequence[DType], items: int, known: Bounds) -> LineShape:
        """As many items as there are pairs; short lines share a group."""
        room = local_capacity(columns)
        most = dims.bounds(lines.length, known)[1]
        if most > room:
            return LineShape((items, 1, 1), room)
        capacity = max(power_of_two(int(most)), 2)
        width = min(max(capacity // 2, 1), items)
        height = min(items // width, room // capacity, power_of_two(guess(lines.count, known)))
        return LineShape((width, max(height, 1), 1), capacity)


@dataclass
class LineSort:
    """Sorts one line of `lines` per row of items; the `columns` of an element move together.

    `buffers` are the workspaces, one per column, of (lines, 2, half) elements each; none where
    every line fits into local memory.
    """

    group: WorkGroup
    lines: Lines
    columns: Sequence[DType]
    read: Read
    before: Before
    shape: LineShape
    buffers: Sequence[Value]
    half: Dim
    splits: Value | None = None  # local memory for the places where parts begin

    def __post_init__(self) -> None:
        if self.buffers:
            self.splits = self.group.allocate(self.group.size[0], I64)

    @property
    def builder(self) -> LoopBuilder:
        """Of the kernel."""
        return self.group.builder

    def sort_line(self, emitter: Emitter, live: Value, limit: Dim, store: Store) -> None:
        """Sort the line at which the emitter stands; `store` gets its first `limit` elements
        where the line is live. All items of the group must come here."""
        b = self.builder
        length = b.dim(self.lines.length)
        local = LocalSort(self.group, self.columns, self.before, self.shape.capacity)

        def keep(place: LoopIndex, values: Sequence[Value]) -> None:
            wanted = b.op("and", live, b.compare("lt", place, b.dim(limit)))
            b.if_(wanted, lambda: store(place, values))

        if self.buffers:
            self._sort_in_blocks(local, emitter, keep)
            return
        self._load(local, emitter, 0, length)
        local.sort(length)
        with self.group.each(0, length, axis=0) as loop:
            keep(loop.index, local.get(loop.index)[0])

    def _load(self, local: LocalSort, emitter: Emitter, first: LoopIndex, count: LoopIndex) -> None:
        """Elements first ... of the line into local memory."""
        b = self.builder
        with self.group.each(0, count, axis=0) as loop:
            there = emitter.fork()
            there.places[self.lines.line] = b.add(first, loop.index)
            local.put(loop.index, self.read(there), loop.index)

    def _sort_in_blocks(self, local: LocalSort, emitter: Emitter, store: Store) -> None:
        """Blocks, then passes that merge two runs each; the last one gives the result."""
        b, block = self.builder, self.shape.capacity
        length, half = b.dim(self.lines.length), b.dim(self.half)
        base = b.mul(emitter.index(self.lines.ordinal), b.mul(half, 2))
        with b.for_(0, length, block) as blocks:
            count = b.min(b.sub(length, blocks.index), block)
            self._load(local, emitter, blocks.index, count)
            local.sort(count)
            with self.group.each(0, count, axis=0) as loop:
                place = b.add(base, b.add(blocks.index, loop.index))
                self._write(place, local.get(loop.index)[0])
            self.group.barrier()
        blocks_less_one = b.div(b.max(b.sub(length, 1), 0), block)
        zeros = b.op("count_leading_zeros", b.value(blocks_less_one))
        passes = b.max(b.sub(64, zeros), 1)
        is_long = isinstance(half, int) and half >= 1 << 31  # more than all devices can count
        begin = [b.data(each) if is_long else b.value(each) for each in (0, block)]
        with b.for_(0, passes, 1, begin) as loop:
            source, width = loop.carried
            target, double = b.sub(half, source), b.mul(width, 2)
            is_last = b.compare("eq", b.add(loop.index, 1), passes)
            into = b.add(base, target)

            def keep(place: LoopIndex, values: Sequence[Value]) -> None:
                b.if_(
                    is_last,
                    lambda: store(place, values),
                    lambda: self._write(b.add(into, place), values),
                )

            with b.for_(0, length, double) as runs:
                middle = b.min(b.add(runs.index, width), length)
                end = b.min(b.add(runs.index, double), length)
                self._merge(b.add(base, source), runs.index, middle, end, keep)
            self.group.barrier()
            loop.yield_(b.value(target), b.value(double))

    def _merge(
        self, base: LoopIndex, first: LoopIndex, middle: LoopIndex, end: LoopIndex, store: Store
    ) -> None:
        """Merge [first, middle) and [middle, end) at `base` of the buffers."""
        b, items = self.builder, self.group.size[0]
        left, right = b.sub(middle, first), b.sub(end, middle)
        count = b.add(left, right)
        share = b.div(b.add(count, items - 1), items)
        item = self.group.item(0)
        begin = b.min(b.mul(item, share), count)
        stop = b.min(b.add(begin, share), count)
        start = self._split(base, first, middle, left, right, begin)
        start, following = self._agree(start, begin, left)
        i, j = b.add(first, start), b.add(middle, b.sub(begin, start))
        i_end, j_end = b.add(first, following), b.add(middle, b.sub(stop, following))
        last = b.sub(end, 1)

        def read(place: LoopIndex) -> list[Value]:
            return self._read(b.add(base, b.min(place, last)))

        span = (b.add(first, begin), b.add(first, stop))
        merge_runs(b, span, ((i, i_end), (j, j_end)), read, self.before, store)

    def _split(
        self,
        base: LoopIndex,
        first: LoopIndex,
        middle: LoopIndex,
        left: LoopIndex,
        right: LoopIndex,
        begin: LoopIndex,
    ) -> LoopIndex:
        """How many of the first `begin` elements of the result come from the left run."""
        b = self.builder
        low, high = b.max(b.sub(begin, right), 0), b.min(begin, left)
        zeros = b.op("count_leading_zeros", b.value(left))
        with b.for_(0, b.sub(64, zeros), 1, [b.value(low), b.value(high)]) as search:
            low, high = search.carried
            center = b.div(b.add(low, high), 2)

            def look() -> list[Value]:
                one = self._read(b.add(base, b.add(first, center)))
                place = b.sub(b.sub(b.add(middle, begin), center), 1)
                other = self._read(b.add(base, place))
                goes = self.before(other, one)
                below = b.op("select", goes, b.value(low), b.value(b.add(center, 1)))
                return [below, b.op("select", goes, b.value(center), b.value(high))]

            bounds = [b.value(low), b.value(high)]
            search.yield_(*b.if_(b.compare("lt", low, high), look, lambda: bounds))
        return search.results[0]

    def _agree(
        self, start: LoopIndex, begin: LoopIndex, left: LoopIndex
    ) -> tuple[LoopIndex, LoopIndex]:
        """This item's split and the next one's, moved so that both runs are walked forwards."""
        b, group = self.builder, self.group

        def so_far(kind: str, value: LoopIndex, outside: int) -> LoopIndex:
            combine = combine_kind(b, kind)
            mine = [b.value(value)]
            (result,) = combine(group.scan(mine, combine, [b.constant(outside, I64)])[0], mine)
            return result

        start = so_far("max", start, 0)
        start = b.add(begin, so_far("min", b.sub(start, begin), 2**62))
        assert self.splits is not None
        splits, item = self.splits, group.item(0)
        b.store(splits, item, b.value(start))
        group.barrier()
        is_last = b.compare("eq", item, group.size[0] - 1)
        place = b.min(b.add(item, 1), group.size[0] - 1)
        following = b.op("select", is_last, b.value(left), b.load(splits, place))
        group.barrier()
        return start, following

    def _read(self, place: LoopIndex) -> list[Value]:
        return [self.builder.load(buffer, place) for buffer in self.buffers]

    def _write(self, place: LoopIndex, values: Sequence[Value]) -> None:
        for buffer, value in zip(self.buffers, values, strict=True):
            self.builder.store(buffer, place, value)
