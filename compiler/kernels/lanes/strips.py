"""Long columns in strips: some rows at a time, what they sum up to in scratch memory.

Columns in registers are few, so each of them walks through all of the memory in steps as long as a
row, which no processor foresees. A strip is wide enough that its rows are read as runs: sums over
the rows of 4096 x 4096 f32 take 2.5 ms on a core with AVX-512, by 8 vectors of columns 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import modulo
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.indexing import Axis
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.row_plan import RowPlan
from ingot.compiler.kernels.schedule import Merged

__all__ = ["Strips", "strips_of"]

_ROWS = 4  # at a time
_LEAST_ROWS = 512
_WIDE, _NARROW = 4096, 2048  # bytes of a strip's row: of 1 KB it takes as long as columns do
_WANTED = 4  # wide strips, of which threads take some each


@dataclass(frozen=True)
class Strips:
    """The walk along the columns of one workgroup, `width` at most."""

    plan: RowPlan
    lanes: int
    column: Merged
    row: Merged
    width: int

    @property
    def scratch_length(self) -> int:
        """Bytes that running values take."""
        return self.width * sum(each.accumulator.running.bytes for each in self.plan.reductions)

    def walk(self, b: LoopBuilder, places: Mapping[Axis, Index], first: Index, end: Index) -> None:
        """Columns [first, end)."""
        place, running = 0, []
        for each in self.plan.reductions:
            running.append(b.scratch(place, each.accumulator.running))
            place += self.width * each.accumulator.running.bytes
        with b.for_(first, end, self.lanes) as loop:
            for memory, each in zip(running, self.plan.reductions, strict=True):
                (start,) = each.accumulator.start(b, self.lanes, False)
                b.store(memory, b.sub(loop.index, first), start)
        rows = b.dim(self.row.extent)
        full = b.mul(b.div(rows, _ROWS), _ROWS)
        for begin, stop, step in ((0, full, _ROWS), (full, rows, 1)):
            with b.for_(begin, stop, step) as loop, b.for_(first, end, self.lanes) as columns:
                emitters = [
                    Emitter(b, {**places, **self.row.place(b.add(loop.index, each))})
                    for each in range(step)
                ]
                at = b.sub(columns.index, first)
                for memory, each in zip(running, self.plan.reductions, strict=True):
                    carried = [b.load(memory, at, self.lanes)]
                    for emitter in emitters:
                        with emitter.along(self.column.axis, columns.index, self.lanes):
                            value = emitter.emit(each.element)
                        carried = each.accumulator.take(b, carried, value, b.value(0), None)
                    b.store(memory, at, carried[0])
        with b.for_(first, end, self.lanes) as loop:
            emitter = Emitter(b, {**places, **self.row.place(0)})
            for memory, each in zip(running, self.plan.reductions, strict=True):
                total = b.load(memory, b.sub(loop.index, first), self.lanes)
                emitter.given[each.op.result] = each.accumulator.finish(b, [total], False)
            with emitter.along(self.column.axis, loop.index, self.lanes):
                for result, ordinal in self.plan.stored(per_row=True):
                    target = b.binding(ordinal, result.node.dtype)
                    b.store(target, emitter.index(result.index), emitter.emit_vector(result.node))


def strips_of(
    plan: RowPlan, lanes: int, kept: Sequence[Merged], reduced: Sequence[Merged]
) -> Strips | None:
    """None where there are too few rows or columns, or more than one pass."""
    columns, rows = kept[-1].extent, reduced[0].extent
    if not isinstance(columns, int) or not isinstance(rows, int) or len(reduced) > 1:
        return None
    is_plain = not plan.stored(per_row=False) and not any(
        each.stage or each.accumulator.index for each in plan.reductions
    )
    if not is_plain or rows < _LEAST_ROWS or modulo(columns, lanes) != 0:
        return None
    length = max(each.accumulator.operand.bytes for each in plan.reductions)
    strip = _WIDE if columns * length >= _WANTED * _WIDE else _NARROW
    if columns * length < 2 * strip:
        return None
    return Strips(plan, lanes, kept[-1], reduced[0], strip // length)
