"""ONNX models that take and give strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

TEXT = TensorProto.STRING
WORDS = ["", "a", "b", "ab", "ünï", "eight by", "nine byte", "日本語 text", "a\0"]


def string_model(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def string_array(texts: Any) -> Any:
    return np.array(texts, object)
