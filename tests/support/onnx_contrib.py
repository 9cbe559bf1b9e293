"""Models of `com.microsoft` ops: what the front end makes of them, beside onnxruntime.

The front end's graph runs in the interpreter, which needs no C compiler: what is tested is the
lowering. Ops become kernels in the tests of the ops that they are lowered to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import verify
from ingot.compiler.read_source import read_source
from tests.support.onnx_cases import in_onnxruntime
from tests.support.onnx_models import build_model
from tests.support.results import assert_same

__all__ = ["DOMAIN", "Read", "drawn", "node_of", "of_nodes"]

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"


def node_of(name: str, *args: Any, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, *args, domain=DOMAIN, **attributes)


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Read:
    """A model read by the front end."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.proto = model
        self.names = [value.name for value in model.graph.output]
        self.module = read_source(model)
        verify(self.module, GRAPH)
        self.inputs = [value.name for value in model.graph.input]

    def results(self, **inputs: Any) -> dict[str, Array]:
        """The results by name."""
        arguments = [np.asarray(inputs[name]) for name in self.inputs]
        return dict(zip(self.names, interpret(self.module, "main", arguments), strict=True))

    def check(self, tolerance: float = 2e-6, **inputs: Any) -> None:
        """They are onnxruntime's: floats up to `tolerance` of the greatest, integers exactly."""
        wanted = in_onnxruntime(self.proto)(inputs)
        self.compare(dict(zip(self.names, wanted, strict=True)), tolerance, **inputs)

    def compare(self, wanted: Mapping[str, Any], tolerance: float = 2e-6, **inputs: Any) -> None:
        """As `check`, with what is wanted by name, which may be of a wider float."""
        found = self.results(**inputs)
        for name, expected in wanted.items():
            if expected.dtype.kind != "f":
                assert_same(found[name], expected, what=name)
                continue
            expected = expected.astype(found[name].dtype)
            scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
            assert_same(found[name], expected, 1e-5, tolerance * scale, name)


def of_nodes(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    arrays: Mapping[str, Any] | None = None,
    *,
    floats: Sequence[str] = (),
    opset: int = 20,
) -> Read:
    """All results of the nodes are results of the model; of `floats` it notes the type."""
    outputs = [name for node in nodes for name in node.output if name]
    model = build_model(nodes, inputs, outputs, arrays, domains=[DOMAIN], opset=opset)
    for value in model.graph.output:
        if value.name in floats:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return Read(model)
