"""The time of a call, measured: `ingot bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.hal.printable import printable
from ingot.runtime.function import Function
from ingot.runtime.memory import MEMORY_KINDS, MemoryStatistics
from ingot.runtime.model import Model
from ingot.runtime.trace import Trace

__all__ = [
    "Profiled",
    "Times",
    "duration",
    "memory_line",
    "profile_calls",
    "profile_lines",
    "time_calls",
    "trace_calls",
]

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
        return duration(self.median)

    @property
    def minimum_text(self) -> str:
        return duration(self.minimum)


def time_calls(function: Function, inputs: Mapping[str, Any], seconds: float) -> Times:
    """Calls the function for about that long, its tensors written in place."""
    arguments = [inputs[value.name] for value in function.signature.arguments]
    results = function(*arguments)
    made = results if isinstance(results, tuple) else (results,)
    pairs = zip(made, function.signature.results, strict=False)  # none, where it gives nothing
    out = [each if value.kind == "tensor" else None for each, value in pairs]
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


@dataclass(frozen=True)
class Profiled:
    """A kernel or copy of a call: its least time in nanoseconds, and the bytes it touches."""

    kernel: str
    layer: str
    time: int
    length: int


def trace_calls(
    model: Model, function: Function, inputs: Mapping[str, Any], count: int = 20
) -> Trace:
    """What so many calls did."""
    arguments = [inputs[value.name] for value in function.signature.arguments]
    with model.trace() as trace:
        for _ in range(count):
            function(*arguments)
    return trace


def profile_calls(trace: Trace) -> list[Profiled]:
    """The kernels of a call, slowest first, each with its least time in the calls of a trace."""
    found = [
        Profiled(
            runs[0].kernel,
            runs[0].layer,
            min(event.end - event.begin for event in runs),
            runs[0].length,
        )
        for runs in zip(*trace.calls(), strict=False)  # state may end a loop earlier
    ]
    return sorted(found, key=lambda each: -each.time)


def profile_lines(profile: Sequence[Profiled]) -> list[str]:
    """A line per kernel: time, share, layers."""
    total = sum(each.time for each in profile) or 1
    return [
        f"{each.time / 1e3:10.1f} us {each.time / total:6.1%}  {printable(each.kernel)}  "
        f"{printable(each.layer)}"
        for each in profile
    ]


def memory_line(memory: MemoryStatistics) -> str:
    """What the model held at most: "memory 12.3 MB: constants 12.0 MB, slabs 0.3 MB"."""
    kinds = {name: getattr(memory, name).peak for name in MEMORY_KINDS}
    parts = ", ".join(f"{name} {_bytes(length)}" for name, length in kinds.items() if length)
    return f"memory {_bytes(memory.total.peak)}" + (f": {parts}" if parts else "")


def _bytes(length: int) -> str:
    return f"{length / 1e6:.1f} MB" if length >= 1e6 else f"{length / 1e3:.1f} KB"


def duration(seconds: float) -> str:
    """A time for people: "12.30 us"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"
