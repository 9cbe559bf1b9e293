"""Products of f32 as products of their bf16 parts, in tiles.

A workgroup splits a block of K of its rows into words in scratch, which meet four panels at a time:
those of a weight as they lie, in parts, others are split, too. Where K is one block the sums go to
the epilogue at once, else they wait in scratch. Few rows, where only the call knows how many there
are, are multiplied as f32. Grid: x blocks of rows, y blocks of columns, or the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ingot.compiler.graph.ops import DotGeneral, DotPacked
from ingot.compiler.ir import Function, Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import ceildiv, known_dim, product
from ingot.compiler.kernels.contraction_entry import argument_of, batch_offset, kernel_of, root_of
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.columns import Columns
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.loop_rules import TILE
from ingot.compiler.kernels.product import Product, product_of
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    for_row_tiles,
    multiply,
    panel_tile,
    rows_of_workgroup,
    zero_tile,
)
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, WANTED_WORKGROUPS
from ingot.compiler.kernels.split import (
    CHUNK,
    STEPS,
    halves_of,
    multiply_parts,
    replace_infinite,
    split,
    words_of,
)
from ingot.compiler.kernels.tiles import ROWS, WIDTH, TileProducts, TileSide
from ingot.hal.spec import dtype

__all__ = ["PartsSchedule", "in_parts"]

FEWEST_ROWS, FEWEST_STEPS, FEWEST_COLUMNS = 32, 16, 16
"""From which on splitting what is multiplied pays."""

MOST_ROWS, FEWEST_PANELS = 256, 32
"""Rows of a workgroup, at most, and panels, at least: each splits the rows it meets."""

MOST_SPLIT = 512 << 10
"""Bytes of parts in scratch where K is several blocks: sums have the rest."""

HEIGHTS = (4, 1)
"""Rows that read a panel together where f32 are multiplied: few, or with what is not finite."""

_F32, _I32, _U16, _BF16 = dtype("f32"), dtype("i32"), dtype("u16"), dtype("bf16")


@dataclass(frozen=True)
class PartsSchedule:
    """bf16 of an f32, rows and panels of a workgroup, and steps of a block of K."""

    parts: int
    rows: int
    panels: int
    depth: int


def in_parts(function: Function, target: TargetInfo, by_threads: bool) -> Kernel | None:
    """The kernel of an entry around a product whose factors may be taken as parts; None if it is
    none, or is done faster without."""
    root = root_of(function)
    packed = root.attributes
    if not isinstance(packed, (DotGeneral, DotPacked)) or not packed.bf16_parts or not target.tiles:
        return None
    p = product_of(root)
    if p.dtype is not _F32 or not isinstance(p.depth, int) or p.left.depth_stride != 1:
        return None
    if p.depth < FEWEST_STEPS or (isinstance(p.columns, int) and p.columns < FEWEST_COLUMNS):
        return None
    if isinstance(p.rows, int) and p.rows < FEWEST_ROWS:
        return None
    return _Parts(function, root, p, packed.bf16_parts, int(by_threads and p.is_tall)).lower()


class _Parts:
    """State while one kernel is made."""

    def __init__(self, function: Function, root: Op, p: Product, parts: int, row_axis: int) -> None:
        self.function, self.p, self.row_axis = function, p, row_axis
        self.depth, self.panels = known_dim(p.depth), ceildiv(p.columns, PANEL)
        self.lies_split = len(root.operands) > 2
        self.schedule = schedule = _choose(p, parts, self.lies_split)
        self.is_whole = schedule.depth >= self.depth
        self.b = LoopBuilder()
        self.words = schedule.depth // 2
        self.pitch = self.words + CHUNK  # rows do not meet in L1
        epilogue = Epilogue(self.b, function, root)
        self.products = TileProducts(self.b, epilogue, (_BF16, _BF16), TILE, self.words, CHUNK)
        self.ordinals = [argument_of(function, value) for value in root.operands]
        self.columns = Columns(self.b, p, p, self.ordinals[1])
        self.sums = self.b.scratch(0, _F32)
        self.right_at = _sums_length(schedule, self.is_whole)
        self.right_plane = WIDTH * self.words * PANEL
        split = 0 if self.lies_split else 4 * parts * self.right_plane
        self.left_at = self.right_at + split
        self.left_plane = schedule.rows * self.pitch
        self.length = self.left_at + 4 * parts * self.left_plane

    def lower(self) -> Kernel:
        b, p, schedule = self.b, self.p, self.schedule
        row, rows = rows_of_workgroup(b, self.row_axis, p.rows, schedule.rows)
        first = b.mul(b.workgroup(1 - self.row_axis), schedule.panels)
        last = b.min(b.add(first, schedule.panels), b.dim(self.panels))
        self.products.begin()
        number = b.workgroup(2) if p.batch else 0
        bases = [batch_offset(b, side, p.batch, number) for side in (p.left, p.right)]
        bases[0] = b.add(bases[0], b.mul(row, b.dim(p.left.stride)))
        self.place = b.add(b.mul(number, b.dim(p.rows)), row)
        panels = first, last
        if isinstance(p.rows, int):
            self._many(bases, panels, rows)
            return self._kernel()
        b.if_(
            b.compare("lt", rows, FEWEST_ROWS),
            lambda: self._few(bases, panels, rows),
            lambda: self._many(bases, panels, rows),
        )
        return self._kernel()

    def _few(self, bases: Sequence[Index], panels: tuple[Index, Index], rows: Index) -> None:
        """The products of rows too few to be split."""
        b = self.b

        def column(panel: Index, width: int) -> None:
            def body(height: int, row: Index, _: list[Value]) -> tuple[()]:
                tile = panel_tile(height, width, PANEL)
                sums = self._exact(bases, tile, row, panel)
                self.products.epilogue.store_tile(sums, tile, b.add(self.place, row), panel)
                return ()

            for_row_tiles(b, rows, HEIGHTS, body)

        self.products.for_panels(*panels, self.panels, column)

    def _exact(
        self, bases: Sequence[Index], tile: TileShape, row: Index, panel: Index
    ) -> list[Value]:
        """The sums of a tile of the numbers themselves."""
        b = self.b

        def line(k: Index, vector: int) -> Value:
            return self._line(bases[1], b.add(panel, vector), k)

        factors = partial(self._factor, bases[0], row)
        return multiply(b, tile, zero_tile(b, _F32, tile), self.depth, factors, line)

    def _many(self, bases: Sequence[Index], panels: tuple[Index, Index], rows: Index) -> None:
        b, (first, last) = self.b, panels
        if self.is_whole:
            self._block(bases, panels, rows, (0, self.depth))
            return
        self._clear()
        with b.for_(0, self.depth, self.schedule.depth) as loop:
            count = b.min(b.sub(self.depth, loop.index), self.schedule.depth)
            self._block(bases, panels, rows, (loop.index, count))
        self.products.for_panels(
            first, last, self.panels,
            lambda panel, width: self._for_rows(
                rows, lambda some, at: self._finish(bases, panels, (panel, width), (some, at))
            ),
        )  # fmt: skip

    def _block(
        self,
        bases: Sequence[Index],
        panels: tuple[Index, Index],
        rows: Index,
        steps: tuple[Index, Index],
    ) -> None:
        """The products of a block of K, which begins at a step and has so many."""
        b, words = self.b, self._whole_steps(steps[1])
        self._split_rows(b.add(bases[0], steps[0]), rows, steps[1])
        left = TileSide(b.scratch(self.left_at, _I32), 0, self.pitch, self.left_plane)

        def column(panel: Index, width: int) -> None:
            right = self._right(bases[1], panel, width, steps)

            def block(some: Index, at: Index) -> None:
                whole = b.mul(b.div(b.add(some, TILE - 1), TILE), TILE)
                side = replace(left, at=b.mul(at, self.pitch))
                sums = self.sums, self._sums_at(panels, panel, width, at)
                multiply_parts(
                    b, (side, right), sums, (whole, width), b.div(words, 2),
                    self.schedule.parts, not self.is_whole,
                )  # fmt: skip
                if self.is_whole:
                    self._finish(bases, panels, (panel, width), (some, at))

            self._for_rows(rows, block)

        self.products.for_panels(*panels, self.panels, column)

    def _right(self, base: Index, panel: Index, width: int, steps: tuple[Index, Index]) -> TileSide:
        """Words of panels, in place or split."""
        b, line = self.b, self.words * PANEL
        if not self.lies_split:
            for place in range(width):
                self._split_panel(base, (b.add(panel, place), place), steps)
            return TileSide(b.scratch(self.right_at, _I32), 0, line, self.right_plane)
        pitch = -(-self.depth // STEPS) * CHUNK * PANEL
        at = b.add(b.mul(panel, pitch), b.mul(steps[0], PANEL // 2))
        plane = b.mul(b.dim(self.panels), pitch)
        return TileSide(b.binding(self.ordinals[2], _I32), at, pitch, plane)

    def _for_rows(self, rows: Index, body: Callable[[Index, Index], None]) -> None:
        known = self.p.rows
        are_whole = isinstance(known, int) and known % ROWS == 0
        self.products.for_rows(rows, are_whole, body)

    def _whole_steps(self, count: Index) -> Index:
        """Those of whole tiles, which zeros fill."""
        if self.depth % STEPS == 0:
            return count
        return self.b.mul(self.b.div(self.b.add(count, STEPS - 1), STEPS), STEPS)

    def _split_rows(self, base: Index, rows: Index, count: Index) -> None:
        """Words of steps of the rows, behind which are zeros."""
        b, left, parts = self.b, self.p.left, self.schedule.parts
        memory, to = b.binding(self.ordinals[0], _F32), b.scratch(self.left_at, _U16)
        with b.for_(0, rows) as row, b.for_(0, self._whole_steps(count), PANEL) as step:
            at = b.add(b.add(base, b.mul(row.index, b.dim(left.stride))), step.index)
            live = None
            if self.depth % STEPS:
                live = b.max(b.min(b.sub(count, step.index), PANEL), 0)
            line = b.add(b.mul(row.index, 2 * self.pitch), step.index)
            for plane, part in enumerate(split(b, b.load(memory, at, PANEL, live), parts)):
                b.store(to, b.add(line, 2 * plane * self.left_plane), halves_of(b, part))

    def _split_panel(
        self, base: Index, panel: tuple[Index, int], steps: tuple[Index, Index]
    ) -> None:
        """Words of steps of a panel, behind which are zeros. `panel`: which one, and its place."""
        b, parts, (start, count) = self.b, self.schedule.parts, steps
        memory = b.scratch(self.right_at, _I32)
        zeros = [b.constant(0, _I32, PANEL)] * parts

        def line(k: Index) -> list[Value]:
            return split(b, self._line(base, panel[0], b.add(start, k)), parts)

        def words(first: Index, last: Index, steps: int) -> None:
            with b.for_(first, last) as word:
                low = line(b.mul(word.index, 2)) if steps else zeros
                high = line(b.add(b.mul(word.index, 2), 1)) if steps > 1 else zeros
                at = b.mul(b.add(word.index, panel[1] * self.words), PANEL)
                for plane, pair in enumerate(zip(low, high, strict=True)):
                    word_at = b.add(at, plane * self.right_plane)
                    b.store(memory, word_at, words_of(b, *pair) if steps else zeros[0])

        full = b.div(count, 2)
        words(0, full, 2)
        if self.depth % STEPS:
            begun = b.div(b.add(count, 1), 2)
            if self.depth % 2:
                words(full, begun, 1)
            words(begun, b.div(self._whole_steps(count), 2), 0)

    def _factor(self, base: Index, row: Index, line: Index, k: Index) -> Value:
        """Step k of a row of the left side, behind `row`."""
        b = self.b
        place = b.mul(b.add(row, line), b.dim(self.p.left.stride))
        return b.load(b.binding(self.ordinals[0], _F32), b.add(b.add(base, place), k))

    def _line(self, base: Index, panel: Index, k: Index) -> Value:
        """A step of a panel."""
        b, right = self.b, self.p.right
        if not right.packed:
            return self.columns.step(k, base, b.mul(panel, PANEL), PANEL)
        at = b.add(b.mul(panel, self.depth), k)
        return b.load(b.binding(self.ordinals[1], _F32), b.mul(at, PANEL), PANEL)

    def _sums_at(self, panels: tuple[Index, Index], panel: Index, width: int, row: Index) -> Index:
        """Where sums wait: those of panels that meet the rows together are rows of their own."""
        b = self.b
        if self.is_whole:
            return 0
        begin = b.mul(b.sub(panel, panels[0]), self.schedule.rows * PANEL)
        return b.add(begin, b.mul(row, width * PANEL))

    def _clear(self) -> None:
        """Zeros in all sums."""
        b, memory = self.b, self.sums
        zero = b.constant(0, _F32, PANEL)
        with b.for_(0, self.right_at // _F32.bytes, PANEL) as loop:
            b.store(memory, loop.index, zero)

    def _finish(
        self,
        bases: Sequence[Index],
        panels: tuple[Index, Index],
        columns: tuple[Index, int],
        block: tuple[Index, Index],
    ) -> None:
        """The epilogue of a block's sums."""
        b, (panel, width), (rows, row) = self.b, columns, block
        at = self._sums_at(panels, panel, width, row)

        def exact(height: int, some: Index) -> list[Value]:
            return self._exact(bases, panel_tile(height, width, PANEL), b.add(row, some), panel)

        replace_infinite(b, (self.sums, at), (rows, width), HEIGHTS, exact)
        self.products.finish(self.sums, (rows, width), (b.add(self.place, row), panel), at)

    def _kernel(self) -> Kernel:
        p, schedule = self.p, self.schedule
        blocks = (p.rows, schedule.rows), (self.panels, schedule.panels)
        x, y = blocks[self.row_axis], blocks[1 - self.row_axis]
        flops = 2 * product(p.batch) * p.rows * p.columns * p.depth
        return kernel_of(
            self.function, self.b, self.products.epilogue, set(self.ordinals),
            (x[0], y[0], product(p.batch)), (x[1], y[1], 1), flops, schedule, self.length,
        )  # fmt: skip


