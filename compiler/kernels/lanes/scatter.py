"""The scatter class: updates combined into a tensor at places known at run time, in order.

A workgroup owns part of the result: some batches, some columns of the windows. It walks
all updates that can reach its part, in index order, so the result does not depend on how
many threads there are, and no two threads write one element. Where the result takes the
operand's memory only what the updates hit is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.ops import Scatter
from ingot.compiler.ir import Function, Op, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.box import Range, Target, walk_box
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.indexing import Axis, Index, linearize, strides_of
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lines import root_of
from ingot.compiler.kernels.loop import I64, LoopBuilder
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.schedule import WORKGROUP_BYTES, Grid, Merged, guess, merge_axes
from ingot.compiler.kernels.trace import Checked, Node, Tracer
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["ScatterParts", "ScatterSchedule", "lower_scatter"]

_COLUMNS = 1024  # the fewest that are worth a workgroup: shorter pieces of rows copy slowly


@dataclass(frozen=True)
class ScatterSchedule:
    """The decisions of one scatter kernel, for people to read."""

    owned: tuple[Dim, ...]  # dims of the result that workgroups share
    updates: Dim  # windows that each workgroup looks at
    lanes: int  # along the columns of a window
    tile: tuple[int, int, int]
    in_place: bool  # where the operand dies


def lower_scatter(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `scatter` and what feeds it."""
    return _Lowering(function, target).lower()


class Numbers:
    """The dimension numbers of a scatter, by what each dim is for.

    `window_of` gives a dim of the operand its dim of the updates where that is a window,
    `batch_of` where it is a batch; `positions` are the dims of the updates that count windows.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.operand, self.indices, self.updates = (tensor_type(each) for each in op.operands)
        self.attributes = scatter = Scatter.of(op)
        windows, batches = scatter.update_window_dims, scatter.input_batching_dims
        inserted = scatter.inserted_window_dims
        self.indexed = scatter.scatter_dims_to_operand_dims
        self.vector_dim = vector = scatter.index_vector_dim
        self.positions = [dim for dim in range(self.updates.rank) if dim not in windows]
        kept = [d for d in range(self.operand.rank) if d not in batches and d not in inserted]
        self.window_of = dict(zip(kept, windows, strict=True))
        places = scatter.scatter_indices_batching_dims
        self.batch_of = {
            dim: self.positions[place - (place > vector)]
            for dim, place in zip(batches, places, strict=True)
        }

    def update_dim(self, dim: int) -> int | None:
        """The dim of the updates that moves along a dim of the operand."""
        return self.window_of.get(dim, self.batch_of.get(dim))

    def size(self, dim: int) -> Dim:
        """How many elements a window has along a dim of the operand."""
        return self.updates.shape[self.window_of[dim]] if dim in self.window_of else 1

    @property
    def owned(self) -> list[int]:
        """Dims of the operand in which an update stays where it is in the updates."""
        return [
            dim
            for dim, extent in enumerate(self.operand.shape)
            if self.update_dim(dim) is not None and dim not in self.indexed and extent != 1
        ]


class ScatterParts:
    """What a scatter reads and writes: `update` is an element of the updates, `starts` has for
    every indexed dim the index as it is read, `target` is the result beside the operand."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.numbers = numbers = Numbers(root_of(function, "scatter"))
        op = numbers.op
        self.kind, self.mode = numbers.attributes.kind, numbers.attributes.mode
        shape = numbers.operand.shape
        tracer = Tracer(function, may_split=False)
        self.axes = [Axis(dim) for dim in shape]
        self.update_axes = [Axis(dim) for dim in numbers.updates.shape]
        self.update = tracer.trace(op.operands[2], _indices(self.update_axes))
        self.starts = self._starts(tracer)
        self.builder = b = LoopBuilder()
        self.target = Target(
            b.binding(len(function.arguments), numbers.operand.dtype),
            tracer.trace(op.operands[0], _indices(self.axes)),
            linearize(_indices(self.axes, skip_ones=True), shape),
            (self.update, *self.starts.values()),
        )

    def _starts(self, tracer: Tracer) -> dict[int, Node]:
        """Per indexed dim of the operand the index, as it is read."""
        numbers, indices = self.numbers, self.numbers.op.operands[1]
        ordinal = tracer.ordinal_of(indices)
        starts: dict[int, Node] = {}
        for part, dim in enumerate(numbers.indexed):
            at = _indices([self.update_axes[place] for place in numbers.positions])
            if numbers.vector_dim < numbers.indices.rank:
                at.insert(numbers.vector_dim, Index((), part))
            node = tracer.trace(indices, at)
            if self.mode != "skip":
                node = Checked(I64, node, numbers.operand.shape[dim], self.mode, ordinal)
            starts[dim] = node
        return starts

    def fits(self, dim: int, start: Value) -> list[Value]:
        """i1 each: whether a window lies inside along an indexed dim."""
        b, numbers = self.builder, self.numbers
        last = b.dim(numbers.operand.shape[dim] - numbers.size(dim))
        return [b.compare("ge", start, 0), b.compare("le", start, last)]

    def kernel(self, grid: Grid, schedule: object) -> Kernel:
        """What was built."""
        b, numbers, function = self.builder, self.numbers, self.function
        operand = self.target.operand
        return finish_kernel(
            function,
            b,
            workload=grid.workload,
            tile=grid.tile,
            flops=dims.product(numbers.updates.shape),
            in_place=() if operand is None else ((operand, 0),),
            untouched=self._untouched(),
            schedule=schedule,
        )

    def _untouched(self) -> Dim:
        """Bytes of the operand and the result that a kernel in place neither reads nor writes."""
        numbers = self.numbers
        places = dims.product(numbers.updates.shape) * (1 if self.kind == "set" else 2)
        return (2 * dims.product(numbers.operand.shape) - places) * numbers.operand.dtype.bytes


