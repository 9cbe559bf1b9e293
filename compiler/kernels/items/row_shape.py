"""How the work items of a group share rows: a schedule of the row class, for `items/row.py`.

A group has items along the reduced axes, along the rows, and, where the innermost axis is
kept, along that: the columns. This file decides how many, and whether a row's elements stay
in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Function, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.indexing import Axis, linearize
from ingot.compiler.kernels.items.spread import BUSY, LINE, is_straight
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.row_plan import RowPlan
from ingot.compiler.kernels.schedule import (
    WORKGROUP_BYTES,
    Folded,
    Merged,
    guess,
    merge_axes,
    power_of_two,
)
from ingot.compiler.kernels.trace import Apply, Load, walk_nodes

__all__ = ["RowShape", "shape_rows"]

_HELD = 8  # vectors of a row that an item keeps in registers
_WANTED = 4  # vectors that are in flight together
_CODE = 160  # ops that are printed for the elements of one item


@dataclass(frozen=True)
class RowShape:
    """The decisions of one row kernel, for people to read.

    `along`: vectors run along the reduced axes, else along the columns. The grid is (rows, 1, 1)
    then, else (columns, rows, 1). `held` vectors of a row stay in an item's registers.
    """

    rows: Folded
    columns: Folded
    reduced: Folded
    along: bool
    lanes: int
    size: tuple[int, int, int]  # items: (reduced, rows, 1) or (columns, reduced, rows)
    tile: tuple[int, int, int]
    held: int

    @property
    def workload(self) -> tuple[Dim, Dim, Dim]:
        """Of the dispatch."""
        rows = self.rows.extent
        return (rows, 1, 1) if self.along else (self.columns.extent, rows, 1)

    @property
    def reduced_axis(self) -> int:
        """The axis of the group along which items share a row."""
        return 0 if self.along else 1

    @property
    def row_axis(self) -> int:
        """The axis of the grid along which there are rows; in the group it is the next one."""
        return 0 if self.along else 1

    @property
    def step(self) -> int:
        """Elements of a row that all items take together."""
        return self.size[self.reduced_axis] * (self.lanes if self.along else 1)


def shape_rows(function: Function, plan: RowPlan, target: TargetInfo) -> RowShape:
    """The schedule of a row kernel; its workload is the same for every group size."""
    kept, reduced = _merged(plan)
    all_axes = plan.space.axes
    inside = {axis for each in reduced for axis in each.axes}
    along = not kept or not all_axes or all_axes[-1] in inside
    columns = () if along else (kept[-1],)
    rows = tuple(kept if along else kept[:-1])
    folds = (Folded(rows), Folded(columns), Folded(tuple(reduced)))
    lanes = _lanes(plan, target, reduced[-1] if along else kept[-1])
    shape = RowShape(*folds, along, lanes, (1, 1, 1), (1, 1, 1), 0)
    symbols = function.symbols
    if target.group_size == 1:
        return _plain(shape, plan, symbols)
    return (_along if along else _across)(shape, plan, target.group_size, symbols)


def _merged(plan: RowPlan) -> tuple[list[Merged], list[Merged]]:
    """The kept and the reduced axes, neighbours merged."""
    parts = plan.space.parts
    kept = [axis for place, part in enumerate(parts) if place not in plan.reduced for axis in part]
    reduced = [axis for place in plan.reduced for axis in parts[place]]
    extents = [dims.product(axis.extent for axis in part) for part in parts]
    extra = [*(each.index for each in plan.results), linearize(plan.space.indices(), extents)]
    return (
        merge_axes(kept, plan.roots, extra),
        merge_axes(reduced, plan.roots, extra) or [Merged(Axis(1), 1)],
    )


def _lanes(plan: RowPlan, target: TargetInfo, inner: Merged) -> int:
    """Whole vectors, of memory that lies so; positions are found one element at a time."""
    nodes = list(walk_nodes(plan.roots))
    if any(each.accumulator.index for each in plan.reductions):
        return 1
    if not all(is_straight(node, inner.axis) for node in nodes):
        return 1
    lanes = target.lanes(*{node.dtype for node in nodes if not node.dtype.is_boolean})
    while lanes > 4 and dims.modulo(inner.extent, lanes) != 0:
        lanes //= 2
    return lanes if dims.modulo(inner.extent, lanes) == 0 else 1


def _plain(shape: RowShape, plan: RowPlan, known: Bounds) -> RowShape:
    """Groups of one item."""
    widest = max(each.element.dtype.bytes for each in plan.reductions)
    budget = WORKGROUP_BYTES // widest // max(guess(shape.reduced.extent, known), 1)
    columns = 1
    if not shape.along:
        columns = max(min(guess(shape.columns.extent, known), budget), 1)
        columns = -(-columns // shape.lanes) * shape.lanes
    rows = max(budget // columns, 1)
    return _with(shape, (1, 1, 1), (rows, 1, 1) if shape.along else (columns, rows, 1), 0)


def _along(shape: RowShape, plan: RowPlan, items: int, known: Bounds) -> RowShape:
    """Items that are neighbours along a row; short rows share a group."""
    rows = max(guess(shape.rows.extent, known), 1)
    longest = dims.bounds(shape.reduced.extent, known)[1]
    most = _most_held(plan)
    if longest <= items * most * shape.lanes:
        vectors = -(-int(longest) // shape.lanes)
        width = power_of_two(-(-vectors // min(_WANTED, most)))
        if rows * width < BUSY * items:
            width = power_of_two(vectors)
        width = min(width, items)
        held = -(-vectors // width)
    else:
        width = items if isinstance(shape.reduced.extent, int) else max(items // 2, 1)
        held = 0 if isinstance(shape.reduced.extent, int) else most
    height = min(items // width, power_of_two(rows))
    return _with(shape, (width, height, 1), (height, 1, 1), held)


def _across(shape: RowShape, plan: RowPlan, items: int, known: Bounds) -> RowShape:
    """Items that are neighbours along the columns, and others along the reduced axes."""
    rows = max(guess(shape.rows.extent, known), 1)
    columns = max(guess(shape.columns.extent, known) // shape.lanes, 1)
    reduced = max(guess(shape.reduced.extent, known), 1)
    most = _most_held(plan)
    sharing = min(power_of_two(-(-reduced // most)), max(items // LINE, 1))
    width = min(power_of_two(columns), items // sharing)
    if columns * rows * sharing < BUSY * items:
        sharing = min(power_of_two(reduced), items // min(width, LINE))
        width = min(width, items // sharing)
    depth = min(items // (width * sharing), power_of_two(rows))
    longest = dims.bounds(shape.reduced.extent, known)[1]
    held = most
    if isinstance(shape.reduced.extent, int):
        held = -(-shape.reduced.extent // sharing)
        held = held if held <= most else 0
    elif longest <= most * sharing:
        held = -(-int(longest) // sharing)
    size = (width, sharing, depth)
    return _with(shape, size, (width * shape.lanes, depth, 1), held)


def _with(
    shape: RowShape, size: tuple[int, int, int], tile: tuple[int, int, int], held: int
) -> RowShape:
    return RowShape(
        shape.rows, shape.columns, shape.reduced, shape.along, shape.lanes, size, tile, held
    )


def _most_held(plan: RowPlan) -> int:
    """How many vectors of a row an item may keep: the code is printed once for each."""
    axes = set(_reduced_axes(plan))
    count = sum(
        isinstance(node, (Apply, Load)) and not axes.isdisjoint(node.axes)
        for node in walk_nodes(plan.roots)
    )
    return max(min(_HELD, _CODE // max(count, 1)), 1)


def _reduced_axes(plan: RowPlan) -> Sequence[Axis]:
    return [axis for place in plan.reduced for axis in plan.space.parts[place]]
