"""Products of bytes in tiles, of a weight that lies in panels: both sides are read in place.

Grid: x blocks of rows, y blocks of columns, or the other way round.
"""

from __future__ import annotations

from ingot.compiler.ir import Function, Op
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import ceildiv, known_dim
from ingot.compiler.kernels.coding import coding_of
from ingot.compiler.kernels.contraction_entry import argument_of, kernel_of, root_of
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.product import Product, product_of
from ingot.compiler.kernels.register_tile import PANEL
from ingot.compiler.kernels.schedule import WANTED_WORKGROUPS
from ingot.compiler.kernels.tiles import (
    PANELS,
    ROWS,
    SCRATCH,
    TileProducts,
    TileSide,
    words_at_once,
)
from ingot.compiler.kernels.words import Parts, product_in_words

__all__ = ["TiledSchedule", "in_tiles"]

MOST_ROWS, MOST_PANELS = 256, 32
"""Rows and panels of a workgroup, at most: its rows stay in L2 while it goes through the panels."""


@dataclass(frozen=True)
class TiledSchedule:
    """Words at once, and rows and panels of a workgroup."""

    words: int
    rows: int
    panels: int


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
        """As many workgroups as are wanted, of no more rows and panels than that."""
        rows, panels, blocks = MOST_ROWS, MOST_PANELS, 1
        if isinstance(self.p.rows, int):
            blocks = -(-self.p.rows // MOST_ROWS)
            rows = -(-self.p.rows // (blocks * ROWS)) * ROWS
        if isinstance(self.panels, int):
            pairs = -(-self.panels // PANELS)
            splits = min(
                pairs, max(-(-self.panels // MOST_PANELS), -(-WANTED_WORKGROUPS // blocks))
            )
            panels = -(-pairs // splits) * PANELS
        return TiledSchedule(words, rows, panels)

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

        def columns(panel: Index, panels: int) -> None:
            def block(count: Index, offset: Index) -> None:
                self._block(b.add(row, offset), count, panel, panels)

            self.products.for_rows(rows, tails if isinstance(p.rows, int) else None, block)

        self.products.for_panels(first, last, self.panels, columns)
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
