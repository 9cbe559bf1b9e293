"""The suppress class: non-maximum suppression, one workgroup per line of boxes.

The kept boxes of a line stand in a list (a workspace), so that a box is compared with those
only, and the work items of the group share these comparisons. The walk along a line is in
order; lines are independent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Function, TensorType, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import I64, Index, LoopBuilder
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind
from ingot.hal.spec import dtype

__all__ = ["SuppressSchedule", "lower_suppress"]

_F32, _I1 = dtype("f32"), dtype("i1")


@dataclass(frozen=True)
class SuppressSchedule:
    """The decisions of one suppress kernel, for people to read."""

    lines: Dim
    length: Dim


def lower_suppress(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry that is one `suppress`."""
    lowering = _Lowering(function, target)
    lowering.line()
    lines, length = lowering.shape
    b, kept = lowering.builder, TensorType(I64, lowering.shape)
    return finish_kernel(
        function,
        b,
        workspaces=(kept,),
        workload=(lines, 1, 1),
        tile=(1, 1, 1),
        flops=lines * length * 64,
        local_size=lowering.group.size,
        local_length=lowering.group.local_length,
        schedule=SuppressSchedule(lines, length),
    )


class _Lowering:
    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.builder = b = LoopBuilder()
        self.group = WorkGroup(b, (target.group_size, 1, 1))
        op = function.block.ops[0]
        arguments = list(function.arguments)
        places = [arguments.index(operand) for operand in op.operands]
        types = [tensor_type(operand).dtype for operand in op.operands]
        self.boxes, self.candidates, self.limit, self.threshold = (
            b.binding(place, element) for place, element in zip(places, types, strict=True)
        )
        self.result = b.binding(len(arguments), _I1)
        self.kept = b.binding(len(arguments) + 1, I64)
        self.shape = tensor_type(op.result).shape

    def line(self) -> None:
        """The walk along the line of this workgroup; carries how many boxes are kept. All items
        take every step, for they wait for each other."""
        b = self.builder
        length = b.dim(self.shape[1])
        first = b.mul(b.workgroup(0), length)
        limit, threshold = b.load(self.limit, 0), b.load(self.threshold, 0)
        with b.for_(0, length, 1, [b.constant(0, I64)]) as loop:
            place, (count,) = b.add(first, loop.index), loop.carried
            self.group.once(lambda place=place: self._refuse(place))  # type: ignore[misc]
            is_open = b.op("compare", count, limit, direction="lt")

            def consider(place: Index = place, count: Value = count) -> list[Value]:
                return [self._consider(first, place, count, threshold)]

            condition = b.op("and", b.load(self.candidates, place), is_open)
            loop.yield_(*b.if_(condition, consider, lambda count=count: [count]))  # type: ignore[misc]

    def _refuse(self, place: Index) -> None:
        self.builder.store(self.result, place, self.builder.constant(False, _I1))

    def _consider(self, first: Index, place: Index, count: Value, threshold: Value) -> Value:
        """Keep the candidate unless a kept box overlaps it; the new count."""
        b = self.builder
        box = self._box(place)
        with self.group.each(0, count, initial=[b.constant(False, _I1)]) as others:
            other = self._box(b.load(self.kept, b.add(first, others.index)))
            overlaps = self._overlaps(box, other, threshold)
            others.yield_(b.op("or", others.carried[0], overlaps))
        (overlaps,) = self.group.reduce(others.results, combine_kind(b, "or"))
        free = b.op("not", overlaps)

        def keep() -> None:
            b.store(self.result, place, free)
            b.store(self.kept, b.add(first, count), b.value(place))

        self.group.once(keep)
        self.group.barrier()
        return b.op("add", count, b.convert(free, I64))

    def _box(self, place: Index) -> list[Value]:
        b = self.builder
        return [b.load(self.boxes, b.add(b.mul(place, 4), side)) for side in range(4)]

    def _overlaps(self, a: Sequence[Value], other: Sequence[Value], threshold: Value) -> Value:
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
        beyond = b.op("compare", b.op("div", inside, union), threshold, direction="gt")
        return b.op("and", b.op("compare", inside, zero, direction="gt"), beyond)
