"""Kernels for dot_scaled: codes times codes, summed as integers in groups.

The four bytes of a word of a row meet those of a line of a panel (`loop.dot4`), where signed codes
are unsigned ones; what that adds to the sum of a group follows from the sum of the row's codes.
The sum is exact; then it meets both scales, and is added to an f32. Few rows take bytes out of the
panels as they lie, in the time of reading them; for many a workgroup puts the bytes and scales of
its panels into scratch once. Where the target has tiles, a group of 16 rows and a panel is one
product of them, whose sums go through scratch. The grid is that of contractions: blocks of rows,
blocks of panels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ingot.compiler.graph.ops import DotScaled
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import ceildiv
from ingot.compiler.kernels.coding import I32, BlockCoding, Line, coding_of, in_each_byte, minima_of
from ingot.compiler.kernels.contraction_entry import argument_of, kernel_of, root_of
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.coded import (
    coded_products,
    decode_panels,
    for_lines,
    scales_of_group,
    vectors_of_group,
    words_of_line,
)
from ingot.compiler.kernels.loop import Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.loop_rules import TILE
from ingot.compiler.kernels.panel import STREAMS
from ingot.compiler.kernels.product import product_of
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    for_any_rows,
    for_panels_apart,
    for_row_tiles,
    multiply,
    multiply_add,
    panel_tile,
    rows_of_workgroup,
    side_by_side,
    tail_heights,
    zero_tile,
)
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS
from ingot.compiler.kernels.table import MultiplyTile, Tile
from ingot.compiler.kernels.tiles import TileProducts, words_at_once
from ingot.compiler.kernels.words import BYTES_OF_WORD
from ingot.hal.spec import dtype

__all__ = ["ScaledSchedule", "lower_scaled"]

F32, I8, U8 = map(dtype, ("f32", "i8", "u8"))
SHIFTER, SHIFTER_BITS = float(3 << 22), 0x4B400000
"""An f32 whose last bit is 1, in the middle of those, and its bits."""

_SIGNS = U8, I8

BLOCK_ROWS = 1024
"""Rows of a workgroup, for which bytes of panels are taken out once."""

FEW_ROWS = 8
"""Rows that read panels as they lie, where registers have room for their sums: a token of each of
eight texts takes 9.9 ms (135M, Q4_0), and 14.7 if only two do."""

HEIGHTS = (4, 2, 1)
"""Rows of the tiles that they are made of, where how many there are is known only at the call: a
tile of 8 would take 13 % off the time of 8 rows, and half as much of a C compiler again; one of 3
would take 4 % off that of 3 rows and 12 % off that of 7, and a twentieth of all compilers."""


@dataclass(frozen=True)
class ScaledSchedule:
    """Register tile, rows and panels of a workgroup, and whether it takes the bytes out of its
    panels once."""

    tile: TileShape
    block_rows: int
    block_panels: int
    is_unpacked: bool


def lower_scaled(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one dot_scaled."""
    if target.group_size > 1:
        raise ValueError("groups of work items have no kernel for rows that are codes with scales")
    coding = coding_of(function, root_of(function))
    assert isinstance(coding, BlockCoding)
    rows, group = product_of(root_of(function)).rows, coding.group // BYTES_OF_WORD
    words = words_at_once(target, (I8, I8), rows, group)
    return (_InTiles if words else _Scaled)(function, target, coding).lower()


