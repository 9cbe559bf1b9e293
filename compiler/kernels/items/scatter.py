"""The scatter class for work items: every item owns elements of the result.

A group has part of the result: columns (a dim in which updates stay where they are), rows (a
dim in which indices say where), and one of all other such dims. Its items share columns and
rows; each walks the updates in index order and applies what falls on its own elements. So
the result depends on no race, and updates of one element come in order. Where there are many
updates the group first lists those that fall on its rows, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.indexing import Axis, strides_of
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.scatter import ScatterParts
from ingot.compiler.kernels.loop import I64
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.schedule import (
    WORKGROUP_BYTES,
    Folded,
    Grid,
    Merged,
    guess,
    power_of_two,
)
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind
from ingot.hal.spec import dtype

__all__ = ["ItemsScatterSchedule", "lower_scatter"]

_GROUPS = 512  # about as many: each reads all indices
_CHUNK = 4096  # elements of a group's part, at least
_FEW = 32  # updates that every item walks itself
_NUMBER = dtype("i32")


@dataclass(frozen=True)
class ItemsScatterSchedule:
    """The decisions of one scatter kernel, for people to read."""

    columns: Dim
    rows: Dim
    others: Dim
    size: tuple[int, int, int]  # items: columns, rows
    tile: tuple[int, int, int]
    in_place: bool  # where the operand dies


def lower_scatter(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `scatter` and what feeds it."""
    return _Lowering(function, target).lower()


