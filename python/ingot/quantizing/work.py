"""The steps of a quantisation: calibrate, decide, change, compile, measure, and tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingot.compiler import Module, ir
from ingot.compiler.graph.forms.round_factors import CHOSEN
from ingot.compiler.graph.quantizing.insert_codes import insert_codes
from ingot.compiler.graph.quantizing.layers import find_layers
from ingot.compiler.read_source import copy_module
from ingot.compiling import compile
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.inputs import random_inputs
from ingot.quantizing.calibration import Calibration, calibrate, results_of
from ingot.quantizing.deciding import (
    GIVEN,
    Decision,
    Scheme,
    check_groups,
    decide,
    kept_layers,
    settled,
)
from ingot.quantizing.measuring import Measured, Program, compare_results, measure
from ingot.quantizing.report import QuantizationReport, make_report
from ingot.quantizing.samples import Sample, read_samples
from ingot.runtime.model import load
from ingot.runtime.signature import Signature, Value

__all__ = ["Work"]

_SLOWER = 1.1
"""How many times as long a layer must take to be called slower ..."""

_SHARE = 0.01
"""... by no less than this part of a call: what is below is noise."""


class Work:
    """One quantisation of a prepared program. `precision` and `options` are those of `compile`.

    CompileError: there is no layer to quantise. InvalidArgument: `keep` names none, or the group
    does not divide the rows of one.
    """

    def __init__(
        self,
        module: ir.Module,
        scheme: Scheme,
        keep: Sequence[str],
        precision: str,
        options: Mapping[str, Any],
        progress: Callable[[str], None],
    ) -> None:
        self.module, self.scheme, self.progress = module, scheme, progress
        self.precision, self.options = precision, options
        self.layers = find_layers(module)
        if not self.layers:
            raise CompileError(
                "the program has no layer to quantise: no product, convolution or table with a "
                "weight of floats"
            )
        self.kept = kept_layers(keep, self.layers)
        changed = (each for name, each in self.layers.items() if name not in self.kept)
        check_groups(changed, scheme)

    def run(
        self, data: Any, is_measured: bool, dims: Mapping[str, int]
    ) -> tuple[Module, QuantizationReport]:
        """The module, and what became of each layer."""
        samples = [] if data is None else read_samples(data, self._signature())
        calibration = self._calibration(samples) if samples else Calibration({}, ())
        self.progress("choose codes")
        inputs = calibration.inputs
        decisions = list(decide(self.module, self.layers, self.kept, self.scheme, inputs))
        if all(each.reason == GIVEN for each in decisions):
            raise CompileError(
                "no weight is known, since all are given when the module is loaded: quantise a "
                "program with its weights; of a .gguf file there are ones with fewer bits"
            )
        if not self._is_callable():
            module = self._compiled(decisions, self.options)
            return module, make_report(self._settled(decisions, module), len(module))
        plain = self._compiled(())
        before = Program(plain, samples[0] if samples else _random_sample(plain, dims))
        samples = samples or [before.sample]
        expected = calibration.results or [results_of(before.model, before.sample)]
        after = Program(self._compiled(decisions), samples[0])
        decisions = self._settled(decisions, after.module)
        times: Sequence[Measured] = ()
        if is_measured:
            times = self._measured(before, after)
            faster = [_if_faster(each, *times) for each in decisions]
            if faster != decisions:
                decisions = faster
                after = Program(self._compiled(decisions), samples[0])
                times = self._measured(before, after)
        self.progress("compare results")
        results = compare_results(after.model, samples, expected)
        module = self._compiled(decisions, self.options) if self.options else after.module
        report = make_report(
            decisions,
            len(module),
            (before, after),
            times,
            results,
            0 if data is None else len(samples),
        )
        return module, report

    def _is_callable(self) -> bool:
        """Whether the program runs with its arguments alone."""
        has_parameters = any(op.name == "parameter" for op in ir.walk(self.module))
        return list(self.module.functions) == ["main"] and not (
            self.module.variables or has_parameters
        )

    def _signature(self) -> Signature:
        """InvalidArgument: the program cannot be called with data alone."""
        if not self._is_callable():
            raise InvalidArgument(
                "calibration data is for programs with one function 'main' and neither state nor "
                "external weights: leave it out"
            )
        main = self.module.functions["main"]
        pairs = zip(main.argument_names, main.arguments, strict=True)
        return Signature("main", tuple(_value(name, each.type) for name, each in pairs), ())

    def _calibration(self, samples: Sequence[Sample]) -> Calibration:
        outside = set(self.module.functions["main"].block.ops)
        read = [
            layer
            for name, layer in self.layers.items()
            if name not in self.kept and layer.kind != "table" and layer.op in outside
        ]
        return calibrate(
            self.module,
            read,
            samples,
            has_hessians=self.scheme.compensate,
            has_histograms=self.scheme.activations == "int8" and self.scheme.method != "minmax",
            progress=self.progress,
        )

    def _compiled(
        self, decisions: Sequence[Decision], options: Mapping[str, Any] | None = None
    ) -> Module:
        """The program with what was decided, for this machine unless options say else."""
        copy = copy_module(self.module)
        changes = {each.layer.name: each.change for each in decisions if each.change is not None}
        precision = self.precision if changes else "f32"
        if changes and self.scheme.has_halves:
            precision = self.scheme.weights
            copy.attributes[CHOSEN] = tuple(changes)
        elif changes:
            copy = insert_codes(copy, changes)
        return compile(copy, precision=precision, progress=self.progress, **(options or {}))

    def _settled(self, decisions: list[Decision], module: Module) -> list[Decision]:
        if not self.scheme.has_halves:
            return decisions
        return settled(decisions, (*module.report.in_bf16, *module.report.in_f16))

    def _measured(self, before: Program, after: Program) -> Sequence[Measured]:
        self.progress("measure")
        return measure((before, after))


def _value(name: str, type: ir.Type) -> Value:
    if isinstance(type, ir.PassedType):
        return Value(name, type.dtype, (), "", type.kind)
    assert isinstance(type, ir.TensorType)
    shape = tuple(dim if isinstance(dim, int) else str(dim) for dim in type.shape)
    return Value(name, type.dtype, shape)


def _random_sample(module: Module, dims: Mapping[str, int]) -> Sample:
    model = load(module)
    return random_inputs(model, model.signature, dims)


def _if_faster(decision: Decision, before: Measured, after: Measured) -> Decision:
    """The decision, or that the layer stays float."""
    name = decision.layer.name
    old, new = before.of(name), after.of(name)
    if decision.change is None or decision.layer.kind == "table" or old is None or new is None:
        return decision
    if new <= _SLOWER * old or new - old <= _SHARE * before.call:
        return decision
    why = f"it would be slower: {new * 1e6:.1f} us, against {old * 1e6:.1f} us"
    return replace(decision, change=None, reason=why)
