"""The row class for work items: each row is reduced by several items, as a tree.

Where the reduced axes are innermost the items of a row are neighbours along it; where the
innermost axis is kept they are neighbours along that, and others share the reduced axes. A
row that is short enough is read once: each item keeps its elements in registers from pass to
pass. A longer one is read once per pass. How items are shared out is in `row_shape.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ingot.compiler.ir import Function, Value, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.items.row_shape import RowShape, shape_rows
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.row_plan import (
    RowPlan,
    RowReduction,
    in_place_rows,
    plan_rows,
)
from ingot.compiler.kernels.schedule import guess
from ingot.compiler.kernels.trace import Apply, walk_nodes
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["lower_row"]

_BLOCK = 64  # additions to one running sum; longer sums are sums of such

Carried = list[list[Value]]
"""Per reduction the values of its accumulator."""


def lower_row(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with reductions over the same axes. CompileError: they differ."""
    plan = plan_rows(function)
    return _Lowering(function, plan, shape_rows(function, plan, target)).lower()


@dataclass(frozen=True)
class _Position:
    """Where an item stands in its row: at element `place`; `live` says whether there is one
    (None: always), else it stands at the last, which another item has."""

    emitter: Emitter
    place: LoopIndex
    live: Value | None


class _Lowering:
    def __init__(self, function: Function, plan: RowPlan, shape: RowShape) -> None:
        self.function, self.plan, self.shape = function, plan, shape
        self.builder = LoopBuilder()
        self.group = WorkGroup(self.builder, shape.size)
        self.stages = 1 + max(each.stage for each in plan.reductions)
        self.item = self.group.item(shape.reduced_axis)
        folds = (shape.rows, shape.columns)
        self.outer = frozenset(a for each in folds for merged in each.axes for a in merged.axes)

    def lower(self) -> Kernel:
        """The kernel."""
        b = self.builder
        emitter = Emitter(b, {})
        emitter.clamps = self.group.count > 1
        self._walk_rows(emitter)
        function, shape = self.function, self.shape
        elements = dims.product([*shape.workload, shape.reduced.extent])
        applied = sum(isinstance(node, Apply) for node in walk_nodes(self.plan.roots))
        return finish_kernel(
            function,
            b,
            workload=shape.workload,
            tile=shape.tile,
            flops=elements * (applied + len(self.plan.reductions)),
            local_size=shape.size,
            local_length=self.group.local_length,
            in_place=in_place_rows(function, self.plan),
            schedule=shape,
        )

    # Which row, and which columns.

    def _walk_rows(self, emitter: Emitter) -> None:
        shape, b = self.shape, self.builder
        size = shape.size[shape.row_axis + 1]
        extent = b.dim(shape.rows.extent)

        def at(row: LoopIndex, live: Value | None) -> None:
            below = emitter.fork()
            below.places.update(shape.rows.places(b, row))
            for each in shape.reduced.axes:
                below.places.update(each.place(0))
            self._walk_columns(below, live)

        first = b.mul(b.workgroup(shape.row_axis), shape.tile[shape.row_axis])
        if self.group.count == 1:
            with b.for_(first, b.min(b.add(first, shape.tile[shape.row_axis]), extent)) as loop:
                at(loop.index, None)
            return
        row = b.add(first, self.group.item(shape.row_axis + 1))
        if dims.modulo(shape.rows.extent, size) == 0:
            at(row, None)
            return
        at(b.min(row, b.sub(extent, 1)), b.compare("lt", row, extent))

    def _walk_columns(self, emitter: Emitter, live: Value | None) -> None:
        shape, b = self.shape, self.builder
        if shape.along:
            self._row(emitter, live)
            return
        ((axis,), lanes, tile) = shape.columns.axes, shape.lanes, shape.tile[0]
        emitter.places.update(axis.place(0))
        extent = b.dim(axis.extent)
        first = b.mul(b.workgroup(0), tile)

        def at(column: LoopIndex, live: Value | None) -> None:
            below = emitter.fork()
            with below.along(axis.axis, column, lanes, aligned=True):
                self._row(below, live)

        if self.group.count == 1:
            with b.for_(first, b.min(b.add(first, tile), extent), lanes) as loop:
                at(loop.index, None)
            return
        column = b.add(first, b.mul(self.group.item(0), lanes))
        if dims.modulo(axis.extent, tile) == 0:
            at(column, live)
            return
        inside = b.compare("lt", column, extent)
        live = inside if live is None else b.op("and", live, inside)
        at(b.min(column, b.sub(extent, lanes)), live)

    # One row, or a vector of columns. Dead items do the work of the last live ones, since all
    # must come to the barriers, and store nothing.

    def _row(self, emitter: Emitter, live: Value | None) -> None:
        shape, b = self.shape, self.builder
        length = b.dim(shape.reduced.extent)
        capacity = shape.held * shape.step
        least, most = dims.bounds(shape.reduced.extent, self.function.symbols)
        if most <= capacity and (least > 0 or most == 0):
            self._held(emitter, live)
            return
        if isinstance(length, int) or capacity == 0:
            self._swept(emitter, live)
            return
        fits = b.compare("gt", length, 0)
        if most > capacity:
            fits = b.op("and", fits, b.compare("le", length, capacity))
        branches = [emitter.fork(), emitter.fork()]
        for each in branches:
            each.given = {}
        b.if_(fits, lambda: self._held(branches[0], live), lambda: self._swept(branches[1], live))

    def _held(self, emitter: Emitter, live: Value | None) -> None:
        """Every pass over elements that stay in registers."""
        b = self.builder
        with ExitStack() as stack:
            positions = [self._position(emitter, step, stack) for step in range(self._steps())]

            def visit(carried: Carried, stage: int) -> Carried:
                for each in positions:
                    carried = self._take(carried, stage, each)
                return carried

            self._reduce(emitter, visit, live)
            stored = self.plan.stored(per_row=False)
            emitter.hoist([result.node for result, _ in stored], self.outer)
            made = [[each.emitter.emit_vector(r.node) for r, _ in stored] for each in positions]
            for each, values in zip(positions, made, strict=True):
                conditions = [test for test in (live, each.live) if test is not None]

                def store(each: _Position = each, values: list[Value] = values) -> None:
                    for (result, ordinal), value in zip(stored, values, strict=True):
                        memory = b.binding(ordinal, result.node.dtype)
                        b.store(memory, each.emitter.index(result.index), value)

                self._where(conditions, store)

    def _steps(self) -> int:
        extent, step = self.shape.reduced.extent, self.shape.step
        return -(-extent // step) if isinstance(extent, int) else self.shape.held

    def _position(self, emitter: Emitter, step: int, stack: ExitStack) -> _Position:
        """Where an item stands in a step of a row that is not empty."""
        shape, b = self.shape, self.builder
        lanes = shape.lanes if shape.along else 1
        extent = shape.reduced.extent
        place = b.add(b.mul(self.item, lanes), step * shape.step)
        live = None
        if not isinstance(extent, int) or (step + 1) * shape.step > extent:
            live = b.compare("lt", place, b.dim(extent))
            place = b.min(place, b.sub(b.dim(extent), lanes))
        return _Position(self._stand(emitter, place, stack), place, live)

    def _stand(self, emitter: Emitter, place: LoopIndex, stack: ExitStack) -> Emitter:
        """An emitter at an element of the row."""
        shape, b = self.shape, self.builder
        there = emitter.fork()
        there.places.update(shape.reduced.places(b, place))
        if shape.along:
            inner = shape.reduced.axes[-1].axis
            stack.enter_context(there.along(inner, there.places[inner], shape.lanes, aligned=True))
        return there

    def _swept(self, emitter: Emitter, live: Value | None) -> None:
        """Every pass from memory."""
        b, shape = self.builder, self.shape
        end = b.dim(shape.reduced.extent)
        lanes = shape.lanes if shape.along else 1
        start = b.mul(self.item, lanes)

        def visit(carried: Carried, stage: int) -> Carried:
            return self._sweep(emitter, carried, stage)

        self._reduce(emitter, visit, live)
        stored = self.plan.stored(per_row=False)

        def store() -> None:
            emitter.hoist([result.node for result, _ in stored], self.outer)
            with b.for_(start, end, shape.step) as loop, ExitStack() as stack:
                there = self._stand(emitter, loop.index, stack)
                values = [there.emit_vector(result.node) for result, _ in stored]
                for (result, ordinal), value in zip(stored, values, strict=True):
                    memory = b.binding(ordinal, result.node.dtype)
                    b.store(memory, there.index(result.index), value)

        if stored:
            with emitter.scope():
                self._where([] if live is None else [live], store)

    def _sweep(self, emitter: Emitter, carried: Carried, stage: int) -> Carried:
        """The elements of an item, in blocks where there are many."""
        b, shape = self.builder, self.shape
        lanes = shape.lanes if shape.along else 1
        length, offset = b.dim(shape.reduced.extent), b.mul(self.item, lanes)

        def walk(first: LoopIndex, end: LoopIndex, carried: Carried) -> Carried:
            flat = [value for values in carried for value in values]
            with b.for_(b.add(first, offset), end, shape.step, flat) as loop, ExitStack() as stack:
                there = self._stand(emitter, loop.index, stack)
                position = _Position(there, loop.index, None)
                following = self._take(_like(carried, loop.carried), stage, position)
                loop.yield_(*[value for values in following for value in values])
            return _like(carried, loop.results)

        block = _BLOCK * shape.step
        if guess(shape.reduced.extent, self.function.symbols) <= block:
            return walk(0, length, carried)
        flat = [value for values in carried for value in values]
        with b.for_(0, length, block, flat) as blocks:
            end = b.min(b.add(blocks.index, block), length)
            part = walk(blocks.index, end, carried)
            following = self._merge(stage, _like(carried, blocks.carried), part)
            blocks.yield_(*[value for values in following for value in values])
        return _like(carried, blocks.results)

    # Reductions.

    def _mine(self, stage: int) -> list[RowReduction]:
        return [each for each in self.plan.reductions if each.stage == stage]

    def _reduce(
        self, emitter: Emitter, visit: Callable[[Carried, int], Carried], live: Value | None
    ) -> None:
        """All passes that reduce; `visit` takes the elements of an item in. Then the results
        of which there is one per row."""
        b, shape = self.builder, self.shape
        for stage in range(self.stages):
            mine = self._mine(stage)
            emitter.hoist([each.element for each in mine], self.outer)
            start = [each.accumulator.start(b, shape.lanes, shape.along) for each in mine]
            carried = visit(start, stage)
            if shape.along:
                pairs = zip(mine, carried, strict=True)
                carried = [each.accumulator.join(b, values) for each, values in pairs]
            total = self._combine(stage, carried)
            for each, values in zip(mine, total, strict=True):
                emitter.given[each.op.result] = each.accumulator.finish(b, values, join=False)
        stored = self.plan.stored(per_row=True)

        def store() -> None:
            for result, ordinal in stored:
                memory = b.binding(ordinal, result.node.dtype)
                b.store(memory, emitter.index(result.index), emitter.emit_vector(result.node))

        if stored:
            conditions = [] if live is None else [live]
            if shape.size[shape.reduced_axis] > 1:
                conditions.append(b.compare("eq", self.item, 0))
            with emitter.scope():
                self._where(conditions, store)

    def _take(self, carried: Carried, stage: int, position: _Position) -> Carried:
        """The accumulators with the element at a position."""
        b = self.builder
        place = b.value(position.place)
        taken = []
        for each, values in zip(self._mine(stage), carried, strict=True):
            value = position.emitter.emit(each.element)
            taken.append(each.accumulator.take(b, values, value, place, position.live))
        return taken

    def _merge(self, stage: int, left: Carried, right: Carried) -> Carried:
        b = self.builder
        rows = zip(self._mine(stage), left, right, strict=True)
        return [each.accumulator.merge(b, a, c) for each, a, c in rows]

    def _combine(self, stage: int, carried: Carried) -> Carried:
        """What all items of a row have together."""

        def join(left: list[Value], right: list[Value]) -> list[Value]:
            merged = self._merge(stage, _like(carried, left), _like(carried, right))
            return [value for values in merged for value in values]

        flat = [value for values in carried for value in values]
        return _like(carried, self.group.reduce(flat, join, self.shape.reduced_axis))

    # Results.

    def _where(self, conditions: Sequence[Value], body: Callable[[], None]) -> None:
        """Do it where all conditions hold."""
        b = self.builder
        if not conditions:
            body()
            return
        condition = conditions[0]
        for each in conditions[1:]:
            condition = b.op("and", condition, each)
        b.if_(condition, body)


def _like(shape: Carried, flat: Sequence[Value]) -> Carried:
    """Flat values, divided as in `shape`."""
    rest = list(flat)
    result = []
    for values in shape:
        result.append(rest[: len(values)])
        rest = rest[len(values) :]
    return result
