"""Products of words in tiles, 32 rows and two panels at a time: sums in scratch, then the epilogue.

A tile has 16 rows of 16 words at most, and 16 x 16 sums. The words of a row are taken in steps of
one length, so that this divides them; rows need not fill tiles. What makes sums by another
instruction stays in registers until it is stored; sums of tiles go through scratch, in L1.
"""

from __future__ import annotations

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.register_tile import (
    PANEL,
    for_any_rows,
    for_row_tiles,
    panel_tile,
    tail_heights,
)
from ingot.compiler.kernels.table import DotTiles, Tiles
from ingot.compiler.kernels.words import Parts
from ingot.hal.spec import dtype

__all__ = ["PANELS", "ROWS", "SCRATCH", "TileProducts", "TileSide", "words_at_once"]

ROWS, PANELS = 32, 2
"""Rows and panels of a block of sums: as many tiles as there are hold it, and what it is made of.
A product of 16 x 16 x 16 words takes 18 cycles so, with one tile of each 19 and more loads."""

SCRATCH = (ROWS + 16) * PANELS * PANEL * 4
"""Bytes for sums, behind room for those of rows in front of the first."""

FEWEST_ROWS, FEWEST_WORDS = 3, 4
"""Rows and words of a step from which tiles take less time than words in registers: a step takes
18 cycles, vpdpbusd half a cycle for each row and word."""

STORED_ROWS = 4
"""Rows whose sums are taken from scratch together, and share what epilogues read of columns."""


def words_at_once(target: TargetInfo, parts: Parts | None, rows: Dim, words: Dim) -> int:
    """Words that a step takes of rows of a product of bytes; 0: it is none for tiles."""
    if not target.tiles or parts is None or not parts[0].is_integer or not isinstance(words, int):
        return 0
    if isinstance(rows, int) and rows < FEWEST_ROWS:
        return 0
    steps = next(each for each in range(16, 0, -1) if words % each == 0)
    return steps if steps >= FEWEST_WORDS and words else 0


@dataclass(frozen=True)
class TileSide:
    """Words of a side: memory, where its first one is, and how far it is to the next row, or panel,
    and to the next segment of what is summed."""

    memory: Value
    at: Index
    pitch: Index
    step: Index = 0


@dataclass(frozen=True)
class TileProducts:
    """Of one kernel, whose left side has `rows` rows in all. `room`: the byte of scratch from which
    `SCRATCH` are there."""

    builder: LoopBuilder
    epilogue: Epilogue
    parts: Parts
    rows: Dim
    words: int  # of a segment
    chunk: int  # of these at once
    room: int = 0

    def begin(self) -> None:
        """In front of all products."""
        b = self.builder
        b.append("loop.shape_tiles", [b.value(b.dim(self.rows))], None, Tiles(self.chunk))

    def store(
        self,
        left: TileSide,
        right: TileSide,
        segments: Index,
        place: tuple[Index, Index],
        count: tuple[Index, int],
    ) -> None:
        """The product of up to `ROWS` rows and `PANELS` panels, `count` of them, with its epilogue.
        `place`: the row of the result, and its panel."""
        b, (rows, panels) = self.builder, count
        element = dtype("i32")
        sums = b.scratch(self.room + (SCRATCH - ROWS * panels * PANEL * 4), element)
        sides = [
            each if isinstance(each, Value) else b.value(each)
            for side in (left, right)
            for each in (side.memory, side.at, side.pitch, side.step)
        ]
        counts = [b.value(each) for each in (rows, self.words, segments)]
        b.append("loop.dot_tiles", [*sides, sums, *counts], None, DotTiles(*self.parts, panels))
        self._finish(sums, rows, panels, place)

    def _finish(self, sums: Value, rows: Index, panels: int, place: tuple[Index, Index]) -> None:
        b, (first, panel) = self.builder, place

        def body(height: int, offset: Index, live: Index | None) -> None:
            tile = panel_tile(height, panels, PANEL)
            values = [
                b.load(sums, b.add(b.mul(offset, panels * PANEL), each * PANEL), PANEL)
                for each in range(height * panels)
            ]
            self.epilogue.store_tile(values, tile, b.add(first, offset), panel, live)

        if not isinstance(rows, int):
            for_any_rows(b, rows, STORED_ROWS, body)
            return

        def whole(height: int, offset: Index, _: list[Value]) -> tuple[()]:
            body(height, offset, None)
            return ()

        heights = (STORED_ROWS, *tail_heights(STORED_ROWS, rows % STORED_ROWS))
        for_row_tiles(b, rows, heights, whole)
