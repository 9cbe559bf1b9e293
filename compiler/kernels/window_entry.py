"""Pooling with an element-wise epilogue: entries with a window, vectors along an axis without one.

Per result position the window's range is cut to the part that lies inside the operand, so
padding costs nothing and no element is compared. Windows with a base dilation (holes in
the operand) have no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from ingot.compiler.graph.ops import ReduceWindow
from ingot.compiler.ir import Function, Op, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.accumulate import Accumulator
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.indexing import Axis, Index, delinearize, linearize, strides_of
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import WORKGROUP_BYTES, Grid, Merged, Space, trace_with_splits
from ingot.compiler.kernels.trace import Node, Tracer, walk_nodes
from ingot.hal.errors import CompileError

__all__ = ["WindowLowering", "WindowSchedule"]

_TYPICAL_TAPS = 64  # of a window whose size only the call knows


@dataclass(frozen=True)
class WindowSchedule:
    """The decisions of one window kernel, for people to read."""

    shape: tuple[Dim, ...]
    window: tuple[Dim, ...]
    lanes: int
    together: int  # vectors of the innermost axis at a time
    tile: tuple[int, int, int]


@dataclass(frozen=True)
class _Walk:
    """How one dim of the operand is walked: result index * stride + tap * dilation - low."""

    size: Dim
    window: Dim
    stride: Dim
    dilation: Dim
    low: Dim

    @property
    def is_plain(self) -> bool:
        return self.window == 1 and self.stride == 1 and self.low == 0


def _trace(function: Function, op: Op, space: Space) -> tuple[list[Node], Index]:
    shape = tensor_type(op.result).shape
    tracer = Tracer(function, [op.result])
    flat = linearize(space.indices(), shape)
    roots = []
    for value in function.block.terminator.operands:
        mine = tensor_type(value).shape
        indices = space.indices()
        if mine != shape:
            indices = list(delinearize(flat, mine, tracer.bounds, tracer.may_split))
        roots.append(tracer.trace(value, indices))
    return roots, flat


class WindowLowering:
    """A kernel under construction. `lanes` neighbours of the innermost axis share the range of
    their windows."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.function = function
        (self.op,) = (op for op in function.block.ops if op.name == "reduce_window")
        op, window = self.op, ReduceWindow.of(self.op)
        self.space = space = Space(tensor_type(op.result).shape)
        self.roots, self.flat = trace_with_splits(space, lambda: _trace(function, op, space))
        if any(each != 1 for each in window.base_dilation):
            raise CompileError(
                f"{op.location or op.name}: a window with base dilation has no kernel"
            )
        operand = tensor_type(op.operands[0])
        self.walks = [
            _Walk(*each)
            for each in zip(
                operand.shape,
                window.window,
                window.strides,
                window.window_dilation,
                (low for low, _ in window.padding),
                strict=True,
            )
        ]
        self.builder = LoopBuilder()
        result = tensor_type(op.result)
        self.accumulator = Accumulator(window.kind, operand.dtype, result.dtype)
        self.axes = [Merged(axis, axis.extent) for axis in space.axes] or [Merged(Axis(1), 1)]
        last = self.walks[-1] if self.walks else _Walk(1, 1, 1, 1, 0)
        extent = self.axes[-1].extent
        self.nodes = list(walk_nodes(self.roots))
        dtypes = {node.dtype for node in self.nodes if not node.dtype.is_boolean}
        plain = last.is_plain and bool(space.parts) and len(space.parts[-1]) == 1
        self.lanes = target.lanes(operand.dtype, *dtypes) if plain else 1
        # Vectors share the range of the window, so they differ only in a dim without one.
        self.together = next(
            n for n in (4, 2, 1) if n == 1 or (plain and dims.modulo(extent, n * self.lanes) == 0)
        )
        taps = dims.product(walk.window for walk in self.walks)
        count = taps if isinstance(taps, int) else _TYPICAL_TAPS
        self.bytes = operand.dtype.bytes * max(count // 2, 1)  # per position
        self.scratch_length = 0  # bytes
        self.budget = max(WORKGROUP_BYTES // self.bytes, 1)
        self.grid = Grid.of(self.axes, self.budget, function.symbols, self.together * self.lanes)

    def lower(self) -> Kernel:
        """The kernel."""
        self._nest({}, 0)
        return self.kernel()

    def kernel(self) -> Kernel:
        """What was built, with the grid of a CPU."""
        function = self.function
        shape = tensor_type(self.op.result).shape
        window = tuple(walk.window for walk in self.walks)
        return finish_kernel(
            function,
            self.builder,
            workload=self.grid.workload,
            tile=self.grid.tile,
            flops=dims.product([*shape, *window]),
            scratch_length=self.scratch_length,
            schedule=WindowSchedule(shape, window, self.lanes, self.together, self.grid.tile),
        )

    def _nest(self, places: dict[Axis, LoopIndex], depth: int) -> None:
        b = self.builder
        axis = self.axes[depth]
        first, end = (
            self.grid.bounds(b, axis) if axis in self.grid.shared else (0, b.dim(axis.extent))
        )
        if depth < len(self.axes) - 1:
            with b.for_(first, end) as loop:
                self._nest({**places, axis.axis: loop.index}, depth + 1)
        else:
            self.innermost(places, first, end)

    def innermost(self, places: dict[Axis, LoopIndex], first: LoopIndex, end: LoopIndex) -> None:
        """All positions of the innermost axis from the first up to the end."""
        b, axis, step = self.builder, self.axes[-1], self.together * self.lanes
        full = b.add(first, b.mul(b.div(b.max(b.sub(end, first), 0), step), step))
        with b.for_(first, full, step) as loop:
            vectors = [b.add(loop.index, each * self.lanes) for each in range(self.together)]
            self.position(places, vectors, None)
        if dims.modulo(axis.extent, step) != 0:
            with b.for_(full, end, self.lanes) as loop:
                self.position(places, [loop.index], b.sub(end, loop.index))

    def position(
        self,
        places: Mapping[Axis, LoopIndex],
        vectors: Sequence[LoopIndex],
        count: LoopIndex | None,
    ) -> None:
        """One position of the result in all dims but the last, some vectors of the last."""
        b, column = self.builder, self.axes[-1].axis
        emitters = [Emitter(b, {**places, column: each}) for each in vectors]
        count = count if self.lanes > 1 else None
        with ExitStack() as stack:
            for emitter, place in zip(emitters, vectors, strict=True):
                stack.enter_context(emitter.along(column, place, self.lanes, count))
            totals = self._window(emitters, count)
            for emitter, total in zip(emitters, totals, strict=True):
                self.finish(emitter, total, count)

    def finish(self, emitter: Emitter, total: Value, count: LoopIndex | None) -> None:
        """Store the results of a vector of combined windows."""
        b = self.builder
        emitter.given[self.op.result] = self.accumulator.finish(b, [total], join=False)
        stored = [b.broadcast(emitter.emit(root), self.lanes) for root in self.roots]
        for ordinal, root in enumerate(stored):
            memory = b.binding(len(self.function.arguments) + ordinal, self.roots[ordinal].dtype)
            b.store(memory, emitter.index(self.flat), root, count)

    def _window(self, emitters: list[Emitter], count: LoopIndex | None) -> list[Value]:
        """The accumulators after the whole window."""
        b = self.builder
        start = [self.accumulator.start(b, self.lanes, False)[0] for _ in emitters]
        bases = [self.base(emitter, self.walks) for emitter in emitters]
        return self._taps(start, bases, self.ranges(emitters[0], self.walks), count)

    def base(self, emitter: Emitter, walks: Sequence[_Walk]) -> LoopIndex:
        """The element at tap 0 of the first dims."""
        b, base = self.builder, 0  # type: tuple[LoopBuilder, LoopIndex]
        strides = strides_of([walk.size for walk in self.walks])
        for walk, index, stride in zip(walks, self.space.indices(), strides, strict=False):
            base = b.add(base, b.mul(self._origin(emitter, index, walk), b.dim(stride)))
        return base

    def ranges(
        self, emitter: Emitter, walks: Sequence[_Walk]
    ) -> list[tuple[LoopIndex, LoopIndex, LoopIndex]]:
        """Of the first dims that the window moves along: the taps that lie inside the operand, and
        the elements from one to the next."""
        b = self.builder
        strides = strides_of([walk.size for walk in self.walks])
        ranges: list[tuple[LoopIndex, LoopIndex, LoopIndex]] = []
        for walk, index, stride in zip(walks, self.space.indices(), strides, strict=False):
            if walk.window == 1 and walk.low == 0:
                continue
            origin, dilation = self._origin(emitter, index, walk), b.dim(walk.dilation)
            rounding = b.dim(walk.dilation - 1)
            first = b.div(b.max(b.add(b.sub(0, origin), rounding), 0), dilation)
            room = b.max(b.add(b.sub(b.dim(walk.size), origin), rounding), 0)
            end = b.min(b.div(room, dilation), b.dim(walk.window))
            ranges.append((first, end, b.mul(b.dim(stride), dilation)))
        return ranges

    def _origin(self, emitter: Emitter, index: Index, walk: _Walk) -> LoopIndex:
        """Where the window of a result index begins in one dim of the operand."""
        b = self.builder
        return b.sub(b.mul(emitter.index(index), b.dim(walk.stride)), b.dim(walk.low))

    def _taps(
        self,
        carried: list[Value],
        bases: list[LoopIndex],
        ranges: list[tuple[LoopIndex, LoopIndex, LoopIndex]],
        count: LoopIndex | None,
    ) -> list[Value]:
        b = self.builder
        if not ranges:
            memory = b.binding(
                self.function.arguments.index(self._operand()), self.accumulator.operand
            )
            following = []
            for total, base in zip(carried, bases, strict=True):
                value = b.load(memory, base, self.lanes, count)
                following += self.accumulator.take(b, [total], value, b.value(0), None)
            return following
        (first, end, step), *rest = ranges
        with b.for_(first, end, 1, carried) as loop:
            moved = [b.add(base, b.mul(loop.index, step)) for base in bases]
            loop.yield_(*self._taps(loop.carried, moved, rest, count))
        return loop.results

    def _operand(self) -> Value:
        operand = self.op.operands[0]
        if operand not in self.function.arguments:
            raise CompileError(
                f"{self.op.location or 'reduce_window'}: its operand must be an argument"
            )
        return operand
