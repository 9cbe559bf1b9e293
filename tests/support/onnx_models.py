"""Short ways to write ONNX models in tests, and to run them in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

__all__ = ["build_model", "in_session", "ints", "make_value"]


def ints(*values: int) -> np.ndarray[Any, Any]:
    """A list of numbers as ONNX takes axes, sizes and amounts."""
    return np.array(values, np.int64)


def make_value(
    name: str, shape: Sequence[int | str] | None = None, element: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    """A graph input or output; shape None for an output of any shape."""
    return helper.make_tensor_value_info(name, element, shape)


def build_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    initializers: Mapping[str, Any] | None = None,
    *,
    opset: int = 20,
    domains: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model whose outputs have any type; nothing is checked."""
    tensors = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in (initializers or {}).items()
    ]
    values = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "test", list(inputs), values, tensors)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def in_session(model: onnx.ModelProto, arrays: dict[str, Any]) -> list[Any]:
    """What onnxruntime gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, arrays))
