"""Convolutions of bytes in tiles: rows of a tile are output pixels.

Where pixels of a row fill tiles, they are read from the input, or its rows staged in scratch, a
row of the window after the other; two short output rows are two tiles. Else the windows of any
pixels are gathered in scratch, and are rows of a product.
"""

from __future__ import annotations

import math

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, product
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.convolution_sources import (
    Convolution,
    Gathering,
    address,
    run_of,
    stage,
    stage_rows,
    stage_width,
)
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.loop_rules import TILE
from ingot.compiler.kernels.register_tile import PANEL, for_row_tiles, pitch_of
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, SHARED_WEIGHT, WANTED_WORKGROUPS
from ingot.compiler.kernels.tiles import (
    FEWEST_BESIDE,
    ROWS,
    SCRATCH,
    STEP_CYCLES,
    WIDTH,
    TileProducts,
    TileSide,
    tiles_pay,
    words_at_once,
)

__all__ = ["PIXELS_OF_ANY_IMAGE", "STAGE_LENGTH", "TiledConvolution", "in_tiles", "shares"]

STAGE_LENGTH = 256 << 10
"""Bytes of input rows, or of windows, that a workgroup has in scratch, about."""

COPIED, PER_LINE = 24, 12
"""Bytes of a window that are gathered in a cycle, and cycles beside that for each of its rows."""

MOST_COPYING = 4
"""Of the time of the products, the part that workgroups may take to gather the same windows."""

PIXELS_OF_ANY_IMAGE = 96
"""Pixels of a workgroup where the call knows how many there are."""


@dataclass(frozen=True)
class TiledConvolution:
    """Words at once, output rows (pixels, where they are gathered) and panels of a workgroup."""

    form: str  # "in place", "staged", "gathered"
    words: int
    block_rows: int
    block_panels: int


def in_tiles(c: Convolution, target: TargetInfo, run: Dim, by_rows: bool) -> Kernel | None:
    """The kernel of a convolution; None if tiles do not suit it. `run`: pixels along x of the grid;
    `by_rows`: they may be whole rows of one image."""
    if not isinstance(c.depth, int) or not isinstance(c.panels, int) or not c.depth:
        return None
    if c.parts is None or not tiles_pay(c.epilogue, c.parts, c.depth):
        return None
    rows = _by_rows(c, target) if by_rows else None
    pixels = _by_pixels(c, target, run)
    if rows is not None and (pixels is None or _cycles(c, rows) <= _cycles(c, pixels)):
        return _Rows(c, rows).lower()
    return _Pixels(c, pixels, run).lower() if pixels is not None else None


def _weight(c: Convolution) -> int:
    """Bytes of the weight."""
    return known_dim(c.panels) * PANEL * known_dim(c.depth) * c.factor.bytes


