"""Map kernels that take apart what lies alternately: images that become channels first, blocks that
become channels. Vectors along the last axis, for all steps of a short one, are shuffled out of as
many that lie side by side, each of which is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim
from ingot.compiler.kernels.emit import Emitter, is_shuffled
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.lanes.woven import MOST_NODES
from ingot.compiler.kernels.loop import Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.schedule import Merged, loads_of
from ingot.compiler.kernels.trace import Checked, Choose, InRange, Load, Node, walk_nodes
from ingot.hal.spec import DType

__all__ = ["lanes_of_longest", "unwoven_axis", "walk_unwoven"]

_MOST_STEPS = 4
_LONGEST_REGISTER = 64  # bytes


def lanes_of_longest(target: TargetInfo, dtypes: Iterable[DType]) -> int:
    """Lanes where registers are longest: they decide how workgroups share the result, which is
    the same for all variants of a target."""
    return replace(target, vector_length=_LONGEST_REGISTER).lanes(*dtypes)


def unwoven_axis(axes: Sequence[Merged], roots: Sequence[Node], lanes: int) -> Merged | None:
    """The short axis; None if the kernel is none of these."""
    extent, nodes = axes[-1].extent, list(walk_nodes(roots))
    if not isinstance(extent, int) or extent < lanes or lanes == 1 or len(nodes) > MOST_NODES:
        return None
    if any(isinstance(node, (Checked, Choose, InRange)) for node in nodes):
        return None
    short = (each for each in axes[:-1] if isinstance(each.extent, int))
    for each in short:
        if 1 < known_dim(each.extent) <= _MOST_STEPS and _alternating(each, axes[-1], roots, lanes):
            return each
    return None


def _alternating(short: Merged, along: Merged, roots: Sequence[Node], lanes: int) -> list[Load]:
    """The loads of which each step of the short axis is next to the one before."""
    count = known_dim(short.extent)
    return [
        load
        for load in loads_of(roots)
        if load.index.is_affine()
        and load.index.coefficient(short.axis) == 1
        and load.index.coefficient(along.axis) == count
        and is_shuffled(count, load.stored, lanes)
    ]


def walk_unwoven(
    emitter: Emitter,
    axes: Sequence[Merged],
    roots: Sequence[Node],
    lanes: int,
    span: tuple[Index, Index],
    store: Callable[[Emitter, list[Value]], None],
) -> None:
    """`store` what the roots are at each step of the short axis, the first of two, along a part of
    the other one that has at least a vector. The last vector may lie over others."""
    b, (short, along) = emitter.builder, axes
    loads = _alternating(short, along, roots, lanes)
    with b.for_(*span, lanes) as loop, emitter.scope():
        place = b.min(loop.index, b.sub(span[1], lanes))
        emitter.places.update({short.axis: 0, along.axis: place})
        parts = [_apart(emitter, load, known_dim(short.extent), lanes) for load in loads]
        found = []
        for step in range(known_dim(short.extent)):
            emitter.places[short.axis] = step
            with emitter.along(along.axis, place, lanes):
                for load, steps in zip(loads, parts, strict=True):
                    emitter.remember(load, steps[step])
                found.append([emitter.emit_vector(root) for root in roots])
        for step, values in enumerate(found):
            emitter.places[short.axis] = step
            store(emitter, values)


def _apart(emitter: Emitter, load: Load, count: int, lanes: int) -> list[Value]:
    """The vectors that lie alternately where the emitter stands."""
    b = emitter.builder
    memory, first = b.binding(load.ordinal, load.stored), emitter.index(load.index)
    read = [b.load(memory, b.add(first, part * lanes), lanes) for part in range(count)]
    return [_pick(b, read, step) for step in range(count)]


def _pick(b: LoopBuilder, read: Sequence[Value], step: int) -> Value:
    """The elements `step`, `step` + n, ... of n vectors that lie side by side."""
    lanes, count, vector = lanes_of(read[0]), len(read), read[0]
    places = [count * lane + step for lane in range(lanes)]
    for part in range(1, count):
        begin = part * lanes
        order = [
            lanes + at - begin
            if begin <= at < begin + lanes
            else (at if part == 1 else lane) % lanes  # what earlier parts gave stays
            for lane, at in enumerate(places)
        ]
        vector = b.shuffle(vector, read[part], order)
    return vector
