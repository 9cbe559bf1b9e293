"""Ops of `com.microsoft` that optimisers make of several layers: against those layers in
onnxruntime, and NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tests.support.onnx_contrib import DOMAIN, drawn, node_of, of_nodes
from tests.support.onnx_models import build_model, make_value

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def in_layers(
    nodes: list[onnx.NodeProto], inputs: Any, names: list[str], arrays: Any, **given: Array
) -> dict[str, Array]:
    model = build_model(nodes, inputs, names, arrays, domains=[DOMAIN], opset=20)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip(names, session.run(None, given), strict=True))


def layer(name: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, inputs.split(), [output], **attributes)


def test_ordered_ops_are_what_they_were_made_of() -> None:
    size, heads = 8, 2
    scales = {f"s{n}": np.float32(x) for n, x in enumerate((0.02, 0.03, 0.04, 0.05, 0.06))}
    weights = {f"w{n}": RNG.integers(-128, 128, (size, size)).astype(np.int8) for n in range(4)}
    arrays = scales | {f"turned{n[1]}": np.ascontiguousarray(x.T) for n, x in weights.items()}
    arrays |= {f"b{n}": drawn(size, seed=n) for n in range(4)}
    arrays |= {"ws": (RNG.random(size) * 0.01 + 0.001).astype(np.float32), "gain": drawn(size)}
    arrays["mask"] = np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)
    ends, rows = {"order_input": 1, "order_output": 1}, {"order_X": 1, "order_Y": 1}
    attention = ["q", "s0", *["s1"] * 3, *(f"turned{n}" for n in range(3)), *["ws"] * 3]
    attention += ["b0", "b1", "b2", "s3", "s2", "s4", "mask"]
    nodes = [
        node_of("QuantizeWithOrder", ["x", "s0"], ["q"], **ends),
        node_of("DequantizeWithOrder", ["q", "s0"], ["back"], to=1, **ends),
        node_of(
            "QOrderedMatMul", ["q", "s0", "turned3", "ws", "s1", "b3", "q", "s0"], ["product"],
            order_A=1, order_B=0, order_Y=1,
        ),
        node_of("QOrderedGelu", ["product", "s1", "s2"], ["gelu"], **rows),
        node_of(
            "QOrderedLayerNormalization", ["product", "s1", "gain", "b3", "s2"], ["norm"],
            epsilon=1e-12, **rows,
        ),
        node_of(
            "QOrderedAttention", attention, ["attention"], num_heads=heads, order_weight=0, **ends
        ),
    ]  # fmt: skip
    arrays_of_layers = arrays | weights | {"zero": np.int8(0), "shape": np.array([0, 0, heads, 4])}
    arrays_of_layers |= {"flat": np.array([0, 0, size]), "factor": np.float32(0.5)}
    hidden = np.float32(arrays["mask"] - 1)[:, None, None] * np.float32(10000)
    layers = [
        layer("QuantizeLinear", "x s0 zero", "q"), layer("DequantizeLinear", "q s0", "back"),
        layer("DequantizeLinear", "w3 ws", "weight", axis=1),
        layer("MatMul", "back weight", "m"), layer("Add", "m b3", "biased"),
        layer("Add", "biased back", "sum"), layer("QuantizeLinear", "sum s1 zero", "product"),
        layer("DequantizeLinear", "product s1", "wide"),
        layer("Gelu", "wide", "g"), layer("QuantizeLinear", "g s2 zero", "gelu"),
        layer("LayerNormalization", "wide gain b3", "l", epsilon=1e-12),
        layer("QuantizeLinear", "l s2 zero", "norm"),
    ]  # fmt: skip
    for n, turn in enumerate(([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])):
        layers += [
            layer("DequantizeLinear", f"w{n} ws", f"weight{n}", axis=1),
            layer("MatMul", f"back weight{n}", f"m{n}"), layer("Add", f"m{n} b{n}", f"a{n}"),
            layer("QuantizeLinear", f"a{n} s1 zero", f"c{n}"),
            layer("DequantizeLinear", f"c{n} s1", f"d{n}"),
            layer("Reshape", f"d{n} shape", f"r{n}"),
            layer("Transpose", f"r{n}", f"t{n}", perm=turn),
        ]  # fmt: skip
    layers += [
        layer("MatMul", "t0 t1", "m4"), layer("QuantizeLinear", "m4 s3 zero", "c4"),
        layer("DequantizeLinear", "c4 s3", "d4"), layer("Mul", "d4 factor", "scores"),
        layer("Add", "scores hidden", "masked"), layer("Softmax", "masked", "soft", axis=-1),
        layer("QuantizeLinear", "soft s2 zero", "c5"), layer("DequantizeLinear", "c5 s2", "d5"),
        layer("MatMul", "d5 t2", "m5"), layer("Transpose", "m5", "t5", perm=[0, 2, 1, 3]),
        layer("Reshape", "t5 flat", "r5"), layer("QuantizeLinear", "r5 s4 zero", "attention"),
    ]  # fmt: skip
    inputs, x = [make_value("x", ["n", 5, size])], drawn(2, 5, size) * 2
    model = of_nodes(nodes, inputs, arrays)
    wanted = in_layers(layers, inputs, model.names, arrays_of_layers | {"hidden": hidden}, x=x)
    model.compare(wanted, x=x)


def test_products_of_one_norm() -> None:
    k, n, block = 64, 8, 32
    arrays: dict[str, Array] = {"scale": drawn(k)}
    for at, name in enumerate("qkvgu"):
        arrays[name + "w"] = RNG.integers(0, 256, (n, k // block, block // 2)).astype(np.uint8)
        arrays[name + "s"] = (RNG.random((n, k // block)) * 0.1).astype(np.float32)
        arrays[name + "b"] = drawn(n, seed=at)
    one = {"K": k, "block_size": block}
    weights = [name + kind for name in "qkv" for kind in "wsb"]
    gates = ["gw", "gs", "", "uw", "us", "ub"]
    nodes = [
        node_of(
            "MatMulNBitsQkv", ["x", "skip", "scale", *weights], ["q", "k", "v", "sum"], Nq=n, Nkv=n,
            **one,
        ),
        node_of("MatMulNBitsMlp", ["x", "", "scale", *gates], ["y"], N=n, activation="silu", **one),
        node_of("MatMulNBitsMlp", ["x", "", "", *gates], ["z"], N=n, activation="silu", **one),
    ]  # fmt: skip
    norm, names = {"epsilon": 1e-6}, ["x", "skip", "scale"]
    layers = [
        node_of("SkipSimplifiedLayerNormalization", names, ["norm", "", "", "sum"], **norm),
        layer("SimplifiedLayerNormalization", "x scale", "alone", epsilon=1e-5),
    ]
    products = [("norm", name, "b", name) for name in "qkv"]
    for given, result in (("alone", "y"), ("x", "z")):
        products += [(given, "g", "", f"g_{result}"), (given, "u", "b", f"u_{result}")]
    for given, name, bias, result in products:
        operands = [given, name + "w", name + "s", "", "", name + bias if bias else ""]
        layers.append(node_of("MatMulNBits", operands, [result], N=n, bits=4, **one))
    for result in "yz":
        layers.append(node_of("QuickGelu", [f"g_{result}"], [f"a_{result}"], alpha=1.0))
        layers.append(layer("Mul", f"a_{result} u_{result}", result))
    inputs = [make_value("x", ["n", "s", k]), make_value("skip", ["n", "s", k])]
    model = of_nodes(nodes, inputs, arrays, floats=["q", "k", "v", "sum", "y", "z"])
    given = {"x": drawn(2, 3, k), "skip": drawn(2, 3, k, seed=1)}
    model.compare(in_layers(layers, inputs, model.names, arrays, **given), 2e-5, **given)


def test_weights_of_small_floats() -> None:
    k, n, e4m3 = 40, 6, ml_dtypes.float8_e4m3fn
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes, eight = RNG.integers(0, 256, (n, k // 2)).astype(np.uint8), drawn(n, k).astype(e4m3)
    scales, small = RNG.random((n, 3)).astype(np.float32), RNG.random((n, 3)).astype(e4m3)
    arrays = {"w": eight, "s": scales, "codes": codes, "small": small.view(np.uint8)}
    arrays |= {"whole": np.float32([0.25]), "step": np.float32(0.01), "b": drawn(n)}
    name = "MatMulBlockQuantizedFp8Weight"
    nodes = [
        node_of(name, ["x", "w", "s", "", "b"], ["y"], block_size=16),
        node_of(name, ["x", "w", "s", "step"], ["z"], block_size=16),
        node_of("MatMulBlockQuantizedFp4Weight", ["x", "codes", "small", "whole"], ["u"]),
    ]
    model = of_nodes(nodes, [make_value("x", ["n", k])], arrays, floats=["y", "z", "u"])
    x = drawn(4, k)
    coded = np.clip(x / np.float32(0.01), -448, 448).astype(e4m3).astype(np.float32) * 0.01
    numbers = np.concatenate([table, -table])[np.stack([codes & 15, codes >> 4], -1).reshape(n, k)]
    wide, four = (
        w.astype(np.float32) * np.repeat(s.astype(np.float32), 16, 1)[:, :k]
        for w, s in ((eight, scales), (numbers, small))
    )
    wanted = {"y": x @ wide.T + arrays["b"], "z": coded @ wide.T, "u": x @ four.T / 4}
    model.compare(wanted, 1e-5, x=x)
