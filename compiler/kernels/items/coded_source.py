"""A coded weight as a source of tiles: a word has steps of one column, which meet their scale on
the way into local memory or into a product."""

from __future__ import annotations

from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.coding import I32, BlockCoding
from ingot.compiler.kernels.items.group_tile import Source, load_where
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.register_tile import PANEL
from ingot.hal.spec import DType

__all__ = ["coded_source"]

_Line = tuple[Index, Index]
"""Panel and column."""

_Fetched = tuple[Value, Value, Value | None]
"""A word, and the scale and zero of its steps."""


def coded_source(
    builder: LoopBuilder, coding: BlockCoding, element: DType, panel: Index, bound: Dim | None
) -> Source:
    """The columns from `panel` on as lines; panels from `bound` on repeat the last one (None:
    there are none)."""
    b, words = builder, coding.words(builder)

    def prepare(line: Index, offset: int) -> _Line:
        number = b.add(panel, b.add(b.div(line, PANEL), offset // PANEL))
        if bound is not None:
            number = b.min(number, b.sub(b.dim(bound), 1))
        return number, b.rem(line, PANEL)

    def fetch(line: _Line, step: Index, offset: int, live: Value | None) -> _Fetched:
        number, column = line
        at = b.add(step, offset)
        word = b.add(coding.place(b, number, b.div(at, coding.steps)), column)
        place = b.add(coding.scale_place(b, number, coding.group_of(b, at)), column)
        scale, zero = (
            each and load_where(b, live, b.binding(*each), place, each[1])
            for each in (coding.scales, coding.zeros)
        )
        assert scale is not None
        return load_where(b, live, words, word, I32), scale, zero

    def unpack(fetched: _Fetched) -> list[Value]:
        word, scale, zero = fetched
        numbers = [coding.number(b, word, step, element) for step in range(coding.steps)]
        if zero is not None:
            zero = b.convert(zero, element)
            numbers = [b.op("sub", number, zero) for number in numbers]
        scale = b.convert(scale, element)
        return [b.op("mul", number, scale) for number in numbers]

    return Source("panels", prepare, fetch, unpack, coding.steps)
