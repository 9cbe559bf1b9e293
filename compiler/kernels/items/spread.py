"""How the work items of a grid share an iteration space of any number of axes.

Three grid axes stand for all: x is the innermost axis of the results, so that neighbouring
items write neighbouring elements; y is one more; z stands for all others, which are found
again by one division each per item. A `Spread` says how many items a group has along each,
and how many steps one item takes. It knows nothing of what is computed at a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.indexing import Axis, Index
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import WORKGROUP_BYTES, Folded, Merged, guess, power_of_two
from ingot.compiler.kernels.trace import Load, Node, axes_of_index

__all__ = ["BUSY", "LINE", "Spread", "fold", "is_straight"]

_MOST_GROUPS = 32768  # along y or z: drivers have limits of 65535
BUSY = 512  # groups that keep a large device busy
LINE = 16  # neighbouring items that share lines of memory
_ITEM_STEPS = 4  # vectors of one item that are in flight together


@dataclass(frozen=True)
class Spread:
    """Grid axes x, y, z; `size` are the items of a group, `tile` the steps of a group, `lanes`
    the steps of x in one vector."""

    axes: tuple[Folded, Folded, Folded]
    lanes: int
    size: tuple[int, int, int]
    tile: tuple[int, int, int]

    @property
    def workload(self) -> tuple[Dim, Dim, Dim]:
        """The extents."""
        x, y, z = (each.extent for each in self.axes)
        return (x, y, z)

    @property
    def steps(self) -> tuple[int, int]:
        """What an item does in a whole tile: vectors along x, steps along y."""
        return self.tile[0] // (self.size[0] * self.lanes), self.tile[1] // self.size[1]

    def fits(self, axis: int) -> bool:
        """Whether no tile reaches beyond the end of a grid axis."""
        return dims.modulo(self.axes[axis].extent, self.tile[axis]) == 0

    def bounds(self, b: LoopBuilder, axis: int) -> tuple[LoopIndex, LoopIndex]:
        """The first step of a group along a grid axis, and the one behind the last."""
        extent, tile = self.axes[axis].extent, self.tile[axis]
        if isinstance(extent, int) and tile >= extent:
            return 0, extent
        first = b.mul(b.workgroup(axis), tile)
        end = b.add(first, tile)
        return first, end if self.fits(axis) else b.min(end, b.dim(extent))

    @staticmethod
    def of(
        axes: tuple[Folded, Folded, Folded],
        lanes: int,
        items: int,
        known: Bounds,
        bytes: int,
        together: int = _ITEM_STEPS,
    ) -> Spread:
        """Share the axes among groups of `items`; `bytes` of a step are moved. An item takes at
        most `together` vectors at once, fewer where the groups would become few."""
        x, y, z = (max(guess(each.extent, known), 1) for each in axes)
        if items == 1:
            return Spread(axes, lanes, (1, 1, 1), _plain_tile((x, y, z), lanes, bytes))
        vectors = -(-x // lanes)
        if y == z == 1 and not isinstance(axes[0].extent, int):
            vectors = max(vectors, items)  # a long line, rather
        width = _width(vectors, items)
        height = min(power_of_two(y), items // width)
        depth = min(power_of_two(z), items // width // height)
        busy = vectors * y * z // (items * BUSY)
        together = max(min(together, busy), 1)
        across = _unrolled(-(-vectors // width), together)
        down = _unrolled(-(-y // height), together // across)
        rounds = -(-z // (depth * _MOST_GROUPS))
        tile = (width * lanes * across, height * down, depth * rounds)
        return Spread(axes, lanes, (width, height, depth), tile)


def fold(axes: Sequence[Merged], second: int = -2) -> tuple[Folded, Folded, Folded]:
    """The grid axes of a space: x is its last axis, y the one at `second`, z all others."""
    last = axes[-1]
    middle = axes[second] if len(axes) > 1 else None
    rest = tuple(each for each in axes if each is not last and each is not middle)
    return Folded((last,)), Folded(() if middle is None else (middle,)), Folded(rest)


def is_straight(node: Node, axis: Axis) -> bool:
    """Whether the node is the same along an axis, or there it is a vector of memory."""
    if isinstance(node, Load) and node.index.coefficient(axis) == 1:
        others = [term for term, _ in node.index.terms if term is not axis]
        return all(axis not in axes_of_index(Index.of(term)) for term in others)
    return all(axis not in axes_of_index(index) for index in node.indices())


def _width(vectors: int, items: int) -> int:
    """The items along x: as many as the line has vectors, or fewer that leave fewer idle, but
    not so few that they write less than a line of memory."""
    most = min(power_of_two(vectors), items)
    fitting = [1 << power for power in range(most.bit_length()) if 1 << power >= min(most, LINE)]
    best = min(-(-vectors // each) * each for each in fitting)
    slack = best + best // 16
    return max(each for each in fitting if -(-vectors // each) * each <= slack)


def _unrolled(steps: int, most: int) -> int:
    """How many of an item's steps to take at once: a divisor, if there is one."""
    if steps <= most:
        return steps
    return next((count for count in range(most, most // 2, -1) if steps % count == 0), most)


def _plain_tile(extents: tuple[int, int, int], lanes: int, bytes: int) -> tuple[int, int, int]:
    """The tile of a group of one item: enough that claiming it costs nothing."""
    budget = max(WORKGROUP_BYTES // bytes, 1)
    tile = []
    for place, extent in enumerate(extents):
        steps = min(extent, budget)
        tile.append(-(-steps // lanes) * lanes if place == 0 else steps)
        budget = max(budget // steps, 1)
    return (tile[0], tile[1], tile[2])
