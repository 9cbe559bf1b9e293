"""Kernels for conv_packed: convolution of channels-last images with a packed weight.

No im2col buffer: a tile is a run of output pixels of one row, and for a fixed window row
its K steps (window column, then channel) are contiguous in the input. `_Staged` copies the
input rows of a block of output rows into scratch once, zeros around them, so that
inner loops have no bounds; without padding it reads the input in place. `_Gathered` takes dims
known only at the call, other ranks, rows too long for scratch, and most windows of one pixel
with strides: it copies the windows of a run of output pixels into scratch, whatever lines they
lie in. `Direct` takes windows too large for that, one pixel at a time with a test per window
position (`convolution_direct.py`). Where sizes are known and channels many, convolutions that would
copy go tap by tap instead (`taps.py`). Pointwise ones are products (`contraction.py`).
"""

from __future__ import annotations

import math

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, product
from ingot.compiler.kernels.contraction_entry import root_of
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.contraction import lower_contraction
from ingot.compiler.kernels.lanes.convolution_direct import ConvolutionSchedule, Direct
from ingot.compiler.kernels.lanes.convolution_parts import in_parts
from ingot.compiler.kernels.lanes.convolution_sources import (
    Convolution,
    Gathering,
    address,
    run_of,
    stage,
    stage_rows,
    stage_width,
)
from ingot.compiler.kernels.lanes.convolution_tiles import in_tiles
from ingot.compiler.kernels.lanes.taps import choose_taps, lower_taps
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.panel import (
    Turn,
    is_long,
)
from ingot.compiler.kernels.product import is_pointwise
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    choose_columns,
    choose_rows,
    for_row_tiles,
    multiply,
    panel_tile,
    pitch_of,
    tail_heights,
    zero_tile,
)
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, WANTED_WORKGROUPS, shared_blocks
from ingot.compiler.kernels.tiles import with_words

__all__ = ["lower_convolution"]

STAGE_LENGTH = 256 << 10
"""Bytes of input rows that a workgroup stages, about: they share L2 with the weights.
A 7 x 7 of three channels takes 1149 us with AVX-512, with a quarter of it 1135, with 1 MB 1179."""

LONG_STAGE_LENGTH = 512 << 10
"""The same where the weights are longer than this: they leave L2, and each block of rows reads them
again. 512 features of 14 x 14 in ResNet-50, strides of 2: 2725 us with 256 KB, 2390 so."""

LONGEST_COLUMNS = 1 << 20
"""Bytes of weights that all rows meet in turns, and as many are asked for meanwhile: L2 holds both.
The same layer takes 2390 us with four panels a tile, 1900 with two."""

WANTED_PIXELS, MOST_PIXELS = 24, 96
"""Pixels whose windows a workgroup gathers: at least, if they fit, to share the weights."""

PANELS_OF_ANY_IMAGE = 16
"""Panels for which a workgroup gathers where the count of workgroups is not known."""


