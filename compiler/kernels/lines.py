"""Lines of a tensor along one axis: which workgroup owns which, and the loops over them.

Kernels whose elements depend on their neighbours along one axis (cumulative, sort, top_k)
do a whole line at a time; lines are independent of each other. This file knows nothing of
what is done with a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.ir import Function, Op, Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.box import Range, walk_vectors
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.indexing import Axis, Index, linearize
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import (
    WORKGROUP_BYTES,
    Folded,
    Grid,
    Merged,
    guess,
    merge_axes,
)
from ingot.compiler.kernels.trace import Node, Tracer

__all__ = ["Lines", "root_of", "trace_operands"]


def root_of(function: Function, name: str) -> Op:
    """The op that an entry was formed for."""
    return next(op for op in function.block.ops if op.name == name)


class Lines:
    """The lines of a tensor of `shape` along `axis`.

    `indices` are those of an element: `line` walks the axis, the other axes pick the line.
    `plan` must be called before anything is walked.
    """

    def __init__(self, shape: Sequence[Dim], axis: int) -> None:
        self.shape = tuple(shape)
        self.line = Axis(shape[axis])
        self.axes = [
            self.line if place == axis else Axis(dim) for place, dim in enumerate(self.shape)
        ]
        self.length = self.line.extent
        self.kept: list[Merged] = []
        self.folded: Folded | None = None

    @property
    def indices(self) -> list[Index]:
        """The index of each dim."""
        return [Index.of(axis) for axis in self.axes]

    @property
    def element(self) -> Index:
        """The place of an element in a dense array of the shape."""
        indices = [
            Index() if dim == 1 and axis is not self.line else Index.of(axis)
            for axis, dim in zip(self.axes, self.shape, strict=True)
        ]
        return linearize(indices, self.shape)

    @property
    def count(self) -> Dim:
        """How many lines there are."""
        return dims.product(each.extent for each in self.kept)

    @property
    def ordinal(self) -> Index:
        """The number of the line."""
        places = [Index.of(each.axis) for each in self.kept]
        return linearize(places, [each.extent for each in self.kept])

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements of a line are neighbours in memory."""
        return self.element.coefficient(self.line) == 1

    def plan(
        self,
        function: Function,
        roots: Sequence[Node],
        extra: Sequence[Index],
        multiple: int = 1,
        folded: bool = False,
    ) -> Grid:
        """Merge the axes that pick a line where all accesses allow it, and share them.

        A workgroup gets a multiple of `multiple` lines along the last of them. `folded`: the
        grid has one axis, the number of the line.
        """
        axes = [
            axis
            for axis, dim in zip(self.axes, self.shape, strict=True)
            if axis is not self.line and dim != 1
        ]
        self.kept = merge_axes(axes, roots, extra) or [Merged(Axis(1), 1)]
        widest = max((node.dtype.bytes for node in roots), default=1)
        line = max(guess(self.length, function.symbols), 1) * widest
        budget = max(WORKGROUP_BYTES // line, multiple)
        shared = self.kept
        if folded:
            self.folded = Folded(tuple(self.kept))
            shared = [Merged(Axis(self.count), self.count)]
        self.grid = Grid.of(shared, budget, function.symbols, multiple)
        return self.grid

    def walk(self, emitter: Emitter, body: Callable[[], None]) -> None:
        """Call `body` in the loops over the lines of this workgroup."""
        if self.folded is None:
            self._nest(emitter, 0, len(self.kept), body)
            return
        b = emitter.builder
        with b.for_(*self._bounds(b, self.grid.shared[0])) as loop, emitter.scope():
            self.stand(emitter, loop.index)
            body()

    def stand(self, emitter: Emitter, line: LoopIndex) -> None:
        """Go to a line by its number; the lines must be folded."""
        assert self.folded is not None
        emitter.places.update(self.folded.places(emitter.builder, line))

    def walk_vectors(
        self,
        emitter: Emitter,
        lanes: int,
        body: Callable[[LoopIndex | None, int], None],
        together: int = 1,
    ) -> None:
        """As `walk`, with vectors of `lanes` neighbouring lines, `together` of them at once while
        there are as many; `body` gets how many lines are live, None for all, and how many vectors
        of them there are from where the emitter stands on."""
        b, last = emitter.builder, self.kept[-1]

        def vectors() -> None:
            first, end = self._bounds(b, last)
            step = lanes * together
            full = b.add(first, b.mul(b.div(b.max(b.sub(end, first), 0), step), step))
            with b.for_(first, full, step) as loop, emitter.along(last.axis, loop.index, lanes):
                body(None, together)
            if dims.modulo(last.extent, step) != 0:
                walk_vectors(
                    emitter, Range(last.axis, full, end), lanes, lambda count: body(count, 1)
                )

        self._nest(emitter, 0, len(self.kept) - 1, vectors)

    def _bounds(self, b: LoopBuilder, axis: Merged) -> tuple[LoopIndex, LoopIndex]:
        """First and last-plus-one step of an axis in this workgroup."""
        return self.grid.bounds(b, axis) if axis in self.grid.shared else (0, b.dim(axis.extent))

    def _nest(self, emitter: Emitter, depth: int, depths: int, body: Callable[[], None]) -> None:
        if depth == 0:
            for each in self.kept:
                emitter.places.update(each.place(0))
        if depth == depths:
            body()
            return
        axis = self.kept[depth]
        first, end = self._bounds(emitter.builder, axis)
        with emitter.builder.for_(first, end) as loop, emitter.scope():
            emitter.places[axis.axis] = loop.index
            self._nest(emitter, depth + 1, depths, body)


def trace_operands(
    function: Function, values: Sequence[Value], indices: Sequence[Index]
) -> list[Node]:
    """The element of each value, all of one shape, at the indices."""
    tracer = Tracer(function, may_split=False)
    return [tracer.trace(value, indices) for value in values]
