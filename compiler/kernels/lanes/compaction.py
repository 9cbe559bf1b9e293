"""The compaction class: counts the true elements of an i1 tensor, and lists where they are.

Both kernels cut the elements into the same fixed number of runs, one workgroup each. A run
of `locate_true` starts to write behind the counts of the runs before it, so the order is
row-major and never depends on the threads. It writes inside its result whatever the memory
holds.
"""

from __future__ import annotations

from ingot.compiler.graph.ops import LocateTrue
from ingot.compiler.graph.ops.sizing import COUNT_BLOCKS
from ingot.compiler.ir import Function, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, product
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import I64, Index, LoopBuilder
from ingot.hal.spec import dtype

__all__ = ["CompactionLowering", "CompactionSchedule", "lower_compaction"]

_I1 = dtype("i1")
_LOOK = 64  # elements of which some are asked for together


@dataclass(frozen=True)
class CompactionSchedule:
    """The decisions of one compaction kernel, for people to read."""

    count: Dim
    run: Dim  # elements of one workgroup
    lanes: int


def lower_compaction(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry that is one `count_true` or `locate_true`."""
    return CompactionLowering(function, target).lower()


class CompactionLowering:
    """A kernel under construction."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.function = function
        self.op = function.block.ops[0]
        self.shape = tensor_type(self.op.operands[0]).shape
        self.count = product(self.shape)
        self.run = ceildiv(self.count, COUNT_BLOCKS)
        self.lanes = target.lanes(I64)
        self.builder = LoopBuilder()

    def lower(self) -> Kernel:
        """The kernel."""
        b, function = self.builder, self.function
        run = b.dim(self.run)
        first = b.mul(b.workgroup(0), run)
        end = b.min(b.add(first, run), b.dim(self.count))
        mask = b.binding(0, _I1)
        if self.op.name == "count_true":
            self.count_run(mask, first, end)
        else:
            self.locate_run(mask, first, end)
        return finish_kernel(
            function,
            b,
            workload=(COUNT_BLOCKS, 1, 1),
            tile=(1, 1, 1),
            flops=self.count,
            schedule=CompactionSchedule(self.count, self.run, self.lanes),
        )

    def count_run(self, mask: Value, first: Index, end: Index) -> None:
        """Store how many elements of a run are true."""
        b, lanes = self.builder, self.lanes
        length = b.max(b.sub(end, first), 0)
        full = b.add(first, b.mul(b.div(length, lanes), lanes))
        with b.for_(first, full, lanes, [b.constant(0, I64, lanes)]) as vectors:
            bits = b.convert(b.load(mask, vectors.index, lanes), I64)
            vectors.yield_(b.op("add", vectors.carried[0], bits))
        total = b.reduce(vectors.results[0], "add")
        with b.for_(full, end, 1, [total]) as rest:
            bit = b.convert(b.load(mask, rest.index), I64)
            rest.yield_(b.op("add", rest.carried[0], bit))
        b.store(b.binding(1, I64), b.workgroup(0), rest.results[0])

    def locate_run(self, mask: Value, first: Index, end: Index) -> None:
        """List where the true elements of a run are."""
        b = self.builder
        counts = b.binding(1, I64)
        size = b.dim(LocateTrue.of(self.op).size)
        with b.for_(0, b.workgroup(0), 1, [b.constant(0, I64)]) as before:
            before.yield_(b.op("add", before.carried[0], b.load(counts, before.index)))
        start = b.value(b.max(before.results[0], 0))  # counts may be anything

        def walk(first: Index, end: Index, start: Value) -> list[Value]:
            with b.for_(first, end, 1, [start]) as loop:
                (place,) = loop.carried
                found = b.op("and", b.load(mask, loop.index), b.compare("lt", place, size))

                def write() -> list[Value]:
                    self.write(loop.index, place, size)
                    return [b.value(b.add(place, 1))]

                loop.yield_(*b.if_(found, write, lambda: [place]))
            return loop.results

        full = b.sub(end, b.rem(b.max(b.sub(end, first), 0), _LOOK))
        with b.for_(first, full, _LOOK, [start]) as loop:
            at, (place,) = loop.index, loop.carried
            some = b.any(b.load(mask, at, _LOOK))
            loop.yield_(*b.if_(some, lambda: walk(at, b.add(at, _LOOK), place), lambda: [place]))
        walk(full, end, loop.results[0])

    def write(self, element: Index, place: Index, size: Index) -> None:
        """Store the index of an element on each axis in column `place`."""
        b = self.builder
        result = b.binding(2, I64)
        for axis in reversed(range(len(self.shape))):
            dim = b.dim(self.shape[axis])
            index = b.rem(element, dim) if axis > 0 else element
            b.store(result, b.add(b.mul(size, axis), place), b.value(index))
            element = b.div(element, dim)
