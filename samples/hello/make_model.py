"""Writes hello.onnx, the smallest model there is: y = x + 1. Needs onnx."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4], "four numbers")
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4], "the same numbers plus one")
one = numpy_helper.from_array(np.float32(1), "one")
graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "hello", [x], [y], [one])
opset = [helper.make_opsetid("", 20)]
model = helper.make_model(graph, opset_imports=opset, ir_version=10, producer_name="hello")
Path(__file__).with_name("hello.onnx").write_bytes(model.SerializeToString(deterministic=True))
