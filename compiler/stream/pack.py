"""Places ranges when all their times are known: often in a shorter slab than that of an allocator
which meets them one after the other. The largest come first, or those that live longest, or when
most is in use; each takes the smallest gap between those that lie there at the same time.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from itertools import accumulate

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, from_terms

__all__ = ["Span", "count_of", "pack", "unit_of"]


@dataclass(frozen=True)
class Span:
    """`length` units from time `begin` to before `end`."""

    length: int
    begin: int
    end: int


def unit_of(lengths: Sequence[Dim]) -> Dim | None:
    """The product of symbols of which all lengths are multiples, 1 if all are numbers; None if
    they have none in common, or none at all."""
    monomials = {
        monomial
        for length in lengths
        if length != 0
        for monomial, _ in (length.terms if isinstance(length, Expr) else [((), 1)])
    }
    return from_terms([(monomials.pop(), 1)]) if len(monomials) == 1 else None


def count_of(length: Dim) -> int:
    """How many units a length is."""
    return length.terms[0][1] if isinstance(length, Expr) else length


def pack(spans: Sequence[Span], length: int) -> tuple[list[int], int] | None:
    """Offsets in a slab that is shorter than `length`, and its length; None if none is found."""
    in_use = _in_use(spans)
    least, best = max(live for _, live in in_use), None
    for rank in _RANKS:
        if length <= least:
            break
        ranks = [rank(span, in_use) for span in spans]
        order = sorted(range(len(spans)), key=lambda place: ranks[place], reverse=True)
        offsets = dict(zip(order, _place([spans[place] for place in order]), strict=True))
        needed = max(offset + spans[place].length for place, offset in offsets.items())
        if needed < length:
            length, best = needed, [offsets[place] for place in range(len(spans))]
    return None if best is None else (best, length)


_InUse = Sequence[tuple[int, int]]


def _in_use(spans: Sequence[Span]) -> _InUse:
    """Times when something begins or ends, and the units that are in use from then on."""
    changes: dict[int, int] = {}
    for span in spans:
        changes[span.begin] = changes.get(span.begin, 0) + span.length
        changes[span.end] = changes.get(span.end, 0) - span.length
    times = sorted(changes)
    return list(zip(times, accumulate(changes[time] for time in times), strict=True))


def _by_crowd(span: Span, in_use: _InUse) -> tuple[int, int]:
    most = max((live for time, live in in_use if span.begin <= time < span.end), default=0)
    return most, span.end - span.begin


_RANKS: Sequence[Callable[[Span, _InUse], tuple[int, int]]] = (
    lambda span, in_use: (span.length, 0),
    lambda span, in_use: (span.length * (span.end - span.begin), 0),
    lambda span, in_use: (span.end - span.begin, 0),
    _by_crowd,
)
"""What comes first: each is tried. The last are those that live when most is in use."""


def _place(spans: Sequence[Span]) -> list[int]:
    """Each in the smallest gap that those before it leave, else behind them."""
    placed: list[tuple[int, int, int, int]] = []  # offsets, what lies behind, times; sorted
    offsets: list[int] = []
    for span in spans:
        length, begin, end = span.length, span.begin, span.end
        others = [each for each in placed if each[2] < end and begin < each[3]]
        last = 0
        gaps: list[tuple[int, int]] = []
        for low, high, _, _ in others:
            if low - last >= length:
                gaps.append((low - last, last))
            if high > last:
                last = high
        offset = min(gaps)[1] if gaps else last
        insort(placed, (offset, offset + length, begin, end))
        offsets.append(offset)
    return offsets
