"""The row class: reductions with what feeds them and what uses them, in one kernel.

All reductions of the entry run over the same axes of one shape. The kernel walks the kept
axes; per row it makes one pass over the reduced axes for each reduction that waits for
another (softmax: maximum, sum, quotient), and a last one that stores. The lanes run along
the reduced axes where those are innermost, and along the kept ones otherwise (pooling of
channels last). Rows are taken several at a time, since one sum alone is bound by latency;
of a long row that is alone or keeps values, several vectors are.
Costly values that two passes need are kept in scratch memory, if the row is short enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import reduce

from ingot.compiler.ir import Function, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.accumulate import Accumulator
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.indexing import Axis, Index, linearize
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.strips import strips_of
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder, dtype_of
from ingot.compiler.kernels.row_plan import RowPlan, RowResult, in_place_rows, is_costly, plan_rows
from ingot.compiler.kernels.schedule import (
    MOST_SCRATCH,
    WORKGROUP_BYTES,
    Grid,
    Merged,
    guess,
    loads_of,
    merge_axes,
)
from ingot.compiler.kernels.trace import Apply, Node, walk_nodes
from ingot.hal.spec import dtype

__all__ = ["RowSchedule", "lower_row"]

F64 = dtype("f64")
_LONG_ROW = 8192
"""Elements of a row; longer sums run in blocks, which takes no longer: of 65536 numbers a sum is
off by 2e-8 then, one running sum per lane by 3e-7, and of 8192 by 9e-8 (f32, AVX-512)."""

_ALONE = 512
"""Elements of a row above which one that is alone is taken by several vectors at a time; those of
costly values are. A softmax of 1024 x 1000 takes 385 us with AVX-512, four rows at a time 435."""

_MOST_COLUMNS = 8
"""Vectors of columns at a time, but for those in strips: of 1024 rows of 1024 they take 68 us with
AVX-512, by 4 vectors 100."""

_TYPICAL_ROW = 8192
"""Elements up to which rows without a bound keep values: a softmax of 12 x 128 x 128 takes 52 us
with AVX-512, as of known shape, and 87 with each exp computed twice."""

_WAYS = 4
"""Vectors at a time of a long row, each with its own running values: the greatest of 50257 takes
4.8 us with AVX-512, one after another 7.8, its place 13 and 26. What several rows keep would not
stay in the cache: a softmax of 16 takes 160 us, four at a time 179."""

_BLOCK = 64  # vectors: sums of 2048 take 49 us for 512 rows with AVX-512, in blocks of 16 50


@dataclass(frozen=True)
class RowSchedule:
    """The decisions of one row kernel, for people to read."""

    kept: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    lanes: int
    along_reduced: bool
    together: int  # rows (or vectors of columns) at a time
    passes: int
    kept_values: int  # per element, in scratch
    tile: tuple[int, int, int]


def lower_row(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with reductions over the same axes. CompileError: they differ."""
    plan = plan_rows(function)
    return _Lowering(function, target, plan).lower()


