"""Products of a few rows, as in decoding: a work-group makes one panel of columns.

The time is that of reading the right side once, so neighbouring items read neighbouring
memory and each has several loads under way. The items of a group share the depth in
slices; every item sums one column of all rows over its slice, and the slices are added in
local memory at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dim
from ingot.compiler.kernels.epilogue import Position
from ingot.compiler.kernels.items.choose_tile import is_large
from ingot.compiler.kernels.items.group_tile import Source, load_where
from ingot.compiler.kernels.items.product_entry import ProductEntry
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.product import Product
from ingot.compiler.kernels.register_tile import PANEL, multiply_add
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["FewRowsSchedule", "lower", "takes"]

MAXIMUM_ROWS = 8
ITEMS = {True: 256, False: 64}
UNROLLED = 4
"""Loads of the right side that an item has under way."""


@dataclass(frozen=True)
class FewRowsSchedule:
    """Slices of the depth in a group, and loads of an item before it needs the first."""

    slices: int
    unrolled: int


def takes(product: Product) -> bool:
    """Whether the rows are few, and known to be."""
    return isinstance(product.rows, int) and 0 < product.rows <= MAXIMUM_ROWS


def lower(entry: ProductEntry, target: TargetInfo) -> Kernel:
    """The kernel of an entry whose product `takes` accepts."""
    return _FewRows(entry, ITEMS[is_large(target)]).lower()


class _FewRows:
    """State while one kernel is made."""

    def __init__(self, entry: ProductEntry, items: int) -> None:
        self.entry, self.b, self.p = entry, entry.builder, entry.product
        self.group = WorkGroup(self.b, (items, 1, 1))
        self.slices = items // PANEL
        self.rows = known_dim(self.p.rows)

    def lower(self) -> Kernel:
        b, entry = self.b, self.entry
        item, panel = self.group.ordinal(), b.workgroup(1)
        right = entry.right(panel, PANEL)
        if right.order == "depth":
            column, part = b.div(item, self.slices), b.rem(item, self.slices)
        else:
            column, part = b.rem(item, PANEL), b.div(item, PANEL)
        sums = self._sum(right, column, part)
        memory = self.group.allocate(self.rows * self.slices * PANEL, entry.element)
        for row, value in enumerate(sums):
            b.store(memory, b.add(b.add(b.mul(part, PANEL), column), self._plane(row)), value)
        self.group.barrier()
        results = self.rows * PANEL
        for first in range(0, results, self.group.count):
            self._write_live(memory, b.add(item, first), panel)
        schedule = FewRowsSchedule(self.slices, UNROLLED)
        return entry.finish((self.rows, 1, 1), self.group, schedule)

    def _plane(self, row: Index) -> Index:
        """Where the slices of a row begin in local memory."""
        return self.b.mul(row, self.slices * PANEL)

    def _sum(self, right: Source, column: Index, part: Index) -> list[Value]:
        """The sums of one column over the item's slice, per row."""
        b, entry = self.b, self.entry
        shared = right.prepare(column, 0)
        zero = b.constant(0, entry.element)
        stride = self.slices * right.steps
        mine = b.mul(part, right.steps)
        depth = b.dim(self.p.depth)
        block = UNROLLED * stride
        whole = b.mul(b.div(depth, block), block)
        sums = [zero] * self.rows
        if whole != 0:
            with b.for_(0, whole, block, sums) as loop:
                places = [b.add(b.add(loop.index, mine), i * stride) for i in range(UNROLLED)]
                words = [right.fetch(shared, at, 0, None) for at in places]
                totals = list(loop.carried)
                for at, word in zip(places, words, strict=True):
                    totals = self._add(totals, at, right.unpack(word), False)
                loop.yield_(*totals)
            sums = loop.results
        if whole == depth:
            return sums
        with b.for_(b.add(whole, mine), depth, stride, sums) as loop:
            word = right.fetch(shared, loop.index, 0, None)
            loop.yield_(*self._add(loop.carried, loop.index, right.unpack(word), True))
        return loop.results

    def _add(
        self, sums: Sequence[Value], at: Index, elements: Sequence[Value], last: bool
    ) -> list[Value]:
        """The sums after the depths of one word of the right side; `last`: some may be none."""
        b, entry, left = self.b, self.entry, self.p.left
        memory, base = entry.memory(left)
        totals = list(sums)
        for step, element in enumerate(elements):
            depth = b.add(at, step)
            live = b.compare("lt", depth, b.dim(self.p.depth)) if last and step else None
            for row in range(self.rows):
                place = b.add(base, b.mul(row, b.dim(left.stride)))
                place = b.add(place, b.mul(depth, b.dim(left.depth_stride)))
                value = b.convert(load_where(b, live, memory, place, left.dtype), entry.element)
                totals[row] = multiply_add(b, value, element, totals[row])
        return totals

    def _write_live(self, memory: Value, number: Index, panel: Index) -> None:
        """`_write` for numbers of results that there are."""
        live = self.b.compare("lt", number, self.rows * PANEL)
        self.b.if_(live, lambda: self._write(memory, number, panel))

    def _write(self, memory: Value, number: Index, panel: Index) -> None:
        """Add the slices of one result, and run the epilogue on it."""
        b, entry = self.b, self.entry
        row, column = b.div(number, PANEL), b.rem(number, PANEL)
        base = b.add(self._plane(row), column)
        total = b.load(memory, base)
        for part in range(1, self.slices):
            total = b.op("add", total, b.load(memory, b.add(base, part * PANEL)))
        place = b.add(b.mul(panel, PANEL), column)
        position = Position(entry.result_row(row), place, 1)
        b.if_(
            b.compare("lt", place, b.dim(self.p.columns)),
            lambda: entry.epilogue.store(total, position),
        )
