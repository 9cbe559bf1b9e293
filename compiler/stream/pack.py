"""Places ranges when all their times are known: often in a shorter slab than that of an allocator
which meets them one after the other. The largest come first, each in the smallest gap between
those that lie there at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingot.compiler.ir.dims import Dim, Expr, from_terms

__all__ = ["Span", "count_of", "pack", "unit_of"]


@dataclass(frozen=True)
class Span:
    """`length` units from time `begin` to before `end`."""

    length: int
    begin: int
    end: int


_WEIGHTS: Sequence[Callable[[Span], int]] = (
    lambda span: span.length,
    lambda span: span.length * (span.end - span.begin),
    lambda span: span.end - span.begin,
)
"""What makes a range large: each is tried."""


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
    least, best = _most_in_use(spans), None
    for weight in _WEIGHTS:
        if length <= least:
            break
        order = sorted(range(len(spans)), key=lambda place: -weight(spans[place]))
        offsets = dict(zip(order, _place([spans[place] for place in order]), strict=True))
        needed = max(offset + spans[place].length for place, offset in offsets.items())
        if needed < length:
            length, best = needed, [offsets[place] for place in range(len(spans))]
    return None if best is None else (best, length)


def _most_in_use(spans: Sequence[Span]) -> int:
    changes = [(span.begin, span.length) for span in spans]
    changes += [(span.end, -span.length) for span in spans]
    most = live = 0
    for _, change in sorted(changes):
        live += change
        most = max(most, live)
    return most


def _place(spans: Sequence[Span]) -> list[int]:
    """Each in the smallest gap that those before it leave, else behind them."""
    offsets: list[int] = []
    for span in spans:
        others = sorted(
            (offset, offset + other.length)
            for other, offset in zip(spans, offsets, strict=False)
            if other.begin < span.end and span.begin < other.end
        )
        end = 0
        gaps: list[tuple[int, int]] = []
        for low, high in others:
            if low - end >= span.length:
                gaps.append((low - end, end))
            end = max(end, high)
        offsets.append(min(gaps)[1] if gaps else end)
    return offsets
