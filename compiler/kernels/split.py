"""f32 as sums of two or three bf16, for products of f32 in tiles of bf16.

x is the sum of its parts: the nearest bf16, the nearest one to what is left, and so on, each at
most 2^-8 of the one before. Two hold 16 bits of x, three all 24. A product of two numbers is the
sum of those of part i and part j with i + j < parts, three or six; what is left out is below 2^-14
of it with two parts, 2^-22 with three. Subnormal parts, and sums, count as 0.

Parts of what is not finite, or nearly not, are infinite or NaN, and so is every sum that has them.
Sums that are not finite are made anew of the numbers themselves: they are what they are with f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.ir import Value
from ingot.compiler.kernels.loop import Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.register_tile import PANEL, for_row_tiles
from ingot.compiler.kernels.table import DotParts
from ingot.compiler.kernels.tiles import PANELS, TileSide
from ingot.hal.spec import dtype

__all__ = ["CHUNK", "STEPS", "halves_of", "multiply_parts", "replace_infinite", "split", "words_of"]

CHUNK = 16
"""Words that a product of tiles takes at once."""

STEPS = 2 * CHUNK
"""Steps of K in them."""

_F32, _I32 = dtype("f32"), dtype("i32")
_HALF_OF_LAST, _HEAD, _NAN = 1 << 15, -(1 << 16), 0x7FC00000


def split(b: LoopBuilder, x: Value, parts: int) -> list[Value]:
    """The parts of each lane of x, f32, as i32: those of f32 numbers, whose lower halves are 0. Of
    two neighbours that are as near it is the one farther from 0."""
    lanes, found = lanes_of(x), list[Value]()
    is_nan = b.op("compare", x, x, direction="ne")  # to round one may carry into its sign
    for place in range(parts):
        bits = b.op("bitcast", x, dtype=_I32)
        bits = b.op("add", bits, b.constant(_HALF_OF_LAST, _I32, lanes))
        found.append(b.op("and", bits, b.constant(_HEAD, _I32, lanes)))
        if place < parts - 1:
            x = b.op("sub", x, b.op("bitcast", found[-1], dtype=_F32))
    found[0] = b.op("select", is_nan, b.constant(_NAN, _I32, lanes), found[0])
    return found


def halves_of(b: LoopBuilder, part: Value) -> Value:
    """Parts as u16, one bf16 each."""
    return b.convert(b.op("shift_right_logical", part, b.constant(16, _I32)), dtype("u16"))


def words_of(b: LoopBuilder, low: Value, high: Value) -> Value:
    """Words of parts of two steps of K."""
    return b.op("or", b.op("shift_right_logical", low, b.constant(16, _I32)), high)


def multiply_parts(
    b: LoopBuilder,
    sides: tuple[TileSide, TileSide],
    sums: tuple[Value, Index],
    count: tuple[Index, int],
    words: Index,
    parts: int,
    adds: bool = False,
    segments: Index = 1,
) -> None:
    """The sums of one or two tiles of rows and up to four panels, over `words` words of each
    segment. `sides`: words of first parts, and how far it is to those of the next ones (the step of
    a side), and to the next segment on the left (its line pitch); `sums`: where they begin;
    `count`: of rows and panels."""
    (left, right), (memory, at), (rows, width) = sides, sums, count
    for panel in range(0, width, PANELS):
        numbers = (left.at, left.pitch, left.step, left.line_pitch)
        operands = [left.memory, *map(b.value, numbers), right.memory]
        column = b.add(right.at, b.mul(right.pitch, panel))
        operands += [*map(b.value, (column, right.pitch, right.step)), memory]
        operands += map(b.value, (b.add(at, panel * PANEL), rows, words, segments))
        dot = DotParts(parts, min(PANELS, width - panel), width, adds)
        b.append("loop.dot_parts", operands, None, dot)


def replace_infinite(
    b: LoopBuilder,
    sums: tuple[Value, Index],
    count: tuple[Index, int],
    heights: Sequence[int],
    multiply: Callable[[int, Index], Sequence[Value]],
) -> None:
    """Make the sums of rows and panels anew, if one of them is not finite: `multiply(height, row)`
    gives those of so many rows, of one of the heights, from a row on."""
    (memory, at), (rows, width) = sums, count
    length = b.mul(rows, width * PANEL)
    zero = b.constant(0, _F32, PANEL)
    with b.for_(0, length, PANEL, [zero]) as loop:  # 0 times it is NaN
        value = b.load(memory, b.add(at, loop.index), PANEL)
        loop.yield_(b.fma(value, zero, loop.carried[0]))
    infinite = b.any(b.op("compare", loop.results[0], zero, direction="ne"))

    def body(height: int, row: Index, _: object) -> tuple[()]:
        first = b.add(at, b.mul(row, width * PANEL))
        place = 0
        for value in multiply(height, row):
            b.store(memory, b.add(first, place), value)
            place += lanes_of(value)
        return ()

    def again() -> None:
        for_row_tiles(b, rows, heights, body)

    b.if_(infinite, again)
