"""The inner loop of every contraction on a GPU: a tile of the result by one work-group.

Per step of `depth` the items bring a block of each operand into local memory, and every
item multiplies its own part of the tile: a few rows by a few vectors of columns, in
registers to the end. While a block is multiplied the next one is on its way. Two buffers
take turns, so a step has one barrier. The operands are read through `Source`s, which say where an
element lies and convert it; the tile knows nothing of layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.loop import Index, LoopBuilder, dtype_of
from ingot.compiler.kernels.register_tile import PANEL, multiply_add
from ingot.compiler.kernels.words import BYTES_OF_WORD, Parts
from ingot.compiler.kernels.work_group import WorkGroup
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
    or "panels" (16 lines, then depth). An access takes `steps` adjacent depths.
    `prepare(line, offset)` gives what the accesses of line + offset share, `fetch(that,
    depth, offset, live)` reads depth + offset, and zero where `live` is false; `unpack`
    makes the elements of what it gave, one per step, in the accumulators' dtype. An item's
    accesses differ in the offsets, if it can be: numbers that an address takes in without
    arithmetic.
    """

    order: str
    prepare: Callable[[Index, int], Any]
    fetch: Callable[[Any, Index, int, Value | None], Any]
    unpack: Callable[[Any], Sequence[Value]]
    steps: int = 1


@dataclass(frozen=True)
class _Slot:
    """One access of an item to a block: its first depth, where it goes in local memory,
    whether there is one, and what the source prepared."""

    step: Index
    offset: int
    place: Index
    inside: Value | None
    prepared: Any


def load_where(
    b: LoopBuilder, live: Value | None, memory: Value, at: Index, element: DType
) -> Value:
    """The element, or zero where `live` is false; then memory is not touched. Of bytes that are
    read as i32 it is a word of four, which may begin anywhere: they are loaded one by one."""

    def load() -> Value:
        if dtype_of(memory) == element:
            return b.load(memory, at)
        parts = b.load(memory, b.mul(at, BYTES_OF_WORD), BYTES_OF_WORD, BYTES_OF_WORD)
        places = b.op("mul", b.convert(b.lanes(BYTES_OF_WORD), element), b.constant(8, element))
        return b.reduce(b.op("shift_left", b.convert(parts, element), places), "or")

    if live is None:
        return load()
    zero = b.constant(0, element)
    return b.if_(live, lambda: [load()], lambda: [zero])[0]


