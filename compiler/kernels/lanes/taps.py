"""Convolutions tap by tap: the sums of a block of pixels lie in scratch, and each place of the
window adds the product of the pixels that it sees with its weights to them.

Nothing is copied, and what a tap sees of the padding is no product: that is most of a window whose
taps lie far apart. Sums are read and written once per tap, so there must be many channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ingot.compiler.graph.forms.split_factors import LEAST_CHANNELS, MOST_PIXELS, MOST_UNROLLED
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dim, known_dims, row_major_strides
from ingot.compiler.kernels.convolution_entry import ConvolutionEntry
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.panel import Turn, asking, panel_lines
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
from ingot.compiler.kernels.schedule import SHARED_WEIGHT, shared_blocks

__all__ = ["TapsSchedule", "choose_taps", "lower_taps"]


@dataclass(frozen=True)
class TapsSchedule:
    """Register tile, and the lines of results, and columns of these, that a workgroup makes."""

    tile: TileShape
    block_lines: int
    block_columns: int
    is_long: bool  # lines, whose parts are a grid of their own


def choose_taps(c: ConvolutionEntry, target: TargetInfo) -> TapsSchedule | None:
    """The schedule; None where sizes are not known, elements are converted, or channels few."""
    dims = (*c.x.shape[1:], *c.result.shape[1:], *c.window.before, *c.window.after)
    if not all(isinstance(dim, int) for dim in dims) or 0 in (*c.x.shape[1:], *c.result.shape[1:]):
        return None
    if c.parts is not None or not c.x.dtype is c.w.dtype is c.element:
        return None
    size = c.window.size
    if math.prod(size) == 1 or size[-1] > MOST_UNROLLED or known_dim(c.channels) < LEAST_CHANNELS:
        return None
    *outer, width = known_dims(c.result.shape[1:-1])
    lines, panels, lanes = (
        math.prod(outer),
        known_dim(c.panels),
        min(target.lanes(c.element), PANEL),
    )
    columns = choose_columns(panels, target, lanes)
    rows = choose_rows(width, columns, target, lanes)
    if width > MOST_PIXELS:
        block = -(-width // -(-width // MOST_PIXELS))
        return TapsSchedule(panel_tile(rows, columns, lanes), 1, -(-block // rows) * rows, True)
    blocks, splits = -(-lines // (MOST_PIXELS // width)), -(-panels // columns)
    steps = lines * width * columns * PANEL * known_dim(c.depth)
    blocks = min(shared_blocks(blocks, splits, _weight_length(c), steps), lines)
    return TapsSchedule(panel_tile(rows, columns, lanes), -(-lines // blocks), width, False)


def lower_taps(c: ConvolutionEntry, schedule: TapsSchedule, target: TargetInfo) -> Kernel:
    """The kernel."""
    return _Taps(c, schedule, target).lower()


def _weight_length(c: ConvolutionEntry) -> int:
    return known_dim(c.panels) * PANEL * known_dim(c.depth) * c.w.dtype.bytes


def _seen(c: ConvolutionEntry, axis: int, tap: int) -> tuple[int, int]:
    """The results from the first to the last along an axis for which a tap sees the image."""
    window = c.window
    size, results = known_dims((c.x.shape[1 + axis], c.result.shape[1 + axis]))
    stride, at = window.strides[axis], known_dim(window.before[axis]) - tap * window.dilation[axis]
    return max(0, -(-at // stride)), min(results, (size - 1 + at) // stride + 1)


class _Taps:
    """Grid: x blocks of lines, or of a line's columns, y tiles of panels, z images."""

    def __init__(self, c: ConvolutionEntry, schedule: TapsSchedule, target: TargetInfo) -> None:
        self.c, self.schedule, self.target, self.b = c, schedule, target, c.builder
        *self.outer, self.width = known_dims(c.result.shape[1:-1])
        self.lines, self.channels = math.prod(self.outer), known_dim(c.channels)
        self.tiles = -(-schedule.block_columns // schedule.tile.rows)

    def lower(self) -> Kernel:
        c, b, schedule = self.c, self.b, self.schedule
        self.first: Index = 0
        self.last: Index = self.width
        self.count: Index = schedule.block_lines
        if self.schedule.is_long:
            self.image = b.div(b.workgroup(2), self.lines)
            self.line = b.rem(b.workgroup(2), self.lines)
            self.first = b.mul(b.workgroup(0), schedule.block_columns)
            self.last = b.min(b.add(self.first, schedule.block_columns), self.width)
        else:
            self.image = b.workgroup(2)
            self.line = b.mul(b.workgroup(0), schedule.block_lines)
            if self.lines % schedule.block_lines:
                self.count = b.min(b.sub(self.lines, self.line), schedule.block_lines)
        panels, width = known_dim(c.panels), schedule.tile.panels
        panel = b.mul(b.workgroup(1), width)
        self._whole_or_rest(panel, panels, width)
        pixels = schedule.block_lines * schedule.block_columns
        images = c.x.shape[0] * (self.lines if self.schedule.is_long else 1)
        return c.kernel(
            (self.width if self.schedule.is_long else self.lines * self.width, panels, images),
            (pixels, width, 1),
            schedule,
            pixels * width * PANEL * c.element.bytes,
        )

    def _whole_or_rest(self, panel: Index, panels: int, width: int) -> None:
        b, tile = self.b, self.schedule.tile
        if panels % width == 0:
            self._panels(panel, tile)
            return

        def rest() -> None:
            with b.for_(panel, panels) as loop:
                self._panels(loop.index, panel_tile(tile.rows, 1, tile.lanes))

        whole = b.compare("le", b.add(panel, width), panels)
        b.if_(whole, lambda: self._panels(panel, tile), rest)

    def _panels(self, panel: Index, tile: TileShape) -> None:
        b, sums = self.b, self.b.scratch(0, self.c.element)
        zero = zero_tile(b, self.c.element, TileShape(1, 1, tile.lanes))[0]
        pixels = self.schedule.block_lines * self.schedule.block_columns
        with b.for_(0, pixels * tile.vectors) as loop:
            b.store(sums, b.mul(loop.index, tile.lanes), zero)
        with b.for_(0, math.prod(self.c.window.size[:-1])) as loop:
            for across in range(self.c.window.size[-1]):
                self._tap(loop.index, across, panel, tile)
        with b.for_(0, self.count) as loop:
            line = b.add(b.mul(self.image, self.lines), b.add(self.line, loop.index))
            row = b.mul(line, self.width)

            def store(shape: TileShape, column: Index) -> None:
                made = self._load(loop.index, column, shape)
                self.c.epilogue.store_tile(made, shape, b.add(row, column), panel)

            self._tiles(0, self.width, tile, store)

    def _tiles(
        self, first: int, last: int, tile: TileShape, body: Callable[[TileShape, Index], None]
    ) -> None:
        """`body(shape, column)` for tiles of the block's columns within `first` to `last`."""
        b = self.b
        start = b.max(first, self.first) if self.schedule.is_long else first
        count = b.max(0, b.sub(b.min(last, self.last), start))
        if isinstance(count, int):
            rows = min(choose_rows(count, tile.panels, self.target, tile.lanes), max(count, 1))
            heights = (rows, *tail_heights(rows, count % rows))
        else:
            heights = (tile.rows, *tail_heights(tile.rows, None))

        def rows_of(height: int, row: Index, _: list[Value]) -> tuple[()]:
            body(TileShape(height, tile.vectors, tile.lanes), b.add(start, row))
            return ()

        for_row_tiles(b, count, heights, rows_of)

    def _tap(self, place: Index, across: int, panel: Index, tile: TileShape) -> None:
        """Add what one place of the window sees to the sums of the block."""
        c, b, window = self.c, self.b, self.c.window
        first, last = _seen(c, len(self.outer), across)
        if first >= last:
            return
        tap = b.add(b.mul(place, window.size[-1]), across)
        start = b.mul(tap, self.channels)
        weight = ((c.ordinals[1], c.w.dtype), c.factor, c.depth)
        pixel = window.strides[-1] * self.channels
        at = across * window.dilation[-1] - known_dim(window.before[-1])

        with b.for_(0, self.count) as loop:
            line, inside = self._under(b.add(self.line, loop.index), place)
            base = b.mul(b.add(b.mul(line, known_dim(c.x.shape[-2])), at), self.channels)

            def add(shape: TileShape, column: Index) -> None:
                begin = b.add(base, b.mul(column, pixel))

                def element(i: int, k: Index) -> Value:
                    return b.load(c.input, b.add(b.add(begin, i * pixel), k))

                number = b.add(b.mul(loop.index, self.tiles), b.div(column, tile.rows))
                ask = self._asker(panel, b.add(tap, 1), number, shape)
                lines = panel_lines(b, *weight, panel, shape, start)

                def right(k: Index, vector: int) -> Value:
                    if vector == 0:
                        ask(k)
                    return lines(k, vector)

                sums = self._load(loop.index, column, shape)
                sums = multiply(b, shape, sums, self.channels, element, right)
                self._store(loop.index, column, shape, sums)

            def add_all() -> None:
                self._tiles(first, last, tile, add)

            if inside is None:
                add_all()
            else:
                b.if_(inside, add_all)

    def _asker(
        self, panel: Index, tap: Index, place: Index, shape: TileShape
    ) -> Callable[[Index], None]:
        """Asks for a part of the next tap's weights while tile `place` meets those of this one, if
        L2 does not hold all."""
        c, b = self.c, self.b
        if _weight_length(c) <= SHARED_WEIGHT:
            return lambda k: None
        memory, taps = b.binding(c.ordinals[1], c.w.dtype), math.prod(c.window.size)
        turn = Turn(place, self.schedule.block_lines * self.tiles)
        single = panel_tile(1, 1, shape.lanes)
        # The lines of a tap in a panel are as many as the channels: taps follow each other.
        starts = [b.add(b.mul(b.add(panel, j), taps), tap) for j in range(shape.panels)]
        asks = [asking(b, memory, start, self.channels, single, turn) for start in starts]

        def ask(k: Index) -> None:
            for each in asks:
                each(k)

        return ask

    def _under(self, line: Index, place: Index) -> tuple[Index, Value | None]:
        """The line of the images that a tap sees below a line of results, and whether it is there;
        None: it always is."""
        c, b, window = self.c, self.b, self.c.window
        result, inside = self.image, None
        strides, steps = row_major_strides(self.outer), row_major_strides(window.size[:-1])
        for axis, (stride, step) in enumerate(zip(strides, steps, strict=True)):
            size = known_dim(c.x.shape[1 + axis])
            at = b.rem(b.div(line, known_dim(stride)), self.outer[axis])
            tap = b.rem(b.div(place, known_dim(step)), window.size[axis])
            at = b.sub(b.mul(at, window.strides[axis]), known_dim(window.before[axis]))
            at = b.add(at, b.mul(tap, window.dilation[axis]))
            result = b.add(b.mul(result, size), at)
            if window.before[axis] or window.after[axis]:
                there = b.op("and", b.compare("ge", at, 0), b.compare("lt", at, size))
                inside = there if inside is None else b.op("and", inside, there)
        return result, inside

    def _at(self, line: Index, column: Index, tile: TileShape) -> Index:
        b = self.b
        pixel = b.add(b.mul(line, self.schedule.block_columns), b.sub(column, self.first))
        return b.mul(pixel, tile.vectors * tile.lanes)

    def _load(self, line: Index, column: Index, tile: TileShape) -> list[Value]:
        b, at, memory = self.b, self._at(line, column, tile), self.b.scratch(0, self.c.element)
        count = tile.rows * tile.vectors
        return [b.load(memory, b.add(at, i * tile.lanes), tile.lanes) for i in range(count)]

    def _store(self, line: Index, column: Index, tile: TileShape, sums: list[Value]) -> None:
        b, at, memory = self.b, self._at(line, column, tile), self.b.scratch(0, self.c.element)
        for i, value in enumerate(sums):
            b.store(memory, b.add(at, i * tile.lanes), value)
