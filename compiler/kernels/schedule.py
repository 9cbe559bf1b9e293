"""Shared by the kernel classes without a contraction: axes, their merging, the grid.

`Space` is an iteration space under construction: graph dims become axes, axes are split
where a reshape asks for it and merged where every access allows it. `Grid` says which
axes the workgroups share and how much one workgroup does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ingot.compiler.ir import dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.indexing import Axis, Index, NeedsSplit
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.trace import Load, Node, walk_nodes

__all__ = [
    "MOST_BEFORE_SUMS",
    "MOST_SCRATCH",
    "SUMS_LENGTH",
    "WANTED_WORKGROUPS",
    "Folded",
    "Grid",
    "Merged",
    "Space",
    "merge_axes",
    "shared_blocks",
    "trace_with_splits",
]

MOST_SCRATCH = 1 << 20
"""Bytes that a worker has, at most: INGOT_KERNEL_MAX_SCRATCH of kernel_abi.h."""

SUMS_LENGTH = 4096
"""Bytes for the sums of a tile that wait for their epilogue, behind what a schedule has."""

MOST_BEFORE_SUMS = MOST_SCRATCH - SUMS_LENGTH
"""Bytes that a schedule of sums has, at most."""

WANTED_WORKGROUPS = 8
"""Into as many a kernel is cut if it can be: threads that common machines have."""

SHARED_WEIGHT, SHARED_STEPS = 1 << 20, 1 << 19
"""Bytes of a weight that stays in L2 however many workgroups read it, and multiply-adds of one that
is another thread's share, at least: some microseconds."""

WORKGROUP_BYTES = 32768
"""What one workgroup reads and writes, about: small enough to share work between threads,
large enough that claiming it costs nothing. Never depends on the number of threads. An addition of
64 Ki f32 takes 9.0 us on two threads with AVX-512, with 2 KB 10.2, with 128 KB 9.1."""

GUESS = 64
"""Stands for a dim that is only known at the call, where a schedule needs a number."""

_T = TypeVar("_T")


class Space:
    """The axes of a shape, in order; a dim has none (size 1), one, or several after splits."""

    def __init__(self, shape: Sequence[Dim]) -> None:
        self.parts: list[list[Axis]] = [[] if dim == 1 else [Axis(dim)] for dim in shape]

    @property
    def axes(self) -> list[Axis]:
        """All axes, outermost first."""
        return [axis for part in self.parts for axis in part]

    def indices(self) -> list[Index]:
        """The index of each dim."""
        result = []
        for part in self.parts:
            index, stride = Index(), 1  # type: tuple[Index, Dim]
            for axis in reversed(part):
                index = index + Index.of(axis).scale(stride)
                stride = stride * axis.extent
            result.append(index)
        return result

    def split(self, axis: Axis, factor: Dim) -> None:
        """Replace the axis by two, the inner one of `factor` steps."""
        for part in self.parts:
            if axis in part:
                place = part.index(axis)
                outer = Axis(dims.floordiv(axis.extent, factor))
                part[place : place + 1] = [outer, Axis(factor)]


def trace_with_splits(space: Space, trace: Callable[[], _T]) -> _T:
    """Call `trace` until no reshape asks for an axis to be split."""
    while True:
        try:
            return trace()
        except NeedsSplit as request:
            space.split(request.axis, request.factor)


