"""What schedules of convolutions read from: panels, input rows that are staged in scratch, with
zeros around them, and windows that are gathered there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ingot.compiler.ir import Function, Op, Value
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, modulo, product, row_major_strides
from ingot.compiler.kernels.convolution_entry import ConvolutionEntry
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.panel import Turn, panel_lines, unpack_panels, unpacked_lines
from ingot.compiler.kernels.register_tile import PANEL, TileShape, panel_tile
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS
from ingot.hal.spec import dtype

__all__ = ["Convolution", "Gathering", "address", "run_of", "stage", "stage_rows", "stage_width"]


class Convolution(ConvolutionEntry):
    """What all schedules share. `words_for`: as of `ConvolutionEntry`."""

    def __init__(self, function: Function, root: Op, target: TargetInfo) -> None:
        super().__init__(function, root, words_for=target)
        self.lanes = min(target.lanes(self.element), PANEL)
        self.unpacked: Value | None = None
        self.scratch_length = 0  # with what is unpacked

    def line(
        self, panel: Index, tile: TileShape, start: Index, turn: Turn | None = None
    ) -> Callable[[Index, int], Value]:
        """Reads vector v of weight step start + k; `turn`: as for `panel_lines`."""
        binding = (self.ordinals[1], self.w.dtype)
        if self.unpacked is not None:
            return unpacked_lines(self.builder, self.unpacked, tile, start)
        weight = (binding, self.factor, self.depth)
        return panel_lines(self.builder, *weight, panel, tile, start, turn)

    def unpack(self, panel: Index, tile: TileShape, offset: int) -> None:
        """Let `line` read narrow weights from scratch, `offset` bytes in, if they fit there."""
        lines = -(-known_dim(self.depth) // 4) * 4  # whole ones of any dtype
        length = offset + lines * tile.panels * PANEL * self.element.bytes
        self.unpacked = None
        if self.w.dtype.bytes < 4 and length <= MOST_BEFORE_SUMS:
            self.scratch_length = max(self.scratch_length, length)
            b, binding = self.builder, (self.ordinals[1], self.w.dtype)
            depth = b.dim(self.depth)
            self.unpacked = b.scratch(offset, self.element)
            unpack_panels(b, binding, self.depth, panel, tile, self.unpacked, (0, depth))

    def fill(self, target: Index, count: int) -> None:
        """Zeros in scratch."""
        b, lanes = self.builder, self.lanes
        zero = b.constant(0, self.factor, lanes)
        memory = b.scratch(0, self.factor)
        with b.for_(0, count // lanes * lanes, lanes) as loop:
            b.store(memory, b.add(target, loop.index), zero)
        if count % lanes:
            b.store(memory, b.add(target, count // lanes * lanes), zero, count % lanes)

    def copy(self, target: Index, source: Index, count: int) -> None:
        """Elements of the images into scratch."""
        b, lanes, element = self.builder, self.lanes, self.factor
        memory = b.scratch(0, element)
        full = count // lanes * lanes
        with b.for_(0, full, lanes) as loop:
            value = b.load(self.input, b.add(source, loop.index), lanes)
            b.store(memory, b.add(target, loop.index), b.convert(value, element))
        if count % lanes:
            value = b.load(self.input, b.add(source, full), lanes, count % lanes)
            b.store(memory, b.add(target, full), b.convert(value, element), count % lanes)

    def places(self, pixel: Index) -> list[Index]:
        """Image and position in it of a pixel of the whole result."""
        b, shape = self.builder, self.result.shape[:-1]
        strides = row_major_strides(shape)
        return [
            b.rem(b.div(pixel, b.dim(stride)), b.dim(size)) if axis else b.div(pixel, b.dim(stride))
            for axis, (stride, size) in enumerate(zip(strides, shape, strict=True))
        ]

    def for_panels(
        self, first: Index, last: Index, tile: TileShape, body: Callable[[Index, TileShape], None]
    ) -> None:
        """`body` for each tile of panels in [first, last), the rest one panel at a time."""
        b, width = self.builder, tile.panels
        full = b.mul(b.div(b.sub(last, first), width), width)
        with b.for_(0, full, width) as loop:
            body(b.add(first, loop.index), tile)
        if isinstance(self.panels, int) and self.panels % width == 0:
            return
        with b.for_(b.add(first, full), last) as loop:
            body(loop.index, panel_tile(tile.rows, 1, tile.lanes))


def stage_rows(c: Convolution, rows: int) -> int:
    """Input rows under `rows` output rows."""
    return (rows - 1) * c.window.strides[0] + (c.window.size[0] - 1) * c.window.dilation[0] + 1


def stage_width(c: Convolution) -> int:
    """Input columns, with padding, under one output row."""
    width = known_dim(c.result.shape[2])
    return (width - 1) * c.window.strides[1] + (c.window.size[1] - 1) * c.window.dilation[1] + 1


def address(
    c: Convolution, staged: bool, place: Sequence[Index], at_row: Index, at_column: Index
) -> tuple[Value, Index]:
    """Memory and element offset of a pixel's run at a window position. `place`: image, first output
    row of the workgroup, output row in it, and column."""
    b, window, (image, row, r, column) = c.builder, c.window, place
    across = b.add(b.mul(column, window.strides[1]), b.mul(at_column, window.dilation[1]))
    down = b.mul(at_row, window.dilation[0])
    if staged:
        line = b.add(b.mul(r, window.strides[0]), down)
        at = b.add(b.mul(line, stage_width(c)), across)
        return b.scratch(0, c.factor), b.mul(at, b.dim(c.channels))
    line = b.add(b.mul(b.add(row, r), window.strides[0]), down)
    line = b.add(b.mul(image, b.dim(c.x.shape[1])), line)
    at = b.add(b.mul(line, b.dim(c.x.shape[2])), across)
    return c.input, b.mul(at, b.dim(c.channels))


def stage(c: Convolution, image: Index, row: Index, rows: Index) -> None:
    """Copy the input rows of a block of output rows into scratch, zeros outside the image."""
    b, window, channels = c.builder, c.window, known_dim(c.channels)
    height, width = known_dims(c.x.shape[1:3])
    before_row, before = known_dims(window.before)
    width_in_stage = stage_width(c)
    lines = b.add(b.mul(b.sub(rows, 1), window.strides[0]), stage_rows(c, 1))
    top = b.sub(b.mul(row, window.strides[0]), b.dim(before_row))
    live = max(0, min(width, width_in_stage - before))
    with b.for_(0, lines) as loop:
        line = b.add(top, loop.index)
        target = b.mul(loop.index, width_in_stage * channels)
        inside = b.op("and", b.compare("ge", line, 0), b.compare("lt", line, height))
        source = b.mul(b.add(b.mul(image, height), line), width * channels)

        def copy(target: Index = target, source: Index = source) -> None:
            start = b.add(target, before * channels)
            end = b.add(start, live * channels)
            c.fill(target, before * channels)
            c.copy(start, source, live * channels)
            c.fill(end, (width_in_stage - before - live) * channels)

        def clear(target: Index = target) -> None:
            c.fill(target, width_in_stage * channels)

        b.if_(inside, copy, clear)


def run_of(c: Convolution, count: Dim, block: int) -> tuple[Index, Index, Dim]:
    """Of a grid with `count` output pixels along x, of an image or of all: the first pixel of a
    workgroup, counted through all images, how many it has, at most `block`, and the images along z.
    """
    b, images = c.builder, c.result.shape[0]
    start = b.mul(b.workgroup(0), block)
    own: Index = block
    if modulo(count, block) != 0:
        own = b.min(b.sub(b.dim(count), start), block)
    if count == product(c.result.shape[:-1]):
        return start, own, 1
    return b.add(b.mul(b.workgroup(2), b.dim(count)), start), own, images


class Gathering:
    """Copies windows of output pixels into scratch, zeros where they reach outside."""

    def __init__(self, c: Convolution) -> None:
        self.c, self.b = c, c.builder
        self.channels = known_dim(c.channels)

    def gather(self, place: list[Index], target: Index) -> None:
        """Copy the window of one pixel."""
        c, b, window = self.c, self.b, self.c.window
        width = b.dim(c.x.shape[-2])
        across = b.sub(b.mul(place[-1], window.strides[-1]), b.dim(window.before[-1]))
        reach = window.size[-1] * self.channels
        with b.for_(0, math.prod(window.size[:-1])) as loop:
            line, inside = self._line(place, loop.index)
            start = b.add(target, b.mul(loop.index, reach))

            def one_by_one() -> None:
                with b.for_(0, window.size[-1]) as inner:
                    at = b.add(across, b.mul(inner.index, window.dilation[-1]))
                    source = b.mul(b.add(b.mul(line, width), at), self.channels)
                    pixel = b.add(start, b.mul(inner.index, self.channels))
                    b.if_(
                        b.op("and", inside, self._within(at, 1, width)),
                        lambda: c.copy(pixel, source, self.channels),
                        lambda: c.fill(pixel, self.channels),
                    )

            source = b.mul(b.add(b.mul(line, width), across), self.channels)
            if window.dilation[-1] == 1:
                whole = b.op("and", inside, self._within(across, window.size[-1], width))
                b.if_(whole, lambda: c.copy(start, source, reach), one_by_one)
            else:
                one_by_one()

    def _line(self, place: list[Index], step: Index) -> tuple[Index, Value]:
        """The line of all images at a position of the window's outer dims, and whether it
        lies in its image."""
        c, b, window = self.c, self.b, self.c.window
        line, inside = place[0], b.constant(True, dtype("i1"))
        strides = row_major_strides(window.size[:-1])
        for axis, stride in enumerate(strides):
            offset = b.rem(b.div(step, b.dim(stride)), window.size[axis])
            at = b.sub(b.mul(place[1 + axis], window.strides[axis]), b.dim(window.before[axis]))
            at = b.add(at, b.mul(offset, window.dilation[axis]))
            size = b.dim(c.x.shape[1 + axis])
            inside = b.op("and", inside, self._within(at, 1, size))
            line = b.add(b.mul(line, size), at)
        return line, inside

    def _within(self, start: Index, count: int, size: Index) -> Value:
        b = self.b
        low, high = b.compare("ge", start, 0), b.compare("le", b.add(start, count), size)
        return b.op("and", low, high)
