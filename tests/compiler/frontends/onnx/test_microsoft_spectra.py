"""Spectra, checks and projections of `com.microsoft` for which onnxruntime has kernels of GPUs
alone, against NumPy; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ingot.compiler.frontends.onnx.lowerings.microsoft.refused import REFUSED
from ingot.hal.errors import CompileError
from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]


def paired(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1).astype(np.float32)


@pytest.mark.parametrize("shape", [(2, 4, 6), (1, 5, 10), (3, 2, 2)])
def test_transforms_of_real_signals_go_there_and_back(shape: tuple[int, ...]) -> None:
    nodes = [
        node_of("Rfft", ["x"], ["line"], signal_ndim=1, onesided=1, normalized=0),
        node_of("Rfft", ["x"], ["plane"], signal_ndim=2),
        node_of("Irfft", ["line"], ["first"], signal_ndim=1),
        node_of("Irfft", ["plane"], ["second"], signal_ndim=2),
    ]
    model = of_nodes(nodes, [make_value("x", ["n", *shape[1:]])])
    x = drawn(*shape)
    wanted = {"line": paired(np.fft.rfft(x)), "plane": paired(np.fft.rfft2(x))}
    model.compare({**wanted, "first": x, "second": x}, x=x)
    for attributes in ({"signal_ndim": 4}, {"signal_ndim": 1, "normalized": 1}):
        with pytest.raises(CompileError, match=r"expected 1 to 3|of one side without a factor"):
            of_nodes([node_of("Rfft", ["x"], ["y"], **attributes)], [make_value("x", [2, 4])])


def test_products_of_spectra() -> None:
    nodes = [node_of(name, ["a", "b"], [name]) for name in ("ComplexMul", "ComplexMulConj")]
    model = of_nodes(nodes, [make_value("a", ["n", 3, 2]), make_value("b", [3, 2])])
    a, b = drawn(4, 3, 2), drawn(3, 2, seed=1)
    p, q = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    wanted = {"ComplexMul": paired(p * q), "ComplexMulConj": paired(p * q.conj())}
    model.compare(wanted, a=a, b=b)


def test_whether_all_are_finite() -> None:
    kinds: dict[str, dict[str, int]] = {
        "all": {},
        "inf": {"isinf_only": 1},
        "nan": {"isnan_only": 1},
    }
    nodes = [node_of("IsAllFinite", ["x", "y"], [kind], **each) for kind, each in kinds.items()]
    model = of_nodes(
        nodes, [make_value("x", ["n"]), make_value("y", ["m", 2], TensorProto.FLOAT16)]
    )
    for number, bad in ((1, ()), (np.inf, ("all", "inf")), (np.nan, ("all", "nan"))):
        x, y = np.ones(3, np.float32), np.ones((2, 2), np.float16)
        y[1, 0] = number
        model.compare({kind: np.array(kind not in bad) for kind in kinds}, x=x, y=y)


def test_what_is_dropped_in_training_stays() -> None:
    nodes = [node_of("BitmaskDropout", ["x", "ratio"], ["y"]), node_of("SampleOp", ["x"], ["z"])]
    model = of_nodes(nodes, [make_value("x", ["n"])], {"ratio": np.float32(0.5)})
    model.compare(
        {"y": np.ones(4, np.float32), "z": np.ones(4, np.float32)}, x=np.ones(4, np.float32)
    )


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def test_a_router_and_the_gate_of_a_shared_expert_are_one_product() -> None:
    w, x = drawn(6, 3 + 8, seed=1), drawn(2, 6)
    node = node_of("RouterGateUpProj", ["x", "w"], ["router", "y"], router_size=3, limit=0.7)
    model = of_nodes([node], [make_value("x", ["n", 6])], {"w": w})
    product = x @ w
    gate, up = np.minimum(product[:, 3:7], 0.7), np.clip(product[:, 7:], -0.7, 0.7)
    model.compare({"router": product[:, :3], "y": gate * sigmoid(gate) * up}, x=x)


@pytest.mark.parametrize("kind", ["NONE", "RELU", "GELU"])
def test_products_of_8_bits_have_scales(kind: str) -> None:
    nodes = [
        node_of("Cast", ["x"], ["a"], to=TensorProto.FLOAT8E4M3FN),
        node_of("GemmFloat8", ["a", "w", "c", "s", "t"], ["y"],
                transB=1, alpha=0.5, beta=2.0, activation=kind, dtype=1),
    ]  # fmt: skip
    nodes[0].domain = ""
    w, c = np.round(drawn(5, 4) * 2) / 2, drawn(5, seed=1)
    scales = {"s": np.array([0.25], np.float32), "t": np.array([3], np.float32)}
    x = np.round(drawn(3, 4, seed=2) * 2) / 2
    model = of_nodes(nodes, [make_value("x", ["n", 4])], {"w": w, "c": c, **scales})
    y = 0.5 * 0.25 * 3 * (x @ w.T) + 2 * c
    if kind == "GELU":
        y = y * np.vectorize(lambda each: 0.5 * (1 + _erf(each / np.sqrt(2))))(y)
    elif kind == "RELU":
        y = np.maximum(y, 0)
    found = model.results(x=x)["y"]
    np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-5)


def _erf(x: float) -> float:
    from math import erf

    return erf(x)


@pytest.mark.parametrize("is_first", [True, False])
def test_streams_with_gates_of_low_rank(is_first: bool) -> None:
    branches, width, rank = 3, 4, 2
    whole = branches * width
    weights = {
        "norm": drawn(whole, seed=1), "down": drawn(whole, rank, seed=2),
        "up": drawn(rank, whole, seed=3), "inject": drawn(whole, branches, seed=4),
    }  # fmt: skip
    inputs = {"x": [whole]} if is_first else {"x": [whole], "made": [width], "gate": [branches]}
    node = node_of(
        "HyperConnectionLowRankMix", ["x", *weights, *list(inputs)[1:]], ["y", "later", "streams"],
        num_branches=branches, epsilon=0.1, silu_alpha=0.7, reduction_scale=0.5, gate_div=2.0,
        gate_mul=1.5,
    )  # fmt: skip
    model = of_nodes([node], [make_value(n, ["b", "s", *d]) for n, d in inputs.items()], weights)
    given = {name: drawn(2, 3, *shape, seed=place) for place, (name, shape) in
             enumerate(inputs.items())}  # fmt: skip
    streams = given["x"].reshape(2, 3, branches, width)
    if not is_first:
        streams = streams + given["gate"][..., None] * given["made"][..., None, :]
    root = np.sqrt((streams**2).mean(-1, keepdims=True) + 0.1)
    normed = (streams / root).reshape(2, 3, whole) * weights["norm"]
    hidden = 0.7 * (normed @ weights["down"])
    hidden = hidden * sigmoid(hidden)
    gated = normed * sigmoid(hidden @ weights["up"])
    wanted = {
        "y": 0.5 * gated.reshape(streams.shape).sum(2),
        "later": sigmoid(normed @ weights["inject"] / 2) * 1.5,
        "streams": streams.reshape(given["x"].shape),
    }
    model.compare(wanted, 1e-5, **given)


def test_all_that_is_refused_is_told_at_once_with_what_to_do() -> None:
    nodes = [node_of(each, ["x"], [each]) for each in REFUSED]
    with pytest.raises(CompileError) as caught:
        of_nodes(nodes, [make_value("x", ["n"])])
    for place, (each, reason) in enumerate(REFUSED.items()):
        assert f"layer '{each}_{place}': {each}(f32[n]): {reason}" in str(caught.value)
