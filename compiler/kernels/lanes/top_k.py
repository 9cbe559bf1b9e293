"""The top_k class: the greatest or least elements of lines, in order, and where they were.

A few of many are selected: a list of the best so far is kept in scratch memory, and a
vector of elements is looked at one by one only if one of them beats the last of the list,
which soon becomes rare. Of more, those that reach a threshold are sorted (`threshold.py`), else
the line, with their indices (`merge_sort.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ingot.compiler.graph.ops import TopK
from ingot.compiler.ir import Function, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.compiler.kernels.box import Range, walk_vectors
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.indexing import Axis, Index, linearize
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.threshold import Threshold, has_threshold
from ingot.compiler.kernels.lines import Lines, root_of, trace_operands
from ingot.compiler.kernels.local_sort import needs_workspace
from ingot.compiler.kernels.loop import I64, LoopBuilder, lanes_of
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.merge_sort import MergeSort
from ingot.compiler.kernels.radix_sort import RadixSort, has_radix
from ingot.compiler.kernels.schedule import guess
from ingot.compiler.kernels.trace import IndexValue
from ingot.hal.spec import dtype

__all__ = ["TopKLowering", "TopKSchedule", "lower_top_k"]

_I32 = dtype("i32")
_BY_VECTORS = 12  # elements of a list from which on vectors of it are compared and moved
_FEW = 128
"""The largest list that is kept by insertion. In ascending order, the worst, every element is
inserted, which takes half again as long as to sort them."""


@dataclass(frozen=True)
class TopKSchedule:
    """The decisions of one top_k kernel, for people to read."""

    lines: Dim
    length: Dim
    k: Dim
    by: str  # "insertion", "threshold" or "sort"
    lanes: int  # looked at in one step
    tile: tuple[int, int, int]


def _is_inserted(wanted: Dim, length: int) -> bool:
    """Whether so few of a line are kept by insertion in less time than the search for a threshold
    takes: as many are inserted as are the best so far, if the order is any. With AVX-512 an
    insertion takes 25 + k ns, by vectors 40 + k / 10, the search 1.3 ns for each element and 40 for
    each of the k: 16 of 5000 take 3.6 us by insertion and 7.6 so, 32 of them 9 and 8."""
    if not isinstance(wanted, int):
        return False
    k = wanted
    inserted = k * (1 + math.log(max(length, k, 1) / max(k, 1)))
    each = 25 + k if k < _BY_VECTORS else 40 + k / 10
    return inserted * each <= 1.3 * length + 40 * k


def lower_top_k(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `top_k` and what feeds it."""
    return TopKLowering(function, target).lower()


