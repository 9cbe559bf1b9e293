"""A figure of benchmarks/runtime.py: what is measured, and how its sides take turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from table import format_seconds

ROUNDS, SECONDS = 7, 0.05


@dataclass(frozen=True)
class Row:
    """`sides` do one piece of work each, `count` of which are one unit; `facts` are figures that
    are no times, as they are printed."""

    name: str
    sides: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    count: int = 1
    facts: Mapping[str, str] = field(default_factory=dict)


def measure(row: Row) -> Iterator[tuple[str, str, str]]:
    """Lines of the table: name, side, figure."""
    best = dict.fromkeys(row.sides, math.inf)
    for _ in range(ROUNDS):
        for side, work in row.sides.items():
            best[side] = min(best[side], _least(work))
    figures = {side: format_seconds(time / row.count) for side, time in best.items()}
    name = row.name
    for side, figure in (figures | dict(row.facts)).items():
        yield name, side, figure
        name = ""


def _least(work: Callable[[], object]) -> float:
    """The least time of one call among those of a short while."""
    best, end = math.inf, time.perf_counter() + SECONDS
    while True:
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
