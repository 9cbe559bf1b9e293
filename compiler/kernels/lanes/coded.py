"""Products with coded panels: of a few rows with codes as they lie, and panels as numbers.

Few rows: a group's products are summed with the bare codes, less their zeros, which are small
integers and exact; the scale is applied to the sum. So an element costs what taking it out of
its word costs, and the time is that of reading the codes. Many rows: a workgroup makes numbers
of its panels once, for `unpacked_lines`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, product

from ingot.compiler.ir import Value
from ingot.compiler.kernels.coding import I32, BlockCoding, Line, Words
from ingot.compiler.kernels.loop import Index, LoopBuilder, dtype_of
from ingot.compiler.kernels.panel import ask_ahead
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    multiply_add,
    panel_tile,
    zero_tile,
)
from ingot.hal.spec import DType

__all__ = [
    "coded_products",
    "decode_panels",
    "few_rows",
    "few_tile",
    "for_lines",
    "scales_of_group",
    "vectors_of_group",
    "words_of_line",
]


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
    panels: Sequence[Index],
    tile: TileShape,
    left: Callable[[int, Index], Value],
    element: DType,
) -> list[Value]:
    """left(row, step) times these panels, which are the tile's, summed as `element`."""
    group = _Group(builder, coding, panels, tile, left, element)
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
        panels: Sequence[Index],
        tile: TileShape,
        left: Callable[[int, Index], Value],
        element: DType,
    ) -> None:
        self.b, self.coding, self.panels, self.tile = builder, coding, panels, tile
        self.left, self.element = left, element

    def add(self, sums: Sequence[Value], group: Index, count: int) -> list[Value]:
        """The sums after the first `count` steps of the group."""
        b, coding, tile = self.b, self.coding, self.tile
        start = b.mul(group, coding.group)
        first = b.mul(group, coding.group // coding.steps)
        whole, rest = divmod(count, coding.steps)
        zeros = vectors_of_group(b, coding, coding.zeros, self.panels, group, tile, self.element)

        def add_line(part: Sequence[Value], line: Line, before: Index) -> list[Value]:
            step = b.add(start, b.mul(before, coding.steps))
            return self._line(part, line, step, coding.steps, zeros)

        part = for_lines(b, coding, first, whole, zero_tile(b, self.element, tile), add_line)
        if rest:
            step = b.add(start, whole * coding.steps)
            part = self._line(part, coding.line(b, b.add(first, whole)), step, rest, zeros)
        scales = scales_of_group(b, coding, self.panels, group, tile, self.element)
        return [
            multiply_add(b, value, scales[place % tile.vectors], old)
            for place, (value, old) in enumerate(zip(part, sums, strict=True))
        ]

    def _line(
        self,
        sums: Sequence[Value],
        line: Line,
        step: Index,
        count: int,
        zeros: Sequence[Value] | None,
    ) -> list[Value]:
        b, coding, tile = self.b, self.coding, self.tile
        words = [
            coding.signed(b, each) for each in words_of_line(b, coding, self.panels, line, tile)
        ]
        run = _STEPS_OF_FEW if tile.rows <= _FEW else _STEPS_OF_MORE
        if count != coding.steps or count <= run:
            return self._steps(sums, words, step, count, zeros)
        with b.for_(0, count, run, [*_values(words), *sums]) as loop:
            old, totals = _split(loop.carried, words)
            totals = self._steps(totals, old, b.add(step, loop.index), run, zeros)
            loop.yield_(*_values(coding.without(b, each, run) for each in old), *totals)
        return _split(loop.results, words)[1]

    def _steps(
        self,
        sums: Sequence[Value],
        words: Sequence[Words],
        step: Index,
        count: int,
        zeros: Sequence[Value] | None,
    ) -> list[Value]:
        """The sums after the first steps of the words."""
        b, tile, totals = self.b, self.tile, list(sums)
        columns = [self.coding.numbers(b, each, count, self.element) for each in words]
        for k, numbers in enumerate(map(list, zip(*columns, strict=True))):
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
    panels: Sequence[Index],
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
        words = words_of_line(b, coding, panels, coding.line(b, line), tile)
        words = [coding.signed(b, each) for each in words]
        scales = scales_of_group(b, coding, panels, group, tile, element)
        zeros = vectors_of_group(b, coding, coding.zeros, panels, group, tile, element)
        run = min(steps, _STEPS_OF_MORE)
        with b.for_(0, steps, run, [*_values(words)]) as inner:
            row = b.add(b.add(first, b.mul(loop.index, steps)), inner.index)
            old, _ = _split(inner.carried, words)
            columns = [coding.numbers(b, each, run, element) for each in old]
            for step, vector in product(range(run), range(tile.vectors)):
                number = next(columns[vector])
                if zeros is not None:
                    number = b.op("sub", number, zeros[vector])
                at = b.add(b.mul(b.add(row, step), tile.panels * PANEL), vector * tile.lanes)
                b.store(memory, at, b.op("mul", number, scales[vector]))
            inner.yield_(*_values(coding.without(b, each, run) for each in old))


def _values(words: Iterable[Words]) -> Iterator[Value]:
    """What a loop carries for words of lines."""
    return chain.from_iterable(each.values for each in words)


def _split(carried: Sequence[Value], like: Sequence[Words]) -> tuple[list[Words], list[Value]]:
    """What a loop carries as words like these, and the rest."""
    rest = iter(carried)
    words = [Words(tuple(islice(rest, len(each.values))), each.before) for each in like]
    return words, list(rest)


def for_lines(
    b: LoopBuilder,
    coding: BlockCoding,
    first: Index,
    count: int,
    carried: Sequence[Value],
    body: Callable[[Sequence[Value], Line, Index], Sequence[Value]],
) -> Sequence[Value]:
    """What `body(carried, line, lines before it)` makes of `count` lines of a group, whose first is
    `first`. Lines of a run follow one another without a loop: then bits move by known places."""
    few = coding.shared
    if count % few or coding.group // coding.steps % few:
        few = 1

    def run(carried: Sequence[Value], before: Index) -> Sequence[Value]:
        number, place = coding.line(b, b.add(first, before))
        for other in range(few):
            line = number, place if few == 1 else other
            carried = body(carried, line, b.add(before, other))
        return carried

    if count <= few:
        return run(carried, 0) if count else carried
    with b.for_(0, count, few, carried) as loop:
        loop.yield_(*run(loop.carried, loop.index))
    return loop.results


def words_of_line(
    b: LoopBuilder, coding: BlockCoding, panels: Sequence[Index], line: Line, tile: TileShape
) -> list[Words]:
    """A line of each of the tile's panels, as vectors of words."""
    memory, found = b.binding(coding.codes, I32), []
    for j, column in _columns(tile):
        places = coding.places(b, panels[j], line)
        if column == 0:
            for place in places:
                ask_ahead(b, memory, place, I32)
        loaded = [b.load(memory, b.add(place, column), tile.lanes) for place in places]
        found.append(coding.words(b, line, loaded))
    return found


def scales_of_group(
    b: LoopBuilder,
    coding: BlockCoding,
    panels: Sequence[Index],
    group: Index,
    tile: TileShape,
    element: DType,
) -> list[Value]:
    """The scales of a group of each of the tile's panels."""
    scales = vectors_of_group(b, coding, coding.scales, panels, group, tile, element)
    assert scales is not None
    if coding.factors is None:
        return scales
    memory = b.binding(*coding.factors)
    for vector, (j, column) in enumerate(_columns(tile)):
        place = b.add(coding.factor_place(b, panels[j], group), column)
        factor = b.convert(b.load(memory, place, tile.lanes), element)
        scales[vector] = b.op("mul", scales[vector], factor)
    return scales


def vectors_of_group(
    b: LoopBuilder,
    coding: BlockCoding,
    argument: tuple[int, DType] | None,
    panels: Sequence[Index],
    group: Index,
    tile: TileShape,
    element: DType,
) -> list[Value] | None:
    """Zeros, or scales as they lie, of a group of each of the tile's panels; None without any."""
    if argument is None:
        return None
    memory = b.binding(*argument)
    return [
        b.convert(
            b.load(memory, b.add(coding.scale_place(b, panels[j], group), column), tile.lanes),
            element,
        )
        for j, column in _columns(tile)
    ]


def _columns(tile: TileShape) -> list[tuple[int, int]]:
    """Panel and column where each vector of a line begins."""
    return [divmod(vector * tile.lanes, PANEL) for vector in range(tile.vectors)]
