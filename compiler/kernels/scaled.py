"""Kernels for dot_scaled: codes times codes, summed as integers in groups.

The four bytes of a word of a row meet those of a line of a panel (`loop.dot4`), where signed codes
are unsigned ones; what that adds to the sum of a group follows from the sum of the row's codes.
The sum is exact; then it meets both scales, and is added to an f32. Few rows take bytes out of the
panels as they lie, in the time of reading them; for many a workgroup puts the bytes and scales of
its panels into scratch once. The grid is that of contractions: blocks of rows, blocks of panels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingot.compiler.graph.ops import DotScaled
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import ceildiv
from ingot.compiler.kernels.coding import I32, BlockCoding, Line, coding_of, minima_of
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
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.product import product_of
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    for_any_rows,
    for_row_tiles,
    multiply,
    multiply_add,
    panel_tile,
    tail_heights,
    zero_tile,
)
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.compiler.kernels.words import BYTES_OF_WORD
from ingot.hal.spec import dtype

__all__ = ["ScaledSchedule", "lower_scaled"]

F32, _SIGNS = dtype("f32"), (dtype("u8"), dtype("i8"))

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
    return _Scaled(function, target).lower()


class _Scaled:
    """State while one kernel is made."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        self.function, self.root = function, root_of(function)
        self.product, coding = product_of(self.root), coding_of(function, self.root)
        assert isinstance(coding, BlockCoding)
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
            return ScaledSchedule(panel_tile(rows, 1, self.lanes), rows, max(widths), False)
        widths = [width for width in widths if self._length(width) <= MOST_SCRATCH]
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
        row = b.mul(b.workgroup(0), schedule.block_rows)
        rows = b.min(b.sub(b.dim(p.rows), row), schedule.block_rows)
        if isinstance(p.rows, int) and p.rows <= schedule.block_rows:
            row, rows = 0, p.rows
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
        length = self._length(width) if schedule.is_unpacked else 0
        read = {self.a, self.a_scales, self.a_sums, *self.coding.ordinals}
        if self.minima is not None:
            read |= self.minima.ordinals
        return kernel_of(
            self.function, b, self.epilogue, read, (p.rows, self.panels, 1),
            (schedule.block_rows, width, 1), 2 * p.rows * p.columns * p.depth, schedule, length,
        )  # fmt: skip

    def _direct(self, row: Index, rows: Index, panel: Index, most: int) -> None:
        """Tiles of at most so many rows, with panels as they lie: one after another, for memory
        gives one stream faster than several."""

        def body(height: int, offset: Index, _: list[Value]) -> tuple[()]:
            tile = panel_tile(height, 1, self.lanes)
            with self.b.for_(0, self.schedule.block_panels) as loop:
                place = self.b.add(panel, loop.index)
                self._tile(self.b.add(row, offset), place, tile, None, None)
            return ()

        heights = (most, *(each for each in HEIGHTS if each < most))
        for_row_tiles(self.b, rows, heights, body)

    def _unpacked(self, row: Index, rows: Index, panel: Index) -> None:
        """All tiles of rows, with the bytes of the panels in scratch."""
        b, shape = self.b, self.schedule.tile
        memory = b.scratch(0, I32)
        self._unpack(memory, panel, shape)

        def body(height: int, offset: Index, live: Index | None) -> None:
            tile = TileShape(height, shape.vectors, shape.lanes)
            self._tile(b.add(row, offset), panel, tile, memory, live)

        if not isinstance(self.product.rows, int):
            for_any_rows(b, rows, shape.rows, body)
            return

        def whole(height: int, offset: Index, _: list[Value]) -> tuple[()]:
            body(height, offset, None)
            return ()

        tails = tail_heights(shape.rows, self.product.rows % self.schedule.block_rows % shape.rows)
        for_row_tiles(b, rows, (shape.rows, *tails), whole)

    def _unpack(self, memory: Value, panel: Index, tile: TileShape) -> None:
        """Put the bytes of a tile's panels into scratch, line by line, and what groups have."""
        b, coding = self.b, self.coding
        parts, width = coding.steps // BYTES_OF_WORD, tile.panels * PANEL
        with b.for_(0, coding.lines) as loop:
            words = words_of_line(b, coding, panel, coding.line(b, loop.index), tile)
            for part in range(parts):
                line = b.mul(b.add(b.mul(loop.index, parts), part), width)
                for vector, word in enumerate(words):
                    at = b.add(line, vector * tile.lanes)
                    b.store(memory, at, coding.bytes(b, word, part))
        with b.for_(0, coding.groups) as loop:
            scales = scales_of_group(b, coding, panel, loop.index, tile, F32)
            for vector, scale in enumerate(scales):
                at = b.add(b.mul(loop.index, width), vector * tile.lanes)
                b.store(self._known(tile, 0), at, scale)
        if self.minima is not None:
            minima = self._known(tile, coding.groups)
            decode_panels(b, self.minima, panel, tile, minima, (0, coding.groups))

    def _known(self, tile: TileShape, first: int) -> Value:
        """Scratch memory of scales, or of minima behind them, from this group on."""
        start = self._bytes_length(tile.panels) + first * tile.panels * PANEL * F32.bytes
        return self.b.scratch(start, F32)

    # One tile.

    def _tile(
        self, row: Index, panel: Index, tile: TileShape, memory: Value | None, live: Index | None
    ) -> None:
        b = self.b
        rows: list[Index] = [b.add(row, i) for i in range(tile.rows)]
        if live is not None:
            last = b.add(row, b.sub(live, 1))
            rows = [*rows[:2], *(b.min(each, last) for each in rows[2:])]
        with b.for_(0, self.coding.groups, 1, self._less(rows, panel, tile, memory)) as loop:
            group = loop.index
            parts = self._parts(rows, panel, group, tile, memory)
            if memory is None:
                scales = scales_of_group(b, self.coding, panel, group, tile, F32)
            else:
                known = self._known(tile, 0)
                first = b.mul(group, tile.panels * PANEL)
                places = (b.add(first, vector * tile.lanes) for vector in range(tile.vectors))
                scales = [b.load(known, place, tile.lanes) for place in places]
            loop.yield_(*self._add(loop.carried, parts, scales, rows, panel, group, tile))
        self.epilogue.store_tile(loop.results, tile, row, panel, live)

    def _less(
        self, rows: Sequence[Index], panel: Index, tile: TileShape, memory: Value | None
    ) -> list[Value]:
        """What sums begin with: the sums of the groups of rows times minima, less than 0."""
        b, minima = self.b, self.minima
        if minima is None:
            return zero_tile(b, F32, tile)
        a_scales, a_sums = b.binding(self.a_scales, F32), b.binding(self.a_sums, F32)

        def left(row: int, group: Index) -> Value:
            place = b.add(b.mul(rows[row], self.coding.groups), group)
            return b.op("mul", b.load(a_sums, place), b.load(a_scales, place))

        if memory is None:
            sums = coded_products(b, minima, panel, tile, left, F32)
        else:
            known = self._known(tile, self.coding.groups)

            def right(group: Index, vector: int) -> Value:
                place = b.mul(group, tile.panels * PANEL)
                return b.load(known, b.add(place, vector * tile.lanes), tile.lanes)

            sums = multiply(b, tile, zero_tile(b, F32, tile), self.coding.groups, left, right)
        return [b.op("neg", each) for each in sums]

    def _parts(
        self, rows: Sequence[Index], panel: Index, group: Index, tile: TileShape,
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
            words = words_of_line(b, coding, panel, line, tile)
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
        rows: Sequence[Index], panel: Index, group: Index, tile: TileShape,
    ) -> Iterator[Value]:  # fmt: skip
        """The sums with a group's parts, which meet their scales."""
        b, coding = self.b, self.coding
        zeros = vectors_of_group(b, coding, coding.zeros, panel, group, tile, F32)
        a_scales, a_sums = b.binding(self.a_scales, F32), b.binding(self.a_sums, F32)
        for i, row in enumerate(rows):
            place = b.add(b.mul(row, coding.groups), group)
            scale = b.broadcast(b.load(a_scales, place), tile.lanes)
            total = b.broadcast(b.load(a_sums, place), tile.lanes)
            added = None
            if coding.middle:
                added = b.op("mul", total, b.constant(coding.middle, F32, tile.lanes))
            for vector in range(tile.vectors):
                value = b.convert(parts[i * tile.vectors + vector], F32)
                if added is not None:
                    value = b.op("sub", value, added)
                if zeros is not None:
                    value = b.op("sub", value, b.op("mul", total, zeros[vector]))
                value = b.op("mul", value, scale)
                yield multiply_add(b, value, scales[vector], sums[i * tile.vectors + vector])


def _share_of_products(tile: TileShape) -> float:
    """How many products a load of a word or a line makes."""
    return tile.rows * tile.vectors / (tile.rows + tile.vectors)
