"""What an import of an ONNX model has to say: problems, each with its layer, and a survey's uses.

What cannot be lowered is noted and the walk goes on, so that one CompileError lists everything
that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import onnx

from ingot.compiler.frontends.onnx.check import normalize_domain
from ingot.compiler.frontends.onnx.choose_ends import choose
from ingot.compiler.frontends.onnx.dim_params import noted_name, noted_size
from ingot.compiler.frontends.onnx.infer_types import infer_types
from ingot.compiler.frontends.onnx.scope import Result, Unknown
from ingot.compiler.frontends.onnx.source import Source
from ingot.compiler.frontends.onnx.structures import Forked, Items, Maybe, StringItems
from ingot.compiler.frontends.onnx.tensors import dtype_of, element_type_name
from ingot.compiler.frontends.own_ops import ADVICE
from ingot.compiler.frontends.problems import Problem, list_problems
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.frontends.survey import Survey, Use
from ingot.compiler.ir import Value
from ingot.hal.errors import CompileError

__all__ = ["Notes", "op_name"]

_INSTEAD = {"ImageDecoder": "decode images before the call, which takes their pixels"}


def op_name(node: onnx.NodeProto) -> str:
    """The op with its domain, unless that is the default one."""
    domain = normalize_domain(node.domain)
    return f"{domain}.{node.op_type}" if domain else node.op_type


class Notes:
    """The problems of one import in the order in which it met them."""

    def __init__(self, source: Source, survey: Survey | None) -> None:
        self._source = source
        self.survey = survey
        self.problems: list[Problem] = []

    def note(self, text: str, cause: object = None, layer: str = "") -> None:
        self.problems.append(Problem(text, cause, layer))

    def note_weight(self, tensor: onnx.TensorProto, error: CompileError) -> None:
        """A tensor that cannot be read, as all those of one file that is not there."""
        if self.survey is not None:
            return  # which asks for ops, and gets along without weights
        self.note(str(error), str(error).replace(f"'{tensor.name}'", ""), tensor.name)

    def report_missing(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[Result],
        location: str,
        opset: int,
    ) -> None:
        advice = f"{op_name(node)} of opset {opset} is not supported; "
        if normalize_domain(node.domain):
            advice += f"{ADVICE}, or export the model with ops of the default domain only"
        else:
            advice += _INSTEAD.get(node.op_type, "rewrite the layer with other ops")
        self.report(node, inputs, location, advice)

    def report(
        self, node: onnx.NodeProto, inputs: Sequence[Result], location: str, message: str
    ) -> None:
        types = ", ".join(
            self._describe(name, value) for name, value in zip(node.input, inputs, strict=True)
        )
        text = f"layer '{location}': {node.op_type}({types}): {message}"
        self.note(text, (node.op_type, message), location)

    def note_use(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[Result],
        location: str,
        problems: Sequence[Problem],
    ) -> str:
        """Tell the survey of the node; what is wrong with it, as `problems` say."""
        problem = next((each.text for each in problems if each.layer == location), "")
        if self.survey is not None:
            is_seen = bool(problem) or not any(isinstance(each, Unknown) for each in inputs)
            types = (self._describe(*pair) for pair in zip(node.input, inputs, strict=True))
            use = Use(op_name(node), tuple(types), location, problem, is_seen)
            self.survey.uses.append(use)
        return problem

    def _describe(self, name: str, value: Result) -> str:
        if isinstance(value, Value):
            return str(value.type)
        if isinstance(value, (Items, StringItems, Maybe, Forked, Strings)):
            return str(value)
        return "none" if value is None else self._declared.get(name, f"'{name}' of unknown type")

    @cached_property
    def _declared(self) -> dict[str, str]:
        """The types that the model notes of values that could not be made. ONNX's own inference
        would know more, but it crashes on some models."""
        graph = self._source.model.graph
        known = [*graph.input, *graph.value_info, *graph.output]
        types: dict[str, str] = {}
        for value in known if self.survey is None else self.types.values():
            tensor = value.type.tensor_type
            element = dtype_of(tensor.elem_type) or element_type_name(tensor.elem_type)
            if tensor.elem_type and tensor.HasField("shape"):
                shape = ",".join(
                    noted_name(dim) or "?" if noted_size(dim) is None else str(dim.dim_value)
                    for dim in tensor.shape.dim
                )
                types[value.name] = f"{element}[{shape}]"
        return types

    @cached_property
    def types(self) -> Mapping[str, onnx.ValueInfoProto]:
        """Of values and initializers of the main graph, for surveys."""
        tensors = self._source.model.graph.initializer
        info = onnx.helper.make_tensor_value_info
        weights = {each.name: info(each.name, each.data_type, each.dims) for each in tensors}
        return {**weights, **infer_types(self._source.model)}

    def raise_problems(self, results: Mapping[str, Value | None]) -> None:
        """CompileError that lists everything that was noted, and of the results which can be
        compiled alone; nothing if nothing was."""
        if not self.problems:
            return
        lines = list_problems(self.problems)
        count = f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
        good = [name for name, value in results.items() if value is not None]
        if good and len(good) < len(results):
            lines.append(f"{choose(good)} compiles without what needs these layers")
        raise CompileError("\n  ".join([f"cannot compile {self._source.name}: {count}", *lines]))
