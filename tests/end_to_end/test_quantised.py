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
        self.kind, self.zero = kind, {np.int8: -9, np.uint16: 30007}.get(kind, 7)
        self.part = 1 if np.dtype(kind).itemsize == 1 else 256  # of a step of bytes
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
            self.constant(np.array(scale / self.part, np.float32)),
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

    def model(self, argument: list[Any], result: list[Any]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, argument)],
            [helper.make_tensor_value_info(self.x, TensorProto.FLOAT, result)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def network(kind: Any) -> onnx.ModelProto:
    """Convolutions of 3 to 10 channels, one of each feature, a residual, a transposed one, pooling,
    a product.
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
    n.x = n.op("Relu", n.x)
    n.quantised(0.0401, np.iinfo(kind).min)
    n.x = n.op("ConvTranspose", n.x, n.weight(10, 6, 3, 3, axis=1), n.bias(6), strides=[2, 2])
    n.quantised(0.0401)
    n.x = n.op("MaxPool", n.x, kernel_shape=[2, 2], strides=[2, 2])
    n.x = n.op("ReduceMean", n.x, n.constant(np.array([2, 3])), keepdims=0)
    n.quantised(0.0177)
    n.x = n.op("Gemm", n.x, n.weight(5, 6, axis=0), n.bias(5), transB=1)
    n.quantised(0.0101)
    return n.model(["n", 3, 8, 6], ["n", 5])


def attention(kind: Any) -> onnx.ModelProto:
    """Two heads of eight features, whose products and softmax are quantised, too."""
    n = Network(kind)
    n.quantised(0.0213)
    given, heads, sides = n.x, n.constant(np.array([0, 0, 2, 8])), []
    for _ in range(3):
        n.x = n.op("MatMul", given, n.weight(12, 16, axis=1))
        n.quantised(0.0119)
        n.x = n.op("Transpose", n.op("Reshape", n.x, heads), perm=[0, 2, 1, 3])
        n.quantised(0.0119)
        sides.append(n.x)
    n.x = n.op("MatMul", sides[0], n.op("Transpose", sides[1], perm=[0, 1, 3, 2]))
    n.quantised(0.0173)
    n.x = n.op("Softmax", n.x)
    n.quantised(0.00391, np.iinfo(kind).min)
    n.x = n.op("MatMul", n.x, sides[2])
    n.quantised(0.0101)
    n.x = n.op("Transpose", n.x, perm=[0, 2, 1, 3])
    return n.model(["n", 7, 12], ["n", 7, 2, 8])


def gated(kind: Any) -> onnx.ModelProto:
    """Layers times their logistic, with codes around each op, a depthwise one among them; then what
    two of them gave, one twice as large as an image, side by side."""
    n = Network(kind)
    n.quantised(0.0213)
    sides = []
    for width, group in ((8, 1), (8, 8)):
        w = n.weight(width, (3 if not sides else 8) // group, 3, 3, axis=0)
        n.x = n.op("Conv", n.x, w, n.bias(width), pads=[1, 1, 1, 1], group=group)
        n.quantised(0.0307)
        x = n.x
        n.x = n.op("Sigmoid", x)
        n.quantised(0.00391, np.iinfo(kind).min)
        n.x = n.op("Mul", x, n.x)
        n.quantised(0.0171)
        sides.append(n.x)
    scales = n.constant(np.array([1, 1, 2, 2], np.float32))
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    wide = [n.op("Resize", each, "", scales, mode="nearest", **floor) for each in sides]
    n.x = n.op("Concat", *wide, axis=1)
    n.quantised(0.0171)
    n.x = n.op("Conv", n.x, n.weight(5, 16, 1, 1, axis=0), n.bias(5))
    n.quantised(0.0101)
    return n.model(["n", 3, 8, 6], ["n", 5, 16, 12])


def load_on_cpu(source: onnx.ModelProto, variants: list[str]) -> dict[str, ingot.Model]:
    return {"cpu": ingot.load(ingot.compile(source, variants=variants))}


@pytest.mark.parametrize(
    ("kind", "load"),
    [(np.int8, load_on_cpu), pytest.param(np.uint8, load_everywhere, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("make", [network, attention, gated])
def test_a_quantised_network_gives_the_codes_of_onnxruntime(
    make: Callable[[Any], onnx.ModelProto], kind: Any, load: Callable[..., dict[str, ingot.Model]]
) -> None:
    compare(make(kind), load, 0.0101)


def test_a_network_with_codes_of_16_bits_gives_those_of_onnxruntime() -> None:
    compare(network(np.uint16), load_on_cpu, 0.0101 / 256)


def compare(
    source: onnx.ModelProto, load: Callable[..., dict[str, ingot.Model]], step: float
) -> None:
    models = load(source, variants=[dot4_variants()[0]])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(source.SerializeToString(), options)
    for count in (9, 1):
        shape = [dim.dim_value or count for dim in source.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(count).normal(size=shape).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        assert len(np.unique(wanted)) > 2
        for model in models.values():
            steps = np.abs(model(x).numpy() - wanted) / step
            assert steps.max() < 1.5
            assert (steps > 0.5).mean() < 0.03


def test_the_report_has_the_layers_that_multiply_bytes() -> None:
    report = ingot.compile(attention(np.int8), variants=[dot4_variants()[0]]).report
    assert [each.partition("_")[0] for each in report.in_integers] == ["MatMul"] * 5
    assert "5 layers multiplied in integers" in report.text()


def test_the_report_says_which_quantised_layers_multiply_floats_and_why() -> None:
    wide = Network(np.uint16)
    wide.quantised(0.0213)
    given = wide.x
    wide.x = wide.op("MatMul", given, wide.weight(4, 4, axis=1))
    wide.quantised(0.0213)
    wide.x = wide.op("Conv", wide.x, wide.weight(4, 1, 3, axis=0), group=4)
    square = wide.op("MatMul", given, wide.op("Transpose", given, perm=[0, 2, 1]))
    wide.x = wide.op("Add", wide.op("ReduceSum", wide.x), wide.op("ReduceSum", square))
    plain = Network(np.uint8)
    plain.x = plain.op("MatMul", "x", plain.weight(4, 6, axis=1))
    reports = [
        ingot.compile(model, variants=["x86-64"]).report
        for model in (
            wide.model(["n", 4, 4], [1, 1, 1]), plain.model(["n", 3, 4], ["n", 3, 6]),
        )
    ]  # fmt: skip
    assert len(reports[0].in_integers) == 1
    wanted = {"its input is quantised to u16", "it multiplies u16 and u16"}
    assert [{why for _, why in report.left_in_float} for report in reports] == [
        wanted,
        {"its input is not quantised"},
    ]


def test_scales_of_columns_are_no_constant_as_large_as_an_image() -> None:
    n = Network(np.uint8)
    weight = [n.constant(n.random.integers(-9, 9, (8, 3, 1, 1)).astype(np.int8))]
    scales = n.random.uniform(0.001, 0.01, 8).astype(np.float32)
    weight += [n.constant(scales), n.constant(np.zeros(8, np.int8))]
    pairs = [[n.constant(np.float32(s)), n.constant(np.uint8(7))] for s in (0.02, 0.05)]
    codes = n.op("QuantizeLinear", "x", *pairs[0])
    n.x = n.op("QLinearConv", codes, *pairs[0], *weight, *pairs[1])
    n.x = n.op("DequantizeLinear", n.x, *pairs[1])
    source = n.model([1, 3, 32, 32], [1, 8, 32, 32])
    assert ingot.compile(source, variants=["x86-64"]).report.constant_length < 2048


def test_bytes_that_are_read_as_words_may_begin_anywhere() -> None:
    random = np.random.default_rng(2)
    w = numpy_helper.from_array(random.integers(-9, 9, (8, 20)).astype(np.int8), "w")
    k = numpy_helper.from_array(random.integers(-9, 9, (5, 8, 3, 3)).astype(np.int8), "k")
    graph = helper.make_graph(
        [
            helper.make_node("MatMulInteger", ["a", "w"], ["product"]),
            helper.make_node("ConvInteger", ["x", "k"], ["convolved"]),
        ],
        "bytes",
        [
            helper.make_tensor_value_info("a", TensorProto.UINT8, ["n", 8]),
            helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 8, 4, 4]),
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.INT32, None)
            for name in ("product", "convolved")
        ],
        [w, k],
    )
    opsets = [helper.make_opsetid("", 20)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    memory = random.integers(0, 256, 200).astype(np.uint8)
    session = onnxruntime.InferenceSession(source.SerializeToString())
    for model in load_everywhere(source, variants=[dot4_variants()[0]]).values():
        for at in range(4):
            a, x = memory[at : at + 24].reshape(3, 8), memory[at : at + 128].reshape(1, 8, 4, 4)
            for result, wanted in zip(
                model(a, x), session.run(None, {"a": a, "x": x}), strict=True
            ):
                np.testing.assert_array_equal(result.numpy(), wanted)
