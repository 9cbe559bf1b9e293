"""Convolutions of f32 as sums of products of their bf16 parts, in tiles whose rows are pixels.

A workgroup splits the input rows under a block of output rows into words in scratch. With stride 1
the windows of pixels begin one after another there, also those that reach past the end of a row:
tiles take them all, and what such a one would give is left out. Else the windows of any pixels are
gathered, split, and are rows of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ingot.compiler.graph.ops import ConvPacked
from ingot.compiler.ir import Function, Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, product
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.convolution_direct import Direct
from ingot.compiler.kernels.lanes.convolution_sources import (
    Convolution,
    Gathering,
    run_of,
    stage,
    stage_rows,
    stage_width,
)
from ingot.compiler.kernels.lanes.convolution_tiles import (
    PIXELS_OF_ANY_IMAGE,
    STAGE_LENGTH,
    shares,
)
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.loop_rules import TILE
from ingot.compiler.kernels.register_tile import PANEL, panel_tile
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, WANTED_WORKGROUPS
from ingot.compiler.kernels.split import (
    CHUNK,
    STEPS,
    halves_of,
    multiply_parts,
    replace_infinite,
    split,
)
from ingot.compiler.kernels.tiles import ROWS, STEP_CYCLES, WIDTH, TileProducts, TileSide
from ingot.hal.spec import dtype

__all__ = ["PartsConvolution", "in_parts"]

SUMS = ROWS * WIDTH * PANEL * 4
"""Bytes of a block's sums, behind which scratch has what is split."""

SPLIT_CYCLES = 6
"""Of a vector of 16 numbers, for each of its parts."""

_F32, _I32, _U16, _BF16 = dtype("f32"), dtype("i32"), dtype("u16"), dtype("bf16")


@dataclass(frozen=True)
class PartsConvolution:
    """bf16 of an f32, output rows (pixels, where they are gathered) and panels of a workgroup."""

    form: str  # "staged", "gathered"
    parts: int
    block_rows: int
    block_panels: int


def in_parts(
    function: Function, root: Op, target: TargetInfo, run: Dim, by_rows: bool
) -> Kernel | None:
    """The kernel of a convolution whose factors may be taken as parts; None if it is none, or is
    done faster without. `run`: pixels along x of the grid; `by_rows`: they may be whole rows of one
    image."""
    packed = ConvPacked.of(root)
    if not packed.bf16_parts or not target.tiles:
        return None
    c = _Source(function, root, target, packed.bf16_parts)
    if not isinstance(c.depth, int) or not isinstance(c.panels, int) or not c.depth:
        return None
    rows = _by_rows(c) if by_rows else None
    pixels = _by_pixels(c, run)
    if rows is not None and (pixels is None or _cycles(c, rows) <= _cycles(c, pixels)):
        return _Rows(c, rows, target).lower()
    return _Pixels(c, pixels, run, target).lower() if pixels is not None else None


class _Source(Convolution):
    """Copies the images into scratch as parts, `plane` numbers from one to the next."""

    def __init__(self, function: Function, root: Op, target: TargetInfo, count: int) -> None:
        super().__init__(function, root, target)
        self.count, self.plane = count, 0

    def fill(self, target: Index, count: int) -> None:
        zeros = [self.builder.constant(0, _U16, PANEL)] * self.count
        self._store(target, count, lambda at, live: zeros)

    def copy(self, target: Index, source: Index, count: int) -> None:
        b = self.builder

        def halves(at: Index, live: int | None) -> list[Value]:
            x = b.load(self.input, b.add(source, at), PANEL, live)
            return [halves_of(b, part) for part in split(b, x, self.count)]

        self._store(target, count, halves)

    def _store(
        self, target: Index, count: int, halves: Callable[[Index, int | None], list[Value]]
    ) -> None:
        """`halves(at, live)` are those of a vector, or of the `live` first numbers of one."""
        b, full = self.builder, count // PANEL * PANEL
        memory = b.scratch(SUMS, _U16)

        def store(at: Index, live: int | None) -> None:
            for place, part in enumerate(halves(at, live)):
                b.store(memory, b.add(b.add(target, at), place * self.plane), part, live)

        with b.for_(0, full, PANEL) as loop:
            store(loop.index, None)
        if count % PANEL:
            store(full, count % PANEL)