class _Scaled:
    """State while one kernel is made."""

    sums_length = 0
    """Bytes of scratch behind what is known of panels."""

    def __init__(self, function: Function, target: TargetInfo, coding: BlockCoding) -> None:
        self.function, self.root = function, root_of(function)
        self.product = product_of(self.root)
        assert isinstance(self.root.attributes, DotScaled)
        self.coding, self.minima = coding, minima_of(function, self.root)
        self.a, self.a_scales, self.a_sums = (
            argument_of(function, self.root.operands[place]) for place in (0, 3, 4)
        )
        self.panels = ceildiv(self.root.attributes.n, PANEL)
        self.lanes = min(target.lanes(F32), PANEL)
        self.registers = target.register_count - (2 if target.dot4 else 6)
        self.b = LoopBuilder()
        self.epilogue = Epilogue(self.b, function, self.root)
        self.few = max(min(self._tile_of(1).rows, FEW_ROWS), 2)
        self.schedule = self._choose()

    def _choose(self) -> ScaledSchedule:
        rows = self.product.rows
        widths = [width for width in (3, 4, 2, 1) if self.panels % width == 0]
        if isinstance(rows, int) and 0 < rows <= self.few:
            width = max(widths, key=lambda each: (each % STREAMS == 0, each))
            return ScaledSchedule(panel_tile(rows, 1, self.lanes), rows, width, False)
        widths = [
            each for each in widths if self._length(each) + self.sums_length <= MOST_BEFORE_SUMS
        ]
        if not widths:
            tile = panel_tile(self.few, 1, self.lanes)
            return ScaledSchedule(tile, BLOCK_ROWS, 1, False)
        tile = max(map(self._tile_of, widths), key=_share_of_products)
        if isinstance(rows, int) and rows:
            tiles = -(-rows // tile.rows)
            tile = TileShape(-(-rows // tiles), tile.vectors, tile.lanes)
        block_rows = max(BLOCK_ROWS // tile.rows, 1) * tile.rows
        return ScaledSchedule(tile, block_rows, tile.panels, True)

    def _tile_of(self, width: int) -> TileShape:
        """The highest tile of so many panels: two sums of each element, and a line."""
        vectors = width * PANEL // self.lanes
        return panel_tile(max((self.registers - vectors) // (2 * vectors), 1), width, self.lanes)

    def _bytes_length(self, width: int) -> int:
        """How long the bytes of panels side by side are."""
        return self.coding.lines * self.coding.steps * width * PANEL

    def _length(self, width: int) -> int:
        """The same with their scales and minima."""
        groups = self.coding.groups
        if self.minima is not None:
            groups += self.minima.lines * self.minima.steps
        return self._bytes_length(width) + groups * width * PANEL * F32.bytes

    def lower(self) -> Kernel:
        b, p, schedule = self.b, self.product, self.schedule
        row, rows = rows_of_workgroup(b, 0, p.rows, schedule.block_rows)
        width = schedule.block_panels
        panel = b.mul(b.workgroup(1), width)
        if not schedule.is_unpacked:
            self._direct(row, rows, panel, schedule.tile.rows)
        elif isinstance(rows, int):
            self._unpacked(row, rows, panel)
        else:
            b.if_(
                b.compare("le", rows, self.few),
                lambda: self._direct(row, rows, panel, min(self.few, HEIGHTS[0])),
                lambda: self._unpacked(row, rows, panel),
            )
        length = self._length(width) + self.sums_length if schedule.is_unpacked else 0
        read = {self.a, self.a_scales, self.a_sums, *self.coding.ordinals}
        if self.minima is not None:
            read |= self.minima.ordinals
        return kernel_of(
            self.function, b, self.epilogue, read, (p.rows, self.panels, 1),
            (schedule.block_rows, width, 1), 2 * p.rows * p.columns * p.depth, schedule, length,
        )  # fmt: skip

    def _direct(self, row: Index, rows: Index, panel: Index, most: int) -> None:
        """Tiles of at most so many rows, with panels as they lie."""
        b, width = self.b, self.schedule.block_panels

        def body(height: int, offset: Index, _: list[Value]) -> tuple[()]:
            streams = self._streams(height)
            tile, first = panel_tile(height, streams, self.lanes), b.add(row, offset)
            for_panels_apart(
                b, self.panels, panel, width, streams,
                lambda panels: self._tile(first, panels, tile, None, None),
            )  # fmt: skip
            return ()

        heights = (most, *(each for each in HEIGHTS if each < most))
        for_row_tiles(b, rows, heights, body)

    def _streams(self, height: int) -> int:
        """How many panels so many rows meet at once, as they lie."""
        vectors = STREAMS * PANEL // self.lanes
        fits = (2 * height + 1) * vectors <= self.registers
        return STREAMS if fits and self.schedule.block_panels % STREAMS == 0 else 1

    def _unpacked(self, row: Index, rows: Index, panel: Index) -> None:
        """All tiles of rows, with the bytes of the panels in scratch."""
        b, shape = self.b, self.schedule.tile
        memory = b.scratch(0, I32)
        panels = side_by_side(b, panel, shape)
        self._unpack(memory, panels, shape)

        def body(height: int, offset: Index, live: Index | None) -> None:
            tile = TileShape(height, shape.vectors, shape.lanes)
            self._tile(b.add(row, offset), panels, tile, memory, live)

        if not isinstance(self.product.rows, int):
            for_any_rows(b, rows, shape.rows, body)
            return

        def whole(height: int, offset: Index, _: list[Value]) -> tuple[()]:
            body(height, offset, None)
            return ()

        tails = tail_heights(shape.rows, self.product.rows % self.schedule.block_rows % shape.rows)
        for_row_tiles(b, rows, (shape.rows, *tails), whole)

    def _unpack(self, memory: Value, panels: Sequence[Index], tile: TileShape) -> None:
        """Put the bytes of a tile's panels into scratch, line by line, and what groups have."""
        b, coding = self.b, self.coding
        parts, width = coding.steps // BYTES_OF_WORD, tile.panels * PANEL
        with b.for_(0, coding.lines) as loop:
            words = words_of_line(b, coding, panels, coding.line(b, loop.index), tile)
            for part in range(parts):
                line = b.add(b.mul(loop.index, parts), part)
                for vector, word in enumerate(words):
                    self._store_bytes(memory, line, vector, tile, coding.bytes(b, word, part))
        with b.for_(0, coding.groups) as loop:
            scales = scales_of_group(b, coding, panels, loop.index, tile, F32)
            for vector, scale in enumerate(scales):
                at = b.add(b.mul(loop.index, width), vector * tile.lanes)
                b.store(self._known(tile, 0), at, scale)
        if self.minima is not None:
            minima = self._known(tile, coding.groups)
            decode_panels(b, self.minima, panels, tile, minima, (0, coding.groups))

    def _store_bytes(
        self, memory: Value, line: Index, vector: int, tile: TileShape, codes: Value
    ) -> None:
        b = self.b
        at = b.add(b.mul(line, tile.panels * PANEL), vector * tile.lanes)
        b.store(memory, at, codes)

    def _known(self, tile: TileShape, first: int) -> Value:
        """Scratch memory of scales, or of minima behind them, from this group on."""
        start = self._bytes_length(tile.panels) + first * tile.panels * PANEL * F32.bytes
        return self.b.scratch(start, F32)

    # One tile.

    def _tile(
        self,
        row: Index,
        panels: Sequence[Index],
        tile: TileShape,
        memory: Value | None,
        live: Index | None,
    ) -> None:
        b = self.b
        rows: list[Index] = [b.add(row, i) for i in range(tile.rows)]
        if live is not None:
            last = b.add(row, b.sub(live, 1))
            rows = [*rows[:2], *(b.min(each, last) for each in rows[2:])]
        start = zero_tile(b, F32, tile)
        if self.minima is not None:
            start = self._less(rows, panels, tile, self.minima, memory is not None)
        with b.for_(0, self.coding.groups, 1, start) as loop:
            group = loop.index
            parts = self._parts(rows, panels, group, tile, memory)
            if memory is None:
                scales = scales_of_group(b, self.coding, panels, group, tile, F32)
            else:
                scales = [self._known_of_group(0, tile, group, v) for v in range(tile.vectors)]
            places = [b.add(b.mul(row, self.coding.groups), group) for row in rows]
            middle = self.coding.middle
            loop.yield_(
                *self._add(loop.carried, parts, scales, places, panels, group, tile, middle)
            )
        if memory is not None:
            self.epilogue.store_tile(loop.results, tile, row, panels[0], live)
            return
        self.epilogue.store_panels(loop.results, tile, row, panels)

    def _known_of_group(self, first: int, tile: TileShape, group: Index, vector: Index) -> Value:
        """A vector of a group's scales in scratch, or of its minima: `first` is 0 or all groups."""
        b, known = self.b, self._known(tile, first)
        place = b.add(b.mul(group, tile.panels * PANEL), b.mul(vector, tile.lanes))
        return b.load(known, place, tile.lanes)

    def _less(
        self, rows: Sequence[Index], panels: Sequence[Index], tile: TileShape, minima: BlockCoding,
        is_unpacked: bool,
    ) -> list[Value]:  # fmt: skip
        """What sums begin with: the sums of the groups of rows times minima, less than 0."""
        b, left = self.b, partial(self._sum_of_row, rows)
        if is_unpacked:
            right = partial(self._known_of_group, self.coding.groups, tile)
            none = zero_tile(b, F32, tile)
            sums = multiply(b, tile, none, self.coding.groups, left, right)
        else:
            sums = coded_products(b, minima, panels, tile, left, F32)
        return [b.op("neg", each) for each in sums]

    def _sum_of_row(self, rows: Sequence[Index], row: int, group: Index) -> Value:
        """The sum of the numbers of a row's group."""
        b = self.b
        return self._sum_of_group(b.add(b.mul(rows[row], self.coding.groups), group), 1)

    def _sum_of_group(self, place: Index, lanes: int) -> Value:
        """The sums of numbers of groups of a row."""
        b = self.b
        sums, scales = (b.binding(each, F32) for each in (self.a_sums, self.a_scales))
        return b.op("mul", b.load(sums, place, lanes), b.load(scales, place, lanes))

    def _parts(
        self, rows: Sequence[Index], panels: Sequence[Index], group: Index, tile: TileShape,
        memory: Value | None,
    ) -> list[Value]:  # fmt: skip
        """The sums of a group's products, as integers."""
        b, coding = self.b, self.coding
        a = b.binding(self.a, I32)
        pitch = coding.depth // BYTES_OF_WORD
        start = b.mul(group, coding.group // BYTES_OF_WORD)
        starts = [b.add(b.mul(row, pitch), start) for row in rows]

        def step(sums: Sequence[Value], lines: Sequence[Value], at: Index) -> Iterator[Value]:
            for row, place in enumerate(starts):
                word = b.broadcast(b.load(a, b.add(place, at)), tile.lanes)
                for vector, line in enumerate(lines):
                    yield b.dot_words(line, word, sums[row * tile.vectors + vector], _SIGNS)

        def add_line(
            sums: Sequence[Value], line: Line, before: Index, count: int = coding.steps
        ) -> Sequence[Value]:
            words = words_of_line(b, coding, panels, line, tile)
            for part in range(count // BYTES_OF_WORD):
                at = b.add(b.mul(before, coding.steps // BYTES_OF_WORD), part)
                sums = [*step(sums, [coding.bytes(b, word, part) for word in words], at)]
            return sums

        sums = zero_tile(b, I32, tile)
        if memory is not None:
            width = tile.panels * PANEL
            with b.for_(0, coding.group // BYTES_OF_WORD, 1, sums) as loop:
                at = b.mul(b.add(start, loop.index), width)
                places = [b.add(at, v * tile.lanes) for v in range(tile.vectors)]
                lines = [b.load(memory, place, tile.lanes) for place in places]
                loop.yield_(*step(loop.carried, lines, loop.index))
            return loop.results
        whole, rest = divmod(coding.group, coding.steps)
        first = b.mul(group, whole)
        sums = [*for_lines(b, coding, first, whole, sums, add_line)]
        return [*add_line(sums, coding.line(b, whole), whole, rest)] if rest else sums

    def _add(
        self, sums: Sequence[Value], parts: Sequence[Value], scales: Sequence[Value],
        places: Sequence[Index], panels: Sequence[Index], group: Index, tile: TileShape,
        middle: int,
    ) -> Iterator[Value]:  # fmt: skip
        """The sums with a group's parts, which meet their scales. `places`: those of its rows."""
        b, coding = self.b, self.coding
        zeros = vectors_of_group(b, coding, coding.zeros, panels, group, tile, F32)
        a_scales, a_sums = b.binding(self.a_scales, F32), b.binding(self.a_sums, F32)
        for i, place in enumerate(places):
            scale = b.broadcast(b.load(a_scales, place), tile.lanes)
            total = b.broadcast(b.load(a_sums, place), tile.lanes)
            added = None
            if middle:
                added = b.op("mul", total, b.constant(middle, F32, tile.lanes))
            for vector in range(tile.vectors):
                value = self._as_float(parts[i * tile.vectors + vector])
                if added is not None:
                    value = b.op("sub", value, added)
                if zeros is not None:
                    value = b.op("sub", value, b.op("mul", total, zeros[vector]))
                value = b.op("mul", value, scale)
                yield multiply_add(b, value, scales[vector], sums[i * tile.vectors + vector])

    def _as_float(self, sums: Value) -> Value:
        """Sums of a group as f32."""
        return self.b.convert(sums, F32)


class _InTiles(_Scaled):
    """Of a target with tiles: a group of many rows is a product of tiles, whose sums are read from
    scratch when they meet scales, while those of the next groups are made. Bytes of panels have
    their signs, in panels of their own."""

    def __init__(self, function: Function, target: TargetInfo, coding: BlockCoding) -> None:
        self.of_results = 2 * TILE * PANEL * I32.bytes  # behind sums of two groups
        self.of_rows = self.of_results + TILE * PANEL * F32.bytes  # sums of rows
        has_minima = minima_of(function, root_of(function)) is not None
        self.sums_length = self.of_rows + has_minima * TILE * coding.groups * F32.bytes
        super().__init__(function, target, coding)
        words = coding.group // BYTES_OF_WORD
        self.signs = parts = I8, I8 if coding.middle else U8
        self.few = TILE - 1
        room = self._length(self.schedule.block_panels)
        self.tiles = TileProducts(
            self.b, self.epilogue, parts, self.product.rows, words,
            words_at_once(target, parts, self.product.rows, words), room,
        )  # fmt: skip

    def _choose(self) -> ScaledSchedule:
        rows, found = self.product.rows, super()._choose()
        if not found.is_unpacked:
            return found
        tile = panel_tile(TILE, 1, PANEL)
        if isinstance(rows, int) and rows < TILE:
            return replace(found, tile=panel_tile(self.few, 1, self.lanes), is_unpacked=False)
        return replace(found, tile=tile, block_rows=BLOCK_ROWS)

    def _unpacked(self, row: Index, rows: Index, panel: Index) -> None:
        """The last tile of rows begins so early that it is whole."""
        b, width = self.b, self.schedule.block_panels
        wide, memory = panel_tile(TILE, width, PANEL), b.scratch(0, I32)
        self.tiles.begin()
        self._unpack(memory, side_by_side(b, panel, wide), wide)
        with b.for_(0, rows, TILE) as loop:
            start = b.min(loop.index, b.sub(rows, TILE))
            live = b.min(b.sub(rows, loop.index), TILE)
            if self.minima is not None:
                self._store_row_sums(b.mul(b.add(row, start), self.coding.groups))
            with b.for_(0, width) as inner:
                place = b.add(row, loop.index), b.add(panel, inner.index)
                sums = self._sums(b.add(row, start), place[1], inner.index, wide)
                at = b.mul(b.sub(loop.index, start), PANEL)
                self.tiles.finish(sums, (live, 1), place, at)

    def _store_bytes(
        self, memory: Value, line: Index, vector: int, tile: TileShape, codes: Value
    ) -> None:
        b = self.b
        at = b.add(b.mul(line, PANEL), vector * self._bytes_length(1) // BYTES_OF_WORD)
        b.store(memory, at, _signed(b, codes, self.coding.middle))

    def _store_row_sums(self, first: Index) -> None:
        """Put the sums of numbers of the groups of a tile's rows into scratch, negated."""
        b = self.b
        with b.for_(0, TILE * self.coding.groups, PANEL) as loop:
            value = self._sum_of_group(b.add(first, loop.index), PANEL)
            b.store(self._row_sums(), loop.index, b.op("neg", value))

    def _row_sums(self) -> Value:
        """Scratch memory of the sums of the groups of a tile's rows."""
        return self.b.scratch(self.tiles.room + self.of_rows, F32)

    def _sums(self, row: Index, panel: Index, own: Index, wide: TileShape) -> Value:
        """The sums of a tile of whole rows, in scratch, for a panel, which is number `own` of the
        workgroup's. Two groups are always on their way: one is multiplied, one is stored."""
        b, groups, last = self.b, self.coding.groups, self.coding.groups - 1
        self._multiply(row, own, 0, 0)
        self._store(0)
        self._multiply(row, own, min(1, last), 1)

        def add(sums: Sequence[Value], group: Index, number: int) -> Iterator[Value]:
            return self._add_group(sums, row, (panel, own), group, number, wide)

        sums: Sequence[Value] = zero_tile(b, F32, self.schedule.tile)
        with b.for_(0, groups - groups % 2, 2, sums) as loop:
            sums = loop.carried
            for number in range(2):
                self._store(1 - number)
                group = b.add(loop.index, number)
                self._multiply(row, own, b.min(b.add(group, 2), last), number)
                sums = [*add(sums, group, number)]
            loop.yield_(*sums)
        sums = [*add(loop.results, last, 0)] if groups % 2 else loop.results
        memory = b.scratch(self.tiles.room + self.of_results, F32)
        for each, value in enumerate(sums):
            b.store(memory, each * PANEL, value)
        return memory

    def _multiply(self, row: Index, own: Index, group: Index, tile: int) -> None:
        """A group of whole rows and of the workgroup's panel `own`."""
        b, coding = self.b, self.coding
        pitch, words = coding.depth // BYTES_OF_WORD, coding.group // BYTES_OF_WORD
        at = b.mul(group, words)
        left = b.add(b.mul(row, pitch), at)
        right = b.add(b.mul(own, self._bytes_length(1) // BYTES_OF_WORD), b.mul(at, PANEL))
        operands = [b.binding(self.a, I32), *map(b.value, (left, pitch))]
        operands += [b.scratch(0, I32), *map(b.value, (right, words))]
        b.append("loop.multiply_tile", operands, None, MultiplyTile(*self.signs, tile))

    def _parts_of(self, number: int) -> Value:
        """Where the sums of a group's products are stored that are tile `number`."""
        return self.b.scratch(self.tiles.room + number * TILE * PANEL * I32.bytes, I32)

    def _store(self, number: int) -> None:
        self.b.append("loop.store_tile", [self._parts_of(number)], None, Tile(number))

    def _add_group(
        self, sums: Sequence[Value], row: Index, panels: tuple[Index, Index], group: Index,
        number: int, wide: TileShape,
    ) -> Iterator[Value]:  # fmt: skip
        """The sums with a group's, which are those of tile `number`. `panels`: the panel, and its
        number in the workgroup."""
        b, groups, tile, (panel, own) = self.b, self.coding.groups, self.schedule.tile, panels
        if self.minima is not None:
            least = self._known_of_group(groups, wide, group, own)
            places = [b.add(group, each * groups) for each in range(TILE)]
            totals = (b.broadcast(b.load(self._row_sums(), each), PANEL) for each in places)
            pairs = zip(totals, sums, strict=True)
            sums = [multiply_add(b, total, least, each) for total, each in pairs]
        scales = [self._known_of_group(0, wide, group, own)]
        first = b.add(b.mul(row, groups), group)
        places = [b.add(first, each * groups) for each in range(TILE)]
        parts = [b.load(self._parts_of(number), each * PANEL, PANEL) for each in range(TILE)]
        return self._add(sums, parts, scales, places, [panel], group, tile, 0)

    def _as_float(self, sums: Value) -> Value:
        """While tiles are used, numbers are added at twice the rate of conversions: the bits of a
        small integer, added to those of 3 * 2^22, are of the f32 that is so much more."""
        b, lanes = self.b, lanes_of(sums)
        if self.coding.group * 128 * (128 if self.coding.middle else 255) >= 1 << 22:
            return super()._as_float(sums)
        bits = b.op("add", sums, b.constant(SHIFTER_BITS, I32, lanes))
        return b.op("sub", b.op("bitcast", bits, dtype=F32), b.constant(SHIFTER, F32, lanes))


def _signed(b: LoopBuilder, codes: Value, middle: int) -> Value:
    """Bytes that are `middle` more than numbers as these, without a borrow from byte to byte."""
    if not middle:
        return codes
    lanes = lanes_of(codes)
    tops = b.constant(in_each_byte(128), I32, lanes)
    if middle != 128:
        taken = b.constant(in_each_byte(middle), I32, lanes)
        codes = b.op("sub", b.op("or", codes, tops), taken)
    return b.op("xor", codes, tops)


def _share_of_products(tile: TileShape) -> float:
    """How many products a load of a word or a line makes."""
    return tile.rows * tile.vectors / (tile.rows + tile.vectors)