def shares(c: Convolution, blocks: int, units: int, most_splits: int) -> tuple[int, int]:
    """Blocks of rows, of at most so many units, and of panels: as many as are wanted."""
    if blocks < WANTED_WORKGROUPS and _weight(c) <= SHARED_WEIGHT:
        blocks = min(units, WANTED_WORKGROUPS)
    pairs = -(-known_dim(c.panels) // WIDTH)
    splits = max(1, min(pairs, -(-WANTED_WORKGROUPS // blocks), most_splits))
    return blocks, -(-pairs // splits) * WIDTH


def _products(c: Convolution, tiles: int, words: int) -> int:
    """Cycles of all products of so many tiles of rows."""
    return tiles * known_dim(c.panels) * (known_dim(c.depth) // words) * STEP_CYCLES


def _copying(c: Convolution, pixels: int) -> int:
    """Cycles in which windows are gathered."""
    lines = math.prod(c.window.size[:-1])
    return pixels * (known_dim(c.depth) * c.factor.bytes // COPIED + PER_LINE * lines)


def _cycles(c: Convolution, schedule: TiledConvolution) -> int:
    """What an image takes beside its epilogue, about."""
    if schedule.form != "gathered":
        height, width = known_dims(c.result.shape[1:3])
        return _products(c, height * -(-width // TILE), schedule.words)
    count = known_dim(product(c.result.shape[1:-1]))
    splits = -(-known_dim(c.panels) // schedule.block_panels)
    return _products(c, -(-count // TILE), schedule.words) + splits * _copying(c, count)


# Rows of pixels.


def _by_rows(c: Convolution, target: TargetInfo) -> TiledConvolution | None:
    window = c.window
    if window.dilation[1] != 1 and window.size[1] != 1:
        return None
    height, width, channels = known_dims((*c.result.shape[1:3], c.channels))
    words = words_at_once(target, c.parts, width, window.size[1] * channels)
    if not words:
        return None
    staged = any((*window.before, *window.after))
    length = stage_width(c) * channels * c.factor.bytes
    fitting = (STAGE_LENGTH // length - stage_rows(c, 1)) // window.strides[0] + 1
    block = max(1, min(fitting, height))
    if staged and stage_rows(c, block) * length + SCRATCH > MOST_BEFORE_SUMS:
        return None
    units = -(-height // 2) if width <= TILE else height
    blocks, block_panels = shares(c, -(-height // block), units, WANTED_WORKGROUPS)
    block = -(-height // blocks)
    if width <= TILE and block < height:
        block += block % 2
    return TiledConvolution("staged" if staged else "in place", words, block, block_panels)


class _Rows:
    """Grid: x pixels in blocks of output rows, y blocks of panels, z images."""

    def __init__(self, c: Convolution, schedule: TiledConvolution) -> None:
        self.c, self.b, self.schedule = c, c.builder, schedule
        self.staged = schedule.form == "staged"
        self.height, self.width, self.channels = known_dims((*c.result.shape[1:3], c.channels))
        length = stage_rows(c, schedule.block_rows) * self._line() * c.factor.bytes
        self.room = -(-length // 64) * 64 if self.staged else 0
        run = c.window.size[1] * self.channels
        assert c.parts is not None
        self.products = TileProducts(
            c.builder, c.epilogue, c.parts, self.width, run, schedule.words, self.room
        )

    def _line(self) -> int:
        """Words of a row of the input where it is read."""
        width = stage_width(self.c) if self.staged else known_dim(self.c.x.shape[2])
        return width * self.channels

    def lower(self) -> Kernel:
        c, b, schedule, (height, width) = self.c, self.b, self.schedule, (self.height, self.width)
        row, image = b.mul(b.workgroup(0), schedule.block_rows), b.workgroup(2)
        rows = b.min(b.sub(height, row), schedule.block_rows)
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), known_dim(c.panels))
        self.products.begin()
        if self.staged:
            stage(c, image, row, rows)
        counts = {schedule.block_rows % 2, height % schedule.block_rows % 2}
        heights = (1,) if width > TILE else (2, 1) if 1 in counts else (2,)

        def columns(panel: Index, panels: int) -> None:
            def body(lines: int, r: Index, _: object) -> tuple[()]:
                self._row((image, row, r), lines, panel, panels)
                return ()

            for_row_tiles(b, rows, heights, body)

        self.products.for_panels(first, last, known_dim(c.panels), columns)
        tile = (schedule.block_rows * width, schedule.block_panels, 1)
        workload = (height * width, c.panels, c.x.shape[0])
        return c.kernel(workload, tile, schedule, self.room + SCRATCH)

    def _row(
        self, place: tuple[Index, Index, Index], lines: int, panel: Index, panels: int
    ) -> None:
        """The pixels of an output row, or two."""
        b, (image, row, r) = self.b, place
        start = b.mul(b.add(b.mul(image, self.height), b.add(row, r)), self.width)

        def body(count: int, column: Index, _: object) -> tuple[()]:
            left, right = self._sides((*place, column), panel)
            self.products.store(
                left, right, (b.add(start, column), panel), (count, panels),
                self.c.window.size[0], lines,
            )  # fmt: skip
            return ()

        tail = self.width % ROWS
        for_row_tiles(b, self.width, (ROWS, tail) if tail else (ROWS,), body)

    def _sides(self, place: tuple[Index, ...], panel: Index) -> tuple[TileSide, TileSide]:
        c, b, window, depth = self.c, self.b, self.c.window, known_dim(self.c.depth)
        memory, base = address(c, self.staged, place, 0, 0)
        left = TileSide(
            memory, base, window.strides[1] * self.channels, window.dilation[0] * self._line(),
            window.strides[0] * self._line(),
        )  # fmt: skip
        weight = b.binding(c.ordinals[1], c.w.dtype)
        run = window.size[1] * self.channels * PANEL
        return left, TileSide(weight, b.mul(panel, depth * PANEL), depth * PANEL, run)


# Any pixels.


def _by_pixels(c: Convolution, target: TargetInfo, count: Dim) -> TiledConvolution | None:
    depth = known_dim(c.depth)
    words, panels = words_at_once(target, c.parts, count, depth), known_dim(c.panels)
    length = pitch_of(depth, c.factor) * c.factor.bytes
    most = min(max(STAGE_LENGTH // length, ROWS), (MOST_BEFORE_SUMS - SCRATCH) // length)
    is_short = c.factor.is_integer and depth < FEWEST_BESIDE
    if not words or is_short or most < TILE or count == 0:
        return None
    most = most // ROWS * ROWS or most
    if not isinstance(count, int):
        pixels = min(most, PIXELS_OF_ANY_IMAGE)
        return TiledConvolution("gathered", words, pixels, min(panels, 2 * PANEL))
    wanted = _products(c, -(-count // TILE), words) // (MOST_COPYING * _copying(c, count))
    blocks, block_panels = shares(c, -(-count // most), -(-count // ROWS), wanted)
    pixels = count if blocks == 1 else -(-count // (blocks * ROWS)) * ROWS
    return TiledConvolution("gathered", words, min(pixels, most), block_panels)


class _Pixels:
    """Grid: x runs of `count` output pixels, y blocks of panels, z images, or one of all pixels."""

    def __init__(self, c: Convolution, schedule: TiledConvolution, count: Dim) -> None:
        self.c, self.b, self.schedule, self.count = c, c.builder, schedule, count
        self.depth = known_dim(c.depth)
        self.pitch = pitch_of(self.depth, c.factor)

    def lower(self) -> Kernel:
        c, b, schedule = self.c, self.b, self.schedule
        start, count, images = run_of(c, self.count, schedule.block_rows)
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), known_dim(c.panels))
        length = -(-schedule.block_rows * self.pitch * c.factor.bytes // 64) * 64
        assert c.parts is not None
        products = TileProducts(b, c.epilogue, c.parts, count, self.depth, schedule.words, length)
        products.begin()
        gathering = Gathering(c)
        with b.for_(0, count) as loop:
            gathering.gather(c.places(b.add(start, loop.index)), b.mul(loop.index, self.pitch))

        def columns(panel: Index, panels: int) -> None:
            def block(rows: Index, row: Index) -> None:
                left = TileSide(b.scratch(0, c.factor), b.mul(row, self.pitch), self.pitch)
                weight = b.binding(c.ordinals[1], c.w.dtype)
                right = TileSide(weight, b.mul(panel, self.depth * PANEL), self.depth * PANEL)
                products.store(left, right, (b.add(start, row), panel), (rows, panels))

            products.for_rows(count, self._are_whole(), block)

        products.for_panels(first, last, known_dim(c.panels), columns)
        tile = (schedule.block_rows, schedule.block_panels, 1)
        return c.kernel((self.count, c.panels, images), tile, schedule, length + SCRATCH)

    def _are_whole(self) -> bool:
        """Whether all blocks of rows are."""
        rows = self.count, self.schedule.block_rows
        return all(isinstance(each, int) and each % ROWS == 0 for each in rows)
