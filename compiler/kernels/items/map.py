"""The map class for work items: neighbouring items make neighbouring elements of the results.

An item takes several vectors, which are all computed before one is stored, so that many
loads are in flight. An operand that is contiguous along another axis than the results are
is read in squares, turned in local memory: both sides then see whole lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Function, Value, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel, in_place_pairs
from ingot.compiler.kernels.indexing import Axis, Index
from ingot.compiler.kernels.items.spread import Spread, fold, is_straight
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.map import trace_map
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import Folded, Merged, guess, loads_of
from ingot.compiler.kernels.trace import Apply, Choose, Load, Node, walk_nodes
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["ItemsMapSchedule", "lower_map"]

_SQUARE = 32  # sides of a square of a transposed operand
_SHORT = 8  # steps along a side for which no square is worth while
_PITCH = _SQUARE + 1  # elements from row to row in local memory: no two items meet in a bank
_ROOM = 16384  # bytes of local memory for squares
_LONG = 1024  # a line with so many steps may have a masked vector at its end


@dataclass(frozen=True)
class ItemsMapSchedule:
    """The decisions of one map kernel, for people to read."""

    extents: tuple[Dim, ...]  # of the merged axes
    lanes: int
    size: tuple[int, int, int]  # items of a group
    tile: tuple[int, int, int]  # steps of a group
    turned: int  # operands that are read in squares


def lower_map(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry whose results have one shape. CompileError: an op has no rule."""
    roots, out, axes = trace_map(function)
    return _Lowering(function, target, roots, out, axes).lower()


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
        self.roots, self.out, self.axes = roots, out, axes
        self.builder = LoopBuilder()
        self.inner = axes[-1].axis
        second, self.turned = self._turned()
        grid = fold(axes, second)
        widest = max(node.dtype.bytes for node in roots)
        items = target.group_size
        if self.turned and items > 1:
            rows = max(items // _SQUARE, 1)
            size, tile = (_SQUARE, rows, 1), (_SQUARE, _SQUARE, 1)
            self.spread = Spread(grid, 1, size, tile)
        else:
            lanes = self._choose_lanes()
            symbols = function.symbols
            self.spread = Spread.of(grid, lanes, items, symbols, widest, self._together())
        self.group = WorkGroup(self.builder, self.spread.size)

    def _turned(self) -> tuple[int, list[Load]]:
        """Which axis goes along y, and the operands that are contiguous along it: all of one
        kernel that are always read, from a place that no memory decides."""
        guarded = {
            node
            for each in walk_nodes(self.roots)
            if isinstance(each, Choose)
            for node in walk_nodes([each.then, each.otherwise])
        }
        for place in range(len(self.axes) - 2, -1, -1):
            axis = self.axes[place].axis
            found = [
                load
                for load in loads_of(self.roots)
                if load.index.coefficient(axis) == 1
                and load.index.coefficient(self.inner) not in (0, 1)
                and load.index.is_affine()
                and load not in guarded
            ]
            bytes = sum(_SQUARE * _PITCH * load.dtype.bytes for load in found)
            sides = (self.axes[place].extent, self.axes[-1].extent)
            large = all(guess(side, self.function.symbols) >= _SHORT for side in sides)
            if found and large and bytes <= _ROOM:
                return place, found
        return len(self.axes) - 2, []

    def _choose_lanes(self) -> int:
        """Steps of one vector: whole ones only, but for long lines. Where an operand is not
        read in vectors single elements are as good, and need no vectors of indices."""
        nodes = list(walk_nodes(self.roots))
        if not all(is_straight(node, self.inner) for node in nodes):
            return 1
        lanes = self.target.lanes(*{node.dtype for node in nodes if not node.dtype.is_boolean})
        extent = self.axes[-1].extent
        while lanes > 4 and dims.modulo(extent, lanes) != 0:
            lanes //= 2
        if dims.modulo(extent, lanes) == 0:
            return lanes
        is_long = len(self.axes) == 1 if not isinstance(extent, int) else extent >= _LONG
        return lanes if is_long else 1

    def _together(self) -> int:
        """Vectors that an item has in flight: more where little is done with each."""
        count = sum(isinstance(node, (Apply, Load)) for node in walk_nodes(self.roots))
        return 4 if count <= 16 else 2 if count <= 40 else 1

    def lower(self) -> Kernel:
        """The kernel."""
        b, spread = self.builder, self.spread
        first, end = spread.bounds(b, 2)
        start = b.add(first, self.group.item(2))
        with b.for_(start, end, spread.size[2]) as loop:
            emitter = Emitter(b, {})
            emitter.places.update(spread.axes[2].places(b, loop.index))
            for each in (self.axes[-1], *spread.axes[1].axes):
                emitter.places.update(each.place(0))
            emitter.hoist(self.roots, _axes(spread.axes[2]))
            if self.turned and self.group.count > 1:
                self._square(emitter)
            else:
                self._tile(emitter)
        return self._kernel()

    def _kernel(self) -> Kernel:
        function, spread = self.function, self.spread
        elements = dims.product(each.extent for each in self.axes)
        applied = sum(isinstance(node, Apply) for node in walk_nodes(self.roots))
        return finish_kernel(
            function,
            self.builder,
            workload=spread.workload,
            tile=spread.tile,
            flops=elements * max(applied, 1),
            local_size=spread.size,
            local_length=self.group.local_length,
            in_place=in_place_pairs(function, self.roots, self.out),
            schedule=ItemsMapSchedule(
                tuple(each.extent for each in self.axes),
                spread.lanes,
                spread.size,
                spread.tile,
                len(self.turned) if self.group.count > 1 else 0,
            ),
        )

    # Vectors along x.

    def _tile(self, emitter: Emitter) -> None:
        """What an item does of its group's tile."""
        b, spread = self.builder, self.spread
        if spread.steps == (1, 1) or spread.size == (1, 1, 1):
            self._edge(emitter)
            return
        inside = [
            b.compare("le", b.add(b.mul(b.workgroup(axis), tile), tile), b.dim(extent))
            for axis, (tile, extent) in enumerate(
                zip(spread.tile[:2], spread.workload[:2], strict=True)
            )
            if not spread.fits(axis)
        ]
        if not inside:
            self._whole(emitter)
            return
        condition = inside[0] if len(inside) == 1 else b.op("and", *inside)
        b.if_(condition, lambda: self._whole(emitter), lambda: self._edge(emitter))

    def _whole(self, emitter: Emitter) -> None:
        """A tile without an edge: all loads, then all stores."""
        b, spread = self.builder, self.spread
        across, down = spread.steps
        width = spread.size[0] * spread.lanes
        (first_x, _), (first_y, _) = spread.bounds(b, 0), spread.bounds(b, 1)
        start_x = b.add(first_x, b.mul(self.group.item(0), spread.lanes))
        start_y = b.add(first_y, self.group.item(1))
        made: list[tuple[LoopIndex, list[Value]]] = []
        for row in range(down):
            above = emitter.fork()
            self._stand(above, b.add(start_y, row * spread.size[1]))
            for column in range(across):
                each = above.fork()
                place = b.add(start_x, column * width)
                with each.along(self.inner, place, spread.lanes, aligned=True):
                    made.append(self._values(each))
        for place, values in made:
            self._store(place, values, None)

    def _edge(self, emitter: Emitter) -> None:
        """A tile of which some steps may not be there."""
        b, spread = self.builder, self.spread
        (first_x, end_x), (first_y, end_y) = spread.bounds(b, 0), spread.bounds(b, 1)
        lanes, item = spread.lanes, self.group.item(0)
        with b.for_(b.add(first_y, self.group.item(1)), end_y, spread.size[1]) as row:
            above = emitter.fork()
            self._stand(above, row.index)
            full, rest = end_x, 0  # type: tuple[LoopIndex, LoopIndex]
            if dims.modulo(spread.axes[0].extent, lanes) != 0:
                length = b.max(b.sub(end_x, first_x), 0)
                full = b.add(first_x, b.mul(b.div(length, lanes), lanes))
                rest = b.sub(end_x, full)
            start = b.add(first_x, b.mul(item, lanes))
            with (
                b.for_(start, full, spread.size[0] * lanes) as loop,
                above.along(self.inner, loop.index, lanes, aligned=True),
            ):
                self._store(*self._values(above), None)
            if rest == 0:
                return

            def tail() -> None:
                with above.along(self.inner, full, lanes, rest, aligned=True):
                    self._store(*self._values(above), rest)

            is_mine = b.compare("gt", rest, 0)
            if spread.size[0] > 1:
                is_mine = b.op("and", is_mine, b.compare("eq", item, 0))
            b.if_(is_mine, tail)

    def _stand(self, emitter: Emitter, row: LoopIndex) -> None:
        """Go to a step of y and compute what does not depend on x."""
        y, z = self.spread.axes[1:]
        for each in y.axes:
            emitter.places[each.axis] = row
        emitter.hoist(self.roots, _axes(y) | _axes(z))

    def _values(self, emitter: Emitter) -> tuple[LoopIndex, list[Value]]:
        values = [emitter.emit_vector(root) for root in self.roots]
        return emitter.index(self.out), values

    def _store(self, place: LoopIndex, values: Sequence[Value], count: LoopIndex | None) -> None:
        b = self.builder
        first = len(self.function.arguments)
        for ordinal, value in enumerate(values):
            memory = b.binding(first + ordinal, self.roots[ordinal].dtype)
            b.store(memory, place, value, count)

    # Squares through local memory.

    def _square(self, emitter: Emitter) -> None:
        """A square of x and y: read along y, turned, written along x."""
        b, group, spread = self.builder, self.group, self.spread
        emitter.clamps = True
        (first_x, end_x), (first_y, end_y) = spread.bounds(b, 0), spread.bounds(b, 1)
        along, row = group.item(0), group.item(1)
        (y_axis,) = (each.axis for each in spread.axes[1].axes)
        squares = [group.allocate(_SQUARE * _PITCH, load.dtype) for load in self.turned]
        rows = [b.add(row, step) for step in range(0, _SQUARE, group.size[1])]
        read: list[list[Value]] = []
        for each in rows:  # beyond the edge the last ones again, which nobody takes
            there = emitter.fork()
            there.places[self.inner] = b.min(b.add(first_x, each), b.sub(end_x, 1))
            there.places[y_axis] = b.min(b.add(first_y, along), b.sub(end_y, 1))
            read.append([there.emit(load) for load in self.turned])
        for each, values in zip(rows, read, strict=True):
            for square, value in zip(squares, values, strict=True):
                b.store(square, b.add(b.mul(each, _PITCH), along), value)
        group.barrier()
        x = b.add(first_x, along)
        for each in rows:
            y = b.add(first_y, each)

            def write(y: LoopIndex = y, each: LoopIndex = each) -> None:
                here = emitter.fork()
                here.places.update({self.inner: x, y_axis: y})
                for load, square in zip(self.turned, squares, strict=True):
                    turned = b.load(square, b.add(b.mul(along, _PITCH), each))
                    here.remember(load, turned)
                self._store(*self._values(here), None)

            inside = b.op("and", b.compare("lt", x, end_x), b.compare("lt", y, end_y))
            b.if_(inside, write)


def _axes(folded: Folded) -> frozenset[Axis]:
    return frozenset(axis for each in folded.axes for axis in each.axes)
