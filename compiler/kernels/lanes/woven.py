"""Map kernels whose last axis is short and whose operands are read in a row along the one before,
as those of a nearest resize, or of an image that becomes channels last: each step of the last axis
is a vector along the other one, and the vectors are stored alternately. Where the kernel pads, the
vectors are those places in which all conditions on the longer axis hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Bounds, Dim, known_dim
from ingot.compiler.kernels.indexing import Axis, Index
from ingot.compiler.kernels.loop import LoopBuilder, lanes_of
from ingot.compiler.kernels.schedule import Merged, guess, loads_of
from ingot.compiler.kernels.trace import InRange, Node, axes_of_index, walk_nodes

__all__ = ["MOST_NODES", "conditions_on", "ends_of", "lanes_woven", "weave"]

MOST_NODES = 12
"""Of a kernel whose code is printed once for each of some vectors."""

_MOST_STEPS = 4
_LANES_OF_BYTES = 16  # of two such vectors any bytes are picked by few instructions


def lanes_woven(
    axes: Sequence[Merged], out: Index, roots: Sequence[Node], lanes: int, known: Bounds
) -> int:
    """Lanes of the vectors, of at most so many; 1 if the kernel is none of these."""
    extent, nodes = axes[-1].extent, list(walk_nodes(roots))
    if len(axes) < 2 or not isinstance(extent, int) or not 1 < extent <= _MOST_STEPS:
        return 1
    if any(node.dtype.is_boolean for node in roots):
        return 1
    outer, inner = axes[-2], axes[-1].axis
    if any(node.dtype.bytes == 1 for node in roots):
        lanes = min(lanes, _LANES_OF_BYTES)
    if guess(outer.extent, known) < lanes or len(nodes) > MOST_NODES:
        return 1
    if out.coefficient(inner) != 1 or out.coefficient(outer.axis) != extent:
        return 1
    for load in loads_of(roots):
        if not load.index.is_affine() or load.index.coefficient(outer.axis) not in (0, 1):
            return 1
    walked = {outer.axis, inner}
    for node in nodes:
        if not isinstance(node, InRange) or _is_plain(node):
            continue
        if not walked.isdisjoint(axes_of_index(node.index)):
            return 1
    return lanes if _mostly_held(outer, roots) else 1


def _is_plain(node: InRange) -> bool:
    """Whether it compares a place with two numbers."""
    is_place = node.step == 1 and [by for _, by in node.index.terms] == [1]
    return is_place and all(isinstance(end, int) for end in ends_of(node))


def _mostly_held(axis: Merged, roots: Sequence[Node]) -> bool:
    """Whether all conditions on the axis hold in most of its places: other places go one by one."""
    ends = [ends_of(node) for node in conditions_on(axis.axis, roots)]
    if not ends:
        return True
    if not isinstance(axis.extent, int):
        return False
    low, high = max(known_dim(low) for low, _ in ends), min(known_dim(high) for _, high in ends)
    return 8 * (min(high, axis.extent) - max(low, 0)) >= 7 * axis.extent


def conditions_on(axis: Axis, roots: Sequence[Node]) -> list[InRange]:
    """Those on the place along an axis alone."""
    nodes = (node for node in walk_nodes(roots) if isinstance(node, InRange))
    return [node for node in nodes if node.step == 1 and node.index.terms == ((axis, 1),)]


def ends_of(node: InRange) -> tuple[Dim, Dim]:
    """Where along its axis the condition begins and ceases to hold."""
    return node.low + node.index.offset * -1, node.high + node.index.offset * -1


def weave(b: LoopBuilder, parts: Sequence[Value]) -> list[Value]:
    """Lane 0 of each of the vectors, then lane 1, ..., as as many vectors."""
    lanes, count, woven = lanes_of(parts[0]), len(parts), []
    for first in range(0, lanes * count, lanes):
        places = [divmod(at, count) for at in range(first, first + lanes)]
        vector = parts[0]
        for part in range(1, count):
            order = [
                lanes + lane if each == part else at if each < part and part > 1 else lane
                for at, (lane, each) in enumerate(places)
            ]
            vector = b.shuffle(vector, parts[part], order)
        woven.append(vector)
    return woven
