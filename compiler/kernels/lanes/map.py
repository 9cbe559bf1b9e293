"""The map class: element-wise work, and ops that move elements, in one pass over the result.

Every result element is computed from operand elements at mapped indices (`trace.py`).
Dims are merged where all accesses allow, the innermost runs along the lanes, and the
outer ones are shared by the workgroups.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cmp_to_key, partial
from itertools import pairwise

from ingot.compiler.ir import Function, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, modulo, prove_le
from ingot.compiler.kernels.emit import Emitter, is_shuffled
from ingot.compiler.kernels.entry import finish_kernel, in_place_pairs
from ingot.compiler.kernels.indexing import Axis, Index, linearize
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.blocks import ask_ahead
from ingot.compiler.kernels.lanes.joined_axes import count_of_joined, windows_of
from ingot.compiler.kernels.lanes.unwoven import lanes_of_longest, unwoven_axis, walk_unwoven
from ingot.compiler.kernels.lanes.woven import (
    MOST_NODES,
    conditions_on,
    ends_of,
    lanes_woven,
    weave,
)
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import (
    WORKGROUP_BYTES,
    Grid,
    Merged,
    Space,
    guess,
    loads_of,
    merge_axes,
    power_of_two,
    trace_with_splits,
)
from ingot.compiler.kernels.squares import along_operand, transpose, walked_axes
from ingot.compiler.kernels.trace import (
    Apply,
    Checked,
    Choose,
    Load,
    Node,
    Tracer,
    axes_of_index,
    count_chosen,
    walk_nodes,
)

__all__ = ["MapSchedule", "lower_map", "trace_map"]

_PAGES = 64  # sides of a block of squares: its lines lie in as many pages of both sides
_MOST_PARTS = 8  # of the last axis, each with all of the code
_FEW_PARTS = 3  # those of a pad; more are what a concatenation has
_STRIP = 32  # rows that are walked for one vector of indices
_LEAST_ROWS = 4  # for which indices are read in front
_TRANSPOSE_BLOCK = 16  # steps of the axis that is contiguous in the operand, per block


@dataclass(frozen=True)
class MapSchedule:
    """The decisions of one map kernel, for people to read."""

    extents: tuple[Dim, ...]  # of the merged axes
    lanes: int
    tile: tuple[int, int, int]
    block: int = 1  # of the last axis but one, where an operand is contiguous there
    turned: int = 0  # operands whose vectors are turned in registers
    parts: int = 1  # of the last axis, in each of which conditions on it are known
    woven: int = 1  # steps of the last axis, whose vectors along the one before are woven
    strip: int = 1  # rows for which the indices of a vector are read and checked once
    joined: int = 0  # short axes that the lanes run along together


def lower_map(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry whose results have one shape. CompileError: an op has no rule."""
    return _Lowering(function, target, *trace_map(function)).lower()


def trace_map(function: Function) -> tuple[list[Node], Index, list[Merged]]:
    """The element of each result, where it goes, and the axes to walk, merged."""
    results = function.block.terminator.operands
    shape = tensor_type(results[0]).shape
    space = Space(shape)

    def trace() -> list[Node]:
        tracer = Tracer(function)
        return [tracer.trace(result, space.indices()) for result in results]

    roots = trace_with_splits(space, trace)
    out = linearize(space.indices(), shape)
    return roots, out, merge_axes(space.axes, roots, [out]) or [Merged(Axis(1), 1)]


