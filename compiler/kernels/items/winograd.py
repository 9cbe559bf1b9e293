"""3x3 convolution by Winograd's F(4, 3) or F(2, 3) for work-groups, in one kernel.

A group makes 16 tiles of 4x4 or 2x2 results for a panel of columns. Four items have each of the
36 or 16 places of a transformed tile: they multiply its 16 tiles with their four columns and
keep the sums to the end. A step takes a few features: the items transform the inputs of
the tiles into local memory, and the weights, which no two items share, come straight from
the panels. At the end the sums go back through local memory, four tiles at a time, and
each item transforms one column of a tile and runs the epilogue on its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.epilogue import Position
from ingot.compiler.kernels.items.choose_tile import is_large
from ingot.compiler.kernels.items.group_tile import LANES
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.winograd import lower_winograd as lower_winograd_tiles
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.register_tile import PANEL
from ingot.compiler.kernels.winograd_entry import Tile, Vectors, WinogradEntry
from ingot.hal.spec import dtype

__all__ = ["GroupWinogradSchedule", "lower_winograd"]

F32 = dtype("f32")
TILES = 16
QUARTERS = PANEL // LANES
PITCH = TILES + LANES
"""Elements from feature to feature in local memory: items that transform neighbouring
features meet different banks."""

ROUND = TILES // 4
"""Tiles that go back through local memory at a time."""

FEATURES = {True: 8, False: 4}
"""Features of a step on a large and a small device."""


@dataclass(frozen=True)
class GroupWinogradSchedule:
    """Tiles of a group, items of a place, and features of a step."""

    tiles: int
    quarters: int
    features: int


def lower_winograd(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one conv_winograd."""
    if target.group_size == 1:
        return lower_winograd_tiles(function, target)
    return _Winograd(function, FEATURES[is_large(target)]).lower()