def _steps(c: Convolution) -> int:
    """Of K, with the zeros behind them."""
    return -(-known_dim(c.depth) // STEPS) * STEPS


def _cycles(c: _Source, schedule: PartsConvolution) -> int:
    """What an image takes beside its epilogue, about."""
    count = known_dim(product(c.result.shape[1:-1]))
    splits = -(-known_dim(c.panels) // schedule.block_panels)
    rows, numbers = count, count * known_dim(c.depth)
    if schedule.form == "staged":
        rows = known_dim(c.result.shape[1]) * stage_width(c)
        numbers = rows * known_dim(c.channels)
    pairs = c.count * (c.count + 1) // 2
    products = -(-rows // TILE) * known_dim(c.panels) * _steps(c) // STEPS * pairs * STEP_CYCLES
    return products + splits * numbers // PANEL * c.count * SPLIT_CYCLES


class _Sums:
    """What both forms do with a block of up to `ROWS` rows of tiles."""

    def __init__(self, c: _Source, target: TargetInfo) -> None:
        self.c, self.b = c, c.builder
        self.products = TileProducts(
            self.b, c.epilogue, (_BF16, _BF16), TILE, _steps(c) // 2, CHUNK
        )
        self.direct = Direct(c, target)
        self.sums = self.b.scratch(0, _F32)

    def multiply(
        self, left: TileSide, rows: Index, panels: tuple[Index, int], words: int, segments: int = 1
    ) -> None:
        """The sums of rows, of which tiles take 16 or 32. `panels`: the first one, and how many."""
        b, c, (panel, width) = self.b, self.c, panels
        pitch = _steps(c) // 2 * PANEL
        weight, plane = b.binding(c.ordinals[2], _I32), known_dim(c.panels) * pitch
        right = TileSide(weight, b.mul(panel, pitch), pitch, plane)
        left = replace(left, memory=b.scratch(SUMS, _I32), step=c.plane // 2)
        whole = b.mul(b.div(b.add(rows, TILE - 1), TILE), TILE)
        sides, count = (left, right), (whole, width)
        multiply_parts(b, sides, (self.sums, 0), count, words, c.count, segments=segments)

    def finish(self, first: Index, rows: Index, pixel: Index, panels: tuple[Index, int]) -> None:
        """The epilogue of rows from the first on, which are pixels of the whole result."""
        b, (panel, width) = self.b, panels

        def exact(_: int, row: Index) -> list[Value]:
            return self.direct.pixel(b.add(pixel, row), panel, panel_tile(1, width, PANEL))

        at = b.mul(first, width * PANEL)
        replace_infinite(b, (self.sums, at), (rows, width), (1,), exact)
        self.products.finish(self.sums, (rows, width), (pixel, panel), at)


# Rows of pixels.


def _by_rows(c: _Source) -> PartsConvolution | None:
    window, (height, channels) = c.window, known_dims((c.result.shape[1], c.channels))
    apart = window.dilation[1] != 1 and window.size[1] != 1
    if window.strides != (1, 1) or apart:
        return None
    if channels % 2 or window.size[1] * channels % STEPS:  # whole words, and whole tiles of them
        return None
    fitting = STAGE_LENGTH // _length(c, 0) - stage_rows(c, 1) + 1
    block = max(1, min(fitting, height))
    if _length(c, stage_rows(c, block)) > MOST_BEFORE_SUMS - SUMS:
        return None
    blocks, block_panels = shares(c, -(-height // block), height, WANTED_WORKGROUPS)
    return PartsConvolution("staged", c.count, -(-height // blocks), block_panels)


def _length(c: _Source, lines: int) -> int:
    """Bytes of all parts of so many input rows, or of one, behind which tiles read, too."""
    pixels = lines * stage_width(c) + ROWS if lines else stage_width(c)
    return pixels * known_dim(c.channels) * _U16.bytes * c.count


class _Rows:
    """Grid: x pixels in blocks of output rows, y blocks of panels, z images."""

    def __init__(self, c: _Source, schedule: PartsConvolution, target: TargetInfo) -> None:
        self.c, self.b, self.schedule = c, c.builder, schedule
        self.height, self.width, self.channels = known_dims((*c.result.shape[1:3], c.channels))
        self.length = _length(c, stage_rows(c, schedule.block_rows))
        c.plane = self.length // (_U16.bytes * c.count)
        self.block = _Sums(c, target)

    def lower(self) -> Kernel:
        c, b, schedule = self.c, self.b, self.schedule
        row, image = b.mul(b.workgroup(0), schedule.block_rows), b.workgroup(2)
        rows = b.min(b.sub(self.height, row), schedule.block_rows)
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), known_dim(c.panels))
        products = self.block.products
        products.begin()
        stage(c, image, row, rows)
        pixel = b.mul(b.add(b.mul(image, self.height), row), self.width)
        windows = b.add(b.mul(b.sub(rows, 1), stage_width(c)), self.width)

        def columns(panel: Index, panels: int) -> None:
            def block(count: Index, at: Index) -> None:
                self._block((at, count), pixel, (panel, panels))

            products.for_rows(windows, False, block)

        products.for_panels(first, last, known_dim(c.panels), columns)
        tile = (schedule.block_rows * self.width, schedule.block_panels, 1)
        workload = (self.height * self.width, c.panels, c.x.shape[0])
        return c.kernel(workload, tile, schedule, SUMS + self.length)

    def _block(self, windows: tuple[Index, Index], pixel: Index, panels: tuple[Index, int]) -> None:
        """The sums of windows, from one on, and what becomes of those of pixels."""
        b, window, pitch = self.b, self.c.window, self.channels // 2
        (at, count), line = windows, stage_width(self.c)
        step = window.dilation[0] * line * pitch
        left = TileSide(self.block.sums, b.mul(at, pitch), pitch, line_pitch=step)
        self.block.multiply(left, count, panels, window.size[1] * pitch, window.size[0])
        end = b.add(at, count)
        with b.for_(b.div(at, line), b.add(b.div(b.sub(end, 1), line), 1)) as loop:
            start = b.mul(loop.index, line)
            first, last = b.max(at, start), b.min(end, b.add(start, self.width))
            place = b.add(b.mul(loop.index, self.width), b.sub(first, start))
            rows = b.max(b.sub(last, first), 0)
            self.block.finish(b.sub(first, at), rows, b.add(pixel, place), panels)


# Any pixels.


def _pitch(c: Convolution) -> int:
    """Numbers from window to window in scratch: they do not meet in L1."""
    return _steps(c) + STEPS


def _by_pixels(c: _Source, count: Dim) -> PartsConvolution | None:
    length, panels = _pitch(c) * _U16.bytes * c.count, known_dim(c.panels)
    most = min(max(STAGE_LENGTH // length, ROWS), (MOST_BEFORE_SUMS - SUMS) // length)
    most = most // ROWS * ROWS
    if not most or count == 0:
        return None
    if not isinstance(count, int):
        pixels = min(most, PIXELS_OF_ANY_IMAGE)
        return PartsConvolution("gathered", c.count, pixels, min(panels, 2 * PANEL))
    blocks, block_panels = shares(c, -(-count // most), -(-count // ROWS), 1)
    pixels = min(-(-count // (blocks * ROWS)) * ROWS, most)
    return PartsConvolution("gathered", c.count, pixels, block_panels)


class _Pixels:
    """Grid: x runs of `count` output pixels, y blocks of panels, z images, or one of all pixels."""

    def __init__(
        self, c: _Source, schedule: PartsConvolution, count: Dim, target: TargetInfo
    ) -> None:
        self.c, self.b, self.schedule, self.count = c, c.builder, schedule, count
        c.plane = schedule.block_rows * _pitch(c)
        self.block = _Sums(c, target)

    def lower(self) -> Kernel:
        c, b, schedule, pitch = self.c, self.b, self.schedule, _pitch(self.c)
        start, count, images = run_of(c, self.count, schedule.block_rows)
        first = b.mul(b.workgroup(1), schedule.block_panels)
        last = b.min(b.add(first, schedule.block_panels), known_dim(c.panels))
        products, depth, gathering = self.block.products, known_dim(c.depth), Gathering(c)
        products.begin()
        with b.for_(0, count) as loop:
            at = b.mul(loop.index, pitch)
            gathering.gather(c.places(b.add(start, loop.index)), at)
            if _steps(c) > depth:
                c.fill(b.add(at, depth), _steps(c) - depth)

        def columns(panel: Index, panels: int) -> None:
            def block(rows: Index, row: Index) -> None:
                left = TileSide(self.block.sums, b.mul(row, pitch // 2), pitch // 2)
                self.block.multiply(left, rows, (panel, panels), _steps(c) // 2)
                self.block.finish(0, rows, b.add(start, row), (panel, panels))

            products.for_rows(count, False, block)

        products.for_panels(first, last, known_dim(c.panels), columns)
        tile = (schedule.block_rows, schedule.block_panels, 1)
        length = SUMS + c.plane * c.count * _U16.bytes
        return c.kernel((self.count, c.panels, images), tile, schedule, length)
