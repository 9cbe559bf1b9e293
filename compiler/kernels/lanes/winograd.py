"""Kernels for conv_winograd: 3x3 convolution by Winograd's F(4, 3) or F(2, 3).

A workgroup takes some tiles (4x4 or 2x2 results each), which follow each other through all images,
and some panels. It transforms the inputs of its tiles into scratch, 36 or 16 matrices [tiles,
features]; then, a few panels at a time, multiplies each with its own weight matrix by the
register tile of all contractions, transforms the products of a tile back, and runs the
epilogue on its results. Inputs outside the image are zero; tiles that lie inside need no
test.

Where scratch has room for few tiles of so many features, these come in parts, and the products of
more tiles add up in scratch: such weights are long, and few workgroups read them again.

With a depth a workgroup takes the same tiles of some frames, which follow each other, and
transforms those of all frames under them once: matrices [frames, tiles, features], where a tap
of the window along the depth is as many rows further on as there are tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ingot.compiler.graph.forms.winograd import MOST_TILES
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, bounds, modulo
from ingot.compiler.kernels.epilogue import Position
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.panel import Turn, asking
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    choose_columns,
    choose_rows,
    for_row_tiles,
    multiply,
    panel_tile,
    tail_heights,
    zero_tile,
)
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, WANTED_WORKGROUPS
from ingot.compiler.kernels.winograd_entry import Tile, Vectors, WinogradEntry
from ingot.hal.spec import dtype

__all__ = ["WinogradSchedule", "lower_winograd"]

F32 = dtype("f32")
SCRATCH_LENGTH = 512 << 10
"""Bytes of transformed inputs and products of a workgroup, about: half of L2. 64 features of
56 x 56 take 368 us with AVX-512, with a quarter of it 372, with 1 MB 396."""

WANTED_TILES = 24
"""Tiles that share a pass over the weights, which are too large for caches: as many if they fit."""

MOST_FRAMES = 4
"""Frames of a workgroup: those under them that a neighbour transforms, too, are fewer then."""

PANELS_OF_ANY_IMAGE = 4
"""Panels of a workgroup where the size of the image, and so the count of workgroups, is not
known: the inputs are transformed once for so many. ResNet-18 of 224 x 224 takes 15.0 ms on two
threads with AVX-512, with 16 panels, all that 14 x 14 have, 18.1; on one 29.3 and 30.7."""


@dataclass(frozen=True)
class WinogradSchedule:
    """Register tile, and the tiles, frames and panels of a workgroup, and the features whose
    transformed inputs are in scratch at a time."""

    tile: TileShape
    tiles: int
    frames: int
    block_panels: int
    features: int


def lower_winograd(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one conv_winograd."""
    return _Winograd(function, target).lower()


