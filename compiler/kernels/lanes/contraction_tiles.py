"""Products of bytes in tiles, of a weight in panels, or of two sides that the call brings.

Grid: x blocks of rows, y blocks of columns, or the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ingot.compiler.ir import Function, Op
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import ceildiv, known_dim, product
from ingot.compiler.kernels.coding import coding_of
from ingot.compiler.kernels.contraction_entry import argument_of, batch_offset, kernel_of, root_of
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.columns import Columns
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.loop_rules import TILE
from ingot.compiler.kernels.product import Product, product_of
from ingot.compiler.kernels.register_tile import PANEL, pitch_of, rows_of_workgroup
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, WANTED_WORKGROUPS
from ingot.compiler.kernels.tiles import (
    ROWS,
    SCRATCH,
    WIDTH,
    TileProducts,
    TileSide,
    tiles_pay,
    with_words,
    words_at_once,
)
from ingot.compiler.kernels.words import BYTES_OF_WORD, Parts, copy_words, product_in_words, unit_of
from ingot.hal.spec import dtype

__all__ = ["TiledSchedule", "in_tiles"]

MOST_ROWS, MOST_PANELS = 256, 32
"""Rows and panels of a workgroup, at most: its rows stay in L2 while it goes through the panels."""

SHORT_WEIGHT = 128 << 10
"""Bytes of a weight all of which 32 rows meet, so that whole lines of the result are written, and
of what is added to it read, one after another: 3136 x 64 x 256 takes 316 us so, else 368."""

MOST_PACKED_ROWS = 1024
"""Rows of a workgroup that makes panels of its right side."""

WORD = dtype("i32")


@dataclass(frozen=True)
class TiledSchedule:
    """Words at once, and rows and panels of a workgroup, which goes through all panels for 32 rows,
    or the other way round."""

    words: int
    rows: int
    panels: int
    rows_first: bool


def in_tiles(function: Function, target: TargetInfo, by_threads: bool) -> Kernel | None:
    """The kernel of an entry around a product, as of `lower_contraction`; None if tiles do not suit
    it."""
    root = root_of(function)
    whole = product_of(root)
    found = product_in_words(whole, with_words(target))
    if found is None or coding_of(function, root) is not None:
        return None
    p, parts = found
    words = words_at_once(target, parts, p.rows, p.depth)
    row_axis = int(by_threads and whole.is_tall)
    if not words:
        return None
    if whole.right.packed:
        weight = _Weight(function, root, p, parts, words, row_axis)
        return weight.lower() if tiles_pay(weight.products.epilogue, parts, p.depth) else None
    activations = _Activations(function, root, p, whole, parts, words, row_axis)
    return activations.lower() if activations.schedule.panels else None


class _Tiled:
    """State while one kernel is made."""

    schedule: TiledSchedule

    def __init__(
        self, function: Function, root: Op, p: Product, parts: Parts, words: int, row_axis: int
    ) -> None:
        self.function, self.p, self.words, self.row_axis = function, p, words, row_axis
        self.b = LoopBuilder()
        self.panels = ceildiv(p.columns, PANEL)
        self.depth = known_dim(p.depth)
        epilogue = Epilogue(self.b, function, root)
        self.products = TileProducts(self.b, epilogue, parts, p.rows, self.depth, words)
        self.ordinals = [argument_of(function, side.value) for side in (p.left, p.right)]

    def _bounds(self) -> tuple[tuple[Index, Index], tuple[Index, Index]]:
        """The first row of a workgroup and how many it has, its first panel and the one behind its
        last."""
        b, p, schedule = self.b, self.p, self.schedule
        row, rows = rows_of_workgroup(b, self.row_axis, p.rows, schedule.rows)
        first = b.mul(b.workgroup(1 - self.row_axis), schedule.panels)
        return (row, rows), (first, b.min(b.add(first, schedule.panels), b.dim(self.panels)))

    def _for_rows(self, rows: Index, body: Callable[[Index, Index], None]) -> None:
        known = self.p.rows
        are_whole = isinstance(known, int) and known % ROWS == 0
        self.products.for_rows(rows, are_whole, body)

    def _finish(self, scratch_length: int) -> Kernel:
        p, schedule = self.p, self.schedule
        blocks = (p.rows, schedule.rows), (self.panels, schedule.panels)
        x, y = blocks[self.row_axis], blocks[1 - self.row_axis]
        flops = 2 * product(p.batch) * p.rows * p.columns * p.depth * BYTES_OF_WORD
        return kernel_of(
            self.function, self.b, self.products.epilogue, set(self.ordinals),
            (x[0], y[0], product(p.batch)), (x[1], y[1], 1), flops, schedule, scratch_length,
        )  # fmt: skip


class _Weight(_Tiled):
    """Of a weight in panels. Both sides are read in place."""

    def __init__(
        self, function: Function, root: Op, p: Product, parts: Parts, words: int, row_axis: int
    ) -> None:
        super().__init__(function, root, p, parts, words, row_axis)
        self.schedule = self._choose(words)

    def _choose(self, words: int) -> TiledSchedule:
        """As many workgroups as are wanted, of no more rows and panels than that: of other rows
        first where the weight is short."""
        rows, panels, blocks = MOST_ROWS, MOST_PANELS, 1
        length = product((self.panels, PANEL, self.depth, BYTES_OF_WORD))
        is_short = isinstance(length, int) and length <= SHORT_WEIGHT
        if isinstance(self.p.rows, int):
            blocks = -(-self.p.rows // MOST_ROWS)
            if is_short:
                blocks = max(blocks, min(WANTED_WORKGROUPS, -(-self.p.rows // ROWS)))
            rows = -(-self.p.rows // (blocks * ROWS)) * ROWS
        if isinstance(self.panels, int):
            pairs = -(-self.panels // WIDTH)
            most = -(-self.panels // MOST_PANELS)
            splits = min(pairs, max(most, -(-WANTED_WORKGROUPS // blocks)))
            panels = -(-pairs // splits) * WIDTH
        return TiledSchedule(words, rows, panels, is_short)

    def lower(self) -> Kernel:
        self.products.begin()
        (row, rows), (first, last) = self._bounds()

        def for_panels(body: Callable[[Index, int], None]) -> None:
            self.products.for_panels(first, last, self.panels, body)

        def block(count: Index, offset: Index, panel: Index, panels: int) -> None:
            self._block(self.b.add(row, offset), count, panel, panels)

        if self.schedule.rows_first:
            self._for_rows(rows, lambda *some: for_panels(lambda *column: block(*some, *column)))
        else:
            for_panels(lambda *column: self._for_rows(rows, lambda *some: block(*some, *column)))
        return self._finish(SCRATCH)

    def _block(self, row: Index, rows: Index, panel: Index, panels: int) -> None:
        b, depth = self.b, self.depth
        x, w = (b.binding(each, self.p.left.dtype) for each in self.ordinals)
        left = TileSide(x, b.mul(row, depth), depth)
        right = TileSide(w, b.mul(panel, depth * PANEL), depth * PANEL)
        self.products.store(left, right, (row, panel), (rows, panels))


class _Activations(_Tiled):
    """Of two sides that the call brings. Panels of the right one are made in scratch, and words of
    rows of the left one where it has none."""

    def __init__(
        self,
        function: Function,
        root: Op,
        p: Product,
        whole: Product,
        parts: Parts,
        words: int,
        row_axis: int,
    ) -> None:
        super().__init__(function, root, p, parts, words, row_axis)
        self.whole = whole
        self.in_place = p.left.dtype.bytes == BYTES_OF_WORD and p.left.depth_stride == 1
        self.pitch = pitch_of(self.depth, p.left.dtype)
        self.schedule = self._share(words)
        # behind room for rows of a tile in front of the first
        self.rows_at = self.schedule.panels * self.depth * PANEL * BYTES_OF_WORD
        self.rows_at += TILE * self.pitch * BYTES_OF_WORD * (not self.in_place)
        room = self.rows_at + ROWS * self.pitch * BYTES_OF_WORD * (not self.in_place)
        self.products = replace(self.products, room=room)

    def _share(self, words: int) -> TiledSchedule:
        """No panels: not even a block's fit scratch."""
        left = max(0, MOST_BEFORE_SUMS - SCRATCH - (ROWS + TILE) * self.pitch * BYTES_OF_WORD)
        most = min(left // (self.depth * PANEL * BYTES_OF_WORD), MOST_PANELS) // WIDTH * WIDTH
        batches = product(self.p.batch)
        wanted = -(-WANTED_WORKGROUPS // max(batches, 1)) if isinstance(batches, int) else 1
        panels, splits = most, 1
        if isinstance(self.panels, int) and most:
            blocks = -(-self.panels // WIDTH)
            splits = min(blocks, max(-(-self.panels // most), wanted))
            panels = min(-(-blocks // splits) * WIDTH, self.panels)
        rows = MOST_PACKED_ROWS
        if isinstance(self.p.rows, int):
            blocks = max(-(-self.p.rows // rows), min(-(-wanted // splits), self.p.rows // ROWS), 1)
            rows = -(-self.p.rows // (blocks * ROWS)) * ROWS
        return TiledSchedule(words, rows, panels, rows_first=True)

    def lower(self) -> Kernel:
        b, p = self.b, self.p
        self.products.begin()
        (row, rows), (first, last) = self._bounds()
        number = b.workgroup(2) if p.batch else 0
        bases = [batch_offset(b, side, p.batch, number) for side in (p.left, p.right)]
        self._make_panels(bases[1], first, last)
        result = b.mul(number, b.dim(p.rows))

        def block(count: Index, offset: Index) -> None:
            left = self._rows(bases[0], b.add(row, offset), count)

            def column(panel: Index, panels: int) -> None:
                at = b.mul(b.sub(panel, first), self.depth * PANEL)
                right = TileSide(b.scratch(0, WORD), at, self.depth * PANEL)
                place = (b.add(result, b.add(row, offset)), panel)
                self.products.store(left, right, place, (count, panels))

            self.products.for_panels(first, last, self.panels, column)

        self._for_rows(rows, block)
        return self._finish(self.products.room + SCRATCH)

    def _make_panels(self, base: Index, first: Index, last: Index) -> None:
        """The panels [first, last) of the right side in scratch, one after another."""
        b, memory = self.b, self.b.scratch(0, WORD)
        columns = Columns(b, self.p, self.whole, self.ordinals[1])
        with b.for_(0, b.sub(last, first)) as panel, b.for_(0, self.depth) as word:
            column = b.mul(b.add(first, panel.index), PANEL)
            value = columns.step(word.index, base, column, PANEL)
            at = b.add(b.mul(panel.index, self.depth), word.index)
            b.store(memory, b.mul(at, PANEL), value)

    def _rows(self, base: Index, row: Index, count: Index) -> TileSide:
        """A block of rows of the left side as words."""
        b, left = self.b, self.p.left
        if self.in_place:
            at = b.add(base, b.mul(row, b.dim(left.stride)))
            return TileSide(b.binding(self.ordinals[0], WORD), at, b.dim(left.stride))
        source = b.binding(self.ordinals[0], unit_of(self.whole.left.dtype))
        with b.for_(0, count) as loop:
            at = b.add(base, b.mul(b.add(row, loop.index), b.dim(self.whole.left.stride)))
            to = b.mul(loop.index, self.pitch)
            words = (0, self.depth)
            copy_words(b, self.whole, (source, [at]), words, self.rows_at, self.pitch, to)
        return TileSide(b.scratch(self.rows_at, WORD), 0, self.pitch)