class _Winograd(WinogradEntry):
    """State while one kernel is made."""

    def __init__(self, function: Function, step: int) -> None:
        super().__init__(function, 1)
        self.step = step
        self.items = self.places * QUARTERS
        b = self.b
        self.quarter, self.place = b.local_id(0), b.local_id(1)
        self.item = b.add(b.mul(self.place, QUARTERS), self.quarter)
        self.first, self.panel = b.mul(b.workgroup(0), TILES), b.workgroup(1)
        self.inputs = self.products = b.local(0, F32)
        length = max(self.places * step * PITCH, self.places * ROUND * PANEL) * F32.bytes
        self.local_length = length

    def lower(self) -> Kernel:
        b = self.b
        zero = b.constant(0.0, F32, LANES)
        sums = [zero] * TILES
        if self.taps == 1:
            sums = self._add_tap(sums, 0)
        else:
            with b.for_(0, self.taps, 1, sums) as loop:
                loop.yield_(*self._add_tap(loop.carried, loop.index))
            sums = loop.results
        for first in range(0, TILES, ROUND):
            self._put_back(sums[first : first + ROUND])
            b.barrier()
            self._write(first)
            b.barrier()
        return self.kernel(
            (self.tiles, self.counts[1], self.frames),
            (TILES, 1, 1),
            GroupWinogradSchedule(TILES, QUARTERS, self.step),
            local_size=(QUARTERS, self.places, 1),
            local_length=self.local_length,
        )

    def _add_tap(self, sums: Sequence[Value], tap: Index) -> list[Value]:
        """`sums` and the products of the frames at one place of the window along the depth."""
        b = self.b
        with b.for_(0, self.features, self.step, sums) as loop:
            self._transform(loop.index, tap)
            b.barrier()
            following = self._multiply(loop.index, tap, loop.carried)
            b.barrier()
            loop.yield_(*following)
        return loop.results

    def _tile(self, number: Index) -> Tile:
        """Tile `number` of the group; those beyond the last repeat it."""
        b = self.b
        return self.tile(b.min(b.add(self.first, number), b.sub(b.dim(self.tiles), 1)))

    # Inputs: [places][features of a step][tiles], rows of tiles PITCH elements apart.

    def _transform(self, feature: Index, tap: Index) -> None:
        """B^T d B of all tiles for the step's features."""
        b, count = self.b, TILES * self.step
        for first in range(0, count, self.items):
            number = b.add(self.item, first)
            body = partial(self._transform_one, feature, tap, number)
            if first + self.items <= count:
                body()
            else:
                b.if_(b.compare("lt", number, count), body)

    def _transform_one(self, start: Index, tap: Index, number: Index) -> None:
        """One feature of a tile: neighbouring items take neighbouring features."""
        b = self.b
        step, place = b.rem(number, self.step), b.div(number, self.step)
        tile = self._tile(place)
        feature = b.add(start, step)
        live = None
        if b.rem(self.features, self.step) != 0:
            live = b.compare("lt", feature, self.features)
            feature = b.min(feature, b.sub(self.features, 1))
        frame, is_there = self.under(b.workgroup(2), tap)
        if is_there is not None:
            live = is_there if live is None else b.op("and", live, is_there)
        tile = replace(tile, image=b.add(b.mul(tile.image, self.depth), frame))
        lines = [self.forward(line) for line in self._load_tile(tile, feature, live)]
        for j in range(self.size):
            for i, value in enumerate(self.forward([line[j] for line in lines])):
                at = b.add(b.mul(b.add((i * self.size + j) * self.step, step), PITCH), place)
                b.store(self.inputs, at, value)

    def _load_tile(self, tile: Tile, feature: Index, live: Value | None) -> list[Vectors]:
        """The inputs of a tile, zero outside the image and where not `live`."""
        b, zero = self.b, self.b.constant(0.0, F32)
        top, left = b.sub(tile.row, self.top), b.sub(tile.column, self.left)
        columns = [self.clip(b.add(left, j), self.width, True) for j in range(self.size)]
        image = b.mul(tile.image, self.height)
        lines = []
        for i in range(self.size):
            row, inside_row = self.clip(b.add(top, i), self.height, True)
            base = b.mul(b.add(image, row), self.width)
            assert inside_row is not None
            if live is not None:
                inside_row = b.op("and", inside_row, live)
            line = []
            for column, inside in columns:
                assert inside is not None
                at = b.add(b.mul(b.add(base, column), self.features), feature)
                both = b.op("and", inside_row, inside)
                line.append(b.op("select", both, self.image(at), zero))
            lines.append(line)
        return lines

    # Products.

    def _multiply(self, feature: Index, tap: Index, sums: Sequence[Value]) -> list[Value]:
        """The step's features of the item's place: 16 tiles times four columns."""
        b = self.b
        panel = b.add(b.mul(self.place, self.panels), self.panel)
        line = b.add(b.mul(b.add(b.mul(panel, self.taps), tap), self.features), feature)
        weights = b.mul(line, PANEL)
        weights = b.add(weights, b.mul(self.quarter, LANES))
        inputs = b.mul(self.place, self.step * PITCH)
        count: Index = self.step
        if b.rem(self.features, self.step) != 0:
            count = b.min(b.sub(self.features, feature), self.step)
        with b.for_(0, count, 1, sums, unroll=count == self.step) as loop:
            line = b.load(self.u, b.add(weights, b.mul(loop.index, PANEL)), LANES)
            base = b.add(inputs, b.mul(loop.index, PITCH))
            following = []
            for first in range(0, TILES, LANES):
                tiles = b.load(self.inputs, b.add(base, first), LANES, aligned=True)
                for lane in range(LANES):
                    value = b.broadcast(b.extract(tiles, lane), LANES)
                    following.append(b.fma(value, line, loop.carried[first + lane]))
            loop.yield_(*following)
        return loop.results

    # Results. Products in local memory: [places][tiles of a round][columns].

    def _put_back(self, sums: Sequence[Value]) -> None:
        b = self.b
        column = b.mul(self.quarter, LANES)
        for tile, value in enumerate(sums):
            line = b.mul(b.add(b.mul(self.place, ROUND), tile), PANEL)
            b.store(self.products, b.add(line, column), value, aligned=True)

    def _write(self, first: int) -> None:
        """A^T m A and the epilogue of the tiles of a round."""
        b = self.b
        number = b.add(b.div(self.item, PANEL), first)
        live = b.op(
            "and",
            b.compare("lt", self.item, ROUND * PANEL),
            b.compare("lt", b.add(self.first, number), b.dim(self.tiles)),
        )
        b.if_(live, lambda: self._write_one(self._tile(number)))

    def _write_one(self, tile: Tile) -> None:
        """The item's column of one tile."""
        b = self.b
        lines = []
        for j in range(self.size):
            places = [
                b.add((i * self.size + j) * ROUND * PANEL, self.item) for i in range(self.size)
            ]
            lines.append(self.backward([b.load(self.products, at) for at in places]))
        column = b.add(b.mul(self.panel, PANEL), b.rem(self.item, PANEL))
        image = b.add(b.mul(tile.image, self.out_depth), b.workgroup(2))
        images = b.mul(image, self.out_height)
        for i in range(self.form.output):
            row = b.add(tile.row, i)
            base = b.mul(b.add(images, row), self.out_width)
            for j, value in enumerate(self.backward([line[i] for line in lines])):
                across = b.add(tile.column, j)
                place = Position(b.add(base, across), column, 1)
                self.store_inside(row, across, value, place)
