"""Convolutions one pixel at a time, with a test per position of the window."""

from __future__ import annotations

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import product
from ingot.compiler.kernels.contraction_entry import root_of
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.convolution_sources import Convolution
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.register_tile import (
    TileShape,
    choose_columns,
    multiply,
    panel_tile,
    zero_tile,
)

__all__ = ["ConvolutionSchedule", "Direct", "lower_direct_convolution"]


@dataclass(frozen=True)
class ConvolutionSchedule:
    """Register tile, output rows (pixels, where they are gathered) and panels of a workgroup;
    staged in scratch or in place."""

    tile: TileShape
    block_rows: int
    block_panels: int
    staged: bool


def lower_direct_convolution(function: Function, target: TargetInfo) -> Kernel:
    """A kernel without scratch, whose grid is one of pixels for all shapes."""
    return Direct(Convolution(function, root_of(function), target), target).lower()


class Direct:
    """Grid: x runs of output pixels of the whole batch, y tiles of panels."""

    PIXELS = 16

    def __init__(self, c: Convolution, target: TargetInfo) -> None:
        self.c, self.b = c, c.builder
        panels = choose_columns(c.panels, target, c.lanes)
        self.tile = panel_tile(1, panels, c.lanes)

    def lower(self) -> Kernel:
        c, b = self.c, self.b
        pixels = product(c.result.shape[:-1])
        first = b.mul(b.workgroup(0), self.PIXELS)
        last = b.min(b.add(first, self.PIXELS), b.dim(pixels))
        panel = b.mul(b.workgroup(1), self.tile.panels)
        end = b.min(b.add(panel, self.tile.panels), b.dim(c.panels))

        def columns(panel: Index, tile: TileShape) -> None:
            with b.for_(first, last) as loop:
                sums = self.pixel(loop.index, panel, tile)
                c.epilogue.store_tile(sums, tile, loop.index, panel)

        c.for_panels(panel, end, self.tile, columns)
        schedule = ConvolutionSchedule(self.tile, self.PIXELS, self.tile.panels, False)
        return c.kernel((pixels, c.panels, 1), (self.PIXELS, self.tile.panels, 1), schedule)

    def pixel(self, pixel: Index, panel: Index, tile: TileShape) -> list[Value]:
        """The sums of one output pixel."""
        c, b = self.c, self.b
        place = c.places(pixel)
        base = b.mul(place[0], b.dim(product(c.x.shape[1:])))
        return self._window(0, place[1:], base, 0, panel, tile, zero_tile(b, c.element, tile))

    def _window(
        self,
        axis: int,
        place: list[Index],
        base: Index,
        step: Index,
        panel: Index,
        tile: TileShape,
        sums: list[Value],
    ) -> list[Value]:
        """Sum over window dims from `axis` on; positions outside the image add nothing."""
        c, b, window = self.c, self.b, self.c.window
        if axis == len(window.size):
            start = b.mul(step, b.dim(c.channels))

            def element(i: int, k: Index) -> Value:
                return b.convert(b.load(c.input, b.add(base, k)), c.factor)

            line = c.line(panel, tile, start)
            return multiply(b, tile, sums, b.dim(c.channels), element, line, c.parts)
        size = c.x.shape[1 + axis]
        stride = product(c.x.shape[2 + axis :])
        with b.for_(0, window.size[axis], 1, sums) as loop:
            at = b.add(
                b.sub(b.mul(place[axis], window.strides[axis]), b.dim(window.before[axis])),
                b.mul(loop.index, window.dilation[axis]),
            )
            inside = b.op("and", b.compare("ge", at, 0), b.compare("lt", at, b.dim(size)))
            inner = b.add(base, b.mul(at, b.dim(stride)))
            inner_step = b.add(b.mul(step, window.size[axis]), loop.index)
            carried = list(loop.carried)
            loop.yield_(
                *b.if_(
                    inside,
                    lambda: self._window(axis + 1, place, inner, inner_step, panel, tile, carried),
                    lambda: carried,
                )
            )
        return loop.results
