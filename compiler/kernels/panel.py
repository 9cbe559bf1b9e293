"""Reading a packed weight: one vector of columns at one step of K.

A panel holds 16 columns in lines of `s` K-steps, s = 4 / itemsize: [K / s, 16, s]. For 4
byte elements and wider a line is one step and a plain load. Narrower ones are loaded as
the 32-bit lane that all their steps share, and the wanted step is shifted out of it, so
that any K and any start inside a line work. Where many rows meet the same columns, a
workgroup unpacks these once, into lines of one step of the wider dtype in scratch. Where few
do, panels are multiplied as they lie: a vector has all steps of a few columns, and meets the
left side's elements of these steps, repeated; steps are added at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, product
from ingot.compiler.kernels.loop import Index, LoopBuilder, dtype_of, lanes_of
from ingot.compiler.kernels.product import Product
from ingot.compiler.kernels.register_tile import PANEL, TileShape, multiply_add, panel_tile
from ingot.hal.spec import DType, dtype

__all__ = [
    "CACHE_LINE",
    "STREAMS",
    "Turn",
    "ask_ahead",
    "asking",
    "interleaved",
    "interleaved_length",
    "is_long",
    "panel_lines",
    "shift_out",
    "streamed_tile",
    "unpack_panels",
    "unpacked_lines",
]

I32 = dtype("i32")

STREAMS = 2
"""Panels that few rows read at once, where these come from memory. Two that lie far apart are two
streams: 600 MB of Q4_0 come with 14.5 GB/s in one, 16.8 in two, 16.6 in three and 15.9 in four; in
two of panels side by side 15.3. A plain read gets 15 to 18.8, one thread, pages of 2 MB."""

AHEAD = 3072, 1024
"""Bytes from a line that few rows meet to those that are asked for meanwhile: the processor's own
prefetching does not keep up. Reading 600 MB of Q4_0 with one row, two panels at once, with
pages of 2 MB: 16.3 GB/s at 1 KB, 16.4 at 2, 16.8 at 3 and 16.3 at 4; one panel at 8 KB 14.5. Lines
that have not come are asked for again: 538 MB of f32 at 3 KB 33.0 ms, and again at 1 KB 32.0."""

CACHE_LINE = 64

LONG = 128 << 10
"""Bytes of a weight from which it is taken to come from farther than L2 at every call."""

LONGER_THAN_L2 = 2 << 20
"""Bytes of a weight that does not stay in L2, whatever else a program has. Shorter ones may from
step to step of a loop: 576 x 576 of f32 there take 8.8 us in panels of four and nothing asked for,
12.6 in two that are asked for."""

SOME_TURNS = 6
"""Stands for a count of turns that only the call knows: with fewer of them not all is asked for."""

FRACTION = 16
"""Bits of a rate behind the point."""


@dataclass(frozen=True)
class Turn:
    """That tiles of rows, `count` of them, meet the same panels one after another, and that this
    one is number `place`."""

    place: Index
    count: Index


def panel_lines(
    builder: LoopBuilder,
    binding: tuple[int, DType],
    element: DType,
    depth: Dim,
    panel: Index,
    tile: TileShape,
    start: Index = 0,
    turn: Turn | None = None,
    is_streamed: bool = False,
) -> Callable[[Index, int], Value]:
    """A reader of vector v at step start + k, as `element`, from panel `panel` on.

    `binding`: ordinal and dtype of the weight; `depth`: all of K. In each `turn` a part of the
    panels of the next columns is asked for, so that weights come while others are multiplied;
    where all rows meet them at once (`is_streamed`), lines are asked for ahead.
    """
    ordinal, stored = binding
    steps = max(1, 4 // stored.bytes)
    memory = builder.binding(ordinal, stored if steps == 1 else I32)
    per_panel = PANEL // tile.lanes
    lines = builder.dim(ceildiv(depth, steps))
    length = builder.mul(lines, PANEL)
    bases = [builder.mul(builder.add(panel, j), length) for j in range(tile.panels)]
    ask = asking(builder, memory, builder.add(panel, tile.panels), lines, tile, turn)

    def line(k: Index, vector: int) -> Value:
        step = builder.add(start, k)
        place = builder.div(step, steps)
        if vector == 0:
            ask(place)
        place = builder.mul(place, PANEL)
        at = builder.add(bases[vector // per_panel], place)
        column = vector % per_panel * tile.lanes
        at = builder.add(at, column)
        if is_streamed and column * stored.bytes % CACHE_LINE == 0:
            ask_ahead(builder, memory, at, stored)
        value = builder.load(memory, at, tile.lanes)
        if steps > 1:
            value = shift_out(builder, value, builder.rem(step, steps), stored)
        return builder.convert(value, element)

    return line


def is_long(dtype: DType, depth: Dim, columns: Dim, least: int = LONG) -> bool:
    """Whether a weight is known to be so long that it is worth asking for it ahead."""
    length = product((depth, columns, dtype.bytes))
    return isinstance(length, int) and length >= least


def streamed_tile(p: Product, registers: int, lanes: int) -> TileShape | None:
    """The tile of all rows of a product that waits for its weight to come from memory, lines as
    they lie."""
    right, vectors = p.right, STREAMS * PANEL // lanes
    if not (right.packed and right.dtype.bytes >= 4 and isinstance(p.rows, int) and p.rows):
        return None
    if (p.rows + 1) * vectors >= registers or not isinstance(p.columns, int):
        return None
    if not is_long(right.dtype, p.depth, p.columns, LONGER_THAN_L2):
        return None
    return panel_tile(p.rows, min(STREAMS, -(-p.columns // PANEL)), lanes)


def asking(
    b: LoopBuilder, memory: Value, panel: Index, lines: Index, tile: TileShape, turn: Turn | None
) -> Callable[[Index], None]:
    """Asks at line k of a turn for the part of the panels from `panel` on that falls to it.

    All turns ask for as much, or the first ones would wait for memory: 128 rows x 1536 x 384 of
    f32 with AVX-512, weights in L3: 968 us where three of 16 turns asked for a panel each, 894
    where all do and in every fourth step, 1006 where none does.
    """
    if turn is None:
        return lambda line: None
    every = SOME_TURNS // tile.panels
    if isinstance(turn.count, int):
        every = max(turn.count // tile.panels, 1)
    every = 1 << (every.bit_length() - 1)
    count = -(-tile.panels * every // turn.count) if isinstance(turn.count, int) else 1
    # lines asked for per step, rounded up
    rate = b.div(b.add(b.sub(turn.count, 1), tile.panels << FRACTION), turn.count)
    first = b.div(b.mul(b.mul(turn.place, lines), tile.panels), turn.count)
    first = b.add(b.mul(panel, lines), first)

    def ask(line: Index) -> None:
        at = b.add(first, b.div(b.mul(line, rate), 1 << FRACTION))
        for place in range(count):
            b.prefetch(memory, b.mul(b.add(at, place), PANEL))

    def sometimes(line: Index) -> None:
        b.if_(b.compare("eq", b.rem(line, every), 0), lambda: ask(line))

    return ask if every == 1 else sometimes


def ask_ahead(b: LoopBuilder, memory: Value, place: Index, stored: DType) -> None:
    """Asks for the lines of the cache that are met some time after the one with this element."""
    for distance in AHEAD:
        b.prefetch(memory, b.add(place, distance // stored.bytes), soon=True)


def unpack_panels(
    builder: LoopBuilder,
    binding: tuple[int, DType],
    depth: Dim,
    panel: Index,
    tile: TileShape,
    memory: Value,
    part: tuple[Index, Index],
    first: Index = 0,
) -> None:
    """Store steps [start, start + count) = `part` of the tile's panels in `memory`, from line
    `first` on, for `unpacked_lines`.

    Whole lines: `start` begins one, and `memory` has room for the last one's steps.
    """
    start, count = part
    b, lanes = builder, tile.lanes
    steps = max(1, 4 // binding[1].bytes)
    length = b.mul(b.dim(ceildiv(depth, steps)), PANEL * steps)
    with b.for_(0, b.div(b.add(count, steps - 1), steps)) as loop:
        line = b.mul(b.add(b.div(start, steps), loop.index), PANEL * steps)
        for vector in range(tile.vectors):
            j, column = divmod(vector * lanes, PANEL)
            at = b.add(b.add(b.mul(b.add(panel, j), length), line), column * steps)
            for step, value in enumerate(_steps(b, binding, at, lanes, dtype_of(memory))):
                row = b.add(b.add(first, b.mul(loop.index, steps)), step)
                b.store(memory, b.add(b.mul(row, tile.panels * PANEL), vector * lanes), value)


def _steps(
    b: LoopBuilder, binding: tuple[int, DType], at: Index, lanes: int, element: DType
) -> list[Value]:
    """Vectors of the steps of a line from element `at` on. Those of bf16 are halves of words, an
    instruction each; others are converted as they lie."""
    steps = max(1, 4 // binding[1].bytes)
    if binding[1].name == "bf16":
        word = b.load(b.binding(binding[0], I32), b.div(at, steps), lanes)
        low = b.op("shift_left", word, b.constant(16, I32))
        high = b.op("and", word, b.constant(-1 << 16, I32))
        return [b.op("bitcast", half, dtype=element) for half in (low, high)]
    source = b.binding(*binding)
    parts = [b.load(source, b.add(at, part * lanes), lanes) for part in range(steps)]
    return _unzip(b, [b.convert(part, element) for part in parts])


def _unzip(b: LoopBuilder, parts: Sequence[Value]) -> list[Value]:
    """Elements i, i + n, i + 2n, ... of n vectors one after another, for each i < n = 2^m."""
    if len(parts) == 1:
        return list(parts)
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    even, odd = (
        _unzip(b, [b.shuffle(x, y, range(first, 2 * lanes_of(x), 2)) for x, y in pairs])
        for first in (0, 1)
    )
    return [value for pair in zip(even, odd, strict=True) for value in pair]


def unpacked_lines(
    builder: LoopBuilder, memory: Value, tile: TileShape, start: Index = 0
) -> Callable[[Index, int], Value]:
    """A reader of vector v at step start + k from panels that lie in scratch side by side."""
    width = tile.panels * PANEL

    def line(k: Index, vector: int) -> Value:
        at = builder.mul(builder.add(start, k), width)
        return builder.load(memory, builder.add(at, vector * tile.lanes), tile.lanes)

    return line


def interleaved(
    builder: LoopBuilder,
    binding: tuple[int, DType],
    depth: int,
    panels: Sequence[Index],
    tile: TileShape,
    left: tuple[Value, Sequence[Index]],
    memory: Value,
) -> list[Value]:
    """left times the tile's panels. `left`: memory, and where each row begins; `memory`: scratch
    of `interleaved_length` bytes, of the sums' dtype."""
    b, lanes, (ordinal, stored) = builder, tile.lanes, binding
    steps, element = 4 // stored.bytes, dtype_of(memory)
    lines = -(-depth // steps)
    pitch = -(-depth // lanes) * lanes // steps * lanes
    for row, base in enumerate(left[1]):
        with b.for_(0, depth, lanes) as loop:
            live = None if depth % lanes == 0 else b.min(b.sub(depth, loop.index), lanes)
            value = b.convert(b.load(left[0], b.add(base, loop.index), lanes, live), element)
            at = b.add(row * pitch, b.mul(b.div(loop.index, steps), lanes))
            for place in range(lanes // steps):
                order = [place * steps + lane % steps for lane in range(lanes)]
                b.store(memory, b.add(at, place * lanes), b.shuffle(value, value, order))
    source, length = b.binding(ordinal, stored), lines * PANEL * steps
    parts = tile.vectors * steps  # vectors of a line, panels side by side
    zero = b.constant(0, element, lanes)
    with b.for_(0, lines, 1, [zero] * (tile.rows * parts)) as loop:
        sums = list(loop.carried)
        repeated = [
            b.load(memory, b.add(row * pitch, b.mul(loop.index, lanes)), lanes)
            for row in range(tile.rows)
        ]
        for part in range(parts):
            j, column = divmod(part * lanes, PANEL * steps)
            at = b.add(b.mul(panels[j], length), b.mul(loop.index, PANEL * steps))
            if column * stored.bytes % CACHE_LINE == 0:
                ask_ahead(b, source, b.add(at, column), stored)
            line = b.convert(b.load(source, b.add(at, column), lanes), element)
            for place, a in zip(range(part, len(sums), parts), repeated, strict=True):
                sums[place] = multiply_add(b, a, line, sums[place])
        loop.yield_(*sums)
    groups = [loop.results[i : i + steps] for i in range(0, len(sums), steps)]
    return [reduce(partial(b.op, "add"), _unzip(b, group)) for group in groups]


def interleaved_length(depth: int, stored: DType, tile: TileShape) -> int:
    """Bytes of scratch for the repeated elements of the left side."""
    return -(-depth // tile.lanes) * tile.lanes * stored.bytes * tile.lanes * tile.rows


def shift_out(builder: LoopBuilder, lane: Value, step: Index, stored: DType) -> Value:
    """Step `step` of a 32-bit lane."""
    bits = stored.bytes * 8
    up = builder.sub(32 - bits, builder.mul(step, bits))
    high = builder.op("shift_left", lane, builder.convert(builder.value(up), I32))
    down = builder.constant(32 - bits, I32)
    if stored.name == "bf16":
        high = builder.op("and", high, builder.constant(-1 << bits, I32))
        return builder.op("bitcast", high, dtype=dtype("f32"))
    signed = stored.kind == "i"
    shift = "shift_right_arithmetic" if signed else "shift_right_logical"
    low = builder.op(shift, high, down)
    if stored.is_float:
        half = builder.convert(low, dtype("u16"))
        return builder.op("bitcast", half, dtype=stored)
    return low
