"""A coded weight as a source of tiles: a word has steps of one column, which meet their scale on
the way into local memory or into a product."""

from __future__ import annotations

from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.coding import I32, BlockCoding, Words
from ingot.compiler.kernels.items.group_tile import Source, load_where
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.register_tile import PANEL
from ingot.hal.spec import DType

__all__ = ["coded_source"]

_Line = tuple[Index, Index]
"""Panel and column."""

_Fetched = tuple[Words, Value, Value | None, Value | None]
"""The words of a line, and the scale, factor and zero of its steps."""


def coded_source(
    builder: LoopBuilder, coding: BlockCoding, element: DType, panel: Index, bound: Dim | None
) -> Source:
    """The columns from `panel` on as lines; panels from `bound` on repeat the last one (None:
    there are none)."""
    b, memory = builder, builder.binding(coding.codes, I32)

    def prepare(line: Index, offset: int) -> _Line:
        number = b.add(panel, b.add(b.div(line, PANEL), offset // PANEL))
        if bound is not None:
            number = b.min(number, b.sub(b.dim(bound), 1))
        return number, b.rem(line, PANEL)

    def fetch(line: _Line, step: Index, offset: int, live: Value | None) -> _Fetched:
        number, column = line
        at = b.add(step, offset)
        row, group = coding.line(b, b.div(at, coding.steps)), coding.group_of(b, at)
        places = coding.places(b, number, row)
        loaded = [load_where(b, live, memory, b.add(place, column), I32) for place in places]

        def small(part: tuple[int, DType] | None, place: Index) -> Value | None:
            return part and load_where(b, live, b.binding(*part), b.add(place, column), part[1])

        place = coding.scale_place(b, number, group)
        scale, zero = small(coding.scales, place), small(coding.zeros, place)
        factor = coding.factors and small(coding.factors, coding.factor_place(b, number, group))
        assert scale is not None
        return coding.signed(b, coding.words(b, row, loaded)), scale, factor, zero

    def unpack(fetched: _Fetched) -> list[Value]:
        words, scale, factor, zero = fetched
        numbers = [*coding.numbers(b, words, coding.steps, element)]
        if zero is not None:
            zero = b.convert(zero, element)
            numbers = [b.op("sub", number, zero) for number in numbers]
        scale = b.convert(scale, element)
        if factor is not None:
            scale = b.op("mul", scale, b.convert(factor, element))
        return [b.op("mul", number, scale) for number in numbers]

    return Source("panels", prepare, fetch, unpack, coding.steps)