class _Lowering:
    def __init__(self, function: Function, target: TargetInfo, plan: RowPlan) -> None:
        self.function, self.target, self.plan = function, target, plan
        self.builder = LoopBuilder()
        parts = plan.space.parts
        kept = [
            axis for place, part in enumerate(parts) if place not in plan.reduced for axis in part
        ]
        reduced = [axis for place in plan.reduced for axis in parts[place]]
        extra = [each.index for each in plan.results]
        flat = linearize(
            plan.space.indices(), [dims.product(axis.extent for axis in part) for part in parts]
        )
        extra.append(flat)
        self.kept = merge_axes(kept, plan.roots, extra) or [Merged(Axis(1), 1)]
        self.reduced = merge_axes(reduced, plan.roots, extra) or [Merged(Axis(1), 1)]
        all_axes = plan.space.axes
        self.along = not all_axes or not kept or all_axes[-1] in reduced
        self.lanes = target.lanes(*plan.dtypes)
        self.stages = 1 + max(each.stage for each in plan.reductions)
        self.flat = flat
        self.strips = None if self.along else strips_of(plan, self.lanes, self.kept, self.reduced)
        self.together = self._choose_together()
        self.cached = self._choose_cached()
        self.grid = self._make_grid()
        self.slots: dict[tuple[Node, int], Value] = {}
        self.scratch_length = self.strips.scratch_length if self.strips else 0
        self.accumulators: list[Accumulator] = []  # of the pass, for all rows

    def _pass_nodes(self, stage: int) -> list[Node]:
        """What a pass over the row computes; the last one stores."""
        if stage < self.stages:
            return [each.element for each in self.plan.reductions if each.stage == stage]
        return [each.node for each in self.plan.results if not each.per_row]

    def _most_steps(self) -> float:
        """The most elements that a row may have."""
        length = dims.product(each.extent for each in self.reduced)
        return dims.bounds(length, self.function.symbols)[1]

    def _row_length(self) -> int:
        """Elements of a row that keeps values, with room for whole vectors.

        The last vector of a row of several runs may begin at any element.
        """
        high = self._most_steps()
        room = self.lanes - 1 if len(self.reduced) > 1 else 0
        length = _TYPICAL_ROW if high == float("inf") else int(high)
        return -(-(length + room) // self.lanes) * self.lanes

    def _choose_cached(self) -> list[Node]:
        """Costly nodes that two passes need, the outermost ones, if their rows fit in scratch: a
        softmax of 16 x 60000 takes 245 us with AVX-512, without them 367."""
        length = self._row_length()
        length *= 1 if self.along else self.lanes
        inner = {axis for each in self.reduced for axis in each.axes}
        below = [set(walk_nodes(self._pass_nodes(stage))) for stage in range(self.stages + 1)]
        seen: set[Node] = set()
        chosen: list[Node] = []
        for nodes in below:
            common = [node for node in nodes & seen if node.axes & inner and is_costly(node)]
            hidden = {each for node in common for each in walk_nodes([node]) if each is not node}
            for node in common:
                if node not in hidden and node not in chosen and not node.dtype.is_boolean:
                    chosen.append(node)
            seen |= nodes
        chosen.sort(key=lambda node: [place for place, nodes in enumerate(below) if node in nodes])
        kept = sum(-(-length * node.dtype.bytes // 64) * 64 for node in chosen) * self.together
        return chosen if kept <= MOST_SCRATCH else []

    def _choose_together(self) -> int:
        if self.along:
            rows = guess(self.kept[-1].extent, self.function.symbols)
            heavy = self.plan.is_heavy(self.plan.roots)
            if self._is_long() and not isinstance(self.kept[-1].extent, int):
                return 1  # where there is one, the last row would be taken as often
            if heavy and self._is_long(_ALONE):
                return 1
            return min(2 if heavy and self.target.register_count < 32 else 4, max(rows, 1))
        if self.strips:
            return self.strips.width // self.lanes
        extent = self.kept[-1].extent
        stages = [each.stage for each in self.plan.reductions]
        registers = _MOST_COLUMNS * 2 * max(map(stages.count, stages))  # with what is added
        most = _MOST_COLUMNS if registers <= self.target.register_count else 4
        return next(
            n for n in (most, 4, 2, 1) if n == 1 or dims.modulo(extent, n * self.lanes) == 0
        )

    def _make_grid(self) -> Grid:
        symbols = self.function.symbols
        row = 1
        for each in self.reduced:
            row *= max(guess(each.extent, symbols), 1)
        widest = max(tensor_type(each.op.operands[0]).dtype.bytes for each in self.plan.reductions)
        budget = max(WORKGROUP_BYTES // (row * widest), 1)
        multiple = self.together * (1 if self.along else self.lanes)
        return Grid.of(self.kept, max(budget, multiple), symbols, multiple)

    def lower(self) -> Kernel:
        """The kernel."""
        self._nest({}, 0)
        function = self.function
        elements = dims.product(each.extent for each in [*self.kept, *self.reduced])
        applied = sum(isinstance(node, Apply) for node in walk_nodes(self.plan.roots))
        return finish_kernel(
            function,
            self.builder,
            workload=self.grid.workload,
            tile=self.grid.tile,
            flops=elements * (applied + len(self.plan.reductions)),
            scratch_length=self.scratch_length,
            in_place=in_place_rows(function, self.plan),
            schedule=RowSchedule(
                tuple(each.extent for each in self.kept),
                tuple(each.extent for each in self.reduced),
                self.lanes,
                self.along,
                self.together,
                self.stages,
                len(self.cached),
                self.grid.tile,
            ),
        )

    # Loops over the kept axes.

    def _nest(self, places: dict[Axis, LoopIndex], depth: int) -> None:
        b = self.builder
        axis = self.kept[depth]
        places = {**places, **axis.place(0)}
        first, end = (
            self.grid.bounds(b, axis) if axis in self.grid.shared else (0, b.dim(axis.extent))
        )
        if depth < len(self.kept) - 1:
            with b.for_(first, end) as loop:
                self._nest({**places, axis.axis: loop.index}, depth + 1)
        elif self.along:
            with b.for_(first, end, self.together) as loop:
                last = b.sub(end, 1)
                rows = [
                    b.min(b.add(loop.index, each), last) if each else loop.index
                    for each in range(self.together)
                ]
                self._rows([{**places, axis.axis: row} for row in rows])
        elif self.strips:
            self.strips.walk(b, places, first, end)
        else:
            self._columns(places, axis.axis, first, end)

    def _columns(
        self, places: dict[Axis, LoopIndex], axis: Axis, first: LoopIndex, end: LoopIndex
    ) -> None:
        """Vectors along the innermost kept axis."""
        b, step = self.builder, self.together * self.lanes
        length = b.max(b.sub(end, first), 0)
        full_end = b.add(first, b.mul(b.div(length, step), step))
        with b.for_(first, full_end, step) as loop:
            self._rows(
                [
                    {**places, axis: b.add(loop.index, each * self.lanes)}
                    for each in range(self.together)
                ],
                axis,
            )
        if dims.modulo(self.kept[-1].extent, step) != 0:
            with b.for_(full_end, end, self.lanes) as loop:
                count = b.sub(end, loop.index)
                self._rows([{**places, axis: loop.index}], axis, count)

    def _rows(
        self,
        places: Sequence[dict[Axis, LoopIndex]],
        column: Axis | None = None,
        count: LoopIndex | None = None,
    ) -> None:
        if not self.cached or self._most_steps() < float("inf"):
            self._passes(places, column, count)
            return
        length = self.builder.dim(dims.product(each.extent for each in self.reduced))
        cached = self.cached

        def long() -> None:
            self.cached = []
            self._passes(places, column, count)
            self.cached = cached

        is_typical = self.builder.compare("le", length, _TYPICAL_ROW)
        self.builder.if_(is_typical, lambda: self._passes(places, column, count), long)

    def _passes(
        self,
        places: Sequence[dict[Axis, LoopIndex]],
        column: Axis | None,
        count: LoopIndex | None,
    ) -> None:
        """All passes over a group of rows."""
        b = self.builder
        emitters = [Emitter(b, each) for each in places]
        for emitter in emitters:
            emitter.falling = self.plan.falling
            for each in self.reduced:
                emitter.places.update(each.place(0))
        with ExitStack() as stack:
            if column is not None:
                for emitter in emitters:
                    place = emitter.places[column]
                    stack.enter_context(emitter.along(column, place, self.lanes, count))
            for stage in range(self.stages):
                self._reduce_pass(emitters, stage)
            for result, ordinal in self.plan.stored(per_row=True):
                values = [emitter.emit(result.node) for emitter in emitters]
                for emitter, value in zip(emitters, values, strict=True):
                    self._store(emitter, result, ordinal, value, count)
            if self.plan.stored(per_row=False):
                self._store_pass(emitters, count)

    def _store(
        self,
        emitter: Emitter,
        result: RowResult,
        ordinal: int,
        value: Value,
        count: LoopIndex | None,
    ) -> None:
        b = self.builder
        value = b.broadcast(value, emitter.lanes)
        memory = b.binding(ordinal, result.node.dtype)
        b.store(memory, emitter.index(result.index), value, count if emitter.lanes > 1 else None)

    def _hoist(self, emitters: Sequence[Emitter], nodes: Sequence[Node]) -> None:
        outer = frozenset(axis for each in self.kept for axis in each.axes)
        for emitter in emitters:
            emitter.hoist(nodes, outer)

    def _reduce_pass(self, emitters: Sequence[Emitter], stage: int) -> None:
        b = self.builder
        mine = [each for each in self.plan.reductions if each.stage == stage]
        taken_in = [each.element for each in mine]
        asks = self.along and stage == self.stages - 1 and self.plan.is_heavy(taken_in)
        self._hoist(emitters, taken_in)
        start = [
            value
            for _ in emitters
            for each in mine
            for value in each.accumulator.start(b, self.lanes, self.along)
        ]

        def body(carried: list[Value], count: LoopIndex | None) -> list[Value]:
            live = None
            if self.along and count is not None:
                live = b.op("compare", b.lanes(self.lanes), b.value(count), direction="lt")
            rest = list(carried)
            following: list[Value] = []
            for row, emitter in enumerate(emitters):
                self._recall(emitter, row, stage)
                place = self._position(emitter)
                for each in mine:
                    width = len(each.accumulator.start(b, self.lanes, self.along))
                    taken, rest = rest[:width], rest[width:]
                    value = emitter.emit(each.element)
                    following += each.accumulator.take(b, taken, value, place, live)
                self._keep(emitter, row, stage)
                if asks:
                    self._ask(emitter)
            return following

        self.accumulators = [each.accumulator for _ in emitters for each in mine]
        results = self._sweep(emitters, start, body)
        for emitter in emitters:
            for each in mine:
                width = len(each.accumulator.start(b, self.lanes, self.along))
                taken, results = results[:width], results[width:]
                emitter.given[each.op.result] = each.accumulator.finish(b, taken, self.along)

    def _store_pass(self, emitters: Sequence[Emitter], count: LoopIndex | None) -> None:
        """The last pass. Whether quotients are products is asked once in front of it."""
        b = self.builder
        stored = self.plan.stored(per_row=False)
        self._hoist(emitters, [result.node for result, _ in stored])

        def body(carried: list[Value], partial: LoopIndex | None) -> list[Value]:
            values = []
            for row, emitter in enumerate(emitters):
                self._recall(emitter, row, self.stages)
                values.append([emitter.emit(result.node) for result, _ in stored])
            for emitter, mine in zip(emitters, values, strict=True):
                for (result, ordinal), value in zip(stored, mine, strict=True):
                    self._store(emitter, result, ordinal, value, partial if self.along else count)
            return []

        self.accumulators = []
        inner = frozenset(axis for each in self.reduced for axis in each.axes)
        nodes = [result.node for result, _ in stored] if self.along else []
        ordinary = [each for emitter in emitters for each in emitter.prepare(nodes, inner)]
        if not ordinary:
            self._sweep(emitters, [], body)
            return

        def divided() -> None:
            for emitter in emitters:
                emitter.is_plain = True
            self._sweep(emitters, [], body)
            for emitter in emitters:
                emitter.is_plain = False

        condition = reduce(lambda a, c: b.op("and", a, c), ordinary)
        b.if_(condition, lambda: self._sweep(emitters, [], body), divided)

    # Loops over the reduced axes.

    def _sweep(
        self,
        emitters: Sequence[Emitter],
        carried: list[Value],
        body: Callable[[list[Value], LoopIndex | None], list[Value]],
        depth: int = 0,
    ) -> list[Value]:
        """Run the body over the reduced axes; its carried values at the end."""
        b = self.builder
        axis = self.reduced[depth]
        end = b.dim(axis.extent)
        innermost = depth == len(self.reduced) - 1
        if not innermost or not self.along:
            with b.for_(0, end, 1, carried) as loop, ExitStack() as stack:
                for emitter in emitters:
                    stack.enter_context(emitter.scope())
                    emitter.places[axis.axis] = loop.index
                if innermost:
                    following = body(loop.carried, None)
                else:
                    following = self._sweep(emitters, loop.carried, body, depth + 1)
                loop.yield_(*following)
            return loop.results
        return self._sweep_lanes(emitters, carried, body, axis.axis, end)

    def _sweep_lanes(
        self,
        emitters: Sequence[Emitter],
        carried: list[Value],
        body: Callable[[list[Value], LoopIndex | None], list[Value]],
        axis: Axis,
        end: LoopIndex,
    ) -> list[Value]:
        b, lanes = self.builder, self.lanes

        def at(place: LoopIndex, values: list[Value], count: LoopIndex | None) -> list[Value]:
            with ExitStack() as stack:
                for emitter in emitters:
                    stack.enter_context(emitter.along(axis, place, lanes, count, aligned=True))
                return body(values, count)

        full = b.mul(b.div(end, lanes), lanes)
        if self._is_long(_ALONE if self.together == 1 else _LONG_ROW):
            carried = self._sweep_blocks(full, carried, at)
        elif full != 0:
            with b.for_(0, full, lanes, carried) as loop:
                loop.yield_(*at(loop.index, loop.carried, None))
            carried = loop.results
        rest = b.sub(end, full)
        if dims.modulo(self.reduced[-1].extent, lanes) == 0:
            return carried
        if isinstance(rest, int):
            return at(full, carried, rest)
        before = carried
        return b.if_(b.compare("gt", rest, 0), lambda: at(full, before, rest), lambda: before)

    def _is_long(self, than: int = _LONG_ROW) -> bool:
        """Whether rows have more elements: by default, than one running sum per lane takes without
        losing digits."""
        return guess(self.reduced[-1].extent, self.function.symbols) > than

    def _sweep_blocks(
        self,
        full: LoopIndex,
        carried: list[Value],
        at: Callable[[LoopIndex, list[Value], LoopIndex | None], list[Value]],
    ) -> list[Value]:
        """Whole vectors in blocks; sums of blocks are summed, so their error stays small."""
        b, block = self.builder, _BLOCK * self.lanes
        kinds = [dtype_of(value) for value in carried]
        starts = [each.start(b, self.lanes, self.along) for each in self.accumulators]
        sums = [
            each.kind == "add" and not each.index
            for each, start in zip(self.accumulators, starts, strict=True)
            for _ in start
        ]
        wide = [  # the dtype in which the blocks are summed, None for what is no sum
            (F64 if kind.name == "f32" else kind) if is_sum else None
            for kind, is_sum in zip(kinds, sums, strict=True)
        ]
        outer = [
            value if kind is None else b.convert(value, kind)
            for value, kind in zip(carried, wide, strict=True)
        ]
        with b.for_(0, full, block, outer) as blocks:
            end = b.min(b.add(blocks.index, block), full)
            fresh = [
                total if kind is None else b.constant(0, before, self.lanes)
                for total, kind, before in zip(blocks.carried, wide, kinds, strict=True)
            ]
            more = _WAYS - 1 if self.together == 1 and carried else 0
            ways = [fresh, *[[value for start in starts for value in start]] * more]
            parts = self._sweep_ways(blocks.index, end, ways, at)
            following = [
                part if kind is None else b.op("add", total, b.convert(part, kind))
                for total, part, kind in zip(blocks.carried, parts, wide, strict=True)
            ]
            blocks.yield_(*following)
        return [b.convert(value, kind) for value, kind in zip(blocks.results, kinds, strict=True)]

    def _sweep_ways(
        self,
        start: LoopIndex,
        end: LoopIndex,
        ways: list[list[Value]],
        at: Callable[[LoopIndex, list[Value], LoopIndex | None], list[Value]],
    ) -> list[Value]:
        """The vectors of a block, one for each of the `ways` at a time; what they carry as one."""
        b, count, step = self.builder, len(ways[0]), len(ways) * self.lanes
        full = end
        if len(ways) > 1:
            full = b.add(start, b.mul(b.div(b.sub(end, start), step), step))
        with b.for_(start, full, step, [value for way in ways for value in way]) as loop:
            following: list[Value] = []
            for way in range(len(ways)):
                mine = list(loop.carried[way * count : (way + 1) * count])
                following += at(b.add(loop.index, way * self.lanes), mine, None)
            loop.yield_(*following)
        merged = list(loop.results[:count])
        for way in range(1, len(ways)):
            merged = self._merge(merged, list(loop.results[way * count : (way + 1) * count]))
        if len(ways) == 1:
            return merged
        with b.for_(full, end, self.lanes, merged) as rest:
            rest.yield_(*at(rest.index, list(rest.carried), None))
        return rest.results

    def _merge(self, left: list[Value], right: list[Value]) -> list[Value]:
        """What two ways of the pass carry as one."""
        merged: list[Value] = []
        for each in self.accumulators:
            first, last = len(merged), len(merged) + (2 if each.index else 1)
            merged += each.merge(self.builder, left[first:last], right[first:last])
        return merged

    def _position(self, emitter: Emitter) -> Value:
        """The index of the element within the row, for arg_max."""
        b, dtype = self.builder, self.plan.place
        if dtype is None:
            return b.value(0)
        place = b.convert(b.value(emitter.index(self._row_position())), dtype)
        return b.op("add", place, b.convert(b.lanes(self.lanes), dtype)) if self.along else place

    def _row_position(self) -> Index:
        index, stride = Index(), 1  # type: tuple[Index, Dim]
        for each in reversed(self.reduced):
            index = index + Index.of(each.axis).scale(stride)
            stride = stride * each.extent
        return index

    # Values kept in scratch memory.

    def _slot(self, node: Node, row: int) -> Value:
        key = (node, row)
        if key not in self.slots:
            length = self._row_length()
            self.slots[key] = self.builder.scratch(self.scratch_length, node.dtype)
            elements = length * (1 if self.along else self.lanes)
            self.scratch_length += -(-elements * node.dtype.bytes // 64) * 64
        return self.slots[key]

    def _first_pass(self, node: Node) -> int:
        return next(s for s in range(self.stages) if node in set(walk_nodes(self._pass_nodes(s))))

    def _place(self, emitter: Emitter) -> LoopIndex:
        place = emitter.index(self._row_position())
        return place if self.along else self.builder.mul(place, self.lanes)

    def _recall(self, emitter: Emitter, row: int, stage: int) -> None:
        """Nodes that an earlier pass kept are loaded where this one needs them."""
        needed = set(walk_nodes(self._pass_nodes(stage))) if self.cached else set()
        for node in self.cached:
            if node in needed and self._first_pass(node) < stage:
                value = self.builder.load(self._slot(node, row), self._place(emitter), self.lanes)
                emitter.remember(node, value)

    def _ask(self, emitter: Emitter) -> None:
        """Asks for the lines of this row that the last pass writes, and of the next rows that the
        first one reads: these wait for memory. A softmax of 1024 x 1000 takes 305 us with
        AVX-512, without 385; where elements are cheap, as in norms, it takes longer."""
        b, row, step = self.builder, self.kept[-1].axis, self.reduced[-1].axis
        for result, ordinal in self.plan.stored(per_row=False):
            b.prefetch(
                b.binding(ordinal, result.node.dtype), emitter.index(result.index), soon=True
            )
        for load in loads_of(self._pass_nodes(0)):
            by = load.index.coefficient(row)
            if by != 0 and load.index.coefficient(step) == 1:
                place = b.add(emitter.index(load.index), b.dim(by * self.together))
                b.prefetch(b.binding(load.ordinal, load.stored), place, soon=True)

    def _keep(self, emitter: Emitter, row: int, stage: int) -> None:
        for node in self.cached:
            if self._first_pass(node) == stage:
                value = self.builder.broadcast(emitter.emit(node), self.lanes)
                self.builder.store(self._slot(node, row), self._place(emitter), value)
