"""Matrix products for work-groups: dot_packed, dot_general and pointwise convolutions.

A work-group makes a tile of the result (`group_tile.py`), or, where rows are few, some
columns of all rows (`few_rows.py`). The left side is read where it lies, the right side
from panels or where it lies; the grid is that of the CPU: rows, panels, batch.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, product
from ingot.compiler.kernels.epilogue import Epilogue, Position
from ingot.compiler.kernels.items import few_rows
from ingot.compiler.kernels.items.choose_tile import choose_tile
from ingot.compiler.kernels.items.group_tile import LANES, GroupTile, TileProduct
from ingot.compiler.kernels.items.product_entry import ProductEntry
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes import contraction
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.register_tile import PANEL
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["GroupContractionSchedule", "lower_contraction", "store_tile"]


@dataclass(frozen=True)
class GroupContractionSchedule:
    """The tile of a work-group."""

    tile: GroupTile


def lower_contraction(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one dot_packed, dot_general or pointwise conv_packed."""
    if target.group_size == 1:
        return contraction.lower_contraction(function, target, by_threads=False)
    entry = ProductEntry(function)
    if few_rows.takes(entry.product):
        return few_rows.lower(entry, target)
    return _Tiled(ProductEntry(function, words_for=target), target).lower()


class _Tiled:
    """A tile of the result per work-group."""

    def __init__(self, entry: ProductEntry, target: TargetInfo) -> None:
        self.entry, self.b, self.p = entry, entry.builder, entry.product
        p = self.p
        self.tile = choose_tile(
            target, entry.element, p.rows, p.columns, product(p.batch), entry.function.symbols,
            entry.coding.steps if entry.coding else 1,
        )  # fmt: skip
        self.group = WorkGroup(self.b, (self.tile.across, self.tile.down, 1))

    def lower(self) -> Kernel:
        b, tile, entry = self.b, self.tile, self.entry
        row = b.mul(b.workgroup(0), tile.rows)
        panel = b.mul(b.workgroup(1), tile.columns // PANEL)
        multiplier = TileProduct(self.group, tile, entry.element, parts=entry.parts)
        left = entry.strided(self.p.left, row, self.p.rows, tile.rows)
        right = entry.right(panel, tile.columns)
        sums = multiplier.run(multiplier.zeros(), self.p.depth, left, right)
        store_tile(
            multiplier, entry.epilogue, sums, (row, b.mul(panel, PANEL)),
            (self.p.rows, self.p.columns), entry.result_row,
        )  # fmt: skip
        size = (tile.rows, tile.columns // PANEL, 1)
        return entry.finish(size, self.group, GroupContractionSchedule(tile))


def store_tile(
    multiplier: TileProduct,
    epilogue: Epilogue,
    sums: list[Value],
    first: tuple[Index, Index],
    bounds: tuple[Dim, Dim],
    result_row: Callable[[Index], Index],
) -> None:
    """Epilogue and stores of an item's part of the tile at `first` (row, column); what lies
    beyond the `bounds` is left out. `result_row` numbers rows of the whole result."""
    b, tile = multiplier.b, multiplier.tile
    rows, columns = bounds
    exact_rows = isinstance(rows, int) and rows % tile.rows == 0
    exact_columns = isinstance(columns, int) and columns % tile.columns == 0
    whole_vectors = isinstance(columns, int) and columns % LANES == 0
    places = [b.add(first[1], multiplier.column(v)) for v in range(tile.vectors)]
    for i in range(tile.item_rows):
        row = b.add(first[0], multiplier.row(i))

        def store_row(row: Index = row, i: int = i) -> None:
            at = result_row(row)
            for v, column in enumerate(places):
                value = sums[i * tile.vectors + v]
                left = b.sub(b.dim(columns), column)
                count = None if whole_vectors or exact_columns else b.min(left, LANES)

                def store(
                    value: Value = value, column: Index = column, count: Index | None = count
                ) -> None:
                    epilogue.store(value, Position(at, column, LANES, count))

                if exact_columns:
                    store()
                else:
                    b.if_(b.compare("gt", left, 0), store)

        if exact_rows:
            store_row()
        else:
            b.if_(b.compare("lt", row, b.dim(rows)), store_row)