class Block:
    """How the group brings one operand's block of `lines` x `depth` into local memory."""

    def __init__(
        self, group: WorkGroup, source: Source, lines: int, depth: int, pitch: int, memory: Value
    ) -> None:
        self.b, self.source, self.memory, self.pitch = group.builder, source, memory, pitch
        words = depth // source.steps
        self.total = lines * words
        self.size = depth * pitch
        period = {"depth": words, "lines": lines, "panels": PANEL * words}[source.order]
        number = _Number(self.b, group.ordinal(), group.count, period)
        self.slots = [self._slot(number, slot) for slot in range(-(-self.total // group.count))]

    def _slot(self, number: _Number, slot: int) -> _Slot:
        b, steps = self.b, self.source.steps
        line, word = self._place(number, slot)
        inside = None
        if self.total % number.items:
            inside = b.compare("lt", b.add(number.item, slot * number.items), self.total)
        step, offset = number.times(word[0], steps), word[1] * steps
        place = b.add(b.mul(b.add(step, offset), self.pitch), b.add(*line))
        return _Slot(step, offset, place, inside, self.source.prepare(*line))

    def _place(self, number: _Number, slot: int) -> tuple[_Sum, _Sum]:
        """Line and word of an access, from its number divided by the order's period."""
        quotient, remainder = number.divided(slot)
        if self.source.order == "depth":
            return quotient, remainder
        if self.source.order == "lines":
            return remainder, quotient
        across, down = number.by_panel(remainder[0])
        line = self.b.add(number.times(quotient[0], PANEL), across)
        return (line, quotient[1] * PANEL), (down, remainder[1] // PANEL)

    def fetch(self, start: Index, count: Dim | Value | None) -> list[Any]:
        """What the source gives of the item's part of the block from depth `start` on; zero from
        `count` on."""
        b, values = self.b, []
        places: dict[Index, Index] = {}
        lives: dict[tuple[Index, int], Value] = {}
        for slot in self.slots:
            at = places.setdefault(slot.step, b.add(start, slot.step))
            live = slot.inside
            if count is not None:
                key = slot.step, slot.offset
                if key not in lives:
                    lives[key] = b.compare("lt", b.add(at, slot.offset), b.dim(count))
                live = lives[key] if live is None else b.op("and", lives[key], live)
            values.append(self.source.fetch(slot.prepared, at, slot.offset, live))
        return values

    def store(self, buffer: Index, values: Sequence[Any]) -> None:
        """Put fetched elements into buffer 0 or 1."""
        b = self.b
        base = b.mul(buffer, self.size)
        for slot, value in zip(self.slots, values, strict=True):
            put = partial(self._put, b.add(base, slot.place), value)
            if slot.inside is None:
                put()
            else:
                b.if_(slot.inside, put)

    def _put(self, first: Index, value: Any) -> None:
        for place, element in enumerate(self.source.unpack(value)):
            self.b.store(self.memory, self.b.add(first, place * self.pitch), element)


_Sum = tuple[Index, int]
"""A value that accesses share, and what each adds."""


class _Number:
    """item + slot * items, divided by `period`; what accesses share is computed once."""

    def __init__(self, b: LoopBuilder, item: Index, items: int, period: int) -> None:
        self.b, self.item, self.items, self.period = b, item, items, period
        self.whole = b.div(item, period), b.rem(item, period)
        self.known: dict[tuple[str, Index], Index] = {}

    def divided(self, slot: int) -> tuple[_Sum, _Sum]:
        """Quotient and remainder."""
        items, period = self.items, self.period
        if items % period == 0:
            return (self.whole[0], slot * (items // period)), (self.whole[1], 0)
        if period % items == 0:
            count = period // items
            return (0, slot // count), (self.item, slot % count * items)
        number = self.b.add(self.item, slot * items)
        return (self.b.div(number, period), 0), (self.b.rem(number, period), 0)

    def by_panel(self, number: Index) -> tuple[Index, Index]:
        """Column in its panel, and word."""
        return (
            self._once("rem", number, lambda: self.b.rem(number, PANEL)),
            self._once("div", number, lambda: self.b.div(number, PANEL)),
        )

    def times(self, number: Index, factor: int) -> Index:
        """number * factor."""
        return self._once(f"mul{factor}", number, lambda: self.b.mul(number, factor))

    def _once(self, name: str, number: Index, make: Callable[[], Index]) -> Index:
        key = name, number
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]


def stream(
    blocks: Sequence[Block],
    places: tuple[Index, Index, Index],
    limit: Dim | Value | None,
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

    def __init__(
        self, group: WorkGroup, tile: GroupTile, element: DType, parts: Parts | None = None
    ) -> None:
        self.group, self.tile, self.element, self.parts = group, tile, element, parts
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
            multiply_add(
                b, b.broadcast(element, LANES), line, sums[i * tile.vectors + v], self.parts
            )
            for i, element in enumerate(elements)
            for v, line in enumerate(lines)
        ]


class TileProduct(ItemTile):
    """Multiplies tiles. The buffers are its own, or lie `offset` bytes in local memory that
    somebody allocated."""

    def __init__(
        self,
        group: WorkGroup,
        tile: GroupTile,
        element: DType,
        offset: int | None = None,
        parts: Parts | None = None,
    ) -> None:
        super().__init__(group, tile, element, parts)
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
