"""Loops over a box of elements, vectors along its last axis.

For kernels that write a part of a tensor at a place known only while they run: a window of
an update, the share of a workgroup. Where a kernel may take its operand's memory for the
result, `Target.copy` writes the other elements only if it did not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.indexing import Axis, Index
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.schedule import loads_of
from ingot.compiler.kernels.trace import Load, Node
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["Range", "Target", "walk_box"]


@dataclass(frozen=True)
class Range:
    """The steps first ... end - 1 of an axis; those merged into it stay at 0."""

    axis: Axis
    first: LoopIndex
    end: LoopIndex
    fixed: tuple[Axis, ...] = ()


def walk_box(
    emitter: Emitter,
    ranges: Sequence[Range],
    lanes: int,
    body: Callable[[LoopIndex | None], None],
    group: WorkGroup | None = None,
) -> None:
    """Call `body` in the loops over the ranges; it gets the count of live lanes, None for all.

    The items of a group share the last range along x and the one before it along y.
    """
    b = emitter.builder
    group = group or WorkGroup(b)
    *outer, inner = ranges
    for each in ranges:
        emitter.places.update(dict.fromkeys(each.fixed, 0))
    with ExitStack() as stack:
        for each in outer:
            axis = 1 if each is outer[-1] else 2
            loop = stack.enter_context(group.each(each.first, each.end, axis=axis))
            stack.enter_context(emitter.scope())
            emitter.places[each.axis] = loop.index
        if lanes == 1:
            loop = stack.enter_context(group.each(inner.first, inner.end, axis=0))
            stack.enter_context(emitter.along(inner.axis, loop.index, 1))
            body(None)
            return
        walk_vectors(emitter, inner, lanes, body, group)


def walk_vectors(
    emitter: Emitter,
    along: Range,
    lanes: int,
    body: Callable[[LoopIndex | None], None],
    group: WorkGroup | None = None,
) -> None:
    """Call `body` for vectors along one axis, and for a last one with fewer live lanes. The items
    of a group share them along x."""
    b = emitter.builder
    group = group or WorkGroup(b)
    length = b.max(b.sub(along.end, along.first), 0)
    full = b.add(along.first, b.mul(b.div(length, lanes), lanes))
    with (
        group.each(along.first, full, lanes, axis=0) as loop,
        emitter.along(along.axis, loop.index, lanes),
    ):
        body(None)
    if isinstance(length, int) and length % lanes == 0:
        return
    with group.each(full, along.end, lanes, axis=0) as loop:
        count = b.sub(along.end, loop.index)
        with emitter.along(along.axis, loop.index, lanes, count):
            body(count)


@dataclass(frozen=True)
class Target:
    """A result that is its operand but for some elements: `node` is an element of the operand,
    `element` its place, `others` are all nodes that the kernel computes beside it."""

    memory: Value
    node: Node
    element: Index
    others: tuple[Node, ...]

    @property
    def operand(self) -> int | None:
        """The binding that the result may take the memory of."""
        if not isinstance(self.node, Load) or self.node.index != self.element or self.node.packed:
            return None
        ordinal = self.node.ordinal
        read_again = any(load.ordinal == ordinal for load in loads_of(self.others))
        return None if read_again else ordinal

    def copy(self, group: WorkGroup, ranges: Sequence[Range], lanes: int) -> None:
        """Write the elements of a box as they are in the operand, unless they are there."""
        b = group.builder

        def copy() -> None:
            emitter = Emitter(b, {})
            emitter.clamps = group.count > 1

            def store(count: LoopIndex | None) -> None:
                value = emitter.emit_vector(self.node)
                b.store(self.memory, emitter.index(self.element), value, count)

            walk_box(emitter, ranges, lanes, store, group)

        if self.operand is None:
            copy()
            return
        taken = b.same(self.memory, b.binding(self.operand, self.node.dtype))
        b.if_(b.op("not", taken), copy)
