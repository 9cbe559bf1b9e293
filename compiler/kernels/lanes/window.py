"""The window class: pooling with an element-wise epilogue.

Of channels last the lanes are channels (`window_entry.py`). Where the window moves along the
innermost axis, as in pooling of channels first, it is rows, then columns. Per row of the result,
what lies above one another under its windows is combined first, vectors along the innermost axis,
and put into scratch memory between elements that change nothing; then what lies side by side
there. So each element is read once for each row that it counts in, and no tap asks whether it is
inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ingot.compiler.graph.ops import ReduceWindow
from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.ir import Function, Value, dims, tensor_type
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.indexing import Axis
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.schedule import Grid
from ingot.compiler.kernels.window_entry import WindowLowering

__all__ = ["lower_window"]

_BLOCK = 2048  # elements of a row in scratch
_MOST_TAPS = 16  # side by side, each with code of its own
_MOST_READ = 16  # lanes whose elements lie apart
_TOGETHER = 4  # vectors of a row whose taps are combined at a time


def lower_window(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one reduce_window. CompileError: it has a base dilation."""
    kind = _RowsLowering if _moves_along_rows(function) else WindowLowering
    return kind(function, target).lower()


def _moves_along_rows(function: Function) -> bool:
    """Whether the entry's window is of known size along the innermost axis, and no single one, and
    has several results there."""
    (op,) = (op for op in function.block.ops if op.name == "reduce_window")
    window = ReduceWindow.of(op)
    if not window.window:
        return False
    taps = window.window[-1]
    width = dims.product((taps, window.strides[-1], window.window_dilation[-1]))
    is_row = taps != 1 != tensor_type(op.result).shape[-1]
    return is_row and isinstance(width, int) and width <= _BLOCK // 2


