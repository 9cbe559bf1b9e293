"""Names of an ONNX graph or function body and what they stand for."""

from __future__ import annotations

from dataclasses import field

import onnx

from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["UNKNOWN", "Result", "Scope", "Unknown"]


@dataclass(frozen=True)
class Unknown:
    """Stands for a result that could not be made, as is noted; nodes that read it are skipped."""


UNKNOWN = Unknown()
Result = Structure | Unknown | None


@dataclass
class Scope:
    """Of one graph or function body."""

    values: dict[str, Result]
    opsets: dict[str, int]
    prefix: str = ""  # the layer that a function body belongs to
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)  # that the model notes

    def read(self, graph: onnx.GraphProto) -> None:
        """Take the initializers and the types of a graph."""
        self.initializers.update((tensor.name, tensor) for tensor in graph.initializer)
        noted = (*graph.input, *graph.value_info, *graph.output)
        self.types.update((each.name, each.type) for each in noted)
