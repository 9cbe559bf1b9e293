"""Places ranges when all their times are known: often in a shorter slab than that of an allocator
which meets them one after the other. The largest come first, or those that live longest, or when
most is in use; each takes the smallest gap between those that lie there at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, from_terms

__all__ = ["Span", "count_of", "pack", "unit_of"]

_MOST = 1 << 62
"""Units in all, as a slab's end is a number of 64 bits; a machine has less."""


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
    if sum(span.length for span in spans) > _MOST:
        return None
    in_use = _InUse(spans)
    least, best = in_use.most, None
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


class _InUse:
    """How many units are in use at a time, which changes when something begins or ends."""

    def __init__(self, spans: Sequence[Span]) -> None:
        changes: dict[int, int] = {}
        for span in spans:
            changes[span.begin] = changes.get(span.begin, 0) + span.length
            changes[span.end] = changes.get(span.end, 0) - span.length
        self.times = np.asarray(sorted(changes))
        self.units = np.cumsum([changes[time] for time in self.times.tolist()])
        self.most = int(self.units.max())

    def while_there(self, span: Span) -> int:
        """The most units at a time of a span."""
        first, end = np.searchsorted(self.times, (span.begin, span.end))
        return int(self.units[first:end].max(initial=0))


_RANKS: Sequence[Callable[[Span, _InUse], tuple[int, int]]] = (
    lambda span, in_use: (span.length, 0),
    lambda span, in_use: (span.length * (span.end - span.begin), 0),
    lambda span, in_use: (span.end - span.begin, 0),
    lambda span, in_use: (in_use.while_there(span), span.end - span.begin),
)
"""What comes first: each is tried. The last are those that live when most is in use."""


def _place(spans: Sequence[Span]) -> list[int]:
    """Each in the smallest gap that those before it leave, else behind them."""
    placed = np.empty((4, len(spans)), np.int64)  # offsets, what lies behind, times; by offset
    offsets: list[int] = []
    for count, span in enumerate(spans):
        low, high, begin, end = placed[:, :count]
        others = np.flatnonzero((begin < span.end) & (span.begin < end))
        ends = np.maximum.accumulate(np.concatenate(([0], high[others])))
        gaps = low[others] - ends[:-1]
        fits = np.flatnonzero(gaps >= span.length)
        offset = int(ends[fits[gaps[fits].argmin()]] if fits.size else ends[-1])
        place = np.searchsorted(low, offset)
        placed[:, place + 1 : count + 1] = placed[:, place:count]
        placed[:, place] = offset, offset + span.length, span.begin, span.end
        offsets.append(offset)
    return offsets