class _RowsLowering(WindowLowering):
    """A kernel under construction."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, target)
        dtypes = {node.dtype for node in self.nodes if not node.dtype.is_boolean}
        last = self.walks[-1]
        taps, stride, dilation = (
            dims.known_dim(each) for each in (last.window, last.stride, last.dilation)
        )
        self.lanes = target.lanes(self.accumulator.running, self.accumulator.operand, *dtypes)
        length = self.accumulator.running.bytes
        if stride == 2 and length < 4:  # bytes are shuffled in small vectors
            self.lanes = min(self.lanes, 16 // length)
        elif stride > 2:  # its taps are read by vectors of indices, which are long
            self.lanes = min(self.lanes, _MOST_READ)
        self.most_taps = _MOST_TAPS if stride <= 2 else _MOST_TAPS // 4
        self.together = 1
        self.taps = [tap * dilation for tap in range(taps)]
        self.stride = stride
        self.block = max((_BLOCK - self.taps[-1]) // stride // self.lanes, 1) * self.lanes
        self.grid = Grid.of(self.axes, self.budget, function.symbols, self.lanes)
        room = self.block * stride + self.taps[-1] + (_TOGETHER + 1) * self.lanes
        self.scratch_length = -(-room * self.accumulator.running.bytes // 64) * 64
        self.row = self.builder.scratch(0, self.accumulator.running)

    def innermost(self, places: dict[Axis, LoopIndex], first: LoopIndex, end: LoopIndex) -> None:
        b = self.builder
        with b.for_(first, end, self.block) as loop:
            count = b.min(b.sub(end, loop.index), self.block)
            self._fill(places, loop.index, count)
            self._combine(places, loop.index, count)

    # Rows.

    def _fill(self, places: dict[Axis, LoopIndex], first: LoopIndex, count: LoopIndex) -> None:
        """The row in scratch memory: what the columns of `count` results from `first` combine."""
        b, lanes, column = self.builder, self.lanes, self.axes[-1].axis
        emitter = Emitter(b, {**places, column: first})
        walk, index = self.walks[-1], self.space.indices()[-1]
        origin = self._origin(emitter, index, walk)
        length = b.add(b.mul(b.sub(count, 1), self.stride), self.taps[-1] + 1)
        low = b.max(origin, 0)
        end = b.min(b.add(origin, length), b.dim(walk.size))
        base, ranges = self.base(emitter, self.walks[:-1]), self.ranges(emitter, self.walks[:-1])
        self._pad(0, b.min(b.sub(low, origin), length))
        wide = _TOGETHER * lanes
        full = b.add(low, b.mul(b.div(b.max(b.sub(end, low), 0), wide), wide))
        with b.for_(low, full, wide) as loop:
            vectors = [b.add(loop.index, each * lanes) for each in range(_TOGETHER)]
            self._row_vectors(base, ranges, vectors, origin, None)
        with b.for_(full, end, lanes) as loop:
            inside = b.sub(b.dim(walk.size), loop.index)
            self._row_vectors(base, ranges, [loop.index], origin, inside)
        self._pad(b.max(b.sub(end, origin), 0), length)

    def _row_vectors(
        self,
        base: LoopIndex,
        ranges: list[tuple[LoopIndex, LoopIndex, LoopIndex]],
        vectors: Sequence[LoopIndex],
        origin: LoopIndex,
        count: LoopIndex | None,
    ) -> None:
        b = self.builder
        start = [self.accumulator.start(b, self.lanes, False)[0] for _ in vectors]
        totals = self._taps(start, [b.add(base, each) for each in vectors], ranges, count)
        for place, total in zip(vectors, totals, strict=True):
            b.store(self.row, b.sub(place, origin), total)

    def _pad(self, first: LoopIndex, end: LoopIndex) -> None:
        """Elements [first, end) of the row, and some behind, that change nothing."""
        b, running = self.builder, self.accumulator.running
        nothing = b.constant(identity(self.accumulator.kind, running), running, self.lanes)
        with b.for_(first, end, self.lanes) as loop:
            b.store(self.row, loop.index, nothing)

    # Columns.

    def _combine(self, places: dict[Axis, LoopIndex], first: LoopIndex, count: LoopIndex) -> None:
        b, lanes, column = self.builder, self.lanes, self.axes[-1].axis
        full = b.mul(b.div(count, lanes), lanes)

        def vector(at: LoopIndex, live: LoopIndex | None) -> None:
            place = b.add(first, at)
            emitter = Emitter(b, {**places, column: place})
            with ExitStack() as stack:
                stack.enter_context(emitter.along(column, place, lanes, live))
                value = self._side_by_side(at)
                self.finish(emitter, value, live)

        with b.for_(0, full, lanes) as loop:
            vector(loop.index, None)
        if dims.modulo(self.axes[-1].extent, lanes) != 0:
            rest = b.sub(count, full)
            b.if_(b.compare("gt", rest, 0), lambda: vector(full, rest))

    def _side_by_side(self, at: LoopIndex) -> Value:
        """The combined windows of the results from `at` on, in the row."""
        b, lanes = self.builder, self.lanes
        start = b.mul(at, self.stride)
        if len(self.taps) > self.most_taps:
            nothing, step = self.accumulator.start(b, lanes, False), self.taps[1]
            with b.for_(0, len(self.taps), 1, nothing) as loop:
                value = self._column(b.add(start, b.mul(loop.index, step)))
                loop.yield_(b.op(self.accumulator.kind, loop.carried[0], value))
            return loop.results[0]
        total = self._column(start)
        for tap in self.taps[1:]:
            value = self._column(b.add(start, tap))
            total = b.op(self.accumulator.kind, total, value)
        return total

    def _column(self, place: LoopIndex) -> Value:
        """What one tap of the windows of a vector of results meets, the first one at `place`."""
        b, lanes = self.builder, self.lanes
        if self.stride == 1:
            return b.load(self.row, place, lanes)
        if self.stride == 2:
            low, high = (b.load(self.row, b.add(place, part), lanes) for part in (0, lanes))
            return b.shuffle(low, high, [2 * lane for lane in range(lanes)])
        steps = b.op("mul", b.lanes(lanes), b.value(self.stride))
        return b.gather(self.row, b.op("add", steps, b.value(place)))
