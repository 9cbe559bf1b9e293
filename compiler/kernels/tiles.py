"""Products of words in tiles, 32 rows and two panels at a time: sums in scratch, then the epilogue.

A tile has 16 rows of 16 words at most, and 16 x 16 sums. The words of a row are taken in steps of
one length, so that this divides them; rows need not fill tiles. What makes sums by another
instruction stays in registers until it is stored; sums of tiles go through scratch, in L1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.loop_rules import TILE
from ingot.compiler.kernels.register_tile import (
    PANEL,
    for_row_tiles,
    panel_tile,
)
from ingot.compiler.kernels.table import DotTiles, Tiles
from ingot.compiler.kernels.words import Parts
from ingot.hal.spec import dtype

__all__ = [
    "FEWEST_BESIDE",
    "PANELS",
    "ROWS",
    "SCRATCH",
    "STEP_CYCLES",
    "WIDTH",
    "TileProducts",
    "TileSide",
    "tiles_pay",
    "with_words",
    "words_at_once",
]

STEP_CYCLES = 18
"""Of a product of two tiles."""

ROWS, PANELS = 2 * TILE, 2
"""Rows and panels of a block of sums: as many tiles as there are hold it, and what it is made of.
A product takes 18 cycles so, with one tile of each side 19 and more loads."""

WIDTH = 4
"""Panels whose sums are made before the epilogue takes them: it runs beside products, which take
long from their first word to their last sum where K is short, and stores whole lines."""

SCRATCH = (ROWS + TILE) * WIDTH * PANEL * 4
"""Bytes for sums, behind room for those of rows in front of the first."""

FEWEST_ROWS, FEWEST_WORDS = 3, 4
"""Rows and words of a step from which tiles take less time than words in registers: a step takes
18 cycles, vpdpbusd half a cycle for each row and word."""


FEWEST_SUMMED, FEWEST_BESIDE = 6, 13
"""Words of bytes that a sum has, and that it has in front of a long epilogue, which reads sums of
tiles from scratch, or behind windows that are gathered, from which tiles take less time: kernels of
MobileNetV3 with such and 10 to 12 words take .86 of the time in registers; of ResNet-50, 64 to 256
features with 16 words 1.6, of MobileNetV3 with 24 1.07; others are faster in tiles from 6 on."""


def _has_tiles(target: TargetInfo, parts: Parts) -> bool:
    """Whether tiles hold such words: bytes or bf16."""
    return target.tiles and (parts[0].is_integer or parts[0].name == "bf16")


def with_words(target: TargetInfo) -> TargetInfo:
    """The target as products in tiles see it: bf16 are words, too, which registers convert where
    they have no instruction that is as fast."""
    return replace(target, dot2=True) if target.tiles else target


def words_at_once(target: TargetInfo, parts: Parts | None, rows: Dim, words: Dim) -> int:
    """Words that a step takes of rows of a product of such; 0: it is none for tiles."""
    if parts is None or not _has_tiles(target, parts) or not isinstance(words, int):
        return 0
    if isinstance(rows, int) and rows < FEWEST_ROWS:
        return 0
    steps = next(each for each in range(TILE, 0, -1) if words % each == 0)
    in_registers = (min(rows, TILE) if isinstance(rows, int) else TILE) * steps // 2
    if parts[0].is_integer and in_registers <= STEP_CYCLES:
        return 0
    return steps if steps >= FEWEST_WORDS and words else 0


def tiles_pay(epilogue: Epilogue, parts: Parts, words: Dim) -> bool:
    """Whether sums of so many words of a weight take less time in tiles, with what is behind."""
    least = FEWEST_BESIDE if epilogue.is_long else FEWEST_SUMMED
    return not (parts[0].is_integer and isinstance(words, int)) or words >= least


@dataclass(frozen=True)
class TileSide:
    """Words of a side: memory, where its first one is, and how far it is to the next row, or panel,
    and to the next segment of what is summed, and of rows to the next line of them."""

    memory: Value
    at: Index
    pitch: Index
    step: Index = 0
    line_pitch: Index = 0


@dataclass(frozen=True)
class TileProducts:
    """Of one kernel, whose left side has `rows` rows in all, or in a line. `room`: the byte of
    scratch from which `SCRATCH` are there."""

    builder: LoopBuilder
    epilogue: Epilogue
    parts: Parts
    rows: Dim | Value
    words: int  # of a segment
    chunk: int  # of these at once
    room: int = 0

    def begin(self) -> None:
        """In front of all products."""
        b = self.builder
        b.append("loop.shape_tiles", [b.value(b.dim(self.rows))], None, Tiles(self.chunk))

    def for_panels(
        self, first: Index, last: Index, panels: Dim, body: Callable[[Index, int], None]
    ) -> None:
        """`body(panel, count)` for the panels in [first, last) of `panels`."""
        tail = panels % WIDTH if isinstance(panels, int) else 1

        def whole(count: int, offset: Index, _: object) -> tuple[()]:
            body(self.builder.add(first, offset), count)
            return ()

        count = self.builder.sub(last, first)
        for_row_tiles(self.builder, count, (WIDTH, tail) if tail else (WIDTH,), whole)

    def for_rows(self, rows: Index, are_whole: bool, body: Callable[[Index, Index], None]) -> None:
        """`body(count, first)` for blocks of rows. `are_whole`: each has `ROWS`; else the last one
        has the rest, and the same code."""
        b = self.builder
        with b.for_(0, rows, ROWS) as loop:
            count = ROWS if are_whole else b.min(b.sub(rows, loop.index), ROWS)
            body(count, loop.index)

    def store(
        self,
        left: TileSide,
        right: TileSide,
        place: tuple[Index, Index],
        count: tuple[Index, int],
        segments: Index = 1,
        lines: int = 1,
    ) -> None:
        """The product of up to `ROWS` rows, or two lines of a tile's, and `WIDTH` panels, with its
        epilogue. `place`: the row of the result, and its panel; `count`: of rows in a line, and of
        panels."""
        rows, panels = count
        sums = self.multiply(left, right, count, segments, lines)
        self.finish(sums, (self.builder.mul(rows, lines), panels), place)

    def multiply(
        self,
        left: TileSide,
        right: TileSide,
        count: tuple[Index, int],
        segments: Index = 1,
        lines: int = 1,
    ) -> Value:
        """The sums of the same product, in scratch."""
        b, (rows, width) = self.builder, count
        first = self.room + SCRATCH - ROWS * width * PANEL * 4
        element = dtype("i32" if self.parts[0].is_integer else "f32")
        numbers = (left.at, left.pitch, left.line_pitch if lines > 1 else 0, left.step)
        for panel in range(0, width, PANELS):
            sums = b.scratch(first + panel * PANEL * 4, element)
            operands = [left.memory, *map(b.value, numbers), right.memory]
            at = b.add(right.at, b.mul(right.pitch, panel))
            operands += [*map(b.value, (at, right.pitch, right.step)), sums]
            operands += map(b.value, (rows, self.words, segments))
            dot = DotTiles(*self.parts, lines, min(PANELS, width - panel), width)
            b.append("loop.dot_tiles", operands, None, dot)
        return b.scratch(first, element)

    def finish(
        self,
        sums: Value,
        count: tuple[Index, int],
        place: tuple[Index, Index],
        start: Index = 0,
    ) -> None:
        """The epilogue of sums that lie in scratch, from the element `start` on."""
        (rows, panels), (first, panel) = count, place
        self.epilogue.store_rows((sums, start), panel_tile(1, panels, PANEL), first, panel, rows)