class _Lowering(ScatterParts):
    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function)
        self.copy_lanes = target.lanes(self.numbers.operand.dtype)
        self.lanes = self._choose_lanes(target)
        self.grid = self._make_grid()
        self.shared = {each.axis: each for each in self.grid.shared}

    def _choose_lanes(self, target: TargetInfo) -> int:
        """Vectors run along the last dim where that is a column of every window."""
        numbers = self.numbers
        last = numbers.operand.rank - 1
        if last not in numbers.window_of or last in numbers.indexed:
            return 1
        lanes = target.lanes(numbers.operand.dtype)
        size = numbers.size(last)
        return 1 if isinstance(size, int) and size < min(lanes, 4) else lanes

    def _make_grid(self) -> Grid:
        numbers, symbols = self.numbers, self.function.symbols
        shape, owned = numbers.operand.shape, numbers.owned
        inside = numbers.operand.dtype.bytes
        for dim, extent in enumerate(shape):
            if dim not in owned:
                inside *= max(guess(extent, symbols), 1)
        merged = [Merged(self.axes[dim], shape[dim]) for dim in owned] or [Merged(Axis(1), 1)]
        multiple = _COLUMNS if owned and owned[-1] == numbers.operand.rank - 1 else 1
        budget = max(WORKGROUP_BYTES // inside, multiple)
        return Grid.of(merged, budget, symbols, multiple)

    def lower(self) -> Kernel:
        """The kernel."""
        numbers = self.numbers
        self._copy()
        self._walk_updates()
        schedule = ScatterSchedule(
            tuple(numbers.operand.shape[dim] for dim in numbers.owned),
            dims.product(numbers.updates.shape[place] for place in numbers.positions),
            self.lanes,
            self.grid.tile,
            self.target.operand is not None,
        )
        return self.kernel(self.grid, schedule)

    def _share(self, dim: int) -> tuple[LoopIndex, LoopIndex]:
        """First and last-plus-one index of a dim of the operand in this workgroup's part."""
        axis = self.axes[dim]
        if axis in self.shared:
            return self.grid.bounds(self.builder, self.shared[axis])
        return 0, self.builder.dim(axis.extent)

    def _copy(self) -> None:
        """Write this workgroup's part as it is in the operand. Dims that it has whole are
        merged where they lie one after the other."""
        ranges: list[Range] = []
        whole: list[Axis] = []

        def flush() -> None:
            for each in merge_axes(whole, [self.target.node], [self.target.element]):
                ranges.append(Range(each.axis, 0, self.builder.dim(each.extent), each.fixed))
            whole.clear()

        for dim, axis in enumerate(self.axes):
            if axis in self.shared:
                flush()
                ranges.append(Range(axis, *self._share(dim)))
            elif axis.extent != 1:
                whole.append(axis)
        flush()
        ranges = ranges or [Range(Axis(1), 0, 1)]
        self.target.copy(WorkGroup(self.builder), ranges, self.copy_lanes)

    def _walk_updates(self) -> None:
        """Apply the updates in index order."""
        emitter = Emitter(self.builder, {})
        numbers = self.numbers
        batches = {place: dim for dim, place in numbers.batch_of.items()}
        b = self.builder

        def nest(depth: int) -> None:
            if depth == len(numbers.positions):
                self._apply_window(emitter)
                return
            place = numbers.positions[depth]
            axis = self.update_axes[place]
            first, end = (
                self._share(batches[place]) if place in batches else (0, b.dim(axis.extent))
            )
            with b.for_(first, end) as loop, emitter.scope():
                emitter.places[axis] = loop.index
                nest(depth + 1)

        nest(0)

    def _apply_window(self, emitter: Emitter) -> None:
        """Apply the update at which the emitter stands, if its window fits."""
        b, numbers = self.builder, self.numbers
        starts = {dim: b.convert(emitter.emit(node), I64) for dim, node in self.starts.items()}

        def apply() -> None:  # the place is computed only where it is known to be inside
            strides = strides_of(numbers.operand.shape)
            base: LoopIndex = 0
            for dim, start in starts.items():
                base = b.add(base, b.mul(start, b.dim(strides[dim])))
            element = Index()
            for dim, stride in enumerate(strides):
                place = numbers.update_dim(dim)
                if place is not None:
                    element = element + Index.of(self.update_axes[place]).scale(stride)
            self._walk_window(emitter, base, element)

        if self.mode != "skip" or not starts:
            apply()
            return
        fits = [each for dim, start in starts.items() for each in self.fits(dim, start)]
        inside = fits[0]
        for each in fits[1:]:
            inside = b.op("and", inside, each)
        b.if_(inside, apply)

    def _walk_window(self, emitter: Emitter, base: LoopIndex, element: Index) -> None:
        b, numbers = self.builder, self.numbers
        memory = self.target.memory
        ranges = []
        for dim, place in sorted(numbers.window_of.items()):
            first, end = 0, b.dim(numbers.size(dim))  # type: tuple[LoopIndex, LoopIndex]
            if dim not in numbers.indexed:
                first, limit = self._share(dim)
                end = b.min(limit, end)
            ranges.append(Range(self.update_axes[place], first, end))

        def store(count: LoopIndex | None) -> None:
            place = b.add(base, emitter.index(element))
            value = emitter.emit_vector(self.update)
            if self.kind != "set":
                before = b.load(memory, place, self.lanes, count)
                value = b.op(self.kind, before, value)
            b.store(memory, place, value, count)

        with emitter.scope():
            if ranges:
                walk_box(emitter, ranges, self.lanes, store)
            else:
                store(None)


def _indices(axes: Sequence[Axis], skip_ones: bool = False) -> list[Index]:
    return [Index() if skip_ones and axis.extent == 1 else Index.of(axis) for axis in axes]
