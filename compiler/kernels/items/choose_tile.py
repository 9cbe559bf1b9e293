"""Which tile a work-group takes: a cost model over the tiles that there are.

Large tiles do more work per element of local memory, small ones fill the device and waste
less at the edges. The model knows how many items run at once, about, and nothing else of
the device; dims that are known only at the call stand in as typical numbers. Its choice
changes the time of a kernel, never its result's rounding by more than the order of sums.
"""

from __future__ import annotations

from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.items.group_tile import LANES, GroupTile
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.hal.spec import DType

__all__ = ["LARGE_GROUP", "choose_tile", "is_large"]

LARGE_GROUP = 256
"""Work items from which on a target gets the schedules for large devices."""

CONCURRENT = {True: 160 * 256, False: 16 * 64}
"""Items that a large or a small device runs at once, about."""

TYPICAL = 512
"""Stands for a count of rows or columns that only the call knows."""

_LARGE = (
    GroupTile(128, 128, 8, 16, 16),
    GroupTile(128, 64, 8, 16, 16),
    GroupTile(64, 128, 8, 8, 32),
    GroupTile(64, 64, 16, 16, 16),
    GroupTile(32, 128, 16, 8, 32),
    GroupTile(128, 32, 16, 32, 8),
    GroupTile(32, 64, 16, 16, 16),
    GroupTile(32, 32, 16, 32, 8),
    GroupTile(128, 16, 16, 64, 4),
    GroupTile(16, 32, 16, 16, 8),
    GroupTile(16, 16, 16, 16, 4),
)
_SMALL = (
    GroupTile(32, 64, 8, 8, 8),
    GroupTile(32, 32, 8, 8, 8),
    GroupTile(64, 16, 16, 16, 4),
    GroupTile(16, 64, 8, 4, 16),
    GroupTile(16, 32, 16, 8, 8),
    GroupTile(16, 16, 16, 16, 4),
)


def is_large(target: TargetInfo) -> bool:
    """Whether the target gets the schedules for large devices."""
    return target.group_size >= LARGE_GROUP


def typical(dim: Dim, known: Bounds) -> int:
    """A number for a dim: itself, or what its bounds leave of a typical count."""
    if isinstance(dim, int):
        return dim
    low, high = dims.bounds(dim, known)
    return int(min(max(low, TYPICAL), high))


def choose_tile(
    target: TargetInfo,
    element: DType,
    rows: Dim,
    columns: Dim,
    batch: Dim,
    known: Bounds,
    steps: int = 1,
) -> GroupTile:
    """The tile of least estimated time, the smaller of equals: `batch` products of rows x
    columns, whose operands are read `steps` depths at a time."""
    m, n, count = (max(typical(dim, known), 1) for dim in (rows, columns, batch))
    if not isinstance(batch, int):
        count = 1
    large = is_large(target)

    def cost(tile: GroupTile) -> tuple[float, int]:
        items = tile.down * tile.across
        groups = -(-m // tile.rows) * -(-n // tile.columns) * count
        across, down = tile.vectors * LANES, tile.item_rows
        local = 1 / across + 1 / down  # reads per multiplication
        far = 1 / min(tile.rows, m) + 1 / min(tile.columns, n)
        waves = max(groups * items / CONCURRENT[large], 1.0)
        return waves * across * down * (1 + 1.5 * local + 4 * far), tile.rows * tile.columns

    tiles = _LARGE if large else _SMALL
    fitting = [
        tile
        for tile in tiles
        if tile.local_length(element) <= target.local_memory and tile.depth % steps == 0
    ]
    return min(fitting, key=cost)