def _sums_length(schedule: PartsSchedule, is_whole: bool) -> int:
    """Bytes of the sums."""
    if is_whole:
        return ROWS * WIDTH * PANEL * _F32.bytes
    return schedule.rows * -(-schedule.panels // WIDTH) * WIDTH * PANEL * _F32.bytes


def _choose(p: Product, parts: int, lies_split: bool) -> PartsSchedule:
    """All of K at once if scratch holds it of enough rows, else blocks of it. `lies_split`: panels
    take none."""
    depth = -(-known_dim(p.depth) // STEPS) * STEPS
    wanted = -(-min(p.rows, MOST_ROWS) // ROWS) * ROWS if isinstance(p.rows, int) else MOST_ROWS

    def room(depth: int) -> int:
        """Bytes behind sums and panels."""
        panels = 0 if lies_split else 2 * parts * WIDTH * PANEL * depth
        return MOST_BEFORE_SUMS - ROWS * WIDTH * PANEL * 4 - panels

    def of_row(depth: int) -> int:
        return 2 * parts * (depth + STEPS)

    rows = min(room(depth) // of_row(depth) // ROWS * ROWS, wanted)
    panels = _panels(p, wanted)
    if rows >= min(wanted, MOST_ROWS // 2):
        return PartsSchedule(parts, _even(p, rows), panels, depth)
    rows = _even(p, wanted)
    lines = rows if lies_split else rows + WIDTH * PANEL
    blocks = -(-depth * lines * 2 * parts // MOST_SPLIT)
    depth = -(-depth // (blocks * STEPS)) * STEPS
    left = room(depth) - rows * of_row(depth)
    most = left // (rows * PANEL * _F32.bytes) // WIDTH * WIDTH
    return PartsSchedule(parts, rows, min(panels, most), depth)


def _even(p: Product, rows: int) -> int:
    """As many rows for each workgroup."""
    if not isinstance(p.rows, int):
        return rows
    blocks = -(-p.rows // rows)
    return -(-p.rows // (blocks * ROWS)) * ROWS


def _panels(p: Product, rows: int) -> int:
    """Panels of a workgroup: as many workgroups as are wanted, but enough panels for the rows."""
    panels = ceildiv(p.columns, PANEL)
    blocks = product((*p.batch, ceildiv(p.rows, rows)))
    if not isinstance(panels, int):
        return FEWEST_PANELS
    splits = -(-WANTED_WORKGROUPS // max(blocks, 1)) if isinstance(blocks, int) else 1
    return max(-(-panels // splits), min(FEWEST_PANELS, panels)) + WIDTH - 1 & -WIDTH