class _Lowering(ScatterParts):
    """`column` and `row` are dims of the operand, None where there is no such dim."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function)
        numbers = self.numbers
        shape, owned = numbers.operand.shape, list(numbers.owned)
        self.column = owned.pop() if owned and owned[-1] == len(shape) - 1 else None
        indexed = [dim for dim in sorted(numbers.indexed) if shape[dim] != 1]
        self.row = max(indexed, key=lambda dim: guess(shape[dim], function.symbols), default=None)
        self.others = owned
        self.fold = Folded(tuple(Merged(self.axes[dim], shape[dim]) for dim in owned))
        self.extents: tuple[Dim, Dim, Dim] = (
            1 if self.column is None else shape[self.column],
            1 if self.row is None else shape[self.row],
            self.fold.extent,
        )
        size, tile = self._share(target.group_size)
        self.group = WorkGroup(self.builder, size)
        shared = [Merged(Axis(extent), extent) for extent in reversed(self.extents)]
        self.grid = Grid(tuple(shared), tile)
        self.bounds = [self.grid.bounds(self.builder, each) for each in reversed(shared)]

    def _share(self, items: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The items of a group, and its tile."""
        columns, rows, others = (
            max(guess(each, self.function.symbols), 1) for each in self.extents
        )
        width = min(power_of_two(columns), items)
        height = min(power_of_two(rows), items // width)
        if items == 1:
            across = min(columns, max(WORKGROUP_BYTES // self.numbers.operand.dtype.bytes, 1))
        else:
            across = width
        groups = max(_GROUPS // (-(-columns // across) * others), 1)
        least = -(-_CHUNK // across)  # with rows that only the call knows, rather too many
        if isinstance(self.extents[1], int):
            least = min(least, rows)
        down = max(-(-rows // groups), least, height)
        return (width, height, 1), (across, -(-down // height) * height, 1)

    def lower(self) -> Kernel:
        """The kernel."""
        b = self.builder
        first, _ = self.bounds[2]
        self.places = self.fold.places(b, first)
        self._copy()
        self.group.barrier()
        emitter = Emitter(b, {})
        emitter.clamps = self.group.count > 1
        if self._chooses():
            self._walk_chosen(emitter)
        else:
            self._walk_columns(emitter, self._walk_updates)
        schedule = ItemsScatterSchedule(
            *self.extents, self.group.size, self.grid.tile, self.target.operand is not None
        )
        return replace(
            self.kernel(self.grid, schedule),
            local_size=self.group.size,
            local_length=self.group.local_length,
        )

    # The operand, where the result is other memory.

    def _copy(self) -> None:
        b = self.builder
        operand = self.target.operand
        if operand is None:
            self._copy_part()
            return
        taken = b.same(self.target.memory, b.binding(operand, self.target.node.dtype))
        b.if_(b.op("not", taken), self._copy_part)

    def _copy_part(self) -> None:
        """This group's part, whatever items shall own it."""
        b, group = self.builder, self.group
        emitter = Emitter(b, self.places)
        (first, end), (first_row, end_row) = self.bounds[0], self.bounds[1]
        inside = [
            dim
            for dim, extent in enumerate(self.numbers.operand.shape)
            if dim not in (self.column, self.row, *self.others) and extent != 1
        ]
        for axis in self.axes:
            emitter.places.setdefault(axis, 0)

        def nest(depth: int) -> None:
            if depth < len(inside):
                axis = self.axes[inside[depth]]
                with b.for_(0, b.dim(axis.extent)) as loop, emitter.scope():
                    emitter.places[axis] = loop.index
                    nest(depth + 1)
                return
            with group.each(first, end, axis=0) as loop, emitter.scope():
                if self.column is not None:
                    emitter.places[self.axes[self.column]] = loop.index
                value = emitter.emit(self.target.node)
                b.store(self.target.memory, emitter.index(self.target.element), value)

        with group.each(first_row, end_row, axis=1) as row, emitter.scope():
            if self.row is not None:
                emitter.places[self.axes[self.row]] = row.index
            nest(0)

    # The updates.

    def _chooses(self) -> bool:
        """Whether the group looks first which updates fall on its rows: where those of all its
        columns are the same, and they may be many."""
        numbers = self.numbers
        count = self._updates().extent
        few = isinstance(count, int) and count <= _FEW
        moves = self.column is not None and self.column in numbers.batch_of
        return self.group.count > 1 and self.row is not None and not few and not moves

    def _updates(self) -> Folded:
        """The updates that a group walks, in order."""
        numbers = self.numbers
        batches = set(numbers.batch_of.values())
        free = [place for place in numbers.positions if place not in batches]
        shape = numbers.updates.shape
        return Folded(tuple(Merged(self.update_axes[place], shape[place]) for place in free))

    def _walk_chosen(self, emitter: Emitter) -> None:
        """Chunk by chunk: each item looks at one update, a scan brings those that fall on the
        group's rows into a list, in order, and all items walk the list."""
        b, group, numbers = self.builder, self.group, self.numbers
        updates = self._updates()
        count = b.dim(updates.extent)
        chosen = group.allocate(group.count, _NUMBER)
        assert self.row is not None
        (first_row, end_row), add = self.bounds[1], combine_kind(b, "add")
        for dim, place in numbers.batch_of.items():
            emitter.places[self.update_axes[place]] = self.places.get(self.axes[dim], 0)
        with b.for_(0, count, group.count) as chunks:
            number = b.add(chunks.index, group.ordinal())
            there = emitter.fork()
            there.places.update(updates.places(b, b.min(number, b.sub(count, 1))))
            start = b.convert(there.emit(self.starts[self.row]), I64)
            least = b.sub(first_row, b.dim(numbers.size(self.row)))
            hits = b.op("and", b.compare("lt", start, end_row), b.compare("gt", start, least))
            hits = b.op("and", hits, b.compare("lt", number, count))
            one = [b.convert(hits, _NUMBER)]
            (slot,), (found,) = group.scan(one, add, [b.constant(0, _NUMBER)])
            mine = b.convert(b.value(number), _NUMBER)
            b.if_(hits, lambda: b.store(chosen, b.convert(slot, I64), mine))
            group.barrier()
            with b.for_(0, b.convert(found, I64)) as loop:
                here = emitter.fork()
                number = b.convert(b.load(chosen, loop.index), I64)
                here.places.update(updates.places(b, number))
                self._walk_columns(here, self._apply)
            group.barrier()

    def _walk_columns(
        self, emitter: Emitter, body: Callable[[Emitter, dict[int, LoopIndex]], None]
    ) -> None:
        """For every column of this item."""
        (start, end), group = self.bounds[0], self.group
        with group.each(start, end, axis=0) as column:
            body(emitter.fork(), self._standing(column.index))

    def _standing(self, column: LoopIndex) -> dict[int, LoopIndex]:
        """Per dim of the operand in which updates stay where they are, where the item stands."""
        standing = {dim: self.places[self.axes[dim]] for dim in self.others}
        if self.column is not None:
            standing[self.column] = column
        return standing

    def _walk_updates(self, emitter: Emitter, standing: dict[int, LoopIndex]) -> None:
        """Apply the updates in index order."""
        b, numbers = self.builder, self.numbers
        batches = {place: dim for dim, place in numbers.batch_of.items()}

        def nest(depth: int) -> None:
            if depth == len(numbers.positions):
                self._apply(emitter, standing)
                return
            place = numbers.positions[depth]
            axis = self.update_axes[place]
            if place in batches:
                emitter.places[axis] = standing.get(batches[place], 0)
                nest(depth + 1)
                return
            with b.for_(0, b.dim(axis.extent)) as loop, emitter.scope():
                emitter.places[axis] = loop.index
                nest(depth + 1)

        nest(0)

    def _apply(self, emitter: Emitter, standing: dict[int, LoopIndex]) -> None:
        """What one update does to this item's elements."""
        b, numbers = self.builder, self.numbers
        starts = {dim: b.convert(emitter.emit(node), I64) for dim, node in self.starts.items()}
        tests = []
        if self.mode == "skip":
            tests = [each for dim, start in starts.items() for each in self.fits(dim, start)]
        for dim, place in standing.items():  # a window may be narrower than the operand
            if numbers.size(dim) != numbers.operand.shape[dim] and dim in numbers.window_of:
                tests.append(b.compare("lt", place, b.dim(numbers.size(dim))))

        def apply() -> None:
            with emitter.scope():
                self._walk_window(emitter, starts, standing)

        if not tests:
            apply()
            return
        inside = tests[0]
        for each in tests[1:]:
            inside = b.op("and", inside, each)
        b.if_(inside, apply)

    def _walk_window(
        self, emitter: Emitter, starts: dict[int, Value], standing: dict[int, LoopIndex]
    ) -> None:
        b, numbers = self.builder, self.numbers
        at: dict[int, LoopIndex] = dict(standing)
        for dim, place in numbers.window_of.items():
            if dim in standing:
                emitter.places[self.update_axes[place]] = standing[dim]
        loops: list[Callable[[Callable[[], None]], None]] = []
        for dim in range(numbers.operand.rank):
            if dim == self.row:
                loops.append(partial(self._rows, emitter, at, dim, starts[dim]))
            elif dim not in standing and (dim in starts or dim in numbers.window_of):
                loops.append(partial(self._steps, emitter, at, dim, starts.get(dim, 0)))

        def nest(depth: int) -> None:
            if depth < len(loops):
                loops[depth](lambda: nest(depth + 1))
                return
            strides = strides_of(numbers.operand.shape)
            element: LoopIndex = 0
            for dim, place in at.items():
                element = b.add(element, b.mul(place, b.dim(strides[dim])))
            value = emitter.emit(self.update)
            if self.kind != "set":
                value = b.op(self.kind, b.load(self.target.memory, element), value)
            b.store(self.target.memory, element, value)

        nest(0)

    def _rows(
        self,
        emitter: Emitter,
        at: dict[int, LoopIndex],
        dim: int,
        start: LoopIndex,
        body: Callable[[], None],
    ) -> None:
        """The rows of a window that this item owns: every n-th of the group's, from its own."""
        b, numbers, height = self.builder, self.numbers, self.group.size[1]
        first, end = self.bounds[1]
        mine = b.add(first, self.group.item(1))
        skipped = b.div(b.add(b.max(b.sub(start, mine), 0), height - 1), height)
        lower = b.add(mine, b.mul(skipped, height))
        upper = b.min(b.add(start, b.dim(numbers.size(dim))), end)
        with b.for_(lower, upper, height) as loop, emitter.scope():
            at[dim] = loop.index
            if dim in numbers.window_of:
                axis = self.update_axes[numbers.window_of[dim]]
                emitter.places[axis] = b.sub(loop.index, start)
            body()

    def _steps(
        self,
        emitter: Emitter,
        at: dict[int, LoopIndex],
        dim: int,
        start: LoopIndex,
        body: Callable[[], None],
    ) -> None:
        """All of a window along a dim that items do not share."""
        b, numbers = self.builder, self.numbers
        if dim not in numbers.window_of:
            at[dim] = start
            body()
            return
        axis = self.update_axes[numbers.window_of[dim]]
        with b.for_(0, b.dim(numbers.size(dim))) as loop, emitter.scope():
            emitter.places[axis] = loop.index
            at[dim] = b.add(start, loop.index)
            body()