def shared_blocks(blocks: int, splits: int, weight: int, steps: int) -> int:
    """Blocks of rows, more where `splits` of columns leave too few workgroups: of so many bytes of
    weight and multiply-adds of a split."""
    if weight > SHARED_WEIGHT:
        return blocks
    return max(blocks, min(WANTED_WORKGROUPS // splits, steps // SHARED_STEPS))


@dataclass(frozen=True)
class Merged:
    """Adjacent axes iterated as one: `axis` moves, the `fixed` ones stay at 0."""

    axis: Axis
    extent: Dim
    fixed: tuple[Axis, ...] = ()

    def place(self, index: LoopIndex) -> dict[Axis, LoopIndex]:
        """Where all its axes stand."""
        return {self.axis: index, **dict.fromkeys(self.fixed, 0)}

    @property
    def axes(self) -> frozenset[Axis]:
        return frozenset((self.axis, *self.fixed))


@dataclass(frozen=True)
class Folded:
    """Axes that are walked as one, outermost first."""

    axes: tuple[Merged, ...]

    @property
    def extent(self) -> Dim:
        """How many steps there are."""
        return dims.product(each.extent for each in self.axes)

    def places(self, b: LoopBuilder, step: LoopIndex) -> dict[Axis, LoopIndex]:
        """Where the axes stand at a step."""
        found: dict[Axis, LoopIndex] = {}
        for number, each in reversed(list(enumerate(self.axes))):
            extent = b.dim(each.extent)
            found.update(each.place(b.rem(step, extent) if number else step))
            step = b.div(step, extent)
        return found


def merge_axes(axes: Sequence[Axis], roots: Sequence[Node], extra: Sequence[Index]) -> list[Merged]:
    """Merge neighbours where the outer one's step is the inner one's whole way, in every index
    of the nodes and in the `extra` ones."""
    indices = list(extra)
    for node in walk_nodes(roots):
        for index in node.indices():
            indices.append(index)
            stack = [part for term, _ in index.terms for part in term.parts()]
            while stack:
                part = stack.pop()
                indices.append(part)
                stack += [each for term, _ in part.terms for each in term.parts()]
    indices = list(dict.fromkeys(indices))
    merged: list[Merged] = []
    for axis in axes:
        last = merged[-1] if merged else None
        if last is not None and all(
            index.coefficient(last.axis) == index.coefficient(axis) * axis.extent
            for index in indices
        ):
            fixed = (*last.fixed, last.axis)
            merged[-1] = Merged(axis, last.extent * axis.extent, fixed)
        else:
            merged.append(Merged(axis, axis.extent))
    return merged


def guess(dim: Dim, known: Bounds) -> int:
    """A number for a dim: itself, its least value if that is large, or a guess."""
    if isinstance(dim, int):
        return dim
    low, high = dims.bounds(dim, known)
    return int(min(max(low, GUESS), high))


@dataclass(frozen=True)
class Grid:
    """The outer axes that workgroups share (at most three, x is the innermost), and per
    workload dim how many steps of its axis one workgroup takes."""

    shared: tuple[Merged, ...]
    tile: tuple[int, int, int]

    @property
    def workload(self) -> tuple[Dim, Dim, Dim]:
        extents = [each.extent for each in reversed(self.shared)]
        extents += [1] * (3 - len(extents))
        return (extents[0], extents[1], extents[2])

    @staticmethod
    def of(
        axes: Sequence[Merged], budget: int, known: Bounds, multiple: int = 1, at_most: int = 3
    ) -> Grid:
        """Share the first axes so that a workgroup gets about `budget` innermost steps.

        The tile of the last of all axes is a multiple of `multiple`.
        """
        shared = tuple(axes[:at_most])
        inside = 1
        for each in axes[at_most:]:
            inside *= max(guess(each.extent, known), 1)
        tiles = []
        for place, each in reversed(list(enumerate(shared))):
            steps = max(budget // max(inside, 1), 1)
            extent = max(guess(each.extent, known), 1)
            if place == len(axes) - 1:
                steps = -(-steps // multiple) * multiple
                extent = -(-extent // multiple) * multiple
            whole = isinstance(each.extent, int) and steps * 2 > extent
            tiles.append(extent if whole else min(steps, 1 << 30))
            inside *= min(steps, extent)
        tiles += [1] * (3 - len(tiles))
        return Grid(shared, (tiles[0], tiles[1], tiles[2]))

    def least(self, axis: Merged) -> int:
        """Steps of an axis that every workgroup has; 0 where they are not known."""
        if not isinstance(axis.extent, int):
            return 0
        if axis not in self.shared:
            return axis.extent
        tile = self.tile[len(self.shared) - 1 - self.shared.index(axis)]
        return min(tile, axis.extent % tile or tile)

    def bounds(self, builder: LoopBuilder, axis: Merged) -> tuple[LoopIndex, LoopIndex]:
        """First and last-plus-one step of a shared axis in this workgroup."""
        dimension = len(self.shared) - 1 - self.shared.index(axis)
        tile = self.tile[dimension]
        if isinstance(axis.extent, int) and tile >= axis.extent:
            return 0, axis.extent
        first = builder.mul(builder.workgroup(dimension), tile)
        return first, builder.min(builder.add(first, tile), builder.dim(axis.extent))


def loads_of(roots: Sequence[Node]) -> list[Load]:
    """The loads below the roots."""
    return [node for node in walk_nodes(roots) if isinstance(node, Load)]


def power_of_two(count: int) -> int:
    """The least power of two that is not below."""
    return 1 << max(count - 1, 0).bit_length()
