"""Activations, norms, products and renamed ops of `com.microsoft` against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from ingot.hal.errors import CompileError
from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import ints, make_value

Array = np.ndarray[Any, Any]


def test_activations() -> None:
    nodes = [
        node_of("BiasGelu", ["x", "bias"], ["bias_gelu"]),
        node_of("FastGelu", ["x", "bias"], ["fast_gelu_bias"]),
        node_of("FastGelu", ["x"], ["fast_gelu"]),
        node_of("Gelu", ["x"], ["gelu"]),
        node_of("QuickGelu", ["x"], ["quick_gelu"]),
        node_of("QuickGelu", ["x"], ["swish"], alpha=1.0),
        node_of("ScaledSiLU", ["x"], ["scaled"], alpha=0.7),
        node_of("ScaledSiLU", ["x", "scale"], ["scaled_by_input"]),
    ]
    arrays = {"bias": drawn(6), "scale": np.float32(1.3)}
    pair = of_nodes(nodes, [make_value("x", ["a", "b", 6])], arrays)
    for shape in ((1, 1, 6), (3, 5, 6)):
        pair.check(1e-5, x=3 * drawn(*shape, seed=1))


def test_norms_of_sums() -> None:
    width = 8
    nodes = [
        node_of("SkipLayerNormalization", ["x", "y", "g"], ["skip"]),
        node_of("SkipLayerNormalization", ["x", "y", "g", "b", "c"], ["skip_bias", "", "", "sum"]),
        node_of("SkipLayerNormalization", ["x", "row", "g", "b"], ["skip_row"], epsilon=0.1),
        node_of("SkipSimplifiedLayerNormalization", ["x", "y", "g"], ["rms"]),
        node_of(
            "SkipSimplifiedLayerNormalization", ["x", "y", "g", "c"], ["rms_bias", "", "", "total"]
        ),
        helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["plain", "inverse"], axis=-1),
        node_of("BranchwiseRMSNorm", ["x", "halves"], ["branches"], num_branches=2),
        node_of("GatedRMSNorm", ["x", "half", "y"], ["gated"]),
        node_of("GatedRMSNorm", ["x", "half", "y"], ["sigmoid"], activation="sigmoid"),
    ]
    arrays = {
        **{name: drawn(width, seed=place) for place, name in enumerate("gbc")},
        "halves": drawn(2, width // 2), "half": drawn(width // 2),
    }  # fmt: skip
    inputs = [
        make_value("x", ["batch", "seq", width]), make_value("y", ["batch", "seq", width]),
        make_value("row", [1, "seq", width]),
    ]  # fmt: skip
    pair = of_nodes(nodes, inputs, arrays)
    for batch, length in ((1, 1), (2, 5)):
        x, y = drawn(batch, length, width, seed=8), drawn(batch, length, width, seed=9)
        pair.check(1e-5, x=x, y=y, row=drawn(1, length, width, seed=10))


def test_embeddings() -> None:
    tables = {
        "words": drawn(20, 8),
        "places": drawn(10, 8, seed=1),
        "segments": drawn(2, 8, seed=2),
    }
    norm = {"g": drawn(8, seed=3), "b": drawn(8, seed=4)}
    nodes = [
        node_of(
            "EmbedLayerNormalization",
            ["ids", "kinds", "words", "places", "segments", "g", "b", "mask"],
            ["full", "counts", "sum"], mask_index_type=1,
        ),
        node_of(
            "EmbedLayerNormalization",
            ["ids", "", "words", "places", "", "g", "b", "", "positions"], ["bare"], epsilon=1e-3,
            mask_index_type=0,
        ),
    ]  # fmt: skip
    names = ("ids", "kinds", "mask", "positions")
    inputs = [make_value(name, ["batch", "seq"], TensorProto.INT32) for name in names]
    pair = of_nodes(nodes, inputs, {**tables, **norm})
    for shape in ((1, 3), (2, 7)):
        rng = np.random.default_rng(5)
        limits = zip(names, (20, 2, 2, 10), strict=True)
        ids = {name: rng.integers(0, high, shape).astype(np.int32) for name, high in limits}
        pair.check(1e-5, **ids)


def test_products_and_convolutions() -> None:
    arrays = {"w": drawn(4, 5), "v": drawn(3, 4, 5, seed=1), "c": drawn(5, seed=2)}
    arrays |= {"k": drawn(6, 3, 3, 3, seed=3), "kb": drawn(6, seed=4), "z": drawn(2, 6, 5, 5)}
    activations: dict[str, Any] = {
        "Relu": {"pads": [1, 1, 1, 1]}, "Clip": {"activation_params": [-0.5, 1.5]},
        "HardSigmoid": {"activation_params": [0.3, 0.4]}, "Tanh": {"strides": [2, 2]},
    }  # fmt: skip
    matrix, image = ["m", 4], [2, 3, 5, 5]
    nodes = [
        node_of("FusedMatMul", ["x", "w"], ["scaled"], alpha=0.5),
        node_of("FusedMatMul", ["t", "w"], ["turned"], transA=1),
        node_of("FusedMatMul", ["u", "v"], ["turned_b"], transB=1),
        node_of("FusedMatMul", ["s", "v"], ["batch_turned"], transBatchA=1),
        node_of("FusedMatMul", ["r", "v"], ["all_turned"], transBatchA=1, transA=1),
        node_of("FusedGemm", ["x", "w", "c"], ["relu"], activation="Relu", alpha=0.5),
        node_of(
            "FusedGemm", ["x", "w", "c"], ["leaky"], activation="LeakyRelu", activation_alpha=0.2
        ),
        *(
            node_of("FusedConv", ["i", "k", "kb"], [f"conv_{name}"], activation=name, **more)
            for name, more in activations.items()
        ),
        node_of("FusedConv", ["i", "k", "", "z"], ["added"], pads=[1, 1, 1, 1], activation="Relu"),
    ]  # fmt: skip
    inputs = [
        make_value("x", matrix), make_value("t", [4, "m"]), make_value("u", [3, "m", 5]),
        make_value("s", ["m", 3, 4]), make_value("r", [4, 3, "m"]), make_value("i", image),
    ]  # fmt: skip
    pair = of_nodes(nodes, inputs, arrays)
    for m in (1, 7):
        shapes = {"x": (m, 4), "t": (4, m), "u": (3, m, 5), "s": (m, 3, 4), "r": (4, 3, m)}
        pair.check(1e-5, i=drawn(*image), **{name: drawn(*each) for name, each in shapes.items()})


def test_ops_that_the_standard_has_too() -> None:
    arrays = {
        "amounts": ints(1, 0, 0, 2), "start": np.array([2], np.int32), "k": np.array(1, np.int64),
        "limit": np.array(11, np.int32), "axis": np.array(-1, np.int32), "at": ints(1, 2),
        "value": np.array([2.5], np.float32),
    }  # fmt: skip
    nodes = [
        node_of("Pad", ["x", "amounts", "value"], ["padded"]),
        node_of("Range", ["start", "limit"], ["range"]),
        node_of("Trilu", ["x", "k"], ["upper"]),
        node_of("Trilu", ["x"], ["lower"], upper=0),
        node_of("ExpandDims", ["x", "axis"], ["wide"]),
        node_of("GatherND", ["x", "at"], ["element"]),
        node_of("Unique", ["v"], ["values", "places", "counts"]),
        node_of("GridSample", ["image", "grid"], ["sampled"], align_corners=1),
    ]
    inputs = [
        make_value("x", ["n", "m"]), make_value("v", ["k"]), make_value("image", [1, 2, 4, 5]),
        make_value("grid", [1, 3, 3, 2]),
    ]  # fmt: skip
    pair = of_nodes(nodes, inputs, arrays)
    v = np.array([2, 1, 1, 3, 4, 3], np.float32)
    grid = np.random.default_rng(6).uniform(-1.1, 1.1, (1, 3, 3, 2)).astype(np.float32)
    pair.check(x=drawn(3, 4), v=v, image=drawn(1, 2, 4, 5), grid=grid)


def test_ops_that_onnxruntime_runs_on_other_devices_only() -> None:
    """Against NumPy, by what their documentation says."""
    from scipy.special import erf

    arrays = {"bias": drawn(8), "g": drawn(8, seed=1), "b": drawn(8, seed=2), "w": drawn(8, 4)}
    nodes = [
        node_of("BiasSplitGelu", ["x", "bias"], ["split"]),
        node_of("BiasAdd", ["x", "bias", "y"], ["added"]),
        node_of("BiasDropout", ["x", "bias", "y"], ["dropped"]),
        node_of("BiasSoftmax", ["x", "bias"], ["softmax"], axis=2, is_inner_broadcast=0),
        node_of("GemmFastGelu", ["x", "w"], ["gemm"]),
        node_of(
            "SkipGroupNorm",
            ["i", "g", "b", "skip", "bias"],
            ["norm", "sum"],
            groups=2,
            activation=1,
        ),
        node_of("GroupNorm", ["i", "g", "b"], ["plain"], groups=4, activation=0, epsilon=0.1),
        node_of("SwiGLU", ["x"], ["swiglu"], limit=0.9, activation_alpha=1.7, activation_beta=1.0),
    ]
    image = [2, 3, 2, 8]
    inputs = [make_value("x", ["a", 3, 8]), make_value("y", ["a", 3, 8]), make_value("i", image)]
    inputs.append(make_value("skip", [2, 8]))
    model = of_nodes(nodes, inputs, arrays)
    x, y, i, skip = drawn(2, 3, 8, seed=3), drawn(2, 3, 8, seed=4), drawn(*image), drawn(2, 8)

    def sigmoid(x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    def gelu(x: Array) -> Array:
        return x / 2 * (1 + erf(x / np.sqrt(2)))

    def tanh_gelu(x: Array) -> Array:
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def group_norm(x: Array, groups: int, epsilon: float) -> Array:
        split = x.reshape(*x.shape[:3], groups, -1).astype(np.float64)
        axes = (1, 2, 4)
        centred = split - split.mean(axes, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)
        return normal.reshape(x.shape) * arrays["g"] + arrays["b"]

    biased = x + arrays["bias"]
    powers = np.exp(biased - biased.max(-1, keepdims=True))
    total = i + skip[:, None, None] + arrays["bias"]
    skipped = group_norm(total, 2, 1e-5)
    gate, up = np.minimum(x[..., :4], 0.9), np.clip(x[..., 4:], -0.9, 0.9)
    wanted = {
        "split": biased[..., :4] * gelu(biased[..., 4:]),
        "added": biased + y,
        "dropped": biased + y,
        "softmax": powers / powers.sum(-1, keepdims=True),
        "gemm": tanh_gelu(x @ arrays["w"]),
        "norm": skipped * sigmoid(skipped),
        "sum": total,
        "plain": group_norm(i, 4, 0.1),
        "swiglu": gate * sigmoid(1.7 * gate) * (up + 1),
    }
    model.compare(wanted, 1e-5, x=x, y=y, i=i, skip=skip)


def test_an_unknown_activation_is_told() -> None:
    nodes = [node_of("FusedGemm", ["x", "x"], ["y"], activation="Swirl")]
    with pytest.raises(CompileError, match="its activation is 'Swirl'"):
        of_nodes(nodes, [make_value("x", [2, 2])])
