"""Quantised networks on all devices, against onnxruntime: few codes differ, by one at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from tests.support.devices import load_everywhere
from tests.support.kernel_runner import dot4_variants

Array = np.ndarray[Any, Any]


class Network:
    """An ONNX graph of quantised layers; `x` is the name of the last value."""

    def __init__(self, kind: Any) -> None:
        self.random = np.random.default_rng(5)
        self.kind, self.zero = kind, 7 if kind is np.uint8 else -9
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.x = "x"

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, name: str, *operands: str, **attributes: Any) -> str:
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(name, operands, [result], **attributes))
        return result

    def quantised(self, scale: float, zero: int | None = None) -> None:
        zero = self.zero if zero is None else zero
        pair = (
            self.constant(np.array(scale, np.float32)),
            self.constant(np.array(zero, self.kind)),
        )
        self.x = self.op("DequantizeLinear", self.op("QuantizeLinear", self.x, *pair), *pair)

    def weight(self, *shape: int, axis: int) -> str:
        codes = self.constant(self.random.integers(-127, 128, shape).astype(np.int8))
        scales = self.random.uniform(0.001, 0.004, shape[axis]).astype(np.float32)
        zeros = self.constant(np.zeros(shape[axis], np.int8))
        return self.op("DequantizeLinear", codes, self.constant(scales), zeros, axis=axis)

    def bias(self, count: int) -> str:
        return self.constant(self.random.normal(size=count).astype(np.float32))


def network(kind: Any) -> onnx.ModelProto:
    """Convolutions of 3 to 10 channels, one of each feature, a residual, pooling, a product.
    No sum of two scales is a multiple of the next one: half of all numbers would be ties."""
    n = Network(kind)
    n.quantised(0.0213)
    n.x = n.op("Conv", n.x, n.weight(10, 3, 3, 3, axis=0), n.bias(10), pads=[1, 1, 1, 1])
    n.x = n.op("Relu", n.x)
    n.quantised(0.0191, np.iinfo(kind).min)
    first = n.x
    n.x = n.op("Conv", n.x, n.weight(10, 1, 3, 3, axis=0), n.bias(10), pads=[1, 1, 1, 1], group=10)
    n.quantised(0.0307)
    n.x = n.op("Conv", n.x, n.weight(10, 10, 1, 1, axis=0))
    n.quantised(0.0229)
    n.x = n.op("Add", n.x, first)
    n.quantised(0.0401)
    n.x = n.op("MaxPool", n.x, kernel_shape=[2, 2], strides=[2, 2])
    n.x = n.op("ReduceMean", n.x, n.constant(np.array([2, 3])), keepdims=0)
    n.quantised(0.0177)
    n.x = n.op("Gemm", n.x, n.weight(5, 10, axis=0), n.bias(5), transB=1)
    n.quantised(0.0101)
    graph = helper.make_graph(
        n.nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 6])],
        [helper.make_tensor_value_info(n.x, TensorProto.FLOAT, ["n", 5])],
        n.constants,
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def load_on_cpu(source: onnx.ModelProto, variants: list[str]) -> dict[str, ingot.Model]:
    return {"cpu": ingot.load(ingot.compile(source, variants=variants))}


@pytest.mark.parametrize(
    ("kind", "load"),
    [(np.int8, load_on_cpu), pytest.param(np.uint8, load_everywhere, marks=pytest.mark.slow)],
)
def test_a_quantised_network_gives_the_codes_of_onnxruntime(
    kind: Any, load: Callable[..., dict[str, ingot.Model]]
) -> None:
    source = network(kind)
    models = load(source, variants=[dot4_variants()[0]])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(source.SerializeToString(), options)
    for count in (9, 1):
        x = np.random.default_rng(count).normal(size=(count, 3, 8, 6)).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        assert len(np.unique(wanted)) > 2
        for model in models.values():
            steps = np.abs(model(x).numpy() - wanted) / 0.0101
            assert steps.max() < 1.5
            assert (steps > 0.5).mean() < 0.03
