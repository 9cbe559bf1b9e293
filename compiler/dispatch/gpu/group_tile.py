"""The inner loop of every contraction on a GPU: a tile of the result by one work-group.

Per step of `depth` the items bring a block of each operand into local memory, and every
item multiplies its own part of the tile: a few rows by a few vectors of columns, in
registers to the end. While a block is multiplied the next one is on its way. Two buffers
take turns, so a step has one barrier. The operands are read through `Source`s, which say where an
element lies and convert it; the tile knows nothing of layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.compiler.dispatch.loop import Index, LoopBuilder
from ingot.compiler.dispatch.register_tile import PANEL, multiply_add
from ingot.compiler.dispatch.work_group import WorkGroup
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__ = [
    "LANES",
    "Block",
    "GroupTile",
    "ItemTile",
    "Source",
    "TileProduct",
    "load_where",
    "stream",
]

LANES = 4
"""Lanes of an item's vectors: what local memory gives an item in one access."""


@dataclass(frozen=True)
class GroupTile:
    """`rows` x `columns` results of a group of `down` x `across` items, `depth` of K a step."""

    rows: int
    columns: int
    depth: int
    down: int
    across: int

    @property
    def item_rows(self) -> int:
        """Rows of one item."""
        return self.rows // self.down

    @property
    def row_lanes(self) -> int:
        """Adjacent rows of one item."""
        return min(self.item_rows, LANES)

    @property
    def vectors(self) -> int:
        """Vectors of columns of one item."""
        return self.columns // (self.across * LANES)

    @property
    def left_pitch(self) -> int:
        """Elements from one depth to the next in local memory: stores that run along depth
        meet different banks."""
        return self.rows + LANES

    @property
    def right_pitch(self) -> int:
        """The same for the right side, whose panels are stored line by line."""
        return self.columns + PANEL

    def left_length(self, element: DType) -> int:
        """Bytes of both buffers of the left side."""
        return _align(2 * self.depth * self.left_pitch * element.bytes)

    def right_length(self, element: DType) -> int:
        """Bytes of both buffers of the right side."""
        return _align(2 * self.depth * self.right_pitch * element.bytes)

    def local_length(self, element: DType) -> int:
        """Bytes of local memory of all buffers."""
        return self.left_length(element) + self.right_length(element)


@dataclass(frozen=True)
class Source:
    """One operand of a product, by lines (rows or columns of the tile) and depth.

    `order` says along what neighbouring items read neighbouring memory: "depth", "lines",
    or "panels" (16 lines, then depth). An access takes `steps` adjacent depths. `prepare`
    gives what a line's accesses share, `fetch(that, depth, live)` reads, and zero where
    `live` is false; `unpack` makes the elements, one per step, in the accumulators' dtype.
    """

    order: str
    prepare: Callable[[Index], Any]
    fetch: Callable[[Any, Index, Value | None], Value]
    unpack: Callable[[Value], Sequence[Value]]
    steps: int = 1


def load_where(
    b: LoopBuilder, live: Value | None, memory: Value, at: Index, element: DType
) -> Value:
    """The element, or zero where `live` is false; then memory is not touched."""
    if live is None:
        return b.load(memory, at)
    zero = b.constant(0, element)
    return b.if_(live, lambda: [b.load(memory, at)], lambda: [zero])[0]


