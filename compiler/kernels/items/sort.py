"""The sort class for work items: a group sorts a line, or several short ones (`line_sort.py`)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ingot.compiler.ir import Function
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.items.line_sort import LineShape, LineSort
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.sort import SortLowering
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["ItemsSortSchedule", "lower_sort"]


@dataclass(frozen=True)
class ItemsSortSchedule:
    """The decisions of one sort kernel, for people to read."""

    lines: Dim
    length: Dim
    columns: int  # arrays that move together: operands and keys
    shape: LineShape
    merges: bool  # lines may be longer than local memory


def lower_sort(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `sort` and what feeds it. CompileError: the comparator
    has an op that is not element-wise."""
    if target.group_size == 1:
        return SortLowering(function, target).lower()
    return _Lowering(function, target).lower()


class _Lowering(SortLowering):
    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, target)
        self.shape = LineShape.of(
            self.lines, self.sort.columns, target.group_size, function.symbols
        )
        self.group = WorkGroup(self.builder, self.shape.size)

    def lower(self) -> Kernel:
        """The kernel."""
        b, group, lines, sort = self.builder, self.group, self.lines, self.sort
        emitter = Emitter(b, {lines.line: 0})
        emitter.clamps = True
        height = group.size[1]
        number = b.add(b.mul(b.workgroup(0), height), group.item(1))
        count = b.dim(lines.count)
        lines.stand(emitter, b.min(number, b.sub(count, 1)))
        live = b.compare("lt", number, count)
        buffers = sort.buffers if sort.workspaces else []
        sorter = LineSort(
            group, lines, sort.columns, self.read, self.before, self.shape, buffers, sort.half
        )
        sorter.sort_line(emitter, live, lines.length, partial(self.store, emitter))
        return replace(
            self.kernel(),
            tile=(height, 1, 1),
            scratch_length=0,
            local_size=group.size,
            local_length=group.local_length,
            schedule=ItemsSortSchedule(
                lines.count, lines.length, len(sort.columns), self.shape, bool(buffers)
            ),
        )
