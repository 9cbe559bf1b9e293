"""The time of a call, measured: `ingot bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingot.runtime.model import Function, Model

__all__ = ["Times", "profile_calls", "time_calls"]

_WARM_UP_CALLS = 3
_MAX_CALLS = 100_000


@dataclass(frozen=True)
class Times:
    """Seconds per call."""

    median: float
    minimum: float
    count: int

    @property
    def median_text(self) -> str:
        return _duration(self.median)

    @property
    def minimum_text(self) -> str:
        return _duration(self.minimum)


def time_calls(function: Function, inputs: Mapping[str, Any], seconds: float) -> Times:
    """Calls the function for about that long, its results written in place."""
    arguments = [inputs[value.name] for value in function.signature.arguments]
    results = function(*arguments)
    out = results if isinstance(results, tuple) else (results,) if results is not None else None
    for _ in range(_WARM_UP_CALLS):
        function(*arguments, out=out)
    times: list[float] = []
    end = time.perf_counter() + seconds
    begin = time.perf_counter()
    while not times or (begin < end and len(times) < _MAX_CALLS):
        function(*arguments, out=out)
        now = time.perf_counter()
        times.append(now - begin)
        begin = now
    return Times(statistics.median(times), min(times), len(times))


def profile_calls(
    model: Model, function: Function, inputs: Mapping[str, Any], count: int = 20
) -> list[str]:
    """A line per kernel of a call, slowest first: least time of `count` calls, share, layers."""
    arguments = [inputs[value.name] for value in function.signature.arguments]
    rounds = []
    for _ in range(count):
        with model.trace() as events:
            function(*arguments)
        rounds.append(events)
    least = [
        (min(event.end - event.begin for event in runs), runs[0])
        for runs in zip(*rounds, strict=True)
    ]
    total = sum(time for time, _ in least) or 1
    least.sort(key=lambda pair: -pair[0])
    return [
        f"{time / 1e3:10.1f} us {time / total:6.1%}  {event.kernel}  {event.layer}"
        for time, event in least
    ]


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"
