"""Mixtures of experts against onnxruntime, and against NumPy where it rounds activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]
EXPERTS, WIDTH, INNER = 4, 32, 16
INPUTS = [make_value("x", ["a", "b", WIDTH]), make_value("r", ["tokens", EXPERTS])]
MIXES: dict[str, dict[str, Any]] = {
    "relu": {"k": 1}, "gelu": {"k": 2, "normalize_routing_weights": 1}, "silu": {"k": 2},
    "identity": {"k": 3},
}  # fmt: skip


def test_mixtures_of_every_activation() -> None:
    arrays = {
        "w1": drawn(EXPERTS, INNER, WIDTH) / 4, "b1": drawn(EXPERTS, INNER, seed=1),
        "w2": drawn(EXPERTS, WIDTH, INNER, seed=2) / 4, "b2": drawn(EXPERTS, WIDTH, seed=3),
        "wide": drawn(EXPERTS, 2 * INNER, WIDTH, seed=4) / 4, "b": drawn(EXPERTS, 2 * INNER),
    }  # fmt: skip
    nodes = [
        node_of("MoE", ["x", "r", "w1", "b1", "w2", "b2"], [name], activation_type=name, **more)
        for name, more in MIXES.items()
    ]
    for fusion in (1, 2):
        nodes.append(
            node_of(
                "MoE", ["x", "r", "wide", "b", "w2", "b2"], [f"fused{fusion}"], k=2,
                activation_type="swiglu", swiglu_fusion=fusion, activation_alpha=1.7,
                activation_beta=1.0, swiglu_limit=1.5, normalize_routing_weights=1,
            )
        )  # fmt: skip
    model = of_nodes(nodes[:-1], INPUTS, arrays)
    model.check(1e-5, x=drawn(2, 3, WIDTH, seed=5), r=drawn(6, EXPERTS, seed=6))
    for node in nodes[-2:]:  # the one that onnxruntime lacks, with the weights in its order
        node.ClearField("output")
        node.output.append("y")
    order = [*range(0, 2 * INNER, 2), *range(1, 2 * INNER, 2)]
    apart = arrays | {"wide": arrays["wide"][:, order], "b": arrays["b"][:, order]}
    given = {"x": drawn(2, 3, WIDTH, seed=5), "r": drawn(6, EXPERTS, seed=6)}
    wanted = of_nodes([nodes[-2]], INPUTS, arrays).results(**given)
    of_nodes([nodes[-1]], INPUTS, apart).compare(wanted, **given)


@pytest.mark.parametrize("block", [0, 16])
def test_quantised_mixtures(block: int) -> None:
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 16, (EXPERTS, *s)) for s in ((INNER, WIDTH), (WIDTH, INNER))]
    packed = [(each[..., ::2] | each[..., 1::2] << 4).astype(np.uint8) for each in codes]
    rows = [each.shape[:2] for each in codes]
    shapes = [(*r, c.shape[2] // block) if block else r for r, c in zip(rows, codes, strict=True)]
    scales = [np.abs(drawn(*shape)) / 20 + 0.01 for shape in shapes]
    more = {"block_size": block} if block else {}
    node = node_of(
        "QMoE", ["x", "r", "w1", "s1", "", "w2", "s2"], ["y"], k=2, activation_type="silu",
        expert_weight_bits=4, normalize_routing_weights=1, weights_prepacked=0, **more,
    )  # fmt: skip
    arrays = {"w1": packed[0], "s1": scales[0], "w2": packed[1], "s2": scales[1]}
    x, routed = drawn(3, 2, WIDTH, seed=1), drawn(6, EXPERTS, seed=2)
    weights = [
        (c - 8) * (np.repeat(s, block, 2) if block else s[..., None])
        for c, s in zip(codes, scales, strict=True)
    ]
    total = np.zeros((6, WIDTH))
    for token, line in enumerate(x.reshape(6, WIDTH).astype(np.float64)):
        chosen = np.argsort(-routed[token])[:2]
        powers = np.exp(routed[token][chosen])
        for expert, share in zip(chosen, powers / powers.sum(), strict=True):
            hidden = weights[0][expert] @ line
            hidden = hidden / (1 + np.exp(-hidden))
            total[token] += share * (weights[1][expert] @ hidden)
    model = of_nodes([node], INPUTS, arrays)
    model.compare({"y": total.reshape(x.shape)}, 1e-5, x=x, r=routed)


@pytest.mark.parametrize("kind", ["swiglu", "relu2"])
def test_mixtures_of_weights_in_blocks_of_ggml(kind: str) -> None:
    """Against NumPy: onnxruntime has them for one device. Blocks of Q8_0, of 34 bytes."""
    rng, routed, mixing = np.random.default_rng(0), drawn(6, EXPERTS), np.abs(drawn(6, EXPERTS))
    arrays = {
        name: rng.integers(0, 40, (EXPERTS, 32, 34), np.uint8) for name in ("gate", "up", "down")
    }
    for each in arrays.values():
        each[..., :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    weights = {
        name: each[..., 2:].view(np.int8) * np.float64(np.float16(0.01))
        for name, each in arrays.items()
    }
    kinds = {"gate_type": 8, "down_type": 8, "up_type": 8}
    node = node_of(
        "MoEPacked", ["x", "r", "gate", "up" if kind == "swiglu" else "", "down", "m"], ["y"], k=2,
        activation_type=kind, normalize_routing_weights=1, routing_epsilon=0.25,
        routed_scaling_factor=2.5, **kinds,
    )  # fmt: skip
    inputs = [*INPUTS, make_value("m", ["tokens", EXPERTS])]
    x = drawn(3, 2, WIDTH, seed=1)
    total = np.zeros((6, WIDTH))
    for token, line in enumerate(x.reshape(6, WIDTH).astype(np.float64)):
        chosen = np.argsort(-routed[token])[:2]
        sum_of_shares = mixing[token][chosen].sum() + 0.25
        for expert in chosen:
            hidden = weights["gate"][expert] @ line
            if kind == "relu2":
                hidden = np.maximum(hidden, 0) ** 2
            else:
                hidden *= (weights["up"][expert] @ line) / (1 + np.exp(-hidden))
            share = 2.5 * mixing[token][expert] / sum_of_shares
            total[token] += share * (weights["down"][expert] @ hidden)
    model = of_nodes([node], inputs, arrays)
    model.compare({"y": total.reshape(x.shape)}, 1e-5, x=x, r=routed, m=mixing)
