"""Products with coded panels: of a few rows with codes as they lie, and panels as numbers.

Few rows: a group's products are summed with the bare codes, less their zeros, which are small
integers and exact; the scale is applied to the sum. So an element costs what taking it out of
its word costs, and the time is that of reading the codes. Many rows: a workgroup makes numbers
of its panels once, for `unpacked_lines`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from ingot.compiler.ir import Value
from ingot.compiler.kernels.coding import BlockCoding
from ingot.compiler.kernels.loop import Index, LoopBuilder, dtype_of
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    multiply_add,
    panel_tile,
    zero_tile,
)
from ingot.hal.spec import DType

__all__ = ["coded_products", "decode_panels", "few_rows", "few_tile"]


_MOST_ROWS = 6
"""From here on making numbers of the panels first is as good."""

_FEW, _STEPS_OF_FEW, _STEPS_OF_MORE = 2, 8, 4
"""Steps in a row without a loop, for so many rows and for more: C compilers take time that grows
with the square of what stands there."""


def few_rows(registers: int, lanes: int) -> int:
    """How many rows can meet codes as they lie: their sums stay in registers."""
    return max(1, min((registers - 2) // (PANEL // lanes) - 1, _MOST_ROWS))


def few_tile(rows: int, panels: int, registers: int, lanes: int) -> TileShape:
    """A tile of such rows, of 4, 2 or 1 panels: beside the sums a word per vector stays."""
    vectors = (registers - 2) // (rows + 1)
    fitting = (each for each in (4, 2) if each <= panels and each * PANEL // lanes <= vectors)
    wide = next((each for each in fitting if panels % each == 0), 1)
    return panel_tile(rows, wide, lanes)


def coded_products(
    builder: LoopBuilder,
    coding: BlockCoding,
    panel: Index,
    tile: TileShape,
    left: Callable[[int, Index], Value],
    element: DType,
) -> list[Value]:
    """left(row, step) times the tile's panels from `panel` on, summed as `element`."""
    group = _Group(builder, coding, panel, tile, left, element)
    whole, rest = divmod(coding.depth, coding.group)
    sums = zero_tile(builder, element, tile)
    if whole > 1:
        with builder.for_(0, whole, 1, sums) as loop:
            loop.yield_(*group.add(loop.carried, loop.index, coding.group))
        sums = loop.results
    elif whole:
        sums = group.add(sums, 0, coding.group)
    return group.add(sums, whole, rest) if rest else sums


