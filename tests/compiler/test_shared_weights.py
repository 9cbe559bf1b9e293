"""External weights of several sources: one key is one weight."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.hal.errors import CompileError


def product(weight: np.ndarray, name: str = "w") -> onnx.ModelProto:
    """main(x: f32[n,2]) -> x @ weight."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight.astype(np.float32), name)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_sources_share_a_weight_that_is_the_same() -> None:
    weight = np.arange(4).reshape(2, 2)
    sources = {"a": product(weight), "b": product(weight)}
    module = ingot.compile(sources, parameters="external")
    model = ingot.load(module, parameters={"w": weight.astype(np.float32)})
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(model.a(x), model.b(x))


@pytest.mark.parametrize("other", [np.ones((2, 2)), np.ones((2, 3))], ids=["values", "shape"])
def test_different_weights_under_one_key_are_refused(other: np.ndarray) -> None:
    sources = {"a": product(np.zeros((2, 2))), "b": product(other)}
    with pytest.raises(CompileError, match="'b' and 'a' have different weights under the key 'w'"):
        ingot.compile(sources, parameters="external")
    ingot.compile(sources)


def test_names_that_give_two_weights_one_key_are_refused() -> None:
    model = product(np.zeros((2, 2)))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 2), np.float32), "v"))
    model.graph.node.append(helper.make_node("MatMul", ["y", "v"], ["z"]))
    model.graph.output[0].name = "z"
    with pytest.raises(CompileError, match=r"initializer 'v' has the key 'w' of other weights"):
        ingot.compile(model, parameters="external", parameter_names={"v": "w"})
