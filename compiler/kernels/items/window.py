"""The window class for work items: each walks the window of its own vector of the result.

Neighbouring items have neighbouring results, so what their windows share comes from a cache.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.ir import Function, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.items.spread import Spread, fold
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.window_entry import WindowLowering
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["ItemsWindowSchedule", "lower_window"]


@dataclass(frozen=True)
class ItemsWindowSchedule:
    """The decisions of one window kernel, for people to read."""

    extents: tuple[Dim, ...]
    lanes: int
    size: tuple[int, int, int]  # items of a group
    tile: tuple[int, int, int]  # steps of a group


def lower_window(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one reduce_window. CompileError: it has a base dilation."""
    return _Lowering(function, target).lower()


class _Lowering(WindowLowering):
    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, target)
        if dims.modulo(self.axes[-1].extent, self.lanes) != 0:
            self.lanes = 1
        self.spread = Spread.of(
            fold(self.axes), self.lanes, target.group_size, function.symbols, self.bytes, 1
        )
        self.group = WorkGroup(self.builder, self.spread.size)

    def lower(self) -> Kernel:
        """The kernel."""
        b, spread = self.builder, self.spread
        places = {axis: at for each in self.axes for axis, at in each.place(0).items()}
        steps = [spread.size[0] * self.lanes, *spread.size[1:]]
        scale = (self.lanes, 1, 1)

        def walk(grid_axis: int) -> None:
            first, end = spread.bounds(b, grid_axis)
            start = b.add(first, b.mul(self.group.item(grid_axis), scale[grid_axis]))
            with b.for_(start, end, steps[grid_axis]) as loop:
                if grid_axis == 0:
                    self.position(places, [loop.index], None)
                    return
                places.update(spread.axes[grid_axis].places(b, loop.index))
                walk(grid_axis - 1)

        walk(2)
        extents = tuple(each.extent for each in self.axes)
        return replace(
            self.kernel(),
            workload=spread.workload,
            tile=spread.tile,
            local_size=spread.size,
            schedule=ItemsWindowSchedule(extents, self.lanes, spread.size, spread.tile),
        )
