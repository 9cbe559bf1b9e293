"""A simulated allocator over one slab whose sizes may be symbolic.

Ranges are kept in address order. A new range takes the smallest hole that is proven large
enough, else it goes behind all others. Equal sizes therefore always find each other's
holes, whatever their symbols are. When all is known, `pack` may move the ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.compiler.ir.dims import Dim, bounds, ceildiv, from_terms, maximum, prove_le
from ingot.compiler.stream.data import ALIGNMENT
from ingot.compiler.stream.pack import Span, count_of, pack, unit_of

__all__ = ["Range", "Slab", "align"]

_GREATEST_WASTE = 1.25


@dataclass(eq=False)
class Range:
    """Bytes [offset, offset + length) of the slab; `before` and `after` are its neighbours."""

    offset: Dim
    length: Dim
    is_free: bool = False
    before: Range | None = None
    after: Range | None = None


class Slab:
    """Hands out ranges and takes them back; `peak` is the length that all of it needs."""

    def __init__(self, symbols: Mapping[str, tuple[int, int | None]]) -> None:
        self._bounds = symbols
        self._last: Range | None = None
        self._holes: dict[Dim, dict[Range, None]] = {}  # by length: each is compared once
        self._ends: list[Dim] = []  # greatest ends so far, none proven below another

    def allocate(self, length: Dim) -> Range:
        """A range of at least `length` bytes on a 64-byte boundary."""
        length = align(length, self._bounds)
        hole = self._smallest_hole(length)
        if hole is None:
            return self._append(length)
        self._remove(hole)
        range_ = self._take(hole)
        rest = hole.length - length
        if rest != 0:
            self._split(range_, length, rest)
        return range_

    def free(self, range_: Range) -> None:
        """Give a range back; it joins the holes beside it."""
        range_.is_free = True
        before, after = range_.before, range_.after
        if after is not None and after.is_free:
            self._remove(after)
            self._join(range_, after)
        if before is not None and before.is_free:
            self._remove(before)
            self._join(before, range_)
            range_ = before
        if range_.after is None:
            self._last = range_.before
            if self._last is not None:
                self._last.after = None
        else:
            self._add(range_)

    def fits(self, length: Dim, range_: Range) -> bool:
        """Whether `length` bytes are proven to fit into the range."""
        return self._le(align(length, self._bounds), range_.length)

    def peak(self) -> Dim:
        """The length of the slab: the greatest end that any range had."""
        result: Dim = 0
        for end in self._ends:
            result = maximum(result, end)
        return result

    def pack(self, ranges: Mapping[Range, tuple[Dim, int, int]]) -> None:
        """Move all ranges that there were if that makes the slab shorter. By range its length,
        and the times when it was taken and given back."""
        unit = unit_of([*self._ends, *(length for length, _, _ in ranges.values())])
        if unit is None:
            return
        spans = [Span(count_of(length), *times) for length, *times in ranges.values()]
        packed = pack(spans, max(map(count_of, self._ends)))
        if packed is not None:
            offsets, length = packed
            self._ends = [length * unit]
            for range_, offset in zip(ranges, offsets, strict=True):
                range_.offset = offset * unit

    def _smallest_hole(self, length: Dim) -> Range | None:
        best: Dim | None = length if length in self._holes else None
        if best is None:
            for each in self._holes:
                if self._le(length, each) and (best is None or self._le(each, best)):
                    best = each
        return None if best is None else next(iter(self._holes[best]))

    def _append(self, length: Dim) -> Range:
        last = self._last
        offset: Dim = 0 if last is None else last.offset + last.length
        range_ = Range(offset, length, before=last)
        if last is not None:
            last.after = range_
        self._last = range_
        end = offset + length
        if not any(self._is_below(end, other) for other in self._ends):
            self._ends = [other for other in self._ends if not self._is_below(other, end)]
            self._ends.append(end)
        return range_

    def _is_below(self, end: Dim, other: Dim) -> bool:
        """Whether that is seen at once: an end more is an operand more of the greatest."""
        return end == other or prove_le(end, other, self._bounds, searches=False)

    def _take(self, hole: Range) -> Range:
        """A range in the place of the hole: what had lain there keeps its own."""
        range_ = Range(hole.offset, hole.length, False, hole.before, hole.after)
        if hole.before is not None:
            hole.before.after = range_
        if hole.after is not None:
            hole.after.before = range_
        return range_

    def _split(self, range_: Range, length: Dim, rest: Dim) -> None:
        hole = Range(range_.offset + length, rest, True, range_, range_.after)
        if range_.after is not None:
            range_.after.before = hole
        range_.after, range_.length = hole, length
        self._add(hole)

    def _add(self, hole: Range) -> None:
        self._holes.setdefault(hole.length, {})[hole] = None

    def _remove(self, hole: Range) -> None:
        holes = self._holes[hole.length]
        del holes[hole]
        if not holes:
            del self._holes[hole.length]

    def _join(self, first: Range, second: Range) -> None:
        first.length = first.length + second.length
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        if self._last is second:
            self._last = first

    def _le(self, a: Dim, b: Dim) -> bool:
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        return a == b or prove_le(a, b, self._bounds)


def align(length: Dim, symbols: Mapping[str, tuple[int, int | None]]) -> Dim:
    """`length` rounded up to 64 bytes.

    A symbolic length is rounded term by term where that wastes little: a polynomial can be
    compared with other sizes, a rounded quotient hardly.
    """
    if isinstance(length, int):
        return -(-length // ALIGNMENT) * ALIGNMENT
    terms: Dim = 0
    for monomial, coefficient in length.terms:
        factor = -(-coefficient // ALIGNMENT) * ALIGNMENT
        one: Dim = from_terms([(monomial, 1)])
        if factor > coefficient * _GREATEST_WASTE or bounds(one, symbols)[0] < 0:
            return ceildiv(length, ALIGNMENT) * ALIGNMENT
        terms = terms + one * factor
    return terms
