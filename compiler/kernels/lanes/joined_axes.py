"""Short axes that the lanes of a vector run along together: blocks of few bytes in rows of such.

What an operand has for all lanes lies in a window of few bytes, which is read as a vector or two;
the lanes are shuffled out of these. Loads of one memory that differ by a number share a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, product
from ingot.compiler.kernels.indexing import Index, Term
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import Merged, loads_of, power_of_two
from ingot.compiler.kernels.trace import Choose, InRange, Load, Node, walk_nodes
from ingot.hal.spec import DType

__all__ = ["MOST_JOINED", "Window", "count_of_joined", "windows_of"]

_Key = tuple[int, DType, tuple[tuple[Term, Dim], ...]]
"""Of loads that share a window: the binding, and what moves its start."""

MOST_JOINED = 16
"""Bytes of a vector that all machines shuffle."""


@dataclass(frozen=True)
class Window:
    """Elements of a binding from a start on, of which loads read some: a place for each lane."""

    binding: tuple[int, DType]
    start: Index
    length: int
    places: tuple[tuple[Load, tuple[int, ...]], ...]

    def read(self, b: LoopBuilder, start: LoopIndex) -> Iterator[tuple[Load, Value]]:
        """The lanes of each load. Nothing outside of the window is touched."""
        memory = b.binding(*self.binding)
        lanes = min(power_of_two(self.length + 1) // 2, MOST_JOINED)
        last = self.length - lanes
        first = b.load(memory, start, lanes)
        other = b.load(memory, b.add(start, last), lanes) if last else first
        for load, places in self.places:
            order = [at if at < lanes else lanes + at - last for at in places]
            is_plain = lanes == 1 or order == list(range(lanes))
            yield load, first if is_plain else b.shuffle(first, other, order)


def count_of_joined(axes: Sequence[Merged], roots: Sequence[Node], lanes: int) -> int:
    """How many of the last axes hold few bytes together, but more than a vector of `lanes`, and so
    does what is read for them; 0 for none."""
    nodes, loads = list(walk_nodes(roots)), loads_of(roots)
    if any(node.dtype.bits != 8 or isinstance(node, (Choose, InRange)) for node in nodes):
        return 0
    if not all(load.index.is_affine() for load in loads):
        return 0
    for count in range(len(axes) - 1, 0, -1):
        bytes = product(each.extent for each in axes[-count:])
        if not isinstance(bytes, int) or not lanes < bytes == power_of_two(bytes):
            continue
        if bytes <= MOST_JOINED and windows_of(loads, axes[-count:]) is not None:
            return count
    return 0


def windows_of(loads: Sequence[Load], axes: Sequence[Merged]) -> list[Window] | None:
    """The windows of loads that vary along the axes; None where what they read lies further apart
    than two vectors, or its places are not known."""
    joined = {each.axis for each in axes}
    found: dict[_Key, list[tuple[Load, int, list[int]]]] = {}
    for load in loads:
        steps = [load.index.coefficient(each.axis) for each in axes]
        offset, places = load.index.offset, [0]
        if not any(step != 0 for step in steps):
            continue
        for each, step in zip(axes, steps, strict=True):
            if not isinstance(step, int) or step < 0 or not isinstance(offset, int):
                return None
            places = [at + step * i for at in places for i in range(known_dim(each.extent))]
        rest = tuple(term for term in load.index.terms if term[0] not in joined)
        group = found.setdefault((load.ordinal, load.stored, rest), [])
        group.append((load, known_dim(offset), places))
    windows = []
    for (ordinal, stored, rest), group in found.items():
        low = min(offset for _, offset, _ in group)
        length = max(offset + places[-1] for _, offset, places in group) + 1 - low
        if length > 2 * MOST_JOINED or stored.bits != 8:
            return None
        lanes = tuple(
            (load, tuple(offset + at - low for at in places)) for load, offset, places in group
        )
        windows.append(Window((ordinal, stored), Index(rest, low), length, lanes))
    return windows
