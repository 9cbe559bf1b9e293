"""The planar class: convolution of images that lie channels first, and what follows it.

A workgroup stages the rows of the image under a block of results in scratch, with zeros around
them. Where windows move by steps, columns that lie a step apart are put side by side there, so that
what neighbouring results meet at a place of the window are neighbours. A tile is vectors along a
row: of some features, which share what they read, or, of a depthwise convolution, of some rows of
one feature. So nothing is transposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ingot.compiler.graph.ops import ConvPlanar
from ingot.compiler.ir import Function, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dims, product
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel, in_place_pairs
from ingot.compiler.kernels.indexing import Axis, Index, linearize
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lines import root_of
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    for_row_tiles,
    multiply,
    rows_of_workgroup,
    zero_tile,
)
from ingot.compiler.kernels.schedule import MOST_SCRATCH, WANTED_WORKGROUPS
from ingot.compiler.kernels.trace import Tracer

__all__ = ["PlanarSchedule", "lower_planar"]

_STAGE_LENGTH = 256 << 10  # bytes of rows in scratch: they share L2 with the weights
_PLANE_LENGTH = 64 << 10  # the same of a depthwise convolution, which reads them once or twice
_MOST_COLUMNS = 512  # of a block
_MOST_SUMS = 16  # vectors of a depthwise tile
_MOST_ADDS = 128  # instructions for one column of a depthwise window
_BLOCK_ELEMENTS = 1 << 14  # results of a depthwise workgroup, about


@dataclass(frozen=True)
class PlanarSchedule:
    """Register tile; columns, rows and features of a workgroup; elements of a row in scratch."""

    tile: TileShape
    block: tuple[int, int, int]
    pitch: int


@dataclass(frozen=True)
class _Side:
    """One spatial dim: of the image, of the result, and how the window moves along it."""

    size: int
    made: int
    window: int
    stride: int
    dilation: int
    before: int

    @property
    def reach(self) -> int:
        """Elements from the first under a window to the last."""
        return (self.window - 1) * self.dilation

    def under(self, count: int) -> int:
        """Elements under the windows of so many neighbours."""
        return (count - 1) * self.stride + self.reach + 1


@dataclass(frozen=True)
class _Tile:
    """Rows of vectors of the result: of the features from `feature` on, or of rows of one. Row and
    column are those in the block; `rest`: live lanes of the last vector of each, 0 for all."""

    rows: int
    feature: LoopIndex
    row: LoopIndex
    vectors: int
    column: LoopIndex
    rest: int


def lower_planar(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one conv_planar. ValueError: its rows do not fit scratch."""
    x, w = map(tensor_type, root_of(function, "conv_planar").operands)
    return (_Depthwise if w.rank < x.rank else _Planar)(function, target).lower()


