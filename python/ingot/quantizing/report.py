"""What became of each layer, and of the whole: for people, for programs, and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingot.compiler.graph.quantizing.codes import Halves
from ingot.compiler.graph.quantizing.insert_codes import Change
from ingot.hal.printable import printable, size_text
from ingot.hal.spec import DType
from ingot.quantizing.deciding import Decision, weight_length
from ingot.quantizing.measuring import Measured, Program, ResultError, Roofline

__all__ = ["LayerReport", "QuantizationReport", "make_report"]

_LONGEST_LAYER = 60  # characters

_BYTES_SPEED, _HALVES_SPEED = 4.0, 2.0
"""How many times as many products of bytes, bf16 or f16 as of floats an instruction does."""


@dataclass(frozen=True)
class LayerReport:
    """What became of a layer. Lengths are the bytes of its weight, times seconds a call; None is
    what is not known. `error` and `cosine` are those of what the layer gives on calibration data,
    or without data (`is_measured` is False) of its weight. `reason` says why it, or its input,
    stayed float."""

    name: str
    kind: str  # "product", "convolution", "depthwise" or "table"
    shape: tuple[int, ...]  # of the weight
    scheme: str  # such as "int8 x u8" or "int4, groups of 32"; "float"
    bits: float  # of a weight, with its part of the scales
    length_before: int
    length_after: int
    error: float | None = None
    cosine: float | None = None
    is_measured: bool = False
    predicted_before: float | None = None
    predicted_after: float | None = None
    time_before: float | None = None
    time_after: float | None = None
    reason: str = ""

    @property
    def is_quantized(self) -> bool:
        return self.scheme != "float"


@dataclass(frozen=True)
class QuantizationReport:
    """All layers in the order of the program, and the errors of results over `samples` samples
    (0: random inputs; none: the program cannot be called alone). Lengths are those of modules,
    times seconds of a call."""

    layers: tuple[LayerReport, ...]
    results: tuple[ResultError, ...]
    length_before: int | None
    length_after: int
    time_before: float | None = None
    time_after: float | None = None
    samples: int = 0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @property
    def quantized(self) -> int:
        """How many layers are."""
        return sum(each.is_quantized for each in self.layers)

    def lines(self) -> Iterator[str]:
        """A table for a terminal."""
        yield (
            f"{'bits':>5} {'bytes':>9} {'error':>8} {'cosine':>8} {'predicted':>17} "
            f"{'measured us':>17}  layer"
        )
        for each in self.layers:
            yield _line(each)
        yield self.summary
        yield from self.result_lines()

    @property
    def summary(self) -> str:
        """One line."""
        count = f"{self.quantized} of {len(self.layers)} layers quantised"
        length = size_text(self.length_after)
        if self.length_before is not None:
            length = f"{size_text(self.length_before)} -> {length}"
        text = f"{count}; module {length}"
        if self.time_before is not None and self.time_after is not None:
            text += f"; call {self.time_before * 1e3:.3f} -> {self.time_after * 1e3:.3f} ms"
        return text

    def result_lines(self) -> Iterator[str]:
        for each in self.results:
            name = printable(each.name, _LONGEST_LAYER)
            errors = f"error {each.error:.2g}, cosine {each.cosine:.6f}"
            yield f"result '{name}': {errors}, of {self.basis}"

    @property
    def basis(self) -> str:
        """On what results were compared."""
        if not self.samples:
            return "random inputs"
        return f"{self.samples} sample{'' if self.samples == 1 else 's'}"


def _line(each: LayerReport) -> str:
    name = printable(each.name, _LONGEST_LAYER)
    scheme = printable(f"{each.scheme}: {each.reason}" if each.reason else each.scheme)
    return (
        f"{each.bits:>5.2f} {size_text(each.length_after):>9} {_number(each.error, '.1e'):>8} "
        f"{_number(each.cosine, '.5f'):>8} "
        f"{_pair(each.predicted_before, each.predicted_after):>17} "
        f"{_pair(each.time_before, each.time_after):>17}  {name}  {scheme}"
    )


def _number(number: float | None, spec: str) -> str:
    return "-" if number is None else format(number, spec)


def _pair(before: float | None, after: float | None) -> str:
    """Two times in microseconds."""
    shown = ["-" if each is None else f"{each * 1e6:.1f}" for each in (before, after)]
    return " -> ".join(shown)


def make_report(
    decisions: Sequence[Decision],
    length: int,
    programs: tuple[Program, Program] | None = None,
    times: Sequence[Measured] = (),
    results: Sequence[ResultError] = (),
    samples: int = 0,
) -> QuantizationReport:
    """`programs` and `times`: the float one and the quantised one. `samples`: of data."""
    before, after = (each.call for each in times) if times else (None, None)
    return QuantizationReport(
        tuple(_layer(each, programs, times) for each in decisions),
        tuple(results),
        None if programs is None else len(programs[0].module),
        length,
        before,
        after,
        samples,
    )


def _layer(
    decision: Decision,
    programs: tuple[Program, Program] | None,
    times: Sequence[Measured],
) -> LayerReport:
    layer, change = decision.layer, decision.change
    before = weight_length(layer)
    after = before if change is None else change.weight.length
    predicted: list[float | None] = [None, None]
    if programs is not None:
        roofline = programs[0].roofline(times[0]) if times else Roofline()
        speeds = 1.0, _speed(change)
        predicted = [
            program.predicted(layer.name, roofline, speed)
            for program, speed in zip(programs, speeds, strict=True)
        ]
    measured = [each.of(layer.name) for each in times] if times else [None, None]
    return LayerReport(
        layer.name,
        layer.kind,
        layer.weight_shape,
        _scheme_text(decision),
        8 * after / (layer.outputs * layer.inputs),
        before,
        after,
        decision.error,
        decision.cosine,
        decision.is_measured,
        predicted[0],
        predicted[1],
        measured[0],
        measured[1],
        decision.reason,
    )


def _speed(change: Change | None) -> float:
    """How many times as many products an instruction does as of floats."""
    if change is None:
        return 1.0
    if isinstance(change.weight, Halves):
        return _HALVES_SPEED
    return 1.0 if change.range is None and not change.is_dynamic else _BYTES_SPEED


def _scheme_text(decision: Decision) -> str:
    change = decision.change
    if change is None:
        return "float"
    if isinstance(change.weight, Halves):
        name = DType.from_numpy(change.weight.matrix.dtype).name
        return f"{name} x {name}" if decision.layer.kind != "table" else name
    text = f"int{change.weight.bits}"
    if change.weight.groups > 1:
        text += f", groups of {decision.layer.inputs // change.weight.groups}"
    if change.weight.zeros is not None:
        text += ", zero points"
    if change.range is not None:
        return f"{text} x u8"
    return f"{text} x u8 of each call" if change.is_dynamic else text