class _Group:
    """Adds the products of the steps of a group to sums."""

    def __init__(
        self,
        builder: LoopBuilder,
        coding: BlockCoding,
        panel: Index,
        tile: TileShape,
        left: Callable[[int, Index], Value],
        element: DType,
    ) -> None:
        self.b, self.coding, self.panel, self.tile = builder, coding, panel, tile
        self.left, self.element = left, element

    def add(self, sums: Sequence[Value], group: Index, count: int) -> list[Value]:
        """The sums after the first `count` steps of the group."""
        b, coding, tile = self.b, self.coding, self.tile
        start = b.mul(group, coding.group)
        first = b.mul(group, coding.group // coding.steps)
        whole, rest = divmod(count, coding.steps)
        zeros = vectors_of_group(b, coding, coding.zeros, self.panel, group, tile, self.element)
        part = zero_tile(b, self.element, tile)
        if whole:
            with b.for_(0, whole, 1, part) as loop:
                step = b.add(start, b.mul(loop.index, coding.steps))
                line = b.add(first, loop.index)
                loop.yield_(*self._line(loop.carried, line, step, coding.steps, zeros))
            part = loop.results
        if rest:
            step = b.add(start, whole * coding.steps)
            part = self._line(part, b.add(first, whole), step, rest, zeros)
        scales = vectors_of_group(b, coding, coding.scales, self.panel, group, tile, self.element)
        assert scales is not None
        return [
            multiply_add(b, value, scales[place % tile.vectors], old)
            for place, (value, old) in enumerate(zip(part, sums, strict=True))
        ]

    def _line(
        self,
        sums: Sequence[Value],
        line: Index,
        step: Index,
        count: int,
        zeros: Sequence[Value] | None,
    ) -> list[Value]:
        b, coding, tile = self.b, self.coding, self.tile
        words = words_of_line(b, coding, self.panel, line, tile)
        run = _STEPS_OF_FEW if tile.rows <= _FEW else _STEPS_OF_MORE
        if count != coding.steps or count <= run:
            return self._steps(sums, words, step, count, zeros)
        with b.for_(0, count, run, [*words, *sums]) as loop:
            old, totals = loop.carried[: len(words)], loop.carried[len(words) :]
            totals = self._steps(totals, old, b.add(step, loop.index), run, zeros)
            loop.yield_(*(coding.without(b, word, run) for word in old), *totals)
        return loop.results[len(words) :]

    def _steps(
        self,
        sums: Sequence[Value],
        words: Sequence[Value],
        step: Index,
        count: int,
        zeros: Sequence[Value] | None,
    ) -> list[Value]:
        """The sums after the first steps of the words."""
        b, tile, totals = self.b, self.tile, list(sums)
        for k in range(count):
            numbers = [self.coding.number(b, word, k, self.element) for word in words]
            if zeros is not None:
                numbers = [b.op("sub", *pair) for pair in zip(numbers, zeros, strict=True)]
            for row in range(tile.rows):
                factor = b.broadcast(self.left(row, b.add(step, k)), tile.lanes)
                for vector, number in enumerate(numbers):
                    place = row * tile.vectors + vector
                    totals[place] = multiply_add(b, factor, number, totals[place])
        return totals


def decode_panels(
    builder: LoopBuilder,
    coding: BlockCoding,
    panel: Index,
    tile: TileShape,
    memory: Value,
    part: tuple[Index, Index],
    first: Index = 0,
) -> None:
    """What `unpack_panels` does, of codes."""
    b, steps, element = builder, coding.steps, dtype_of(memory)
    start, count = part
    with b.for_(0, b.div(b.add(count, steps - 1), steps)) as loop:
        line = b.add(b.div(start, steps), loop.index)
        group = coding.group_of(b, b.mul(line, steps))
        words = words_of_line(b, coding, panel, line, tile)
        scales = vectors_of_group(b, coding, coding.scales, panel, group, tile, element)
        zeros = vectors_of_group(b, coding, coding.zeros, panel, group, tile, element)
        assert scales is not None
        run = min(steps, _STEPS_OF_MORE)
        with b.for_(0, steps, run, words) as inner:
            row = b.add(b.add(first, b.mul(loop.index, steps)), inner.index)
            for step, vector in product(range(run), range(tile.vectors)):
                number = coding.number(b, inner.carried[vector], step, element)
                if zeros is not None:
                    number = b.op("sub", number, zeros[vector])
                at = b.add(b.mul(b.add(row, step), tile.panels * PANEL), vector * tile.lanes)
                b.store(memory, at, b.op("mul", number, scales[vector]))
            inner.yield_(*(coding.without(b, word, run) for word in inner.carried))


def words_of_line(
    b: LoopBuilder, coding: BlockCoding, panel: Index, line: Index, tile: TileShape
) -> list[Value]:
    """A line of each of the tile's panels, as vectors of words."""
    memory = coding.words(b)
    return [
        b.load(memory, b.add(coding.place(b, b.add(panel, j), line), column), tile.lanes)
        for j, column in _columns(tile)
    ]


def vectors_of_group(
    b: LoopBuilder,
    coding: BlockCoding,
    argument: tuple[int, DType] | None,
    panel: Index,
    group: Index,
    tile: TileShape,
    element: DType,
) -> list[Value] | None:
    """The scales or zeros of a group of each of the tile's panels; None without any."""
    if argument is None:
        return None
    memory = b.binding(*argument)
    return [
        b.convert(
            b.load(
                memory, b.add(coding.scale_place(b, b.add(panel, j), group), column), tile.lanes
            ),
            element,
        )
        for j, column in _columns(tile)
    ]


def _columns(tile: TileShape) -> list[tuple[int, int]]:
    """Panel and column where each vector of a line begins."""
    return [divmod(vector * tile.lanes, PANEL) for vector in range(tile.vectors)]