class TopKLowering:
    """A kernel under construction. `few`: a list of the best is kept; `threshold`: those that reach
    it are `chosen` and sorted; else the line is."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.function, self.op = function, root_of(function, "top_k")
        op = self.op
        self.results = function.block.terminator.operands
        self.k, axis = TopK.of(op).k, TopK.of(op).axis
        x = tensor_type(op.operands[0])
        self.element = x.dtype
        self.lines = Lines(x.shape, axis)
        (self.node,) = trace_operands(function, op.operands, self.lines.indices)
        self.place = IndexValue(I64, Index.of(self.lines.line))
        self.out_line = Axis(self.k)
        out_axes = [self.out_line if a is self.lines.line else a for a in self.lines.axes]
        shape = tensor_type(op.results[0]).shape
        ones = [Index() if d == 1 else Index.of(a) for a, d in zip(out_axes, shape, strict=True)]
        self.out = linearize(ones, shape)
        extra = [self.lines.element, self.out]
        shared = target.has_items
        self.grid = self.lines.plan(function, [self.node], extra, folded=shared)
        self.builder = LoopBuilder()
        known, length = function.symbols, self.lines.length
        has_keys = not shared and has_threshold(self.element, length, self.k, known)
        self.few = isinstance(self.k, int) and self.k <= _FEW
        self.few &= not has_keys or _is_inserted(self.k, guess(length, known))
        alone = shared or not (self.few and self._has_vectors())
        self.width = 1 if alone else target.lanes(self.element, _I32)  # of the list of the best
        self.place_width = 1 if alone else target.lanes(I64)
        self.lanes = 1
        if self.few and self.lines.is_contiguous:
            self.lanes = target.lanes(self.element)
        first = len(function.arguments) + len(self.results)
        columns = [self.element, I64]
        self.chosen = Lines((self.k,), 0)
        self.threshold: Threshold | None = None
        sorted_lines, read = self.lines, self.read
        if not self.few and has_keys:
            lanes = target.lanes(self.element, _I32)
            self.lanes = lanes if self.lines.is_contiguous else 1
            self.threshold = Threshold(self.builder, length, self.k, lanes, known)
            sorted_lines, read = self.chosen, self.read_chosen
        start = self.threshold.length if self.threshold else 0
        self.sort: MergeSort | RadixSort
        if not (self.few or shared) and has_radix(self.element, sorted_lines.length, known):
            largest = TopK.of(op).largest
            self.sort = RadixSort(
                self.builder,
                sorted_lines,
                read,
                lambda emitter: read(emitter)[0],
                self.element,
                largest,
                first,
                start=start,
            )
            self.sort.plan(known)
            return
        self.sort = MergeSort(self.builder, sorted_lines, columns, read, self.before, first)
        self.sort.scratch_length = start
        if not self.few:
            too_long = needs_workspace(columns, self.lines.length, known) if shared else None
            self.sort.plan(known, too_long)

    def _has_vectors(self) -> bool:
        """Whether vectors of a list are moved: of bytes each of many lanes would have such code."""
        is_wide = self.element.is_float or self.element.bytes >= 4
        return is_wide and known_dim(self.k) >= _BY_VECTORS

    def lower(self) -> Kernel:
        """The kernel."""
        emitter = Emitter(self.builder, {self.lines.line: 0})
        body = self._select if self.few else self._choose if self.threshold else self._sort
        self.lines.walk(emitter, partial(body, emitter))
        return self.kernel()

    def kernel(self) -> Kernel:
        """What was built, with the grid of a CPU."""
        function, sort = self.function, self.sort
        return finish_kernel(
            function,
            self.builder,
            workspaces=sort.workspaces,
            workload=self.grid.workload,
            tile=self.grid.tile,
            flops=dims.product(self.lines.shape) * (2 if self.few else 32),
            scratch_length=_FEW * 16 if self.few else sort.scratch_length,
            schedule=TopKSchedule(
                self.lines.count,
                self.lines.length,
                self.k,
                "insertion" if self.few else "threshold" if self.threshold else "sort",
                self.lanes,
                self.grid.tile,
            ),
        )

    # The order.

    def better(self, a: Value, b: Value) -> Value:
        """i1: whether the value `a` goes before `b`; NaN is greater than all numbers."""
        builder, largest = self.builder, TopK.of(self.op).largest
        better = builder.op("compare", a, b, direction="gt" if largest else "lt")
        if not self.element.is_float:
            return better
        great, other = (a, b) if largest else (b, a)
        number = builder.op("not", builder.op("is_nan", other))
        nan = builder.op("and", builder.op("is_nan", great), number)
        return builder.op("or", better, nan)

    def read(self, emitter: Emitter) -> list[Value]:
        """The element at which the emitter stands, and its place."""
        return [emitter.emit(self.node), emitter.emit(self.place)]

    def before(self, a: Sequence[Value], b: Sequence[Value]) -> Value:
        """i1: whether the first element goes before the second."""
        return self.better(a[0], b[0])

    def store(self, emitter: Emitter, place: LoopIndex, values: Sequence[Value]) -> None:
        """Write an element and its place to a place of the results."""
        b = self.builder
        emitter.places[self.out_line] = place
        first = len(self.function.arguments)
        for ordinal, result in enumerate(self.results):
            value = values[self.op.results.index(result)]
            element = tensor_type(result).dtype
            memory = b.binding(first + ordinal, element)
            b.store(memory, emitter.index(self.out), b.convert(value, element))

    def _sort(self, emitter: Emitter) -> None:
        self.sort.sort_line(emitter, self.k, partial(self.store, emitter))

    def _walk(self, emitter: Emitter, first: int, body: Callable[[LoopIndex | None], None]) -> None:
        """`body` for the vectors of a line from `first` on: it gets how many lanes are live, None
        for all."""
        b, line, end = self.builder, self.lines.line, self.builder.dim(self.lines.length)
        if self.lanes > 1:
            walk_vectors(emitter, Range(line, first, end), self.lanes, body)
        else:
            with b.for_(first, end) as loop, emitter.along(line, loop.index, 1):
                body(None)

    def _choose(self, emitter: Emitter) -> None:
        """Sort what reaches the threshold."""
        threshold, line = self.threshold, self.lines.line
        assert threshold is not None
        largest = TopK.of(self.op).largest

        def put(count: LoopIndex | None) -> None:
            threshold.put(emitter.places[line], emitter.emit_vector(self.node), largest, count)

        threshold.clear()
        self._walk(emitter, 0, put)
        threshold.choose()
        self._sort(emitter)

    def read_chosen(self, emitter: Emitter) -> list[Value]:
        """The chosen element at which the emitter stands, and its place in the whole line."""
        assert self.threshold is not None
        number = emitter.places[self.chosen.line]
        emitter.places[self.lines.line] = self.builder.load(self.threshold.places, number)
        return self.read(emitter)

    # A few of many.

    def _select(self, emitter: Emitter) -> None:
        b = self.builder
        values, places = b.scratch(0, self.element), b.scratch(_FEW * 8, I64)
        k = known_dim(self.k)
        if k == 0:
            return
        line = self.lines.line
        with b.for_(0, k) as loop, emitter.scope():  # the first k, sorted by insertion
            emitter.places[line] = loop.index
            self._insert(values, places, emitter.emit(self.node), loop.index, loop.index)

        def look(count: LoopIndex | None) -> None:
            worst = b.load(values, k - 1)
            vector = emitter.emit_vector(self.node)
            better = self.better(vector, b.broadcast(worst, lanes_of(vector)))
            if count is not None:
                live = b.op("compare", b.lanes(self.lanes), b.value(count), direction="lt")
                better = b.op("and", better, live)
            first = emitter.places[line]

            def insert() -> None:
                for lane in range(self.lanes):
                    value = b.extract(vector, lane) if self.lanes > 1 else vector
                    found = b.extract(better, lane) if self.lanes > 1 else better
                    place = b.add(first, lane)
                    b.if_(found, partial(replace, value, place))

            b.if_(b.any(better), insert)

        def replace(value: Value, place: LoopIndex) -> None:
            beats = self.better(value, b.load(values, k - 1))
            b.if_(beats, lambda: self._insert(values, places, value, place, k - 1))

        self._walk(emitter, k, look)
        with b.for_(0, k) as loop:
            found = [b.load(values, loop.index), b.load(places, loop.index)]
            self.store(emitter, loop.index, found)

    def _insert(
        self, values: Value, places: Value, value: Value, place: LoopIndex, count: LoopIndex
    ) -> None:
        """Put an element into the list behind all `count` that are as good; what follows moves
        down by one, over the element at `count`."""
        b = self.builder
        at = self._count_before(values, value, count)
        moved = b.min(b.sub(count, at), b.dim(self.k))  # with a limit, a loop needs no polls
        self._shift(values, self.width, count, moved)
        self._shift(places, self.place_width, count, moved)
        b.store(values, at, value)
        b.store(places, at, b.value(place))

    def _count_before(self, values: Value, value: Value, count: LoopIndex) -> Value:
        """How many of the first `count` of the list stay in front of a value."""
        b, width = self.builder, self.width
        zero, one = (b.constant(each, _I32, width) for each in (0, 1))
        with b.for_(0, count, width, [zero]) as loop:
            live = b.min(b.sub(count, loop.index), width) if width > 1 else None
            others = b.load(values, loop.index, width, live)
            before = b.op("not", self.better(b.broadcast(value, width), others))
            if live is not None:
                is_live = b.op("compare", b.lanes(width), b.value(live), direction="lt")
                before = b.op("and", before, is_live)
            loop.yield_(b.op("add", loop.carried[0], b.op("select", before, one, zero)))
        (total,) = loop.results
        return b.convert(b.reduce(total, "add") if width > 1 else total, I64)

    def _shift(self, memory: Value, width: int, end: LoopIndex, count: LoopIndex) -> None:
        """Move the `count` elements in front of `end` by one, the last ones first."""
        b = self.builder

        def move(first: LoopIndex, live: LoopIndex | None) -> None:
            b.store(memory, b.add(first, 1), b.load(memory, first, width, live), live)

        rest = b.rem(count, width) if width > 1 else 0
        last = b.sub(end, rest)
        if width > 1:
            move(last, rest)
        with b.for_(0, b.sub(count, rest), width) as loop:
            move(b.sub(b.sub(last, width), loop.index), None)
