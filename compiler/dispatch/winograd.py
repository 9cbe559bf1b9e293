"""Kernels for conv_winograd: 3x3 convolution by Winograd's F(4, 3).

A workgroup takes some rows of tiles (4x4 results each) of one image and some panels. It
transforms the 6x6 inputs of its tiles into scratch, 36 matrices [tiles, features]; then,
a few panels at a time, multiplies each with its own weight matrix by the register tile of
all contractions, transforms the 36 products of a tile back, and runs the epilogue on its
16 results. Inputs outside the image are zero; tiles that lie inside need no test.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.compiler.dispatch.epilogue import Position
from ingot.compiler.dispatch.kernel import Kernel, TargetInfo
from ingot.compiler.dispatch.loop import Index
from ingot.compiler.dispatch.register_tile import (
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
from ingot.compiler.dispatch.winograd_entry import Vectors, WinogradEntry
from ingot.compiler.graph.winograd import INPUT, OUTPUT
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["WinogradSchedule", "lower_winograd", "lower_winograd_rows"]

F32 = dtype("f32")
PLACES = INPUT * INPUT
SCRATCH_LENGTH = 512 << 10
"""Bytes of transformed inputs and products of a workgroup, about: half of L2."""

MAXIMUM_SCRATCH_LENGTH = 1 << 20
WANTED_WORKGROUPS = 8


@dataclass(frozen=True)
class WinogradSchedule:
    """Register tile, rows of 4x4 tiles and panels of a workgroup."""

    tile: TileShape
    tile_rows: int
    block_panels: int


def lower_winograd(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one conv_winograd."""
    return _Winograd(function, target, False).lower()


def lower_winograd_rows(function: Function, target: TargetInfo) -> Kernel:
    """The same, a row of tiles per workgroup; the grid counts the tiles of all images."""
    return _Winograd(function, target, True).lower()


