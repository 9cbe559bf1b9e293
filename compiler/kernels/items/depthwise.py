"""Depthwise convolution for work-groups: no local memory, no barrier.

An item makes a few neighbouring pixels of a row for one vector of channels; neighbouring
items read neighbouring channels. Inputs that the pixels share load once, those outside the
image are zero. What several items read stays in the caches: there are few steps per value.
The grid is channels, pixels of a row, rows of all images.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ingot.compiler.graph.ops import lanes_of_groups
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, product
from ingot.compiler.kernels.items.choose_tile import is_large
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.depthwise import Channels, Depthwise, DepthwiseSchedule
from ingot.compiler.kernels.loop import Index

__all__ = ["GroupDepthwiseSchedule", "lower_depthwise"]

ITEMS = {True: 256, False: 64}
ACROSS = 16
"""Items along the channels, at most: together they read 256 bytes of f32."""

COLUMNS = 4
MAXIMUM_ROWS = 64
"""Items along the third axis of a group: common devices have no more."""

TYPICAL = 16
"""Items along a dim that only the call knows."""

WHOLE = 1 << 30
"""A tile that takes all there is."""


@dataclass(frozen=True)
class GroupDepthwiseSchedule:
    """Lanes of channels and pixels of an item; items along channels, pixels and rows."""

    lanes: int
    columns: int
    items: tuple[int, int, int]


def lower_depthwise(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one depthwise op."""
    if target.group_size == 1:
        return _Rows(function, target).lower()
    return _Items(function, target, ITEMS[is_large(target)]).lower()


class _Grid(Depthwise):
    """The grid of this target."""

    def workload(self) -> tuple[Dim, Dim, Dim]:
        return (self.channels, self.out_width, self.rows())

    def rows(self) -> Dim:
        """Rows of all images."""
        return self.images * product(self.out_sizes[:-1])


class _Rows(_Grid):
    """Plain loops: a workgroup takes some rows."""

    def lower(self) -> Kernel:
        b, block = self.b, self.schedule.block_rows
        first = b.mul(b.workgroup(2), block)
        end = b.min(b.add(first, block), b.dim(self.rows()))
        with b.for_(first, end) as loop:
            self.row(self.places(loop.index, self.out_sizes[:-1]))
        return self.kernel(self.workload(), (WHOLE, WHOLE, block), self.schedule)


class _Items(_Grid):
    """A few pixels and channels an item."""

    def __init__(self, function: Function, target: TargetInfo, items: int) -> None:
        super().__init__(function, target)
        lanes = lanes_of_groups(min(self.schedule.lanes, COLUMNS), *self.each)
        self.schedule = DepthwiseSchedule(self.schedule.columns, lanes, 1)
        width = self.out_width
        self.columns = min(COLUMNS, width) if isinstance(width, int) and width else COLUMNS
        across = _items(self.channels, lanes, ACROSS)
        along = _items(width, self.columns, items // across)
        self.items = (across, along, min(items // across // along, MAXIMUM_ROWS))

    def lower(self) -> Kernel:
        b, lanes = self.b, self.schedule.lanes
        sizes = (lanes, self.columns, 1)
        tile = tuple(items * size for items, size in zip(self.items, sizes, strict=True))
        channel, column, row = (
            b.add(
                b.mul(b.workgroup(axis), tile[axis]),
                b.mul(b.local_id(axis) if self.items[axis] > 1 else 0, sizes[axis]),
            )
            for axis in range(3)
        )
        live = b.compare("lt", row, b.dim(self.rows()))
        for place, bound in ((channel, self.channels), (column, self.out_width)):
            live = b.op("and", live, b.compare("lt", place, b.dim(bound)))
        b.if_(live, lambda: self._item(channel, column, row))
        schedule = GroupDepthwiseSchedule(lanes, self.columns, self.items)
        return self.kernel(
            self.workload(), (tile[0], tile[1], tile[2]), schedule, local_size=self.items
        )

    def _item(self, channel: Index, column: Index, number: Index) -> None:
        """The item's pixels from `column` on of row `number`."""
        b, window, lanes = self.b, self.window, self.schedule.lanes
        count: Index | None = b.min(b.sub(b.dim(self.channels), channel), lanes)
        if isinstance(self.channels, int) and self.channels % lanes == 0:
            count = None
        lines = self.lines(self.places(number, self.out_sizes[:-1]))
        channels = self.channels_at(channel, count)
        left = b.sub(b.mul(column, window.strides[-1]), b.dim(window.before[-1]))
        zero = b.constant(0, self.element, lanes)

        def add(line: Index, row: Index, sums: list[Value]) -> list[Value]:
            def read(offset: int) -> Sequence[Value]:
                return self._inputs(line, b.add(left, offset), channels)

            return self.add_line(sums, read, self.weights(row, channels))

        sums = self.add_lines(lines, [zero] * self.columns, add)
        first = b.add(b.mul(number, b.dim(self.out_width)), column)
        for pixel, total in enumerate(sums):
            live = b.compare("lt", b.add(column, pixel), b.dim(self.out_width))
            store = partial(self.store, b.add(first, pixel), channels, [total])
            b.if_(live, store)

    def _inputs(self, line: Index, column: Index, channels: Channels) -> Sequence[Value]:
        """Vectors of the channels of an input pixel, zero outside the image."""
        b = self.b
        at = b.add(line, b.mul(column, b.dim(self.inputs)))
        inside = b.op("and", b.compare("ge", column, 0), b.compare("lt", column, b.dim(self.width)))
        zero = b.constant(0, self.element, self.schedule.lanes)
        none = [zero] * self.each[0]
        return b.if_(inside, lambda: self.inputs_at(at, channels), lambda: none)


def _items(extent: Dim, each: int, most: int) -> int:
    """Items along a dim, a power of two: no more than `most`, nor than it needs."""
    if not isinstance(extent, int):
        return min(most, TYPICAL)
    needed = max(-(-extent // each), 1)
    return min(most, 1 << (needed - 1).bit_length())
