"""Products of bytes in tiles, of a weight that lies in panels: both sides are read in place.

Grid: x blocks of rows, y blocks of columns, or the other way round.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.ir import Function, Op
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import ceildiv, known_dim, product
from ingot.compiler.kernels.coding import coding_of
from ingot.compiler.kernels.contraction_entry import argument_of, kernel_of, root_of
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.product import Product, product_of
from ingot.compiler.kernels.register_tile import PANEL
from ingot.compiler.kernels.schedule import WANTED_WORKGROUPS
from ingot.compiler.kernels.tiles import (
    ROWS,
    SCRATCH,
    WIDTH,
    TileProducts,
    TileSide,
    words_at_once,
)
from ingot.compiler.kernels.words import BYTES_OF_WORD, Parts, product_in_words

__all__ = ["TiledSchedule", "in_tiles"]

MOST_ROWS, MOST_PANELS = 256, 32
"""Rows and panels of a workgroup, at most: its rows stay in L2 while it goes through the panels."""


SHORT_WEIGHT = 128 << 10
"""Bytes of a weight all of which 32 rows meet, so that whole lines of the result are written, and
of what is added to it read, one after another: 3136 x 64 x 256 takes 316 us so, else 368."""


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
    found = product_in_words(whole, target)
    if found is None or not whole.right.packed or coding_of(function, root) is not None:
        return None
    p, parts = found
    words = words_at_once(target, parts, p.rows, p.depth)
    row_axis = int(by_threads and whole.is_tall)
    return _Tiled(function, root, p, parts, words, row_axis).lower() if words else None


class _Tiled:
    """State while one kernel is made."""

    def __init__(
        self, function: Function, root: Op, p: Product, parts: Parts, words: int, row_axis: int
    ) -> None:
        self.function, self.p, self.row_axis = function, p, row_axis
        self.b = LoopBuilder()
        self.panels = ceildiv(p.columns, PANEL)
        self.depth = known_dim(p.depth)
        self.schedule = self._choose(words)
        epilogue = Epilogue(self.b, function, root)
        self.products = TileProducts(self.b, epilogue, parts, p.rows, self.depth, words)
        self.ordinals = [argument_of(function, side.value) for side in (p.left, p.right)]

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
        b, p, schedule = self.b, self.p, self.schedule
        self.products.begin()
        row = b.mul(b.workgroup(self.row_axis), schedule.rows)
        rows = b.min(b.sub(b.dim(p.rows), row), schedule.rows)
        if isinstance(p.rows, int) and p.rows <= schedule.rows:
            row, rows = 0, p.rows
        first = b.mul(b.workgroup(1 - self.row_axis), schedule.panels)
        last = b.min(b.add(first, schedule.panels), b.dim(self.panels))
        tails = (p.rows % ROWS,) if isinstance(p.rows, int) and p.rows % ROWS else ()

        def for_rows(body: Callable[[Index, Index], None]) -> None:
            self.products.for_rows(rows, tails if isinstance(p.rows, int) else None, body)

        def for_panels(body: Callable[[Index, int], None]) -> None:
            self.products.for_panels(first, last, self.panels, body)

        def block(count: Index, offset: Index, panel: Index, panels: int) -> None:
            self._block(b.add(row, offset), count, panel, panels)

        if schedule.rows_first:
            for_rows(lambda *block_rows: for_panels(lambda *column: block(*block_rows, *column)))
        else:
            for_panels(lambda *column: for_rows(lambda *block_rows: block(*block_rows, *column)))
        blocks = (p.rows, schedule.rows), (self.panels, schedule.panels)
        x, y = blocks[self.row_axis], blocks[1 - self.row_axis]
        flops = 2 * p.rows * p.columns * p.depth * 4
        return kernel_of(
            self.function, b, self.products.epilogue, set(self.ordinals),
            (x[0], y[0], 1), (x[1], y[1], 1), flops, schedule, SCRATCH,
        )  # fmt: skip

    def _block(self, row: Index, rows: Index, panel: Index, panels: int) -> None:
        b, depth = self.b, self.depth
        x, w = (b.binding(each, self.p.left.dtype) for each in self.ordinals)
        left = TileSide(x, b.mul(row, depth), depth)
        right = TileSide(w, b.mul(panel, depth * PANEL), depth * PANEL)
        self.products.store(left, right, (row, panel), (rows, panels))