def lower_convolution(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one conv_packed."""
    root = root_of(function)
    if is_pointwise(root):
        return lower_contraction(function, target)
    convolution = Convolution(function, root, target)
    staged = _staged_schedule(convolution, target)
    taps = choose_taps(convolution, target) if staged is None or staged.staged else None
    run = product(convolution.result.shape[1 if staged or taps else 0 : -1])
    if taps is None or not taps.is_long:
        made = in_parts(function, root, target, run, by_rows=staged is not None)
        if made is not None:
            return made
    if taps is not None:
        return lower_taps(convolution, taps, target)
    in_words = Convolution(function, root, with_words(target)) if target.tiles else convolution
    tiled = in_tiles(in_words, target, run, by_rows=staged is not None)
    if tiled is not None:
        return tiled
    gathered = _gathered_schedule(convolution, target, run)
    if staged is not None and not (gathered and _skips(convolution, staged, gathered)):
        return _Staged(convolution, staged).lower()
    if gathered is not None:
        return _Gathered(convolution, gathered, run).lower()
    return Direct(convolution, target).lower()


# Staged rows.


def _staged_schedule(c: Convolution, target: TargetInfo) -> ConvolutionSchedule | None:
    """Blocks of output rows whose input rows fit scratch; None where that cannot be known."""
    dims = (*c.x.shape[1:], *c.result.shape[1:], *c.window.before, *c.window.after)
    known = all(isinstance(dim, int) for dim in dims)
    if not known or len(c.window.size) != 2 or 0 in dims[: c.x.rank - 1 + c.result.rank - 1]:
        return None
    height, width, panels = known_dims((*c.result.shape[1:3], c.panels))
    if any(known_dim(pad) < 0 for pad in (*c.window.before, *c.window.after)):
        return None
    columns = choose_columns(panels, target, c.lanes)
    if columns == 4 and known_dim(c.depth) * columns * PANEL * c.w.dtype.bytes > LONGEST_COLUMNS:
        columns = 2
    height_of_tile = choose_rows(width, columns, target, c.lanes, c.parts is not None)
    tile = panel_tile(height_of_tile, columns, c.lanes)
    padded = any((*c.window.before, *c.window.after)) or c.x.dtype is not c.factor
    weight = panels * PANEL * known_dim(c.depth) * c.w.dtype.bytes
    share = LONG_STAGE_LENGTH if weight > LONG_STAGE_LENGTH else STAGE_LENGTH
    pixel = known_dim(c.channels) * c.factor.bytes
    row_length = stage_width(c) * pixel
    more = share // row_length - stage_rows(c, 1)  # rows that fit beyond the first block
    block = max(1, min(more // c.window.strides[0] + 1, height))
    if not padded and math.prod(c.window.size) == 1:  # what strides skip is not read
        block = max(1, min(share // (width * pixel), height))
    if padded and stage_rows(c, block) * row_length > MOST_BEFORE_SUMS:
        return None
    blocks = -(-height // block)
    splits = max(1, min(panels // columns, WANTED_WORKGROUPS // blocks))
    steps = height * width * (panels // splits) * PANEL * known_dim(c.depth)
    blocks = min(shared_blocks(blocks, splits, weight, steps), height)
    block = -(-height // blocks)
    block_panels = -(-panels // splits)
    block_panels = min(-(-block_panels // columns) * columns, panels)
    return ConvolutionSchedule(tile, block, block_panels, padded)


class _Staged:
    """Grid: x pixels in blocks of output rows, y blocks of panels, z images."""

    def __init__(self, c: Convolution, schedule: ConvolutionSchedule) -> None:
        self.c, self.schedule, self.b = c, schedule, c.builder
        self.width = stage_width(c)

    def lower(self) -> Kernel:
        c, b, schedule = self.c, self.b, self.schedule
        height, width, panels, channels = known_dims((*c.result.shape[1:3], c.panels, c.channels))
        row = b.mul(b.workgroup(0), schedule.block_rows)
        rows = b.min(b.sub(height, row), schedule.block_rows)
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), panels)
        image = b.workgroup(2)
        if schedule.staged:
            stage(c, image, row, rows)

        length = 0
        if schedule.staged:
            length = stage_rows(c, schedule.block_rows) * self.width * channels * c.factor.bytes
            length = -(-length // 64) * 64

        def columns(panel: Index, tile: TileShape) -> None:
            c.unpack(panel, tile, length)
            with b.for_(0, rows) as loop:
                self._row(image, row, loop.index, panel, tile)

        c.for_panels(first, last, schedule.tile, columns)
        return c.kernel(
            (height * width, panels, c.x.shape[0]),
            (schedule.block_rows * width, schedule.block_panels, 1),
            schedule,
            max(length, c.scratch_length),
        )

    def _row(self, image: Index, row: Index, r: Index, panel: Index, tile: TileShape) -> None:
        """All tiles of one output row."""
        b, width = self.b, known_dim(self.c.result.shape[2])
        full = width // tile.rows * tile.rows
        start = b.mul(b.add(b.mul(image, b.dim(self.c.result.shape[1])), b.add(row, r)), width)
        with b.for_(0, full, tile.rows) as loop:
            sums = self._tile(image, row, r, loop.index, panel, tile)
            self.c.epilogue.store_tile(sums, tile, b.add(start, loop.index), panel)
        if full < width:
            rest = panel_tile(width - full, tile.panels, tile.lanes)
            sums = self._tile(image, row, r, full, panel, rest)
            self.c.epilogue.store_tile(sums, rest, b.add(start, full), panel)

    def _tile(
        self, image: Index, row: Index, r: Index, column: Index, panel: Index, tile: TileShape
    ) -> list[Value]:
        """The sums of `tile.rows` pixels from `column` on, over window rows and their runs."""
        c, b, window = self.c, self.b, self.c.window
        channels = known_dim(c.channels)
        merged = window.dilation[1] == 1
        run = channels * (window.size[1] if merged else 1)
        steps = window.size[0] * (1 if merged else window.size[1])
        with b.for_(0, steps, 1, zero_tile(b, c.element, tile)) as loop:
            at_row = loop.index if merged else b.div(loop.index, window.size[1])
            at_column = 0 if merged else b.rem(loop.index, window.size[1])
            place = (image, row, r, column)
            memory, base = address(c, self.schedule.staged, place, at_row, at_column)
            pixel = window.strides[1] * channels

            def element(i: int, k: Index) -> Value:
                return b.convert(b.load(memory, b.add(b.add(base, i * pixel), k)), c.factor)

            line = c.line(panel, tile, b.mul(loop.index, run), self._turn(r, column))
            loop.yield_(*multiply(b, tile, loop.carried, run, element, line, c.parts))
        return loop.results

    def _turn(self, r: Index, column: Index) -> Turn | None:
        """Of the tile of pixels that begins at a column, if a workgroup has all rows or the weight
        is long."""
        height, width = known_dims(self.c.result.shape[1:3])
        rows, block = self.schedule.tile.rows, self.schedule.block_rows
        c = self.c
        if block < height and not is_long(c.w.dtype, c.depth, c.result.shape[-1]):
            return None
        tiles = -(-width // rows)
        place = self.b.add(self.b.mul(r, tiles), self.b.div(column, rows))
        return Turn(place, block * tiles)


# Gathered pixels.


def _skips(c: Convolution, staged: ConvolutionSchedule, gathered: ConvolutionSchedule) -> bool:
    """Whether to gather pixels that stand alone, because staging copies those that strides skip,
    too, or because rows are so short that they fill tiles badly."""
    if math.prod(c.window.size) != 1:
        return False
    return staged.staged or 4 * gathered.tile.rows > 5 * staged.tile.rows


def _gathered_schedule(
    c: Convolution, target: TargetInfo, count: Dim
) -> ConvolutionSchedule | None:
    """Runs, of `count` output pixels, whose windows fit scratch; None where one does not."""
    if not isinstance(c.depth, int) or not isinstance(c.panels, int) or c.depth == 0:
        return None
    columns = choose_columns(c.panels, target, c.lanes)
    length = pitch_of(c.depth, c.factor) * c.factor.bytes
    pixels = max(STAGE_LENGTH // length, min(MOST_BEFORE_SUMS // length, WANTED_PIXELS))
    if isinstance(count, int) and count > 0 and pixels:
        pixels = min(pixels, max(2 * MOST_PIXELS, -(-count // WANTED_WORKGROUPS)))
        blocks = -(-count // pixels)
        pixels = -(-count // blocks)
        splits = max(1, min(c.panels // columns, -(-WANTED_WORKGROUPS // blocks)))
        height = choose_rows(pixels, columns, target, c.lanes, c.parts is not None)
        block_panels = -(-c.panels // splits)
    else:
        height = choose_rows(count, columns, target, c.lanes, c.parts is not None)
        block_panels = PANELS_OF_ANY_IMAGE
        if pixels < height:
            return None
        pixels = min(pixels - pixels % height, MOST_PIXELS // height * height)
    block_panels = min(-(-block_panels // columns) * columns, c.panels)
    return ConvolutionSchedule(panel_tile(height, columns, c.lanes), pixels, block_panels, True)


class _Gathered:
    """Grid: x runs of `count` output pixels, y blocks of panels, z images, or one, of all pixels.

    The windows of the pixels lie in scratch, [pixels][depth], zeros where they reach outside.
    """

    def __init__(self, c: Convolution, schedule: ConvolutionSchedule, count: Dim) -> None:
        self.c, self.schedule, self.b = c, schedule, c.builder
        self.count = count
        self.pitch = pitch_of(known_dim(c.depth), c.factor)

    def lower(self) -> Kernel:
        c, b, schedule = self.c, self.b, self.schedule
        start, count, images = run_of(c, self.count, schedule.block_rows)
        heights = (schedule.tile.rows, *self._tails())
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), b.dim(c.panels))
        gathering = Gathering(c)
        with b.for_(0, count) as loop:
            gathering.gather(c.places(b.add(start, loop.index)), b.mul(loop.index, self.pitch))

        length = schedule.block_rows * self.pitch * c.factor.bytes

        def columns(panel: Index, tile: TileShape) -> None:
            c.unpack(panel, tile, length)

            def rows(height: int, row: Index, _: list[Value]) -> tuple[()]:
                shape = TileShape(height, tile.vectors, tile.lanes)
                c.epilogue.store_tile(
                    self._tile(row, panel, shape), shape, b.add(start, row), panel
                )
                return ()

            for_row_tiles(b, count, heights, rows)

        c.for_panels(first, last, schedule.tile, columns)
        return c.kernel(
            (self.count, c.panels, images),
            (schedule.block_rows, schedule.block_panels, 1),
            schedule,
            max(length, c.scratch_length),
        )

    def _tails(self) -> tuple[int, ...]:
        """Heights of tiles behind full ones, the most first."""
        height, run = self.schedule.tile.rows, self.schedule.block_rows
        if not isinstance(self.count, int):
            return tail_heights(height, None)
        runs = (min(run, self.count), self.count % run)
        return tuple(sorted({each % height for each in runs} - {0}, reverse=True))

    def _tile(self, row: Index, panel: Index, tile: TileShape) -> list[Value]:
        """The sums of `tile.rows` pixels from `row` of the run on."""
        c, b = self.c, self.b
        base, memory = b.mul(row, self.pitch), b.scratch(0, c.factor)

        def element(i: int, k: Index) -> Value:
            return b.load(memory, b.add(b.add(base, i * self.pitch), k))

        height = self.schedule.tile.rows
        turn = Turn(b.div(row, height), -(-self.schedule.block_rows // height))
        line = c.line(panel, tile, 0, turn)
        sums = zero_tile(b, c.element, tile)
        return multiply(b, tile, sums, b.dim(c.depth), element, line, c.parts)