class _Lowering:
    def __init__(
        self,
        function: Function,
        target: TargetInfo,
        roots: list[Node],
        out: Index,
        axes: list[Merged],
    ) -> None:
        self.function, self.target = function, target
        self.roots, self.out, self.axes = roots, out, walked_axes(axes, roots)
        self.builder = LoopBuilder()
        self.inner = axes[-1]
        dtypes = {node.dtype for node in walk_nodes(roots) if not node.dtype.is_boolean}
        self.lanes = target.lanes(*dtypes)
        extent = self.inner.extent
        self.woven = lanes_woven(self.axes, self.out, roots, self.lanes, function.symbols)
        if isinstance(extent, int) and extent < min(self.lanes, 4):
            self.lanes = 1
        elif isinstance(extent, int) and all(node.dtype.bytes == 1 for node in roots):
            while self.lanes >= 2 * extent:  # parts of vectors of bytes are stored one by one
                self.lanes //= 2
        most = 1 if self.lanes == 1 else lanes_of_longest(target, dtypes)
        if self._has_bytes_apart():
            self.lanes, most = min(self.lanes, 16), min(most, 16)
        short = None if self.woven > 1 else unwoven_axis(self.axes, roots, most)
        shared = [each for each in self.axes if each is not short]
        self.axes = [*shared[:-1], short, self.inner] if short else shared
        self.unwoven = short is not None
        self.joined = 0
        if self.woven == 1 and not short:
            self.joined = count_of_joined(self.axes, roots, self.lanes)
        self.outer = self.axes[: len(self.axes) - self.joined]
        if self.joined:
            self.lanes = known_dim(dims.product(each.extent for each in self.axes[-self.joined :]))
        self.block = self._transpose_block()
        if self.block > 1:
            self.lanes = min(self.lanes, _TRANSPOSE_BLOCK)
        self.turned = self._turned()
        self.in_place = in_place_pairs(function, roots, self.out)
        ends = self.axes[-2:] if self.turned else self.axes[-1:] if self.unwoven else []
        if any(modulo(each.extent, self.lanes) != 0 for each in ends):
            self.in_place = ()  # squares and vectors may lie over each other
        self.strip = self._strip()
        self.places, self.known = self._divide()
        widest = max(node.dtype.bytes for node in roots)
        budget = WORKGROUP_BYTES // widest // (4 if self._is_heavy() else 1)
        if self.joined:
            self.grid = Grid.of(self.outer, budget // self.lanes, function.symbols)
        else:
            multiple = most if self.unwoven else self.lanes
            self.grid = Grid.of(shared, budget, function.symbols, multiple)
            if self.unwoven and self.grid.least(self.inner) < most:
                self.grid = Grid.of(shared[:-1], 1, function.symbols)
        if self.turned:
            self.grid = self._whole_squares(self.grid)

    def _has_bytes_apart(self) -> bool:
        """Whether bytes are read that lie apart, but would be shuffled in shorter vectors."""
        strides = [(each, each.index.coefficient(self.inner.axis)) for each in loads_of(self.roots)]
        return any(isinstance(by, int) and is_shuffled(by, each.stored, 16) for each, by in strides)

    def _is_heavy(self) -> bool:
        """Whether elements cost much more than moving them."""
        cheap = {"add", "sub", "mul", "neg", "abs", "max", "min", "compare", "select", "convert"}
        return any(
            isinstance(node, Apply) and node.name not in cheap for node in walk_nodes(self.roots)
        )

    def _transpose_block(self) -> int:
        """Above 1 if an operand is contiguous along the last axis but one: then both of the
        last axes are walked in blocks, so that every line of the operand is used at once."""
        if len(self.axes) < 2 or self.joined or self.unwoven:
            return 1
        outer = self.axes[-2].axis
        for load in loads_of(self.roots):
            if load.index.coefficient(outer) == 1 and load.index.coefficient(self.inner.axis) != 0:
                return _TRANSPOSE_BLOCK
        return 1

    def _turned(self) -> list[Load]:
        """The operands of which squares of vectors are turned in registers: those that are
        contiguous along the last axis but one, where every element is read and little is done."""
        if self.block == 1 or self.lanes not in (4, 8, 16):
            return []
        nodes = list(walk_nodes(self.roots))
        if len(nodes) > MOST_NODES or any(isinstance(node, Choose) for node in nodes):
            return []
        outer, inner = self.axes[-2].axis, self.inner.axis
        turned = [
            load
            for load in loads_of(self.roots)
            if load.index.coefficient(outer) == 1
            and load.index.coefficient(inner) not in (0, 1)
            and load.index.is_affine()
        ]
        sides = [side for each in self.axes[-2:] if isinstance(side := each.extent, int)]
        while turned and self.lanes > 4 and any(side < self.lanes for side in sides):
            self.lanes //= 2
        return turned if all(side >= self.lanes for side in sides) else []

    def _strip(self) -> int:
        """Above 1 if indices are read along the last axis that are the same for all places of the
        one before: then rows are walked inside, and lanes are those of the elements alone."""
        if len(self.axes) < 2 or self.woven > 1 or self.block > 1:
            return 1
        outer, inner = self.axes[-2].axis, self.inner.axis
        nodes = list(walk_nodes(self.roots))
        checked = [each.axes for each in nodes if isinstance(each, Checked)]
        if not any(inner in axes and outer not in axes for axes in checked):
            return 1
        elements = {
            each.dtype
            for each in nodes
            if not each.dtype.is_boolean and {outer, inner} <= each.axes
        }
        lanes = min(self.target.lanes(*elements), 16) if elements else self.lanes
        rows, extent = self.axes[-2].extent, self.inner.extent
        is_short = isinstance(extent, int) and extent < lanes
        if is_short or guess(rows, self.function.symbols) < _LEAST_ROWS:
            return 1
        self.lanes = lanes
        return _STRIP

    def _divide(self) -> tuple[list[Dim], list[dict[Node, bool]]]:
        """The places along the last axis, in order, between which conditions on nothing but the
        place there do not change, and what these are in each part; none where all places lie
        between vectors."""
        extent, known = self.inner.extent, self.function.symbols
        nodes = conditions_on(self.inner.axis, self.roots)
        ends = {end for node in nodes for end in ends_of(node)} - {0, extent}

        def order(a: Dim, b: Dim) -> int:
            return -1 if prove_le(a, b, known) else 1

        places = [0, *sorted(ends, key=cmp_to_key(order)), extent]
        if (
            self.block * self.strip > 1
            or self.lanes == 1
            or all(modulo(end, self.lanes) == 0 for end in ends)
            or not all(prove_le(a, b, known) for a, b in pairwise(places))
        ):
            return [], []
        spans = {node: range(*map(places.index, ends_of(node))) for node in nodes}
        parts: list[dict[Node, bool]] = [
            {node: part in span for node, span in spans.items()} for part in range(len(places) - 1)
        ]
        return (places, parts) if self._pays(parts) else ([], [])

    def _pays(self, parts: list[dict[Node, bool]]) -> bool:
        """Whether parts of the last axis cost less than conditions. Those of a concatenation have
        its operands among them: 16 operands of 2000 x 4 take 24 us, with conditions 457."""
        if len(parts) > _FEW_PARTS:
            most = 2 * len(list(walk_nodes(self.roots)))
            if sum(count_chosen(self.roots, known) for known in parts) <= most:
                return True
        extent = guess(self.inner.extent, self.function.symbols)
        return len(parts) <= _MOST_PARTS and len(parts) * self.lanes <= 4 * extent

    def _whole_squares(self, grid: Grid) -> Grid:
        """The grid with workgroups of whole squares along the last axis but one."""
        outer = self.axes[-2]
        if outer not in grid.shared:
            return grid
        tile = list(grid.tile)
        place = len(grid.shared) - 1 - grid.shared.index(outer)
        wanted = min(_PAGES, guess(outer.extent, self.function.symbols))
        tile[place] = -(-max(tile[place], wanted) // self.lanes) * self.lanes
        return Grid(grid.shared, (tile[0], tile[1], tile[2]))

    def lower(self) -> Kernel:
        emitter = Emitter(self.builder, {})
        for each in self.axes:
            emitter.places.update(each.place(0))
        if self.joined:
            self._join(emitter, is_fixed=True)
        self._nest(emitter, 0)
        function = self.function
        elements = dims.product(each.extent for each in self.axes)
        applied = sum(isinstance(node, Apply) for node in walk_nodes(self.roots))
        return finish_kernel(
            function,
            self.builder,
            workload=self.grid.workload,
            tile=self.grid.tile,
            flops=elements * max(applied, 1),
            in_place=self.in_place,
            schedule=MapSchedule(
                tuple(each.extent for each in self.axes),
                self.lanes,
                self.grid.tile,
                self.block,
                len(self.turned),
                max(len(self.places) - 1, 1),
                known_dim(self.inner.extent) if self.woven > 1 else 1,
                self.strip,
                self.joined,
            ),
        )

    def _range(self, axis: Merged) -> tuple[LoopIndex, LoopIndex]:
        if axis in self.grid.shared:
            return self.grid.bounds(self.builder, axis)
        return 0, self.builder.dim(axis.extent)

    def _hoist(self, emitter: Emitter, depth: int) -> None:
        """Compute what depends only on the first `depth` axes."""
        outer = frozenset(axis for each in self.axes[:depth] for axis in each.axes)
        emitter.hoist(self.roots, outer)

    def _nest(self, emitter: Emitter, depth: int) -> None:
        """The loops from axis `depth` on."""
        if self.joined and depth == len(self.outer):
            self._hoist(emitter, depth)
            with emitter.along(self.inner.axis, 0, self.lanes):
                self._join(emitter)
                self._store(emitter, None)
            return
        if depth == len(self.axes) - 1:
            self._innermost(emitter, *self._range(self.inner))
            return
        if depth == len(self.axes) - 2 and self.unwoven:
            self._hoist(emitter, depth)
            span = self._range(self.inner)
            walk_unwoven(emitter, self.axes[-2:], self.roots, self.lanes, span, self._put)
            return
        if depth == len(self.axes) - 2 and self.woven * self.block * self.strip > 1:
            walk = self._woven if self.woven > 1 else self._blocked
            (walk if self.strip == 1 else self._strips)(emitter)
            return
        axis = self.axes[depth]
        first, end = self._range(axis)
        self._hoist(emitter, depth)
        with self.builder.for_(first, end) as loop, emitter.scope():
            emitter.places[axis.axis] = loop.index
            ask_ahead(emitter, loads_of(self.roots), self.axes, axis.axis)
            self._nest(emitter, depth + 1)

    def _join(self, emitter: Emitter, is_fixed: bool = False) -> None:
        """Reads what the lanes of joined axes need, by windows; those that are fixed are the same
        for all places of the other axes."""
        outer = {axis for each in self.outer for axis in each.axes}
        for window in windows_of(loads_of(self.roots), self.axes[-self.joined :]) or []:
            if is_fixed == outer.isdisjoint(axes_of_index(window.start)):
                for load, vector in window.read(self.builder, emitter.index(window.start)):
                    emitter.remember(load, vector)

    def _woven(self, emitter: Emitter) -> None:
        """Vectors along the last axis but one, one for each step of the last, where all conditions
        on that axis hold; the places beside these one by one."""
        b, lanes, outer, steps = self.builder, self.woven, self.axes[-2], self.inner.extent
        first, end = self._range(outer)
        held, of_steps = (conditions_on(each.axis, self.roots) for each in (outer, self.inner))
        begin, stop = first, end
        for low, high in map(ends_of, held):
            begin, stop = b.max(begin, b.dim(low)), b.min(stop, b.dim(high))
        begin = b.min(begin, end)
        full = self._whole(begin, stop, lanes)
        self._hoist(emitter, len(self.axes) - 2)

        def singly(start: LoopIndex, stop: LoopIndex) -> None:
            with b.for_(start, stop) as rest, emitter.scope():
                emitter.places[outer.axis] = rest.index
                self._innermost(emitter, 0, known_dim(steps))

        if held:
            singly(first, begin)
        with b.for_(begin, full, lanes) as loop, emitter.scope():
            values = []
            for step in range(known_dim(steps)):
                emitter.places[self.inner.axis] = step
                emitter.known.update(dict.fromkeys(held, True))
                emitter.known.update(
                    (each, step in range(*known_dims(ends_of(each)))) for each in of_steps
                )
                with emitter.along(outer.axis, loop.index, lanes):
                    values.append([emitter.emit_vector(root) for root in self.roots])
            for each in (*held, *of_steps):
                del emitter.known[each]
            emitter.places[self.inner.axis] = 0
            place = emitter.index(self.out)
            for ordinal, parts in enumerate(zip(*values, strict=True)):
                memory = b.binding(
                    len(self.function.arguments) + ordinal, self.roots[ordinal].dtype
                )
                for number, vector in enumerate(weave(b, parts)):
                    b.store(memory, b.add(place, number * lanes), vector)
        singly(full, end)

    def _blocked(self, emitter: Emitter) -> None:
        """The last two axes in blocks."""
        b = self.builder
        outer = self.axes[-2]
        first, end = self._range(outer)
        inner_first, inner_end = self._range(self.inner)
        self._hoist(emitter, len(self.axes) - 2)
        width = max(self.lanes, _TRANSPOSE_BLOCK)

        def rows() -> None:
            with b.for_(first, end, self.block) as rows:
                rows_end = b.min(b.add(rows.index, self.block), end)
                with b.for_(inner_first, inner_end, width) as columns:
                    columns_end = b.min(b.add(columns.index, width), inner_end)
                    with b.for_(rows.index, rows_end) as row, emitter.scope():
                        emitter.places[outer.axis] = row.index
                        self._innermost(emitter, columns.index, columns_end)

        if not self.turned:
            rows()
            return
        sides = (first, end), (inner_first, inner_end)
        if all(self.grid.least(each) >= self.lanes for each in self.axes[-2:]):
            self._squares(emitter, *sides)
            return
        fit = [b.compare("ge", b.sub(stop, start), self.lanes) for start, stop in sides]
        b.if_(b.op("and", *fit), partial(self._squares, emitter, *sides), rows)

    def _squares(
        self,
        emitter: Emitter,
        rows: tuple[LoopIndex, LoopIndex],
        columns: tuple[LoopIndex, LoopIndex],
    ) -> None:
        """Ranges of a vector or more in squares of vectors, the last of which end with the ranges
        and may lie over others."""
        b, lanes, outer = self.builder, self.lanes, self.axes[-2].axis
        tall, wide = (guess(each.extent, self.function.symbols) for each in self.axes[-2:])
        turn = -1 if along_operand(tall, wide, self.roots[0].dtype.bytes) else 1
        with b.for_(*columns, _PAGES) as blocks, ExitStack() as stack:
            block = blocks.index, b.min(b.add(blocks.index, _PAGES), columns[1])
            loops = [stack.enter_context(b.for_(*walk, lanes)) for walk in (rows, block)[::turn]]
            stack.enter_context(emitter.scope())
            row, column = (
                b.min(loop.index, b.sub(end, lanes))
                for loop, (_, end) in zip(loops[::turn], (rows, columns), strict=True)
            )
            turned = [self._turn(emitter, each, row, column) for each in self.turned]
            for step in range(lanes):
                emitter.places[outer] = b.add(row, step)
                with emitter.along(self.inner.axis, column, lanes):
                    for load, vectors in zip(self.turned, turned, strict=True):
                        emitter.remember(load, vectors[step])
                    self._store(emitter, None)

    def _strips(self, emitter: Emitter) -> None:
        """Some rows of the last axis but one at a time, vector by vector along the last: what is
        the same for all rows stands in front of them."""
        b, lanes, axis = self.builder, self.lanes, self.inner.axis
        first, end = self._range(self.axes[-2])
        left, right = self._range(self.inner)
        length, last = b.sub(right, left), b.sub(right, lanes)
        self._hoist(emitter, len(self.axes) - 2)
        with b.for_(first, end, self.strip) as strip:
            rows = strip.index, b.min(b.add(strip.index, self.strip), end)

            def whole() -> None:
                with b.for_(left, right, lanes) as loop:
                    place = loop.index if self._always_full() else b.min(loop.index, last)
                    with emitter.along(axis, place, lanes):
                        self._column(emitter, rows, None)

            def parts() -> None:
                """None of them over another, as where a result takes an operand's place."""
                with b.for_(left, right, lanes) as loop:
                    live = b.min(b.sub(right, loop.index), lanes)
                    with emitter.along(axis, loop.index, lanes, live):
                        self._column(emitter, rows, live)

            if self._always_full():
                whole()
            elif self.in_place:
                parts()
            elif isinstance(length, int) and length >= lanes:
                whole()
            else:
                b.if_(b.compare("ge", length, lanes), whole, parts)

    def _column(
        self, emitter: Emitter, rows: tuple[LoopIndex, LoopIndex], live: LoopIndex | None
    ) -> None:
        """The rows of a vector. Elements that lie near each other are picked out of a vector."""
        b, outer = self.builder, self.axes[-2]
        others = frozenset(axis for each in self.axes if each is not outer for axis in each.axes)
        emitter.hoist(self.roots, others)

        def walk() -> None:
            with b.for_(*rows) as row, emitter.scope():
                emitter.places[outer.axis] = row.index
                self._store(emitter, live)

        picked = [
            load
            for load in loads_of(self.roots)
            if (term := emitter.pick_of(load)) and outer.axis not in term.node.axes
        ]
        if not picked or live is not None:
            walk()
            return

        def walk_far() -> None:
            emitter.near.clear()
            walk()

        b.if_(emitter.look_near(picked), walk, walk_far)

    def _whole(self, first: LoopIndex, end: LoopIndex, lanes: int) -> LoopIndex:
        """Where the last whole vector of a range ends."""
        b = self.builder
        return b.add(first, b.mul(b.div(b.max(b.sub(end, first), 0), lanes), lanes))

    def _turn(self, emitter: Emitter, load: Load, row: LoopIndex, column: LoopIndex) -> list[Value]:
        """A square of an operand that is contiguous along the rows, as vectors along columns."""
        b = self.builder
        memory = b.binding(load.ordinal, load.stored)
        emitter.places[self.axes[-2].axis] = row
        read = []
        for step in range(self.lanes):
            emitter.places[self.inner.axis] = b.add(column, step)
            read.append(b.load(memory, emitter.index(load.index), self.lanes))
        return transpose(b, read)

    def _innermost(self, emitter: Emitter, first: LoopIndex, end: LoopIndex) -> None:
        """The last axis, in parts in which all conditions on it are known."""
        b, places = self.builder, self.places
        self._hoist(emitter, len(self.axes) - 1)
        if not places:
            self._run(emitter, first, end)
            return
        start = first
        for place, known in zip(places[1:], self.known, strict=True):
            stop = end
            if place is not places[-1]:
                stop = b.min(b.max(b.dim(place), first), end)
            emitter.known.update(known)
            with emitter.scope():
                self._run(emitter, start, stop)
            start = stop

    def _run(self, emitter: Emitter, first: LoopIndex, end: LoopIndex) -> None:
        """Places [first, end) of the last axis, whole vectors first."""
        b, lanes, aligned = self.builder, self.lanes, not self.places
        if lanes == 1:
            with b.for_(first, end) as loop, emitter.along(self.inner.axis, loop.index, 1):
                self._store(emitter, None)
            return
        if isinstance(first, int) and isinstance(end, int):
            full_end: LoopIndex = first + (end - first) // lanes * lanes
            rest: LoopIndex = end - full_end if isinstance(full_end, int) else 0
        else:
            length = b.sub(end, first)
            full_end = b.add(first, b.mul(b.div(b.max(length, 0), lanes), lanes))
            rest = b.sub(end, full_end)
        axis = self.inner.axis
        if full_end != first:
            with (
                b.for_(first, full_end, lanes) as loop,
                emitter.along(axis, loop.index, lanes, aligned=aligned),
            ):
                self._store(emitter, None)
        if rest == 0 or self._always_full():
            return
        if isinstance(rest, int) and full_end != first and not self.in_place:
            with emitter.along(axis, b.sub(end, lanes), lanes):
                self._store(emitter, None)
            return

        # Of a part that is short one element or a vector as short as they are: where it is
        # gathered, all lanes cost.
        width = lanes
        if isinstance(rest, int) and self.places:
            width = 1 if rest == 1 else max(power_of_two(rest), 4)
        live = None if width == rest else rest

        def tail() -> None:
            with emitter.along(axis, full_end, width, live, aligned=aligned):
                self._store(emitter, live)

        if isinstance(rest, int):
            tail()
        else:
            b.if_(b.compare("gt", rest, 0), tail)

    def _always_full(self) -> bool:
        """Whether the innermost range is always a whole number of vectors. Those of blocks and
        workgroups are, those between places are not."""
        return not self.places and modulo(self.inner.extent, self.lanes) == 0

    def _store(self, emitter: Emitter, count: LoopIndex | None) -> None:
        self._put(emitter, [emitter.emit_vector(root) for root in self.roots], count)

    def _put(self, emitter: Emitter, values: list[Value], count: LoopIndex | None = None) -> None:
        b, place = self.builder, emitter.index(self.out)
        first = len(self.function.arguments)
        for ordinal, value in enumerate(values):
            memory = b.binding(first + ordinal, self.roots[ordinal].dtype)
            b.store(memory, place, value, count)