class _Winograd(WinogradEntry):
    """State while one kernel is made; `flat`: the grid counts tiles, of all images."""

    def __init__(self, function: Function, target: TargetInfo, flat: bool) -> None:
        super().__init__(function, min(target.lanes(F32), PANEL))
        self.flat = flat
        self.schedule = self._choose(target)
        self.block = self.schedule.tile_rows * self.across

    def _choose(self, target: TargetInfo) -> WinogradSchedule:
        columns = choose_columns(self.panels, target, self.lanes)

        def length(rows: int) -> int:
            return PLACES * rows * self.across * (self.features + columns * PANEL) * 4

        rows = 1 if self.flat else self.tall
        while rows > 1 and length(rows) > SCRATCH_LENGTH:
            rows -= 1
        if rows < self.tall and length(self.tall) <= MAXIMUM_SCRATCH_LENGTH and self.tall <= 4:
            rows = self.tall  # one pass over weights that do not fit the cache
        if length(rows) > MAXIMUM_SCRATCH_LENGTH:
            raise ValueError("a row of Winograd tiles does not fit scratch")
        rows = -(-self.tall // -(-self.tall // rows))
        blocks = -(-self.tall // rows)
        splits = max(1, min(self.panels // columns, WANTED_WORKGROUPS // blocks))
        panels = -(-self.panels // splits)
        panels = min(-(-panels // columns) * columns, self.panels)
        tile_rows = choose_rows(rows * self.across, columns, target, self.lanes)
        return WinogradSchedule(panel_tile(tile_rows, columns, self.lanes), rows, panels)

    def lower(self) -> Kernel:
        b, schedule = self.b, self.schedule
        self.image, first_row, rows = self._rows()
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), self.panels)
        self._transform_inputs(first_row, rows)
        count = b.mul(rows, self.across)
        width = schedule.tile.panels
        full = b.mul(b.div(b.sub(last, first), width), width)
        with b.for_(first, b.add(first, full), width) as loop:
            self._panels(first_row, rows, count, loop.index, schedule.tile)
        if self.panels % width:
            single = panel_tile(schedule.tile.rows, 1, self.lanes)
            with b.for_(b.add(first, full), last) as loop:
                self._panels(first_row, rows, count, loop.index, single)
        workload: tuple[Dim, Dim, Dim] = (self.tall, self.panels, self.batch)
        rows_of_tiles = schedule.tile_rows
        if self.flat:
            workload = (self.tiles, self.panels, 1)
            rows_of_tiles = self.across
        return self.kernel(
            workload,
            (rows_of_tiles, schedule.block_panels, 1),
            schedule,
            self._products_offset() + self._products_length(),
        )

    def _rows(self) -> tuple[Index, Index, Index]:
        """Image, first row of tiles and rows of this workgroup."""
        b, schedule = self.b, self.schedule
        if self.flat:
            return b.div(b.workgroup(0), self.tall), b.rem(b.workgroup(0), self.tall), 1
        if schedule.tile_rows == self.tall:
            return b.workgroup(2), 0, self.tall
        first_row = b.mul(b.workgroup(0), schedule.tile_rows)
        rows = b.min(b.sub(self.tall, first_row), schedule.tile_rows)
        return b.workgroup(2), first_row, rows

    # Scratch: transformed inputs [36][tiles][features], products [36][tiles][columns].

    def _products_offset(self) -> int:
        return PLACES * self.block * self.features * 4

    def _products_length(self) -> int:
        return PLACES * self.block * self.schedule.tile.panels * PANEL * 4

    # Transform of the inputs.

    def _transform_inputs(self, first_row: Index, rows: Index) -> None:
        b = self.b
        base = b.mul(self.image, self.height * self.width * self.features)
        with b.for_(0, rows) as outer:
            row = b.sub(b.mul(b.add(first_row, outer.index), OUTPUT), self.top)
            with b.for_(0, self.across) as inner:
                column = b.sub(b.mul(inner.index, OUTPUT), self.left)
                tile = b.add(b.mul(outer.index, self.across), inner.index)
                inside = self._inside(row, self.height)
                inside = b.op("and", inside, self._inside(column, self.width))

                def whole(row: Index = row, column: Index = column, tile: Index = tile) -> None:
                    self._tile_inputs(base, row, column, tile, False)

                def edge(row: Index = row, column: Index = column, tile: Index = tile) -> None:
                    self._tile_inputs(base, row, column, tile, True)

                b.if_(inside, whole, edge)

    def _inside(self, start: Index, bound: int) -> Value:
        b = self.b
        return b.op("and", b.compare("ge", start, 0), b.compare("le", start, bound - INPUT))

    def _tile_inputs(
        self, base: Index, row: Index, column: Index, tile: Index, clipped: bool
    ) -> None:
        """B^T d B of one tile, all features."""
        b = self.b
        rows = [self.clip(b.add(row, i), self.height, clipped) for i in range(INPUT)]
        columns = [self.clip(b.add(column, i), self.width, clipped) for i in range(INPUT)]
        zero = b.constant(0.0, F32, self.lanes)
        memory = b.scratch(0, F32)
        with b.for_(0, self.features, self.lanes) as loop:
            lines = []
            for place, inside_row in rows:
                line = []
                for across, inside_column in columns:
                    at = b.mul(b.add(b.mul(place, self.width), across), self.features)
                    value = b.load(self.x, b.add(b.add(base, at), loop.index), self.lanes)
                    if inside_row is not None and inside_column is not None:
                        both = b.op("and", inside_row, inside_column)
                        value = b.op("select", both, value, zero) if clipped else value
                    line.append(value)
                lines.append(self.forward(line))
            for j in range(INPUT):
                for i, value in enumerate(self.forward([line[j] for line in lines])):
                    at = b.mul(b.add(tile, (i * INPUT + j) * self.block), self.features)
                    b.store(memory, b.add(at, loop.index), value)

    # Products.

    def _panels(
        self, first_row: Index, rows: Index, count: Index, panel: Index, tile: TileShape
    ) -> None:
        b = self.b
        whole = isinstance(count, int) or self.tall % self.schedule.tile_rows == 0
        tails = tail_heights(tile.rows, self.block % tile.rows if whole else None)
        with b.for_(0, PLACES) as loop:
            place = loop.index

            def body(height: int, first: Index, _: list[Value]) -> tuple[()]:
                shape = TileShape(height, tile.vectors, tile.lanes)
                self._multiply(place, first, panel, shape)
                return ()

            for_row_tiles(b, count, (tile.rows, *tails), body)
        with b.for_(0, rows) as outer, b.for_(0, self.across) as inner:
            self._tile_results(first_row, outer.index, inner.index, panel, tile)

    def _multiply(self, place: Index, first: Index, panel: Index, tile: TileShape) -> None:
        b = self.b
        inputs = b.scratch(0, F32)
        products = b.scratch(self._products_offset(), F32)
        row = b.mul(b.add(b.mul(place, self.block), first), self.features)
        per_panel = PANEL // tile.lanes
        lines = [
            b.mul(b.add(b.mul(place, self.panels), b.add(panel, j)), self.features * PANEL)
            for j in range(tile.panels)
        ]

        def left(i: int, k: Index) -> Value:
            return b.load(inputs, b.add(b.add(row, i * self.features), k))

        def right(k: Index, vector: int) -> Value:
            at = b.add(lines[vector // per_panel], b.mul(k, PANEL))
            return b.load(self.u, b.add(at, vector % per_panel * tile.lanes), tile.lanes)

        sums = multiply(b, tile, zero_tile(b, F32, tile), self.features, left, right)
        width = tile.panels * PANEL
        at = b.mul(b.add(b.mul(place, self.block), first), width)
        for number, value in enumerate(sums):
            i, vector = divmod(number, tile.vectors)
            b.store(products, b.add(at, i * width + vector * tile.lanes), value)

    # Transform back.

    def _tile_results(
        self, first_row: Index, row: Index, column: Index, panel: Index, tile: TileShape
    ) -> None:
        b = self.b
        down = b.mul(b.add(first_row, row), OUTPUT)
        across = b.mul(column, OUTPUT)
        at = b.add(b.mul(row, self.across), column)
        images = b.mul(self.image, self.out_height)
        with b.for_(0, tile.panels * PANEL, self.lanes) as loop:
            results = self._back(at, loop.index, tile)
            channel = b.add(b.mul(panel, PANEL), loop.index)
            for i, line in enumerate(results):
                for j, value in enumerate(line):
                    pixel = b.mul(b.add(images, b.add(down, i)), self.out_width)
                    place = Position(b.add(pixel, b.add(across, j)), channel, self.lanes)
                    self.store_inside(b.add(down, i), b.add(across, j), value, place)

    def _back(self, at: Index, channel: Index, tile: TileShape) -> list[Vectors]:
        """A^T m A of one tile and vector of channels: 4 lines of 4."""
        b = self.b
        products = b.scratch(self._products_offset(), F32)
        width = tile.panels * PANEL
        columns = []
        for j in range(INPUT):
            line = []
            for i in range(INPUT):
                place = b.mul(b.add(at, (i * INPUT + j) * self.block), width)
                line.append(b.load(products, b.add(place, channel), self.lanes))
            columns.append(self.backward(line))
        return [self.backward([column[i] for column in columns]) for i in range(OUTPUT)]