class _Planar:
    """A kernel under construction. Images without rows have one."""

    most_staged = _STAGE_LENGTH

    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.function, self.target, self.b = function, target, LoopBuilder()
        self.op = op = root_of(function, "conv_planar")
        x, w = map(tensor_type, op.operands)
        self.shape, self.element = tensor_type(op.result).shape, x.dtype
        moves = ConvPlanar.of(op)
        sides = [
            _Side(*known_dims(each))
            for each in zip(
                x.shape[2:], self.shape[2:], moves.window, moves.strides, moves.rhs_dilation,
                [before for before, _ in moves.padding],
                strict=True,
            )
        ]  # fmt: skip
        self.down, self.across = [_Side(1, 1, 1, 1, 1, 0), *sides][-2:]
        self.features, self.outputs = known_dims((x.shape[1], self.shape[1]))
        self.ordinals = [function.arguments.index(value) for value in op.operands]
        self.x, self.w = (
            self.b.binding(place, each.dtype)
            for place, each in zip(self.ordinals, (x, w), strict=True)
        )
        self.lanes = min(target.lanes(self.element), PANEL)
        self._trace()
        self.gap = math.gcd(self.across.dilation, self.across.stride)
        taps = range(0, self.across.reach + 1, self.across.dilation)
        self.phases = range(0, max(at % self.across.stride for at in taps) + 1, self.gap)
        self.staged = self.b.scratch(0, self.element)
        self.schedule = self.plan()
        self.pitch = self.schedule.pitch
        self.line = len(self.phases) * self.pitch  # elements of a row of a feature in scratch

    def _trace(self) -> None:
        axes = [Axis(dim) for dim in self.shape]
        self.image, self.feature, *spatial = axes
        self.row, self.column = [Axis(1), *spatial][-2:]
        indices = [
            Index() if dim == 1 and axis is not self.column else Index.of(axis)
            for axis, dim in zip(axes, self.shape, strict=True)
        ]
        tracer = Tracer(self.function, [self.op.result], may_split=False)
        results = self.function.block.terminator.operands
        self.roots = [tracer.trace(value, indices) for value in results]
        self.flat = linearize(indices, self.shape)

    # Schedule.

    def plan(self) -> PlanarSchedule:
        """Tiles of as many vectors as registers hold beside those of the features' sums."""
        registers = self.target.register_count
        rows = min(8 if registers >= 32 else 4, self.outputs)
        vectors = self._vectors(max(1, min((registers - 8) // rows, 6)))
        tile = TileShape(rows, vectors, self.lanes)
        columns, pitch = self._columns_of_block(tile, self.features)
        length = self.features * len(self.phases) * pitch * self.element.bytes
        fitting = self.most_staged // length - self.down.under(1)
        blocks = -(-WANTED_WORKGROUPS // -(-self.across.made // columns))
        height = min(fitting // self.down.stride + 1, -(-self.down.made // blocks))
        return PlanarSchedule(tile, (columns, max(height, 1), self.outputs), pitch)

    def _vectors(self, most: int) -> int:
        """Vectors of a tile along a row: as many as share it evenly."""
        wanted = -(-self.across.made // self.lanes)
        return -(-wanted // -(-wanted // most))

    def _columns_of_block(self, tile: TileShape, features: int) -> tuple[int, int]:
        """Columns of a block, whole tiles of them, and elements of a row in scratch."""
        width, made = tile.vectors * self.lanes, self.across.made
        most = _MOST_COLUMNS
        if self.down.made == 1:
            most = min(most, max(-(-made // WANTED_WORKGROUPS), 2 * width))
        columns = max(min(-(-made // width), most // width), 1) * width
        while columns > width and self._length(columns, features) > self.most_staged:
            columns -= width
        return columns, self._pitch(columns)

    def _pitch(self, columns: int) -> int:
        live = min(columns, -(-self.across.made // self.lanes) * self.lanes)
        pitch = -(-(live + self.across.reach // self.across.stride + 1) // PANEL) * PANEL
        return pitch if len(self.phases) * pitch * self.element.bytes % 4096 else pitch + PANEL

    def _length(self, columns: int, features: int, rows: int = 1) -> int:
        """Bytes in scratch for the rows under so many."""
        line = len(self.phases) * self._pitch(columns) * self.element.bytes
        return self.down.under(rows) * features * line

    # Kernel.

    def lower(self) -> Kernel:
        """The kernel."""
        columns, height, _ = self.schedule.block
        self.block(self.b.workgroup(2), 0)
        return self.kernel(self.features, self.shape[0], (columns, height, 1))

    def kernel(self, features: int, depth: Dim, tile: tuple[int, int, int]) -> Kernel:
        """What was built: rows of so many features are staged; the grid's last dim is `depth`."""
        columns, height, _ = self.schedule.block
        length = self._length(columns, features, height) + self.lanes * self.element.bytes
        if length > MOST_SCRATCH:
            raise ValueError(f"rows of {length} bytes do not fit scratch memory")
        function = self.function
        pairs = in_place_pairs(function, self.roots, self.flat)
        each = features * self.down.window * self.across.window
        return finish_kernel(
            function,
            self.b,
            workload=(self.across.made, self.down.made, depth),
            tile=tile,
            flops=2 * product(self.shape) * each,
            scratch_length=-(-length // 64) * 64,
            in_place=tuple(pair for pair in pairs if pair[0] not in self.ordinals),
            schedule=self.schedule,
        )

    def block(self, image: LoopIndex, feature: LoopIndex) -> None:
        """The rows and columns of this workgroup, of an image: of all features, or a feature."""
        b, (columns, height, _) = self.b, self.schedule.block
        left, width = rows_of_workgroup(b, 0, self.across.made, columns)
        top, rows = rows_of_workgroup(b, 1, self.down.made, height)
        self.stage(image, feature, (top, rows), left)

        def put(tile: _Tile) -> None:
            sums = self.sums(tile)
            for number in range(tile.rows):
                places = {self.image: image, **self.places(tile, top, number)}
                mine = sums[number * tile.vectors : (number + 1) * tile.vectors]
                self.store(mine, places, b.add(left, tile.column), tile.rest)

        self.walk(feature, rows, width, put)

    def walk(
        self,
        feature: LoopIndex,
        rows: LoopIndex,
        width: LoopIndex,
        put: Callable[[_Tile], None],
    ) -> None:
        """`put` with all tiles of so many rows and columns: whole rows of a few features, so that
        what is written next lies near."""
        b, high = self.b, self.schedule.tile.rows

        def some(count: int, first: LoopIndex, _: list[Value]) -> tuple[()]:
            with b.for_(0, rows) as loop:
                self.along(width, lambda *part: put(_Tile(count, first, loop.index, *part)))
            return ()

        heights = [high, self.outputs % high] if self.outputs % high else [high]
        for_row_tiles(b, self.outputs, heights, some)

    def places(self, tile: _Tile, top: LoopIndex, number: int) -> dict[Axis, LoopIndex]:
        """The feature and row of the result that row `number` of a tile is; `top`: the block's."""
        b = self.b
        return {self.feature: b.add(tile.feature, number), self.row: b.add(top, tile.row)}

    def along(self, width: LoopIndex, put: Callable[[int, LoopIndex, int], None]) -> None:
        """`put(vectors, column, rest)` for the tiles of a row of so many columns, of which the
        row's last ones may be no whole tile."""
        b, vectors = self.b, self.schedule.tile.vectors
        step = vectors * self.lanes
        full = b.mul(b.div(width, step), step)
        with b.for_(0, full, step) as loop:
            put(vectors, loop.index, 0)
        if rest := self.across.made % step:
            last = b.compare("lt", full, width)
            b.if_(last, lambda: put(-(-rest // self.lanes), full, rest % self.lanes))

    # Rows in scratch.

    def stage(
        self,
        image: LoopIndex,
        feature: LoopIndex,
        rows: tuple[LoopIndex, LoopIndex],
        left: LoopIndex,
    ) -> None:
        """Put the rows under the results of `rows`, first and count, from column `left` on, of the
        features from `feature` on, in scratch: [row][feature][phase][pitch]."""
        b, down, count = self.b, self.down, self.staged_features
        lines = b.add(b.mul(b.sub(rows[1], 1), down.stride), down.reach + 1)
        top = b.sub(b.mul(rows[0], down.stride), down.before)
        start = b.sub(b.mul(left, self.across.stride), self.across.before)
        plane = b.add(b.mul(image, self.features), feature)
        with b.for_(0, lines) as loop:
            line = b.add(top, loop.index)
            target = b.mul(loop.index, count * self.line)

            def copy() -> None:
                with b.for_(0, count) as each:
                    row = b.add(b.mul(b.add(plane, each.index), down.size), line)
                    at = b.add(target, b.mul(each.index, self.line))
                    self._copy(b.mul(row, self.across.size), start, at)

            inside = b.op("and", b.compare("ge", line, 0), b.compare("lt", line, down.size))
            b.if_(inside, copy, lambda: self._clear(target, count * self.line))

    @property
    def staged_features(self) -> int:
        """Of which a workgroup has rows in scratch at a time."""
        return self.features

    def _clear(self, first: LoopIndex, count: LoopIndex) -> None:
        """Zeros, and some behind them."""
        b = self.b
        zero = b.constant(0, self.element, self.lanes)
        with b.for_(0, count, self.lanes) as loop:
            b.store(self.staged, b.add(first, loop.index), zero)

    def _copy(self, row: LoopIndex, start: LoopIndex, target: LoopIndex) -> None:
        """A row of the image from column `start` on, phase by phase. What is written behind the end
        of a phase is written again, as the next one or the zeros between them."""
        b, stride, size = self.b, self.across.stride, self.across.size
        for place, phase in enumerate(self.phases):
            at, first = b.add(target, place * self.pitch), b.add(start, phase)

            def steps(to: LoopIndex, first: LoopIndex = first) -> LoopIndex:
                ahead = b.max(b.add(b.sub(to, first), stride - 1), 0)
                return b.min(b.div(ahead, stride), self.pitch)

            begin, end = steps(0), steps(size)
            self._clear(at, begin)
            column = b.add(first, b.mul(begin, stride))
            count = b.max(b.sub(end, begin), 0)
            room = b.max(b.sub(size, column), 0)
            self._pick(b.add(row, column), room, count, b.add(at, begin))
            self._clear(b.add(at, b.max(end, begin)), b.sub(self.pitch, b.max(end, begin)))

    def _pick(
        self, source: LoopIndex, room: LoopIndex, count: LoopIndex, target: LoopIndex
    ) -> None:
        """`count` elements from `source` on, a stride apart, side by side; `room`: elements of the
        row from there on."""
        b, lanes, stride = self.b, self.lanes, self.across.stride
        if stride > 2:
            steps = b.op("mul", b.lanes(lanes), b.value(stride))
            with b.for_(0, count, lanes) as loop:
                at = b.add(source, b.mul(loop.index, stride))
                last = b.add(source, b.mul(b.sub(count, 1), stride))
                places = b.op("min", b.op("add", steps, b.value(at)), b.value(last))
                b.store(self.staged, b.add(target, loop.index), b.gather(self.x, places))
            return

        def vector(at: LoopIndex, is_whole: bool) -> None:
            first, parts = b.mul(at, stride), []
            for part in range(stride):
                begin = b.add(first, part * lanes)
                live = None if is_whole else b.max(b.min(b.sub(room, begin), lanes), 0)
                parts.append(b.load(self.x, b.add(source, begin), lanes, live))
            value = parts[0]
            if stride == 2:
                value = b.shuffle(parts[0], parts[1], [2 * lane for lane in range(lanes)])
            b.store(self.staged, b.add(target, at), value)

        full = b.mul(b.div(b.min(count, b.div(room, stride)), lanes), lanes)
        with b.for_(0, full, lanes) as loop:
            vector(loop.index, True)
        b.if_(b.compare("lt", full, count), lambda: vector(full, False))

    def element_at(self, row: LoopIndex, column: LoopIndex, step: LoopIndex) -> LoopIndex:
        """Where the first feature's element lies in scratch, of a row, that a result in a column
        meets at a step of the window."""
        b, stride = self.b, self.across.stride
        at = b.mul(step, self.across.dilation)
        place = b.add(
            b.mul(row, self.staged_features * self.line), b.add(column, b.div(at, stride))
        )
        return b.add(place, b.mul(b.div(b.rem(at, stride), self.gap), self.pitch))

    # Tiles.

    def sums(self, tile: _Tile) -> list[Value]:
        """The sums of a tile, row by row."""
        b, down, across = self.b, self.down, self.across
        depth = self.features * down.window * across.window
        panel = b.mul(b.div(tile.feature, PANEL), depth * PANEL)
        start = b.add(panel, b.rem(tile.feature, PANEL))
        shape = TileShape(tile.rows, tile.vectors, self.lanes)
        with b.for_(0, down.window, 1, zero_tile(b, self.element, shape)) as rows:
            line = b.add(b.mul(tile.row, down.stride), b.mul(rows.index, down.dilation))
            with b.for_(0, across.window, 1, rows.carried) as steps:
                base = self.element_at(line, tile.column, steps.index)
                step = b.add(b.mul(rows.index, across.window), steps.index)
                weight = b.add(start, b.mul(step, self.features * PANEL))

                def left(row: int, k: LoopIndex) -> Value:
                    return b.load(self.w, b.add(b.add(weight, b.mul(k, PANEL)), row))

                def right(k: LoopIndex, vector: int) -> Value:
                    at = b.add(b.add(base, b.mul(k, self.line)), vector * self.lanes)
                    return b.load(self.staged, at, self.lanes)

                steps.yield_(*multiply(b, shape, steps.carried, self.features, left, right))
            rows.yield_(*steps.results)
        return rows.results

    def store(
        self,
        sums: Sequence[Value],
        places: dict[Axis, LoopIndex],
        column: LoopIndex,
        rest: int,
    ) -> None:
        """What becomes of neighbouring vectors of a row; `rest`: live lanes of the last, 0: all."""
        b, emitter = self.b, Emitter(self.b, {**places, self.column: column})
        emitter.hoist(self.roots, frozenset((self.image, self.feature, self.row)))
        for number, total in enumerate(sums):
            count = rest if rest and number == len(sums) - 1 else None
            at = b.add(column, number * self.lanes)
            with emitter.along(self.column, at, self.lanes, count):
                emitter.given[self.op.result] = total
                for ordinal, root in enumerate(self.roots):
                    memory = b.binding(len(self.function.arguments) + ordinal, root.dtype)
                    b.store(memory, emitter.index(self.flat), emitter.emit_vector(root), count)


class _Depthwise(_Planar):
    """Each feature by itself: a tile is rows of it."""

    most_staged = _PLANE_LENGTH

    def plan(self) -> PlanarSchedule:
        made = self.down.made
        vectors = self._vectors(8 if made == 1 else 4)
        most = max(1, min(_MOST_SUMS, _MOST_ADDS // self.down.window) // vectors)
        rows = next((n for n in (8, 7, 6, 5, 4) if n <= most and made % n == 0), min(most, 4, made))
        tile = TileShape(rows, vectors, self.lanes)
        columns, pitch = self._columns_of_block(tile, 1)
        height = min(-(-made // rows), 64) * rows
        while height > rows and self._length(columns, 1, height) > self.most_staged:
            height -= rows
        planes = min(self.features // WANTED_WORKGROUPS, _BLOCK_ELEMENTS // (columns * height))
        return PlanarSchedule(tile, (columns, height, max(planes, 1)), pitch)

    @property
    def staged_features(self) -> int:
        return 1

    def lower(self) -> Kernel:
        b, (columns, height, planes) = self.b, self.schedule.block
        count = self.shape[0] * self.features
        first, own = rows_of_workgroup(b, 2, count, planes)
        with b.for_(0, own) as loop:
            plane = b.add(first, loop.index)
            self.block(b.div(plane, self.features), b.rem(plane, self.features))
        return self.kernel(1, count, (columns, height, planes))

    def walk(
        self,
        feature: LoopIndex,
        rows: LoopIndex,
        width: LoopIndex,
        put: Callable[[_Tile], None],
    ) -> None:
        high = self.schedule.tile.rows

        def some(count: int, row: LoopIndex, _: list[Value]) -> tuple[()]:
            self.along(width, lambda *part: put(_Tile(count, feature, row, *part)))
            return ()

        for_row_tiles(self.b, rows, [high] if self.down.made % high == 0 else [high, 1], some)

    def places(self, tile: _Tile, top: LoopIndex, number: int) -> dict[Axis, LoopIndex]:
        row = self.b.add(self.b.add(top, tile.row), number)
        return {self.feature: tile.feature, self.row: row}

    def sums(self, tile: _Tile) -> list[Value]:
        b, shape = self.b, TileShape(tile.rows, tile.vectors, self.lanes)
        row = b.mul(tile.row, self.down.stride)
        with b.for_(0, self.across.window, 1, zero_tile(b, self.element, shape)) as loop:
            base = self.element_at(row, tile.column, loop.index)
            loop.yield_(*self._add(loop.carried, tile, base, loop.index))
        return loop.results

    def _add(
        self,
        sums: Sequence[Value],
        tile: _Tile,
        base: LoopIndex,
        step: LoopIndex,
    ) -> list[Value]:
        """The sums of a tile with what a column of the window adds. Each row is read once."""
        b, down, lanes = self.b, self.down, self.lanes
        weights = [
            b.load(
                self.w,
                b.add(b.mul(b.add(step, each * self.across.window), self.features), tile.feature),
            )
            for each in range(down.window)
        ]
        totals, rows, vectors = list(sums), tile.rows, tile.vectors
        for line in range(down.under(rows)):
            pairs = [
                (row, each)
                for row in range(rows)
                for each in range(down.window)
                if row * down.stride + each * down.dilation == line
            ]
            at = b.add(base, line * self.line)
            for vector in range(vectors if pairs else 0):
                x = b.load(self.staged, b.add(at, vector * lanes), lanes)
                for row, each in pairs:
                    number = row * vectors + vector
                    totals[number] = b.fma(b.broadcast(weights[each], lanes), x, totals[number])
        return totals
