"""The cumulative class for work items: a line is scanned by several items, chunk after chunk.

Each item combines a few neighbours, a scan of the group says what stands before them, and
the total of a chunk is carried to the next one. Where there are many lines that are
neighbours in memory, or lines are very short, an item walks a line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.cumulative import CumulativeLowering
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.schedule import guess, power_of_two
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind
from ingot.hal.spec import DType, dtype

__all__ = ["ItemsCumulativeSchedule", "lower_cumulative"]

_STEPS = 4  # elements of one item in a chunk
_SHORT = 8  # elements of a line that one item walks soonest
_MANY = 4096  # lines that keep a device busy with an item each


@dataclass(frozen=True)
class ItemsCumulativeSchedule:
    """The decisions of one cumulative kernel, for people to read."""

    lines: Dim
    length: Dim
    scanned: bool  # by several items; else walked by one
    size: tuple[int, int, int]


def lower_cumulative(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `cumulative` and what feeds it."""
    if target.group_size == 1:
        return CumulativeLowering(function, target).lower()
    return _Lowering(function, target).lower()


class _Lowering(CumulativeLowering):
    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, target)
        self.running = _running(self.kind, self.type.dtype)
        items, symbols = target.group_size, function.symbols
        lines, length = (
            max(guess(dim, symbols), 1) for dim in (self.lines.count, self.lines.length)
        )
        self.scanned = length > _SHORT and (self.lines.is_contiguous or lines < _MANY)
        width = min(power_of_two(-(-length // _STEPS)), items) if self.scanned else items
        height = min(items // width, power_of_two(lines)) if self.scanned else 1
        self.group = WorkGroup(self.builder, (width, height, 1))
        self.tile = height if self.scanned else width

    def lower(self) -> Kernel:
        """The kernel."""
        b, group = self.builder, self.group
        emitter = Emitter(b, {self.lines.line: 0})
        emitter.clamps = self.scanned
        item = group.item(1 if self.scanned else 0)
        number = b.add(b.mul(b.workgroup(0), self.tile), item)
        count = b.dim(self.lines.count)
        live = b.compare("lt", number, count)
        if self.scanned:
            self.lines.stand(emitter, b.min(number, b.sub(count, 1)))
            self._scan(emitter, live)
        else:

            def walk() -> None:
                self.lines.stand(emitter, number)
                self.line(emitter, None)

            b.if_(live, walk)
        lines, length = self.lines.count, self.lines.length
        return replace(
            self.kernel(),
            tile=(self.tile, 1, 1),
            local_size=group.size,
            local_length=group.local_length,
            schedule=ItemsCumulativeSchedule(lines, length, self.scanned, group.size),
        )

    def _scan(self, emitter: Emitter, live: Value) -> None:
        """A line, chunk by chunk."""
        b, group = self.builder, self.group
        combine = combine_kind(b, self.kind)
        start = b.constant(identity(self.kind, self.running), self.running)
        end = b.dim(self.lines.length)
        carried = [start, start] if self._is_sum_of_floats() else [start]
        with b.for_(0, end, group.size[0] * _STEPS, carried) as loop:
            first = b.add(loop.index, b.mul(group.item(0), _STEPS))
            places = [b.add(first, step) for step in range(_STEPS)]
            there = [self._stand(emitter, place) for place in places]
            running = start
            sums = [start]
            for each, place in zip(there, places, strict=True):
                value = b.convert(each.emit(self.node), self.running)
                value = b.op("select", b.compare("lt", place, end), value, start)
                (running,) = combine([running], [value])
                sums.append(running)
            (before,), (total,) = group.scan([running], combine, [start], along_x=True)
            carry, *lost = loop.carried
            (before,) = combine([carry], combine(lost, [before]) if lost else [before])
            wanted = sums[:-1] if self.attributes.exclusive else sums[1:]
            results = [combine([before], [each])[0] for each in wanted]
            self._store(there, places, results, live)
            loop.yield_(*(self._add(carry, lost[0], total) if lost else combine([carry], [total])))

    def _is_sum_of_floats(self) -> bool:
        return self.kind == "add" and self.running.is_float

    def _add(self, carry: Value, lost: Value, total: Value) -> list[Value]:
        """carry + total, and what this and all additions before it have rounded away: a long
        line of equal numbers would drift."""
        b = self.builder
        after = b.op("add", carry, total)
        part = b.op("sub", after, carry)
        error = b.op(
            "add",
            b.op("sub", carry, b.op("sub", after, part)),
            b.op("sub", total, part),
        )
        is_number = b.op("compare", error, error, direction="eq")  # no infinity in it
        error = b.op("select", is_number, error, b.constant(0, self.running))
        return [after, b.op("add", lost, error)]

    def _stand(self, emitter: Emitter, place: LoopIndex) -> Emitter:
        """An emitter at the element which is at `place` in the order of the scan, or the last."""
        b = self.builder
        there = emitter.fork()
        last = b.sub(b.dim(self.lines.length), 1)
        place = b.min(place, last)
        there.places[self.lines.line] = b.sub(last, place) if self.attributes.reverse else place
        return there

    def _store(
        self,
        there: Sequence[Emitter],
        places: Sequence[LoopIndex],
        results: Sequence[Value],
        live: Value,
    ) -> None:
        b = self.builder
        memory = b.binding(len(self.function.arguments), self.type.dtype)
        end = b.dim(self.lines.length)
        for each, place, result in zip(there, places, results, strict=True):

            def store(each: Emitter = each, result: Value = result) -> None:
                value = b.convert(result, self.type.dtype)
                b.store(memory, each.index(self.lines.element), value)

            b.if_(b.op("and", live, b.compare("lt", place, end)), store)


def _running(kind: str, element: DType) -> DType:
    """The dtype in which elements are combined: f32 stays so, for a tree of sums is exact enough
    and a device may have no f64."""
    half = element.is_half and kind in ("add", "mul")
    return dtype("f32") if half else element
