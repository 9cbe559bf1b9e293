"""What quantising costs and gains: errors of results, times of layers, and what a roofline says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.compiler.module import Module
from ingot.compiler.report import DispatchReport
from ingot.inputs import sizes_of
from ingot.quantizing.calibration import results_of
from ingot.quantizing.samples import Sample
from ingot.runtime.model import Model, load
from ingot.timing import profile_calls, time_calls, trace_calls

__all__ = ["Measured", "Program", "ResultError", "Roofline", "compare_results", "measure"]

_Array = np.ndarray[Any, Any]

_ROUNDS = 4
_TURN = 0.1  # seconds
_TRACED = 6  # calls


@dataclass(frozen=True)
class ResultError:
    """How far a result is from that of the float program, over all samples: the l2 norm of the
    difference relative to that of the result, and the cosine."""

    name: str
    error: float
    cosine: float


@dataclass(frozen=True)
class Measured:
    """Seconds of a call, and of the kernels in it by their layers, each the least of many."""

    call: float
    layers: Mapping[str, float]

    def of(self, layer: str) -> float | None:
        """Of the kernels that compute the layer, perhaps with others; None if none does."""
        found = [time for name, time in self.layers.items() if is_part(layer, name)]
        return sum(found) if found else None


def is_part(layer: str, names: str) -> bool:
    """Whether a layer is among those that a kernel computes."""
    return f", {layer}, " in f", {names}, "


@dataclass(frozen=True)
class Roofline:
    """What the machine can do in a second: floating-point operations, and bytes."""

    flops: float = 100e9
    bytes: float = 20e9

    def time(self, dispatch: DispatchReport, sizes: Mapping[str, int], speed: float) -> float:
        """Seconds. `speed`: how many times as many operations of its dtype are done."""
        flops, length = dispatch.flops_at(sizes), dispatch.bytes_at(sizes)
        return max(flops / (self.flops * speed), length / self.bytes)


class Program:
    """A module for this machine, loaded, with what its report says of a sample's sizes."""

    def __init__(self, module: Module, sample: Sample) -> None:
        self.module, self.sample = module, sample
        self.model: Model = load(module)
        function = next(iter(module.report.targets.values())).functions["main"]
        known = module.report.known_sizes(sizes_of(self.model.signature, sample))
        self.sizes = function.sizes(known)
        self.dispatches = function.dispatches

    def predicted(self, layer: str, roofline: Roofline, speed: float = 1.0) -> float | None:
        """Seconds of the layer's kernels; None if there are none."""
        found = [each for each in self.dispatches if is_part(layer, each.layer)]
        times = [roofline.time(each, self.sizes, speed) for each in found]
        return sum(times) if times else None

    def roofline(self, measured: Measured) -> Roofline:
        """The best that one of the layers reached."""
        flops, lengths = dict[str, int](), dict[str, int]()
        for each in self.dispatches:
            flops[each.layer] = flops.get(each.layer, 0) + each.flops_at(self.sizes)
            lengths[each.layer] = lengths.get(each.layer, 0) + each.bytes_at(self.sizes)
        times = {name: time for name, time in measured.layers.items() if time and name in flops}
        return Roofline(
            max((flops[name] / time for name, time in times.items()), default=Roofline.flops),
            max((lengths[name] / time for name, time in times.items()), default=Roofline.bytes),
        )


def measure(programs: Sequence[Program]) -> list[Measured]:
    """The times of programs, which are called in turns."""
    calls = [float("inf")] * len(programs)
    layers: list[dict[tuple[str, str, int], float]] = [{} for _ in programs]
    for _ in range(_ROUNDS):
        for place, program in enumerate(programs):
            function = program.model.main
            calls[place] = min(calls[place], time_calls(function, program.sample, _TURN).minimum)
            trace = trace_calls(program.model, function, program.sample, _TRACED)
            for key, time in _keyed(trace):
                least = layers[place].get(key, float("inf"))
                layers[place][key] = min(least, time)
    return [Measured(call, _summed(each)) for call, each in zip(calls, layers, strict=True)]


def _keyed(trace: Any) -> Iterator[tuple[tuple[str, str, int], float]]:
    """Kernel, layer and how many of these were before; seconds."""
    seen: dict[tuple[str, str], int] = {}
    for each in profile_calls(trace):
        key = each.kernel, each.layer
        seen[key] = seen.get(key, 0) + 1
        yield (*key, seen[key]), each.time / 1e9


def _summed(times: Mapping[tuple[str, str, int], float]) -> dict[str, float]:
    summed: dict[str, float] = {}
    for (_, layer, _), time in times.items():
        summed[layer] = summed.get(layer, 0.0) + time
    return summed


def compare_results(
    model: Model, samples: Sequence[Sample], expected: Sequence[Sequence[_Array]]
) -> list[ResultError]:
    """The error of each result over the samples. `expected`: what the float program gives."""
    sums = np.zeros((len(model.signature.results), 4))
    for sample, references in zip(samples, expected, strict=True):
        for place, (found, reference) in enumerate(
            zip(results_of(model, sample), references, strict=True)
        ):
            a, b = (each.astype(np.float64).reshape(-1) for each in (found, reference))
            sums[place] += np.dot(a - b, a - b), np.dot(a, a), np.dot(b, b), np.dot(a, b)
    return [
        ResultError(value.name, *_relative(*row))
        for value, row in zip(model.signature.results, sums.tolist(), strict=True)
    ]


def _relative(off: float, found: float, reference: float, both: float) -> tuple[float, float]:
    if not off:
        return 0.0, 1.0
    cosine = both / (found * reference) ** 0.5 if found and reference else 0.0
    return (off / reference) ** 0.5 if reference else float("inf"), min(cosine, 1.0)
