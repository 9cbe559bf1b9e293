"""The suppress class: non-maximum suppression, one workgroup per line of boxes.

A box is read where it stands, when its turn comes. The sides of a line's kept boxes stand in four
lists (a workspace), so that a box is compared with those only, with a vector of them at once, and
the work items of the group share these comparisons. The walk along a line is in order, and looks at
no more boxes once the limit is met; lines are independent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Function, TensorType, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, product
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import I64, Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind
from ingot.hal.spec import dtype

__all__ = ["SuppressSchedule", "lower_suppress"]

_F32, _I1 = dtype("f32"), dtype("i1")
_STRETCH = 32  # boxes between two looks at whether the limit is met


@dataclass(frozen=True)
class SuppressSchedule:
    """The decisions of one suppress kernel, for people to read."""

    lines: Dim
    length: Dim
    lanes: int


def lower_suppress(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry that is one `suppress`."""
    lowering = _Lowering(function, target)
    lowering.line()
    lines, length = product(lowering.shape[:2]), lowering.shape[2]
    b, kept = lowering.builder, TensorType(_F32, (lines, 4, length))
    return finish_kernel(
        function,
        b,
        workspaces=(kept,),
        workload=(lines, 1, 1),
        tile=(1, 1, 1),
        flops=lines * length * 64,
        local_size=lowering.group.size,
        local_length=lowering.group.local_length,
        schedule=SuppressSchedule(lines, length, lowering.lanes),
    )


class _Lowering:
    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.builder = b = LoopBuilder()
        self.group = WorkGroup(b, (target.group_size, 1, 1))
        self.lanes = 1 if target.has_items else target.lanes(_F32)
        op = function.block.ops[0]
        arguments = list(function.arguments)
        places = [arguments.index(operand) for operand in op.operands]
        types = [tensor_type(operand).dtype for operand in op.operands]
        self.boxes, self.order, self.candidates, self.limit, self.overlap = (
            b.binding(place, element) for place, element in zip(places, types, strict=True)
        )
        self.result = b.binding(len(arguments), _I1)
        self.kept = b.binding(len(arguments) + 1, _F32)
        self.shape = tensor_type(op.result).shape

    def line(self) -> None:
        """The walk along the line of this workgroup; carries how many boxes are kept. All items
        take every step, for they wait for each other."""
        b = self.builder
        self.length, line = b.dim(self.shape[2]), b.workgroup(0)
        self.first = first = b.mul(line, self.length)
        self.group_start = b.mul(b.mul(b.div(line, b.dim(self.shape[1])), 4), self.length)
        limit = b.load(self.limit, 0)
        self.threshold = b.load(self.overlap, 0)
        with self.group.each(0, self.length) as loop:
            b.store(self.result, b.add(first, loop.index), b.constant(False, _I1))
        self.group.barrier()
        with b.for_(0, self.length, _STRETCH, [b.constant(0, I64)]) as stretch:
            (kept,) = stretch.carried

            def walk() -> list[Value]:
                end = b.min(b.add(stretch.index, _STRETCH), self.length)
                with b.for_(stretch.index, end, 1, [kept]) as loop:
                    place, (count,) = b.add(first, loop.index), loop.carried
                    is_open = b.op("compare", count, limit, direction="lt")
                    condition = b.op("and", b.load(self.candidates, place), is_open)
                    loop.yield_(
                        *b.if_(condition, lambda: [self._consider(place, count)], lambda: [count])
                    )
                return loop.results

            is_open = b.op("compare", kept, limit, direction="lt")
            stretch.yield_(*b.if_(is_open, walk, lambda: [kept]))

    def _consider(self, place: Index, count: Value) -> Value:
        """Keep the candidate unless a kept box overlaps it; the new count."""
        b = self.builder
        at = b.op("max", b.load(self.order, place), b.constant(0, I64))
        at = b.op("min", at, b.data(b.sub(self.length, 1)))
        box = [
            b.load(self.boxes, b.add(b.add(self.group_start, b.mul(side, self.length)), at))
            for side in range(4)
        ]
        full = b.mul(b.div(count, self.lanes), self.lanes)
        overlaps = self._among(box, 0, full, b.constant(False, _I1))
        if self.lanes > 1:
            overlaps = self._among(box, full, count, overlaps)
        (overlaps,) = self.group.reduce([overlaps], combine_kind(b, "or"))
        free = b.op("not", overlaps)

        def keep() -> None:
            b.store(self.result, place, free)
            for side in range(4):
                b.store(self.kept, self._kept(side, count), box[side])

        self.group.once(keep)
        self.group.barrier()
        return b.op("add", count, b.convert(free, I64))

    def _among(self, box: Sequence[Value], first: Index, end: Index, found: Value) -> Value:
        """`found`, or whether one of the kept boxes from `first` on overlaps the box; the last
        vector has fewer live lanes where `first` is no 0."""
        b = self.builder
        with self.group.each(first, end, self.lanes, initial=[found]) as others:
            count = None if first == 0 else b.sub(end, others.index)
            other = [
                b.load(self.kept, self._kept(side, others.index), self.lanes, count)
                for side in range(4)
            ]
            overlaps = self._overlaps(box, other)
            overlaps = b.any(overlaps) if lanes_of(overlaps) > 1 else overlaps
            others.yield_(b.op("or", others.carried[0], overlaps))
        return others.results[0]

    def _kept(self, side: int, number: Index) -> Index:
        """Where a side of a kept box stands."""
        b = self.builder
        return b.add(b.add(b.mul(self.first, 4), b.mul(side, self.length)), number)

    def _overlaps(self, a: Sequence[Value], other: Sequence[Value]) -> Value:
        """Whether they overlap by more than the threshold; the part of dead lanes is 0."""
        b = self.builder
        zero = b.constant(0, _F32)
        sides = [
            b.op(
                "max",
                b.op(
                    "sub",
                    b.op("min", a[axis + 2], other[axis + 2]),
                    b.op("max", a[axis], other[axis]),
                ),
                zero,
            )
            for axis in range(2)
        ]
        inside = b.op("mul", *sides)
        areas = [
            b.op("mul", b.op("sub", box[2], box[0]), b.op("sub", box[3], box[1]))
            for box in (a, other)
        ]
        union = b.op("sub", b.op("add", *areas), inside)
        beyond = b.op("compare", b.op("div", inside, union), self.threshold, direction="gt")
        return b.op("and", b.op("compare", inside, zero, direction="gt"), beyond)