class _Winograd(WinogradEntry):
    """State while one kernel is made; the grid counts tiles, of all images."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, min(target.lanes(F32), PANEL))
        self.most_features, self.most_panels = (
            int(bounds(each, function.symbols)[1]) for each in self.counts
        )
        while modulo(self.counts[0], self.lanes) != 0:
            self.lanes //= 2
        self.schedule = self._choose(target)
        self.block = self.schedule.tiles  # of a frame
        self.made = self.schedule.frames * self.block
        self.read = self.made + (self.taps - 1) * self.block
        self.in_parts = self.schedule.features < self.most_features
        self.held = self.schedule.features if self.in_parts else self.features
        """Features in scratch, in rows that have room for `schedule.features`."""
        self.columns = self.schedule.tile.panels * PANEL
        """Whose products are in scratch."""
        if self.in_parts:
            self.columns = self.schedule.block_panels * PANEL

    def _choose(self, target: TargetInfo) -> WinogradSchedule:
        columns = choose_columns(self.counts[1], target, self.lanes)
        most = choose_rows(self.tiles, columns, target, self.lanes)
        frames = self._choose_frames(columns)
        count = self._tiles_in_parts(self._length(frames, columns))
        if count:
            return self._choose_parts(count, columns, target)
        tiles = self._choose_tiles(self._length(frames, columns), frames, most)
        panels = self.most_panels
        if isinstance(self.tall, int) and isinstance(self.across, int):
            blocks = -(-self.tall * self.across // tiles)
            if isinstance(self.frames, int):
                blocks *= -(-self.frames // frames)
            splits = max(1, min(panels // columns, WANTED_WORKGROUPS // blocks))
            panels = -(-panels // splits)
        else:
            panels = min(panels, PANELS_OF_ANY_IMAGE)
        panels = min(-(-panels // columns) * columns, self.most_panels)
        rows = choose_rows(tiles * frames, columns, target, self.lanes)
        tile = panel_tile(rows, columns, self.lanes)
        return WinogradSchedule(tile, tiles, frames, panels, self.most_features)

    def _tiles_in_parts(self, length: int) -> int:
        """Tiles of a workgroup whose features come in parts: none where tiles of `length` bytes are
        few or fit, or weights stay in L2."""
        most = MOST_BEFORE_SUMS // length
        if self.taps > 1 or modulo(self.counts[0], PANEL) != 0:
            return 0
        if most >= WANTED_TILES or self._weights() <= SCRATCH_LENGTH:
            return 0
        if isinstance(self.tiles, int):
            count = self.tiles
        elif isinstance(self.tall, int) and isinstance(self.across, int):
            count = self.tall * self.across
        else:
            return WANTED_TILES
        return -(-count // -(-count // MOST_TILES)) if count > most else 0

    def _weights(self) -> int:
        """Bytes of the weights, at most."""
        depth = self.taps * self.most_features
        return self.places * self.most_panels * PANEL * depth * F32.bytes

    def _choose_parts(self, tiles: int, columns: int, target: TargetInfo) -> WinogradSchedule:
        """Half of the scratch for products, half for parts of the features."""
        held = MOST_BEFORE_SUMS // (2 * self.places * tiles * F32.bytes * PANEL)
        parts = self.counts[0] // PANEL
        fitting = range(1, max(held, 1) + 1)
        features = max(each for each in fitting if modulo(parts, each) == 0) * PANEL
        blocks = -(-self.tiles // tiles) if isinstance(self.tiles, int) else 1
        splits = max(1, min(self.most_panels // columns, WANTED_WORKGROUPS // blocks))
        panels = min(max(held // columns, 1), -(-self.most_panels // (splits * columns))) * columns
        rows = choose_rows(tiles, columns, target, self.lanes)
        tile = panel_tile(rows, columns, self.lanes)
        return WinogradSchedule(tile, tiles, 1, min(panels, self.most_panels), features)

    def _length(self, frames: int, columns: int) -> int:
        """Bytes of scratch for a tile of some frames."""
        features = (frames + self.taps - 1) * self.most_features
        return self.places * (features + frames * columns * PANEL) * F32.bytes

    def _choose_frames(self, columns: int) -> int:
        """Frames of a workgroup: evenly split, where their count is known."""
        frames = MOST_FRAMES
        if isinstance(self.frames, int):
            depth = max(self.frames, 1)
            frames = -(-depth // -(-depth // frames))
        while frames > 1 and self._length(frames, columns) > MOST_BEFORE_SUMS:
            frames -= 1
        return frames

    def _choose_tiles(self, length: int, frames: int, height: int) -> int:
        """Tiles of a workgroup, of `length` bytes: where the size of the image is known, whole
        rows, evenly split, else whole register tiles, of `height`."""
        most = MOST_BEFORE_SUMS // length
        wanted = max(SCRATCH_LENGTH // length, min(most, -(-WANTED_TILES // frames)), 1)
        if isinstance(self.tall, int) and isinstance(self.across, int) and self.across <= most:
            rows = min(max(wanted // self.across, 1), self.tall)
            if self.tall <= 4 and self.tall * self.across <= most:
                rows = self.tall
            return -(-self.tall // -(-self.tall // rows)) * self.across
        return wanted - wanted % height if wanted > height else wanted

    def lower(self) -> Kernel:
        b, schedule = self.b, self.schedule
        self.start, self.count = self._part(0, self.tiles, self.block)
        self.frame, self.live = self._part(2, self.frames, schedule.frames)
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), self.panels)
        if self.in_parts:
            self._clear_products()
            with b.for_(0, self.features, schedule.features) as loop:
                self._transform_inputs(loop.index)
                multiply = partial(self._products, feature=loop.index)
                self._each_panels(first, last, partial(self._at_column, first, multiply))
            self._each_panels(first, last, partial(self._at_column, first, self._results))
        else:
            self._transform_inputs(0)
            self._each_panels(first, last, self._panels)
        return self.kernel(
            (self.tiles, self.counts[1], self.frames),
            (self.block, schedule.block_panels, schedule.frames),
            schedule,
            self._products_offset() + self._products_length(),
        )

    def _each_panels(
        self, first: Index, last: Index, body: Callable[[Index, TileShape], None]
    ) -> None:
        """The panels of a workgroup, as many at a time as a register tile has, the rest alone."""
        b, tile = self.b, self.schedule.tile
        full = b.mul(b.div(b.sub(last, first), tile.panels), tile.panels)
        with b.for_(first, b.add(first, full), tile.panels) as loop:
            body(loop.index, tile)
        if modulo(self.counts[1], tile.panels) != 0:
            single = panel_tile(tile.rows, 1, self.lanes)
            with b.for_(b.add(first, full), last) as loop:
                body(loop.index, single)

    def _at_column(
        self, first: Index, body: Callable[..., None], panel: Index, shape: TileShape
    ) -> None:
        """`body` where the products of all panels, from the `first` on, are in scratch."""
        body(panel, shape, self.b.mul(self.b.sub(panel, first), PANEL))

    def _panels(self, panel: Index, shape: TileShape) -> None:
        self._products(panel, shape, 0)
        self._results(panel, shape, 0)

    def _part(self, axis: int, whole: Dim, block: int) -> tuple[Index, Index]:
        """First and count of what the workgroup has of a dim of the grid."""
        b = self.b
        if whole == block:
            return 0, block
        start = b.mul(b.workgroup(axis), block)
        if modulo(whole, block) == 0:
            return start, block
        return start, b.min(b.sub(b.dim(whole), start), block)

    # Scratch: transformed inputs [places][frames][tiles][features], products [places][frames]
    # [tiles][columns].

    def _products_offset(self) -> int:
        return self.places * self.read * self.schedule.features * F32.bytes

    def _products_length(self) -> int:
        return self.places * self.made * self.columns * F32.bytes

    def _clear_products(self) -> None:
        b, products = self.b, self.b.scratch(self._products_offset(), F32)
        zero = b.constant(0.0, F32, self.lanes)
        with b.for_(0, self.places * self.made * self.columns, self.lanes) as loop:
            b.store(products, loop.index, zero)

    # Transform of the inputs.

    def _transform_inputs(self, feature: Index) -> None:
        """Those of the features from `feature` on that scratch has room for."""
        b = self.b
        with b.for_(0, b.add(self.live, self.taps - 1)) as frames:
            frame, is_there = self.under(self.frame, frames.index)
            with b.for_(0, self.count) as loop:
                tile = self.tile(b.add(self.start, loop.index))
                row, column = b.sub(tile.row, self.top), b.sub(tile.column, self.left)
                inside = self._inside(row, self.height)
                inside = b.op("and", inside, self._inside(column, self.width))
                if is_there is not None:
                    inside = b.op("and", inside, is_there)
                image = b.add(b.mul(tile.image, self.depth), frame)
                base = b.mul(b.mul(image, b.mul(self.height, self.width)), self.features)
                base = b.add(base, feature)
                into = b.add(b.mul(frames.index, self.count), loop.index)
                inputs = partial(self._tile_inputs, base, row, column, into)
                b.if_(inside, partial(inputs, False), partial(inputs, True, is_there))

    def _inside(self, start: Index, bound: Index) -> Value:
        b = self.b
        end = b.add(start, self.size)
        return b.op("and", b.compare("ge", start, 0), b.compare("le", end, bound))

    def _tile_inputs(
        self,
        base: Index,
        row: Index,
        column: Index,
        tile: Index,
        clipped: bool,
        is_there: Value | None = None,
    ) -> None:
        """B^T d B of one tile."""
        b, pitch = self.b, self.schedule.features
        rows = [self.clip(b.add(row, i), self.height, clipped) for i in range(self.size)]
        columns = [self.clip(b.add(column, i), self.width, clipped) for i in range(self.size)]
        zero = b.constant(0.0, F32, self.lanes)
        memory = b.scratch(0, F32)
        with b.for_(0, self.held, self.lanes) as loop:
            lines = []
            for place, inside_row in rows:
                line = []
                for across, inside_column in columns:
                    at = b.mul(b.add(b.mul(place, self.width), across), self.features)
                    value = self.image(b.add(b.add(base, at), loop.index))
                    if inside_row is not None and inside_column is not None:
                        both = b.op("and", inside_row, inside_column)
                        if is_there is not None:
                            both = b.op("and", both, is_there)
                        value = b.op("select", both, value, zero)
                    line.append(value)
                lines.append(self.forward(line))
            for j in range(self.size):
                for i, value in enumerate(self.forward([line[j] for line in lines])):
                    at = b.mul(b.add(tile, (i * self.size + j) * self.read), pitch)
                    b.store(memory, b.add(at, loop.index), value)

    # Products.

    def _products(self, panel: Index, shape: TileShape, column: Index, feature: Index = 0) -> None:
        """Of all places with some panels, from that `column` of the products on, and the features
        from `feature` on. Where these are parts, they are added to what is there."""
        b = self.b
        count = b.mul(self.live, self.count)
        known = count % shape.rows if isinstance(count, int) else None
        tails = tail_heights(shape.rows, known)
        with b.for_(0, self.places) as loop:
            place = loop.index

            def body(height: int, first: Index, _: list[Value]) -> tuple[()]:
                tile = TileShape(height, shape.vectors, shape.lanes)
                self._multiply(place, first, panel, tile, shape.rows, column, feature)
                return ()

            for_row_tiles(b, count, (shape.rows, *tails), body)

    def _results(self, panel: Index, shape: TileShape, column: Index) -> None:
        """Of some panels, made of the products from `column` on."""
        b = self.b
        with b.for_(0, self.live) as frames, b.for_(0, self.count) as loop:
            tile = self.tile(b.add(self.start, loop.index))
            image = b.add(b.mul(tile.image, self.out_depth), b.add(self.frame, frames.index))
            at = b.add(b.mul(frames.index, self.count), loop.index)
            self._tile_results(replace(tile, image=image), at, panel, shape, column)

    def _multiply(
        self,
        place: Index,
        first: Index,
        panel: Index,
        tile: TileShape,
        block_rows: int,
        column: Index,
        feature: Index,
    ) -> None:
        b, pitch = self.b, self.schedule.features
        inputs = b.scratch(0, F32)
        products = b.scratch(self._products_offset(), F32)
        row = b.mul(b.add(b.mul(place, self.read), first), pitch)
        per_panel, depth = PANEL // tile.lanes, b.mul(self.features, self.taps)
        lines = [
            b.mul(b.add(b.mul(place, self.panels), b.add(panel, j)), b.mul(depth, PANEL))
            for j in range(tile.panels)
        ]

        ask = self._asker(place, first, panel, tile, block_rows, feature)

        def add_tap(sums: list[Value], tap: Index) -> list[Value]:
            start = b.add(row, b.mul(tap, b.mul(self.count, pitch)))
            step = b.mul(tap, self.features)

            def left(i: int, k: Index) -> Value:
                return b.load(inputs, b.add(b.add(start, i * pitch), k))

            def right(k: Index, vector: int) -> Value:
                if vector == 0 and ask is not None:
                    ask(b.add(step, k))
                line = b.add(b.add(step, k), feature)
                at = b.add(lines[vector // per_panel], b.mul(line, PANEL))
                return b.load(self.u, b.add(at, vector % per_panel * tile.lanes), tile.lanes)

            return multiply(b, tile, sums, self.held, left, right)

        at = b.add(b.mul(b.add(b.mul(place, self.made), first), self.columns), column)
        places = [
            b.add(at, i * self.columns + vector * tile.lanes)
            for i in range(tile.rows)
            for vector in range(tile.vectors)
        ]
        sums = zero_tile(b, F32, tile)
        if self.in_parts:
            sums = [b.load(products, each, tile.lanes) for each in places]
        if self.taps == 1:
            sums = add_tap(sums, 0)
        else:
            with b.for_(0, self.taps, 1, sums) as loop:
                loop.yield_(*add_tap(list(loop.carried), loop.index))
            sums = loop.results
        for each, value in zip(places, sums, strict=True):
            b.store(products, each, value)

    def _asker(
        self,
        place: Index,
        first: Index,
        panel: Index,
        tile: TileShape,
        height: int,
        feature: Index,
    ) -> Callable[[Index], None] | None:
        """Asks for the weights of the next place, behind the last one those of the next columns, if
        L2 does not hold all."""
        b, depth = self.b, self.b.mul(self.features, self.taps)
        if self._weights() <= SCRATCH_LENGTH:
            return None
        following = b.add(b.mul(b.add(place, 1), self.panels), panel)
        is_last = b.compare("eq", place, self.places - 1)
        following = b.op("select", is_last, b.value(b.add(panel, tile.panels)), b.value(following))
        turn = Turn(b.div(first, height), -(-self.made // height))
        if not self.in_parts:
            return asking(b, self.u, following, depth, tile, turn)
        part, alone = self.schedule.features, panel_tile(tile.rows, 1, self.lanes)
        asks = []
        for each in range(tile.panels):
            line = b.add(b.mul(b.add(following, each), depth), feature)
            asks.append(asking(b, self.u, b.div(line, part), part, alone, turn))

        def ask_all(line: Index) -> None:
            for ask in asks:
                ask(line)

        return ask_all

    # Transform back.

    def _tile_results(
        self, tile: Tile, at: Index, panel: Index, shape: TileShape, column: Index
    ) -> None:
        b = self.b
        images = b.mul(tile.image, self.out_height)
        with b.for_(0, shape.panels * PANEL, self.lanes) as loop:
            results = self._back(at, b.add(column, loop.index))
            channel = b.add(b.mul(panel, PANEL), loop.index)
            for i, line in enumerate(results):
                row = b.add(tile.row, i)
                base = b.mul(b.add(images, row), self.out_width)
                for j, value in enumerate(line):
                    column = b.add(tile.column, j)
                    place = Position(b.add(base, column), channel, self.lanes)
                    self.store_inside(row, column, value, place)

    def _back(self, at: Index, column: Index) -> list[Vectors]:
        """A^T m A of one tile and vector of channels, in lines."""
        b = self.b
        products = b.scratch(self._products_offset(), F32)
        columns = []
        for j in range(self.size):
            line = []
            for i in range(self.size):
                place = b.mul(b.add(at, (i * self.size + j) * self.made), self.columns)
                line.append(b.load(products, b.add(place, column), self.lanes))
            columns.append(self.backward(line))
        return [self.backward([column[i] for column in columns]) for i in range(self.form.output)]
