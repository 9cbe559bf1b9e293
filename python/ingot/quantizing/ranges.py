"""The range of numbers that an activation's codes stand for, from what calibration data shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingot.compiler.graph.quantizing.insert_codes import GREATEST_CODE, Range

__all__ = ["METHODS", "Histogram", "range_of"]

METHODS = ("minmax", "entropy", "mse")

_Array = np.ndarray[Any, Any]

_BINS = 8192
_SHRINKS = np.linspace(1.0, 0.1, 46)
"""Parts of the range that are tried."""

_TURNS = 2
"""How often each end is moved."""


@dataclass
class Histogram:
    """How often which numbers occur: first `widen` with all of them, then `add`. Zeros are not
    counted: each range has a code for them, so they tell nothing of it."""

    low: float = 0.0
    high: float = 0.0
    counts: _Array = field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def widen(self, x: _Array) -> None:
        if x.size:
            self.low = min(self.low, float(x.min()))
            self.high = max(self.high, float(x.max()))

    def add(self, x: _Array) -> None:
        if self.high > self.low:
            self.counts += np.histogram(x[x != 0], _BINS, (self.low, self.high))[0]

    @property
    def middles(self) -> _Array:
        edges = np.linspace(self.low, self.high, _BINS + 1)
        return (edges[1:] + edges[:-1]) / 2


def range_of(histogram: Histogram, method: str) -> Range:
    """`method`: one of METHODS. All that occurs (minmax), the range whose numbers have the least
    squared error (mse), or whose distribution diverges least from what it was (entropy)."""
    ends = histogram.low, histogram.high
    if method == "mse":
        ends = _closest(histogram)
    elif method == "entropy":
        ends = _likeliest(histogram)
    return _range(*ends)


def _range(low: float, high: float) -> Range:
    scale = float(np.float32((high - low) / GREATEST_CODE))
    if not scale > np.finfo(np.float32).tiny:
        return Range(1.0, 0)
    return Range(scale, int(np.clip(np.rint(-low / scale), 0, GREATEST_CODE)))


def _closest(histogram: Histogram) -> tuple[float, float]:
    """Ends of the range with the least squared error, moved in turns."""
    seen = histogram.counts > 0
    x, counts = histogram.middles[seen], histogram.counts[seen]

    def error(ends: tuple[float, float]) -> float:
        off = _range(*ends).rounded(x) - x
        return float(np.dot(off * off, counts))

    ends = histogram.low, histogram.high
    for _ in range(_TURNS):
        ends = min(((ends[0], histogram.high * part) for part in _SHRINKS), key=error)
        ends = min(((histogram.low * part, ends[1]) for part in _SHRINKS), key=error)
    return ends


def _likeliest(histogram: Histogram) -> tuple[float, float]:
    """Ends of the range with the least Kullback-Leibler divergence, as far from 0 or less."""
    greatest, middles = max(-histogram.low, histogram.high), histogram.middles
    ends, least = (histogram.low, histogram.high), np.inf
    for part in _SHRINKS:
        low, high = max(histogram.low, -greatest * part), min(histogram.high, greatest * part)
        found = _divergence(histogram.counts, (middles >= low) & (middles <= high))
        if found < least:
            least, ends = found, (low, high)
    return ends


def _divergence(counts: _Array, inside: _Array) -> float:
    """Of the distribution with what is outside at its ends, from that of the numbers inside in as
    many steps as there are codes."""
    places = np.flatnonzero(inside)
    if places.size <= GREATEST_CODE:
        return float("inf")
    first, last = int(places[0]), int(places[-1])
    kept = counts[first : last + 1].astype(np.float64)
    reference = kept.copy()
    reference[0] += counts[:first].sum()
    reference[-1] += counts[last + 1 :].sum()
    step = np.arange(kept.size) * (GREATEST_CODE + 1) // kept.size
    totals = np.bincount(step, kept, GREATEST_CODE + 1)
    seen = np.bincount(step, reference > 0, GREATEST_CODE + 1)
    quantised = np.where(reference > 0, totals[step] / np.maximum(seen[step], 1), 0.0)
    if not quantised.sum():
        return float("inf")
    p, q = reference / reference.sum(), quantised / quantised.sum()
    is_lost = (p > 0) & (q == 0)
    smoothed = np.where(is_lost, 1e-9, q)
    return float(np.sum(p[p > 0] * np.log(p[p > 0] / smoothed[p > 0])))