class Block:
    """How the group brings one operand's block of `lines` x `depth` into local memory."""

    def __init__(
        self, group: WorkGroup, source: Source, lines: int, depth: int, pitch: int, memory: Value
    ) -> None:
        self.b, self.source, self.memory, self.pitch = group.builder, source, memory, pitch
        words = depth // source.steps
        self.total = lines * words
        self.size = depth * pitch
        self.slots = []
        count, item = group.count, group.ordinal()
        period = {"depth": words, "lines": lines, "panels": PANEL * words}[source.order]
        divided = self.b.div(item, period), self.b.rem(item, period)
        known: dict[Index, Index] = {}
        for slot in range(-(-self.total // count)):
            line, word = self._place(_part(self.b, item, divided, slot, count, period))
            inside = None
            if self.total % count:
                inside = self.b.compare("lt", self.b.add(item, slot * count), self.total)
            if word not in known:
                known[word] = self.b.mul(word, source.steps)
            self.slots.append((line, known[word], inside, source.prepare(line)))

    def _place(self, part: tuple[Index, Index]) -> tuple[Index, Index]:
        """Line and word of an access, from its number divided by the order's period."""
        b = self.b
        if self.source.order == "depth":
            return part
        if self.source.order == "lines":
            return part[1], part[0]
        line = b.add(b.mul(part[0], PANEL), b.rem(part[1], PANEL))
        return line, b.div(part[1], PANEL)

    def fetch(self, start: Index, count: Dim | None) -> list[Value]:
        """The item's elements of the block from depth `start` on; zero from `count` on."""
        b, values = self.b, []
        known: dict[Index, tuple[Index, Value | None]] = {}
        for _, step, inside, shared in self.slots:
            if step not in known:
                at = b.add(start, step)
                live = None if count is None else b.compare("lt", at, b.dim(count))
                known[step] = at, live
            at, live = known[step]
            if inside is not None:
                live = inside if live is None else b.op("and", live, inside)
            values.append(self.source.fetch(shared, at, live))
        return values

    def store(self, buffer: Index, values: Sequence[Value]) -> None:
        """Put fetched elements into buffer 0 or 1."""
        b = self.b
        base = b.mul(buffer, self.size)
        for (line, step, inside, _), value in zip(self.slots, values, strict=True):
            first = b.add(b.add(base, b.mul(step, self.pitch)), line)

            def put(first: Index = first, value: Value = value) -> None:
                for place, element in enumerate(self.source.unpack(value)):
                    b.store(self.memory, b.add(first, place * self.pitch), element)

            if inside is None:
                put()
            else:
                b.if_(inside, put)


def _part(
    b: LoopBuilder, item: Index, divided: tuple[Index, Index], slot: int, items: int, period: int
) -> tuple[Index, Index]:
    """Quotient and remainder of item + slot * items by `period`; `divided`: those of the item."""
    if items % period == 0:
        return b.add(divided[0], slot * (items // period)), divided[1]
    if period % items == 0:
        count = period // items
        return slot // count, b.add(item, slot % count * items)
    number = b.add(item, slot * items)
    return b.div(number, period), b.rem(number, period)


def stream(
    blocks: Sequence[Block],
    places: tuple[Index, Index, Index],
    limit: Dim | None,
    carried: Sequence[Value],
    body: Callable[[Index, Index, Sequence[Value]], Sequence[Value]],
) -> list[Value]:
    """`body(buffer, index, carried)` for index 0, depth, ... below the end, with the blocks of
    depth start + index in local memory; `places`: start, end and depth of a block.

    What lies from `limit` on is zero; without one all blocks are whole, and there is one. The
    next block is fetched before the body and stored behind it: values that a loop carried
    from a fetch to the next step's store, compilers would fetch there. All items have passed
    a barrier since the last use of the memory when this returns, and must have before.
    """
    b = blocks[0].b
    start, end, depth = places
    for block in blocks:
        block.store(0, block.fetch(start, limit))
    b.barrier()
    with b.for_(0, end, depth, carried) as loop:
        buffer = b.rem(b.div(loop.index, depth), 2)
        following = b.add(loop.index, depth)
        if limit is None:  # the last block once more: nobody uses it, and it is there
            following = b.min(following, b.sub(end, depth))
        following = b.add(start, following)
        waiting = [block.fetch(following, limit) for block in blocks]
        results = body(buffer, loop.index, loop.carried)
        for block, values in zip(blocks, waiting, strict=True):
            block.store(b.sub(1, buffer), values)
        b.barrier()
        loop.yield_(*results)
    return loop.results


class ItemTile:
    """An item's part of the tile of a group of items (across, down)."""

    def __init__(self, group: WorkGroup, tile: GroupTile, element: DType) -> None:
        self.group, self.tile, self.element = group, tile, element
        self.b = group.builder

    def row(self, i: int) -> Index:
        """The tile's row that is the item's row `i`."""
        b, lanes = self.b, self.tile.row_lanes
        run = b.add(self.group.item(1), i // lanes * self.tile.down)
        return b.add(b.mul(run, lanes), i % lanes)

    def column(self, vector: int) -> Index:
        """The tile's column where the item's vector begins."""
        b = self.b
        return b.mul(b.add(self.group.item(0), vector * self.tile.across), LANES)

    def zeros(self) -> list[Value]:
        """Accumulators of the item's part of the tile, row by row."""
        zero = self.b.constant(0, self.element, LANES)
        return [zero] * (self.tile.item_rows * self.tile.vectors)

    def outer_product(
        self, sums: Sequence[Value], left: tuple[Value, Index], right: tuple[Value, Index]
    ) -> list[Value]:
        """sums + one line of the left side times one of the right side, in local memory."""
        b, tile = self.b, self.tile
        elements: list[Value] = []
        for i in range(0, tile.item_rows, tile.row_lanes):
            at = b.add(left[1], self.row(i))
            run = b.load(left[0], at, tile.row_lanes, aligned=tile.row_lanes > 1)
            lanes = range(tile.row_lanes)
            elements += [run] if tile.row_lanes == 1 else [b.extract(run, lane) for lane in lanes]
        lines = [
            b.load(right[0], b.add(right[1], self.column(v)), LANES, aligned=True)
            for v in range(tile.vectors)
        ]
        return [
            multiply_add(b, b.broadcast(element, LANES), line, sums[i * tile.vectors + v])
            for i, element in enumerate(elements)
            for v, line in enumerate(lines)
        ]


class TileProduct(ItemTile):
    """Multiplies tiles. The buffers are its own, or lie `offset` bytes in local memory that
    somebody allocated."""

    def __init__(
        self, group: WorkGroup, tile: GroupTile, element: DType, offset: int | None = None
    ) -> None:
        super().__init__(group, tile, element)
        if offset is None:
            offset = group.local_length
            group.allocate(tile.local_length(element) // element.bytes, element)
        self.left = self.b.local(offset, element)
        self.right = self.b.local(offset + tile.left_length(element), element)

    def run(self, sums: Sequence[Value], depth: Dim, left: Source, right: Source) -> list[Value]:
        """sums + left times right over `depth`. Has barriers, as `stream`."""
        b, tile, group = self.b, self.tile, self.group
        if depth == 0:
            return list(sums)
        a = Block(group, left, tile.rows, tile.depth, tile.left_pitch, self.left)
        c = Block(group, right, tile.columns, tile.depth, tile.right_pitch, self.right)
        exact = isinstance(depth, int) and depth % tile.depth == 0
        return stream(
            (a, c),
            (0, b.dim(depth), tile.depth),
            None if exact else depth,
            sums,
            lambda buffer, _, old: self._multiply(buffer, old),
        )

    def _multiply(self, buffer: Index, sums: Sequence[Value]) -> list[Value]:
        """One block: `depth` outer products."""
        b, tile = self.b, self.tile
        left = b.mul(buffer, tile.depth * tile.left_pitch)
        right = b.mul(buffer, tile.depth * tile.right_pitch)
        with b.for_(0, tile.depth, 1, sums, unroll=True) as loop:
            loop.yield_(
                *self.outer_product(
                    loop.carried,
                    (self.left, b.add(left, b.mul(loop.index, tile.left_pitch))),
                    (self.right, b.add(right, b.mul(loop.index, tile.right_pitch))),
                )
            )
        return loop.results


def _align(length: int) -> int:
    return -(-length // 64) * 64
