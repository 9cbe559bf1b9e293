"""The inner loop of every contraction: a tile of the result that stays in registers.

`rows` x `vectors` accumulators; per step of K one element of each row is broadcast and
multiplied with `vectors` vectors of a line of the right side. The loop is not unrolled,
accumulators are separate values, nothing is stored before the last step. Shapes of tiles
are chosen here too, from the register count of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder, dtype_of
from ingot.compiler.kernels.words import Parts
from ingot.hal.spec import DType, dtype

__all__ = [
    "PANEL",
    "TileShape",
    "accumulation_dtype",
    "choose_columns",
    "choose_rows",
    "for_any_rows",
    "for_panels_apart",
    "for_row_tiles",
    "multiply",
    "multiply_add",
    "panel_tile",
    "pitch_of",
    "rows_of_workgroup",
    "side_by_side",
    "tail_heights",
    "zero_tile",
]

PANEL = 16
"""Columns of a panel of the right side."""

SUMMED_HALVES = 64
"""Products that are summed as f16, at most, in each half of a word."""


def accumulation_dtype(a: DType, b: DType, result: DType) -> DType:
    """f32 for the narrow floats, i32 for the narrow integers, else the result's dtype."""
    if result.is_float or a.is_float:
        return dtype("f64") if "f64" in (a.name, b.name, result.name) else dtype("f32")
    return dtype("i64") if max(a.bytes, b.bytes, result.bytes) == 8 else dtype("i32")


@dataclass(frozen=True)
class TileShape:
    """Rows, vectors per row and lanes per vector of a register tile."""

    rows: int
    vectors: int
    lanes: int

    @property
    def panels(self) -> int:
        return self.vectors * self.lanes // PANEL


