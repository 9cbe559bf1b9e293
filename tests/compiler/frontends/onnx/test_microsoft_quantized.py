"""Quantised ops of `com.microsoft` against onnxruntime.

Its kernels round some numbers that lie between two integers to the other one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.onnx_cases import in_onnxruntime, in_reference
from tests.support.onnx_contrib import Read, drawn, node_of, of_nodes
from tests.support.onnx_models import build_model, make_value

Array = np.ndarray[Any, Any]
U8, I8 = TensorProto.UINT8, TensorProto.INT8
PARTS = {
    "s1": np.float32(0.0513), "s2": np.float32(0.0291), "s3": np.float32(0.0807),
    "z1": np.uint8(120), "z2": np.uint8(10), "z3": np.uint8(100),
    "i1": np.int8(-5), "i2": np.int8(9), "i3": np.int8(3), "one": np.float32(1 / 256),
    "zero": np.uint8(0),
}  # fmt: skip
OF_X, OF_Y = ["s1", "z1"], ["s3", "z3"]


def codes(*shape: int, seed: int = 0, signed: bool = False) -> Array:
    drawn = np.random.default_rng(seed).integers(-128, 128, shape)
    return drawn.astype(np.int8) if signed else (drawn + 128).astype(np.uint8)


def check(model: Read, **inputs: Any) -> None:
    """Integers are equal but for one in a hundred, which is the next one."""
    found, wanted = model.results(**inputs), in_onnxruntime(model.proto)(inputs)
    for (name, got), expected in zip(found.items(), wanted, strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, 1e-5, 1e-5, err_msg=name)
            continue
        apart = np.abs(got.astype(np.int64) - expected)
        assert apart.max() <= 1, name
        assert (apart > 0).sum() <= max(apart.size // 100, 1), name


def test_elementwise_ops_and_selections() -> None:
    nodes = [
        node_of("QLinearAdd", ["x", *OF_X, "y", "s2", "z2", *OF_Y], ["add"]),
        node_of("QLinearMul", ["x", *OF_X, "row", "s2", "z2", *OF_Y], ["mul"]),
        node_of("QLinearAdd", ["i", "s1", "i1", "i", "s2", "i2", "s3", "i3"], ["signed"]),
        node_of("QLinearSigmoid", ["x", *OF_X, "one", "zero"], ["sigmoid"]),
        node_of("QLinearLeakyRelu", ["x", *OF_X, *OF_Y], ["leaky"], alpha=0.2),
        node_of("QLinearConcat", [*OF_Y, "x", *OF_X, "y", "s2", "z2"], ["concat"], axis=1),
        node_of("QLinearWhere", ["p", "x", *OF_X, "y", "s2", "z2", *OF_Y], ["where"]),
        node_of("QLinearSoftmax", ["x", *OF_X, "one", "zero"], ["softmax"], axis=-1, opset=13),
        node_of("QLinearSoftmax", ["x", *OF_X, "one", "zero"], ["rows"], axis=1, opset=11),
        node_of("QuantizeLinear", ["f", "s1", "z1"], ["quantized"]),
        node_of("DequantizeLinear", ["x", "s1", "z1"], ["dequantized"]),
    ]
    shape = ["a", "b", 6]
    inputs = [
        make_value("x", shape, U8), make_value("y", shape, U8), make_value("i", shape, I8),
        make_value("row", [6], U8), make_value("f", shape),
        make_value("p", shape, TensorProto.BOOL),
    ]  # fmt: skip
    model = of_nodes(nodes, inputs, PARTS)
    for a, b in ((1, 1), (3, 5)):
        check(
            model, x=codes(a, b, 6), y=codes(a, b, 6, seed=1), row=codes(6, seed=2),
            i=codes(a, b, 6, seed=3, signed=True), p=codes(a, b, 6) > 128, f=drawn(a, b, 6),
        )  # fmt: skip


def test_pools_and_convolutions_with_channels_second_or_last() -> None:
    arrays = {
        **PARTS, "w": codes(4, 3, 3, 3, signed=True), "b": np.arange(4, dtype=np.int32) * 50,
        "sw": np.float32(0.01), "zw": np.int8(0),
    }  # fmt: skip
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 0, 0], "strides": [2, 2]}
    nodes = [
        node_of("QLinearAveragePool", ["x", *OF_X, *OF_Y], ["pool"], **window),
        node_of("QLinearAveragePool", ["x", *OF_X, *OF_Y], ["pads"], count_include_pad=1, **window),
        node_of(
            "QLinearAveragePool", ["x", *OF_X, *OF_Y], ["behind"], count_include_pad=1, ceil_mode=1,
            **window,
        ),
        node_of("QLinearAveragePool", ["l", *OF_X, *OF_Y], ["last"], channels_last=1, **window),
        node_of("QLinearGlobalAveragePool", ["x", *OF_X, *OF_Y], ["mean"]),
        node_of("QLinearGlobalAveragePool", ["l", *OF_X, *OF_Y], ["means"], channels_last=1),
        node_of("NhwcMaxPool", ["l"], ["max"], **window),
        node_of(
            "QLinearConv", ["l", *OF_X, "w", "sw", "zw", *OF_Y, "b"], ["conv"], channels_last=1,
            pads=[1, 1, 1, 1],
        ),
    ]  # fmt: skip
    inputs = [make_value("x", ["n", 3, 8, 9], U8), make_value("l", ["n", 8, 9, 3], U8)]
    check(of_nodes(nodes, inputs, arrays), x=codes(2, 3, 8, 9), l=codes(2, 8, 9, 3, seed=1))


def test_products() -> None:
    arrays = {
        **PARTS, "w": codes(12, 5, signed=True), "wt": codes(5, 12, signed=True),
        "sw": np.abs(drawn(5)) / 50, "zw": codes(5, signed=True), "bias": drawn(5),
        "c": np.arange(5, dtype=np.int32) * 100,
    }  # fmt: skip
    columns = ["w", "sw", "zw"]
    nodes = [
        node_of("QGemm", ["x", *OF_X, *columns, "c", *OF_Y], ["gemm"]),
        node_of("QGemm", ["x", *OF_X, "wt", "s2", "i2"], ["floats"], transB=1, alpha=0.5),
        node_of("MatMulIntegerToFloat", ["x", "w", "s1", "sw", "z1", "zw", "bias"], ["to_float"]),
        node_of("MatMulIntegerToFloat", ["x", "w", "s1", "s2"], ["plain"]),
        node_of("DynamicQuantizeMatMul", ["f", *columns, "bias"], ["dynamic"]),
        node_of("DynamicQuantizeMatMul", ["f", "w", "s2"], ["per_tensor"]),
        node_of("MatMulInteger16", ["h", "g"], ["sixteen"]),
    ]
    inputs = [
        make_value("x", ["m", 12], U8), make_value("f", ["m", 12]),
        make_value("h", ["m", 4], TensorProto.INT16), make_value("g", [4, 2], TensorProto.INT16),
    ]  # fmt: skip
    model = of_nodes(nodes, inputs, arrays)
    for m in (1, 7):
        wide = np.random.default_rng(m).integers(-999, 999, (m + 4, 4)).astype(np.int16)
        check(model, x=codes(m, 12), f=drawn(m, 12), h=wide[:m], g=wide[:4, :2])


def test_attention_of_a_quantised_projection() -> None:
    arrays = {
        **PARTS, "w": codes(16, 96, signed=True), "sw": np.abs(drawn(96)) / 100, "b": drawn(96),
        "zw": np.zeros(96, np.int8),
    }  # fmt: skip
    nodes = [
        node_of("QAttention", ["x", "w", "b", "s2", "sw", "m", "z1", "zw"], ["y"], num_heads=2),
        node_of(
            "QAttention", ["x", "w", "b", "s2", "s3", "", "z1", "i2", "past"],
            ["causal", "present"], num_heads=2, unidirectional=1,
        ),
    ]  # fmt: skip
    inputs = [
        make_value("x", ["b", "s", 16], U8), make_value("m", ["b", "s"], TensorProto.INT32),
        make_value("past", [2, "b", 2, "p", 16]),
    ]  # fmt: skip
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    check(of_nodes(nodes, inputs, arrays), x=codes(2, 4, 16), m=mask, past=drawn(2, 2, 2, 3, 16))


def test_quantised_embeddings() -> None:
    tables = {"words": 20, "places": 10, "segments": 2}
    arrays = {
        **{name: codes(rows, 8, seed=rows) for name, rows in tables.items()},
        "g": codes(8, seed=3), "b": codes(8, seed=4), "s": np.float32(0.02), "z": np.uint8(128),
    }  # fmt: skip
    names = ["ids", "kinds", *tables, "g", "b", "mask", *["s"] * 5, *["z"] * 5]
    nodes = [node_of("QEmbedLayerNormalization", names, ["y", "counts"])]
    inputs = [make_value(n, ["a", "b"], TensorProto.INT32) for n in ("ids", "kinds", "mask")]
    rng = np.random.default_rng(0)
    ids = {
        name: rng.integers(0, high, (2, 7)).astype(np.int32)
        for name, high in (("ids", 20), ("kinds", 2), ("mask", 2))
    }
    of_nodes(nodes, inputs, arrays).check(1e-5, **ids)


def test_an_lstm_of_quantised_weights() -> None:
    """Its activations are not rounded, as onnxruntime rounds them."""
    hidden, width = 6, 4
    arrays = {
        "w": codes(2, width, 4 * hidden, signed=True),
        "r": codes(2, hidden, 4 * hidden, signed=True),
        "ws": np.abs(drawn(2, 4 * hidden)) / 99, "wz": np.zeros((2, 4 * hidden), np.int8),
        "rs": np.array([0.004, 0.006], np.float32), "rz": np.zeros(2, np.int8),
        "b": drawn(2, 8 * hidden) / 4,
    }  # fmt: skip
    inputs = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    nodes = [
        node_of(
            "DynamicQuantizeLSTM", inputs, ["y", "h", "c"], hidden_size=hidden,
            direction="bidirectional",
        )
    ]  # fmt: skip
    model = of_nodes(nodes, [make_value("x", ["s", "n", width])], arrays)
    x = drawn(5, 3, width)
    wanted = in_onnxruntime(model.proto)({"x": x})
    for got, expected in zip(model.results(x=x).values(), wanted, strict=True):
        assert np.abs(got - expected).max() < 0.03


def test_ops_without_a_kernel_in_onnxruntime() -> None:
    """Against NumPy."""
    nodes = [
        node_of("QLinearReduceMean", ["x", *OF_X, *OF_Y], ["mean"], axes=[1], keepdims=1),
        node_of("MulInteger", ["x", "z1", "x", "z2"], ["mul"]),
        node_of("ReduceSumInteger", ["x"], ["sum"], axes=[0], keepdims=0),
    ]
    x = codes(3, 5)
    wide = x.astype(np.int64)
    means = (wide - 120).mean(1, keepdims=True) * 0.0513 / 0.0807 + 100
    model = of_nodes(nodes, [make_value("x", [3, 5], U8)], PARTS)
    model.compare(
        {
            "mean": np.clip(np.rint(means), 0, 255).astype(np.uint8),
            "mul": ((wide - 120) * (wide - 10)).astype(np.int32),
            "sum": wide.sum(0).astype(np.uint32),
        },
        x=x,
    )


FORMS = {
    10: ["UINT8", "INT8"], 13: ["UINT8", "INT8"], 19: ["FLOAT8E4M3FN", "FLOAT8E5M2"],
    21: ["UINT8", "INT16", "UINT16", "INT4", "UINT4"], 23: ["FLOAT4E2M1"], 25: ["INT2", "UINT2"],
}  # fmt: skip


@pytest.mark.parametrize("opset", FORMS)
def test_the_standard_quantises_in_every_form(opset: int) -> None:
    """Against the evaluator of the standard, or onnxruntime for opsets that it lacks."""
    scales = {"s": np.float32(0.11), "row": np.abs(drawn(6)) / 4 + 0.05}
    scales["block"] = np.abs(drawn(4, 3)) / 4 + 0.05
    forms: dict[str, dict[str, int]] = {"s": {}}
    forms |= {"row": {"axis": 1}} if opset >= 13 else {}
    forms |= {"block": {"axis": 1, "block_size": 2}} if opset >= 21 else {}
    nodes, zeros = [], []
    for name in FORMS[opset]:
        point = 0 if "FLOAT" in name or name.endswith("T2") else 3
        for scale, more in forms.items():
            shape = scales[scale].shape
            zero, codes = f"z_{name}_{scale}", f"{name}_{scale}"
            values = [point] * int(np.prod(shape))
            zeros.append(helper.make_tensor(zero, getattr(TensorProto, name), shape, values))
            nodes += [
                helper.make_node("QuantizeLinear", ["x", scale, zero], [codes], **more),
                helper.make_node("DequantizeLinear", [codes, scale, zero], [f"{codes}_"], **more),
            ]
    outputs = [node.output[0] for node in nodes if node.op_type == "DequantizeLinear"]
    proto = build_model(nodes, [make_value("x", [4, 6])], outputs, scales, opset=opset)
    proto.graph.initializer.extend(zeros)
    oracle = in_reference(proto) if opset >= 19 else in_onnxruntime(proto)
    x = drawn(4, 6)
    Read(proto).compare(dict(zip(outputs, oracle({"x": x}), strict=True)), x=x)
