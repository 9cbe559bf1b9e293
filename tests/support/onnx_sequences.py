"""ONNX models with sequences, optionals and bodies: short ways to write their parts, and a case
that is compiled once and run at several shapes, in the interpreter and in onnxruntime too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import LIST_OPS
from ingot.compiler.ir import walk
from tests.support.devices import load_best
from tests.support.onnx_models import build_model, in_session, make_value

__all__ = [
    "BOOL",
    "FLOAT",
    "INT64",
    "NUMBERS",
    "Array",
    "Case",
    "Node",
    "X",
    "body",
    "rows",
    "sequence",
    "tensor",
]

BOOL, INT64, FLOAT = TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT
Node = helper.make_node
Array = np.ndarray[Any, Any]


def tensor(name: str, *shape: int | str, element: int = FLOAT) -> onnx.ValueInfoProto:
    return make_value(name, list(shape), element)


def sequence(name: str, element: int = FLOAT) -> onnx.ValueInfoProto:
    type = helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
    return helper.make_value_info(name, type)


def body(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    **constants: Any,
) -> onnx.GraphProto:
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs), tensors)


NUMBERS = {f"n{k}": np.int64(k) for k in range(-2, 6)}


class Case:
    """A model compiled once."""

    def __init__(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: Sequence[onnx.ValueInfoProto],
        *outputs: onnx.ValueInfoProto,
        constants: dict[str, Any] | None = None,
    ) -> None:
        self.proto = build_model(nodes, inputs, [], {**NUMBERS, **(constants or {})}, opset=18)
        self.proto.graph.output.extend(outputs)
        self.proto.ir_version = 8
        self.module = import_onnx(self.proto)
        self.model = load_best(self.proto)

    def lists(self) -> list[str]:
        return [op.name for op in walk(self.module) if op.name in LIST_OPS]

    def call(self, **inputs: Any) -> list[Array]:
        found = self.model.main(**inputs)
        return [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]

    def check(self, **inputs: Any) -> None:
        inputs = {name: np.asarray(each) for name, each in inputs.items()}
        wanted = in_session(self.proto, inputs)
        interpreted = interpret(self.module, "main", list(inputs.values()))
        for results in (interpreted, self.call(**inputs)):
            for got, expected in zip(results, wanted, strict=True):
                assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
                np.testing.assert_allclose(got, expected, rtol=1e-5)


def rows(count: int, columns: int = 3, first: float = 0) -> Array:
    return np.arange(count * columns, dtype=np.float32).reshape(count, columns) + np.float32(first)


X = tensor("x", "a", 3)