def panel_tile(rows: int, panels: int, lanes: int) -> TileShape:
    """A tile that is `panels` panels wide."""
    return TileShape(rows, panels * (PANEL // lanes), lanes)


def side_by_side(b: LoopBuilder, panel: Index, tile: TileShape) -> list[Index]:
    """The panels of a tile whose first one is `panel`."""
    return [b.add(panel, j) for j in range(tile.panels)]


def for_panels_apart(
    b: LoopBuilder,
    panels: Dim,
    first: Index,
    count: int,
    at_once: int,
    body: Callable[[list[Index]], None],
) -> None:
    """`body(panels)` for the `count` panels of a workgroup, which would begin at `first` if they
    were side by side, of all `panels`, so many `at_once`. They are as far from each other as can
    be: streams from memory of which each goes on where the workgroup before has left it."""
    pitch = b.dim(panels // at_once)
    with b.for_(0, count // at_once) as loop:
        place = b.add(b.div(first, at_once), loop.index)
        body([b.add(place, b.mul(pitch, j)) for j in range(at_once)])


def choose_columns(panels: Dim, target: TargetInfo, lanes: int) -> int:
    """Panels per tile: three if they divide the columns or registers are few, else four.

    A tile of `p` panels keeps p * PANEL / lanes vectors of the right side and as many
    accumulators per row; at least four rows must fit beside them.
    """
    widest = max(1, min(4, target.register_count // (6 * (PANEL // lanes))))
    if isinstance(panels, int) and panels <= widest:
        return max(panels, 1)
    return 3 if widest == 4 and panels % 3 == 0 else widest


def choose_rows(
    rows: Dim, panels: int, target: TargetInfo, lanes: int, in_words: bool = False
) -> int:
    """Rows per tile: as many as registers allow, split evenly over a known row count. `in_words`:
    without an instruction for `loop.dot4` either side takes two registers, and sums two more. Three
    rows share what is widened even where registers are too few: 60 against 49 GOP/s with SSE."""
    vectors = panels * (PANEL // lanes)
    budget = target.register_count - vectors - 1
    widened = in_words and not target.dot4
    if widened:
        budget -= vectors + 3
    most = min(max(budget // vectors, 3 if widened else 1), 14)
    if vectors == 4 and target.register_count == 32 and not widened:
        most = 7 if isinstance(rows, int) and rows % 7 == 0 else 6
    if vectors == 3 and target.register_count == 32 and not widened:
        most = 8
    if not isinstance(rows, int) or rows == 0:
        return most
    tiles = -(-rows // most)
    return -(-rows // tiles)


def pitch_of(length: int, element: DType) -> int:
    """Elements from row to row of a tile's left side in scratch: whole lines of the cache, but
    no multiple of 4 KB, which would conflict in L1."""
    pitch = -(-length // PANEL) * PANEL
    return pitch if pitch * element.bytes % 4096 else pitch + PANEL


def tail_heights(height: int, tail: int | None) -> tuple[int, ...]:
    """Tile heights for the rows behind full tiles: `tail` of them, or any number (None)."""
    if tail is not None:
        return (tail,) if tail else ()
    heights = []
    while height > 1:
        height //= 2
        heights.append(height)
    return tuple(heights)


def rows_of_workgroup(b: LoopBuilder, axis: int, rows: Dim, most: int) -> tuple[Index, Index]:
    """The first row of a workgroup, of which each has `most` but the last along this axis of the
    grid, and how many it has."""
    if isinstance(rows, int) and rows <= most:
        return 0, rows
    row = b.mul(b.workgroup(axis), most)
    return row, b.min(b.sub(b.dim(rows), row), most)


def for_row_tiles(
    builder: LoopBuilder,
    count: Index,
    heights: Sequence[int],
    body: Callable[[int, Index, list[Value]], Sequence[Value]],
    carried: Sequence[Value] = (),
) -> list[Value]:
    """`body(height, first row, carried)` over `count` rows, as many tiles of each height as fit.

    The body gives the carried values of the next tile; the last ones are returned.
    """
    done: Index = 0
    values = list(carried)
    for height in heights:
        end = builder.add(done, builder.mul(builder.div(builder.sub(count, done), height), height))
        if done != end:
            with builder.for_(done, end, height, values) as loop:
                loop.yield_(*body(height, loop.index, list(loop.carried)))
            values = loop.results
        done = end
    return values


def for_any_rows(
    builder: LoopBuilder,
    count: Index,
    height: int,
    body: Callable[[int, Index, Index | None], None],
) -> None:
    """`body(height, first row, live)` over a count of rows that is known only at the call: tiles of
    which only `live` rows, two or more, are there, then one row. A tile for whole ones alone would
    take as much of a C compiler again, and what it saves is nothing beside a tile's products."""
    b = builder
    if height == 1:
        with b.for_(0, count) as loop:
            body(1, loop.index, None)
        return
    last = b.sub(count, 1)
    with b.for_(0, last, height) as loop:
        live = None if height == 2 else b.min(b.sub(count, loop.index), height)
        body(height, loop.index, live)
    b.if_(b.compare("eq", b.rem(count, height), 1), lambda: body(1, last, None))


def zero_tile(builder: LoopBuilder, element: DType, shape: TileShape) -> list[Value]:
    """Accumulators of zero, row by row."""
    zero = builder.constant(0, element, shape.lanes)
    return [zero] * (shape.rows * shape.vectors)


def multiply(
    builder: LoopBuilder,
    shape: TileShape,
    accumulators: Sequence[Value],
    count: Index,
    left: Callable[[int, Index], Value],
    right: Callable[[Index, int], Value],
    parts: Parts | None = None,
) -> list[Value]:
    """accumulators[row, vector] += sum over k < count of left(row, k) * right(k, vector); `parts`:
    of words, what these hold."""
    if parts is not None and parts[0].name == "f16":
        return _multiply_halves(builder, shape, accumulators, count, left, right)
    return _steps(builder, shape, accumulators, (0, count), left, right, partial(_add, parts))


def _steps(
    builder: LoopBuilder,
    shape: TileShape,
    sums: Sequence[Value],
    steps: tuple[Index, Index],
    left: Callable[[int, Index], Value],
    right: Callable[[Index, int], Value],
    add: Callable[[LoopBuilder, Value, Value, Value], Value],
) -> list[Value]:
    """The sums behind the steps from the first to the last; `add` gives a * b + c."""
    with builder.for_(*steps, 1, sums) as loop:
        lines = [right(loop.index, vector) for vector in range(shape.vectors)]
        following = []
        for row in range(shape.rows):
            element = builder.broadcast(left(row, loop.index), shape.lanes)
            for vector, line in enumerate(lines):
                old = loop.carried[row * shape.vectors + vector]
                following.append(add(builder, element, line, old))
        loop.yield_(*following)
    return loop.results


def _add(parts: Parts | None, builder: LoopBuilder, a: Value, b: Value, c: Value) -> Value:
    return multiply_add(builder, a, b, c, parts)


def _add_halves(builder: LoopBuilder, a: Value, b: Value, c: Value) -> Value:
    return builder.half2("fma2", a, b, c)


def _multiply_halves(
    builder: LoopBuilder,
    shape: TileShape,
    accumulators: Sequence[Value],
    count: Index,
    left: Callable[[int, Index], Value],
    right: Callable[[Index, int], Value],
) -> list[Value]:
    """The same of words of f16: blocks of products are summed as f16, these sums as f32."""
    b, block = builder, SUMMED_HALVES
    if isinstance(count, int) and count:
        block = -(-count // -(-count // SUMMED_HALVES))
    with b.for_(0, count, block, accumulators) as loop:
        zeros = zero_tile(b, dtype("i32"), shape)
        end: Index = b.add(loop.index, block)
        if not isinstance(count, int) or count % block:
            end = b.min(end, count)
        part = _steps(b, shape, zeros, (loop.index, end), left, right, _add_halves)
        loop.yield_(*(b.half2("sum2", *each) for each in zip(part, loop.carried, strict=True)))
    return loop.results


def multiply_add(
    builder: LoopBuilder, a: Value, b: Value, c: Value, parts: Parts | None = None
) -> Value:
    """a * b + c: fused for floats, modulo 2^n for integers, of words part by part."""
    if parts is not None:
        return builder.dot_words(a, b, c, parts)
    if dtype_of(c).is_float:
        return builder.fma(a, b, c)
    return builder.op("add", builder.op("mul", a, b), c)
