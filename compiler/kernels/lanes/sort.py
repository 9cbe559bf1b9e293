"""The sort class: lines of one or several operands, sorted by an inlined comparator.

Operands that are neither compared nor wanted are not touched. Lines that may be long are sorted by
the bytes of a number where the comparator asks for no more than its order (`radix_sort.py`), others
are merged (`merge_sort.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ingot.compiler.graph.ops import Sort
from ingot.compiler.ir import Function, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.comparator import Comparator
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel, in_place_pairs
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lines import Lines, root_of, trace_operands
from ingot.compiler.kernels.local_sort import needs_workspace
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.merge_sort import MergeSort
from ingot.compiler.kernels.radix_sort import RadixSort, has_radix
from ingot.hal.spec import dtype

__all__ = ["SortLowering", "SortSchedule", "lower_sort"]


@dataclass(frozen=True)
class SortSchedule:
    """The decisions of one sort kernel, for people to read."""

    lines: Dim
    length: Dim
    columns: int  # arrays that move together: operands and keys
    by: str  # "bytes" of a number, or "merges"
    in_scratch: bool  # else in workspaces
    tile: tuple[int, int, int]


def lower_sort(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `sort` and what feeds it. CompileError: the comparator
    has an op that is not element-wise."""
    return SortLowering(function, target).lower()


class SortLowering:
    """A kernel under construction. `moved` are the places of the operands whose elements move;
    behind their columns are those of the keys. `nodes` has an element of each operand that is
    read."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.function, self.op = function, root_of(function, "sort")
        op = self.op
        self.comparator = Comparator(op.regions[0].block)
        self.results = function.block.terminator.operands
        wanted = {op.results.index(result) for result in self.results}
        self.moved = sorted(wanted | set(self.comparator.operands))
        self.lines = Lines(tensor_type(op.results[0]).shape, Sort.of(op).axis)
        read = sorted({*self.moved, *self.comparator.read})
        operands = [op.operands[place] for place in read]
        traced = trace_operands(function, operands, self.lines.indices)
        self.nodes = dict(zip(read, traced, strict=True))
        shared = target.has_items
        self.grid = self.lines.plan(function, traced, [self.lines.element], folded=shared)
        self.builder = LoopBuilder()
        columns = [self.nodes[place].dtype for place in self.moved] + self.comparator.keys
        first = len(function.arguments) + len(self.results)
        known = function.symbols
        order = None if shared else self.comparator.order(self.moved)
        self.sort: MergeSort | RadixSort
        if order and has_radix(columns[order[0]], self.lines.length, known):
            column, descending = order
            element, rank = columns[column], partial(self._rank, column)
            lanes = target.lanes(element, dtype("i32")) if self.lines.is_contiguous else 1
            self.sort = RadixSort(
                self.builder, self.lines, self.read, rank, element, descending, first, lanes
            )
            self.sort.plan(known)
            return
        self.sort = MergeSort(self.builder, self.lines, columns, self.read, self.before, first)
        too_long = needs_workspace(columns, self.lines.length, known) if shared else None
        self.sort.plan(known, too_long)

    def read(self, emitter: Emitter) -> list[Value]:
        """The element at which the emitter stands."""
        element = {place: emitter.emit(node) for place, node in self.nodes.items()}
        keys = self.comparator.key_values(self.builder, element)
        return [*(element[place] for place in self.moved), *keys]

    def _rank(self, column: int, emitter: Emitter) -> Value:
        return self.read(emitter)[column]

    def before(self, a: Sequence[Value], b: Sequence[Value]) -> Value:
        """i1: whether the first element must stand before the second."""
        count = len(self.moved)
        elements = [dict(zip(self.moved, each[:count], strict=True)) for each in (a, b)]
        return self.comparator.before(self.builder, elements, (a[count:], b[count:]))

    def lower(self) -> Kernel:
        """The kernel."""
        emitter = Emitter(self.builder, {self.lines.line: 0})
        self.lines.walk(emitter, lambda: self._line(emitter))
        return self.kernel()

    def kernel(self) -> Kernel:
        """What was built, with the grid of a CPU."""
        function, sort = self.function, self.sort
        count = dims.product(self.lines.shape)
        return finish_kernel(
            function,
            self.builder,
            workspaces=sort.workspaces,
            workload=self.grid.workload,
            tile=self.grid.tile,
            flops=count * 16 * len(self.sort.columns),
            scratch_length=sort.scratch_length,
            in_place=self._in_place(),
            schedule=SortSchedule(
                self.lines.count,
                self.lines.length,
                len(self.sort.columns),
                "bytes" if isinstance(sort, RadixSort) else "merges",
                not sort.workspaces,
                self.grid.tile,
            ),
        )

    def _in_place(self) -> tuple[tuple[int, int], ...]:
        """Operands whose place results may take: those that are not read once more at the end."""
        if isinstance(self.sort, RadixSort):
            return ()
        return in_place_pairs(self.function, list(self.nodes.values()), self.lines.element)

    def _line(self, emitter: Emitter) -> None:
        self.sort.sort_line(emitter, self.lines.length, partial(self.store, emitter))

    def store(self, emitter: Emitter, place: LoopIndex, values: Sequence[Value]) -> None:
        """Write the wanted columns of an element to a place of the line."""
        b = self.builder
        first = len(self.function.arguments)
        emitter.places[self.lines.line] = place
        for ordinal, result in enumerate(self.results):
            memory = b.binding(first + ordinal, tensor_type(result).dtype)
            value = values[self.moved.index(self.op.results.index(result))]
            b.store(memory, emitter.index(self.lines.element), value)
