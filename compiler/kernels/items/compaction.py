"""The compaction class for work items: the runs of a tensor are counted and listed by groups.

A group adds up its run as a tree. Where places are listed a scan says how many true elements
stand before each item's, so the order is row-major.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.graph.ops import LocateTrue
from ingot.compiler.ir import Function, Value
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.compaction import CompactionLowering
from ingot.compiler.kernels.loop import I64
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind

__all__ = ["lower_compaction"]


def lower_compaction(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry that is one `count_true` or `locate_true`."""
    if target.group_size == 1:
        return CompactionLowering(function, target).lower()
    return _Lowering(function, target).lower()


class _Lowering(CompactionLowering):
    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, target)
        self.group = WorkGroup(self.builder, (target.group_size, 1, 1))
        self.combine = combine_kind(self.builder, "add")

    def lower(self) -> Kernel:
        """The kernel."""
        kernel = super().lower()
        group = self.group
        return replace(kernel, local_size=group.size, local_length=group.local_length)

    def count_run(self, mask: Value, first: LoopIndex, end: LoopIndex) -> None:
        """Store how many elements of a run are true."""
        b, group = self.builder, self.group
        with group.each(first, end, initial=[b.constant(0, I64)]) as loop:
            bit = b.convert(b.load(mask, loop.index), I64)
            loop.yield_(b.op("add", loop.carried[0], bit))
        (total,) = group.reduce(loop.results, self.combine)
        group.once(lambda: b.store(b.binding(1, I64), b.workgroup(0), total))

    def locate_run(self, mask: Value, first: LoopIndex, end: LoopIndex) -> None:
        """List where the true elements of a run are."""
        b, group = self.builder, self.group
        counts, zero = b.binding(1, I64), b.constant(0, I64)
        with group.each(0, b.workgroup(0), initial=[zero]) as loop:
            loop.yield_(b.op("add", loop.carried[0], b.load(counts, loop.index)))
        (before,) = group.reduce(loop.results, self.combine)
        size = b.dim(LocateTrue.of(self.op).size)
        with b.for_(first, end, group.count, [before]) as chunks:
            element = b.add(chunks.index, group.item(0))
            last = b.sub(end, 1)
            found = b.load(mask, b.min(element, last))
            found = b.op("and", found, b.compare("lt", element, end))
            (mine,), (total,) = group.scan([b.convert(found, I64)], self.combine, [zero])
            (place,) = self.combine(chunks.carried, [mine])
            inside = b.op("and", found, b.compare("lt", place, size))
            inside = b.op("and", inside, b.compare("ge", place, 0))
            b.if_(inside, lambda: self.write(element, place, size))
            chunks.yield_(*self.combine(chunks.carried, [total]))
