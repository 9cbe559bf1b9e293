"""Hyper-connections, Engrams and routers in groups, with drawn forms, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("seed", range(6))
def test_streams_are_mixed_before_and_behind_a_block(seed: int) -> None:
    rng = np.random.default_rng(seed)
    branches, width = (int(each) for each in rng.integers(2, 6, 2))
    grouped, flat, mix = [branches, width], [branches * width], [branches, branches]
    kinds = {"one": [branches], "column": [branches, 1], "each": grouped}
    streams, options = ("x", {}) if seed % 2 else ("flat", {"num_branches": branches})
    nodes = [
        *(
            node_of(
                "HyperConnectionPreMix", [streams, kind], [f"before_{kind}"],
                reduction_scale=float(rng.uniform(0.5, 2)), **options,
            )
            for kind in kinds
        ),
        *(
            node_of("HyperConnectionPostMix", [streams, "made", kind, other],
                    [f"behind_{kind}{other}"], **options)
            for kind in kinds for other in ("", "mix")
        ),
    ]  # fmt: skip
    if "num_branches" in options:
        nodes.append(node_of("HyperConnectionPreMix", ["flat", "flat"], ["squares"], **options))
    shapes = {"x": grouped, "flat": flat, "made": [width], "mix": mix, **kinds}
    taken = {name for node in nodes for name in node.input if name}
    shapes = {name: shape for name, shape in shapes.items() if name in taken}
    pair = of_nodes(nodes, [make_value(name, ["b", "s", *each]) for name, each in shapes.items()])
    for outer in ((1, 1), (2, 3)):
        pair.check(2e-6, **{
            name: drawn(*outer, *shape, seed=place) for place, (name, shape) in
            enumerate(shapes.items())
        })  # fmt: skip


@pytest.mark.parametrize("hc", [1, 3])
def test_a_gate_lets_in_what_keys_and_queries_agree_on(hc: int) -> None:
    norms = {name: drawn(hc, 8, seed=place) for place, name in enumerate("kqc")}
    nodes = [
        node_of("EngramGate", ["key", "query", "value", "k", "q"], ["gated"], epsilon=0.1),
        node_of("EngramGate", ["key", "query", "value", "k", "q", "c"], ["again", "normed"]),
    ]
    shapes = {"key": [hc, 8], "query": [hc, 8], "value": [8]}
    pair = of_nodes(
        nodes, [make_value(name, ["b", "s", *each]) for name, each in shapes.items()], norms
    )
    for outer in ((1, 1), (2, 5)):
        given = {name: drawn(*outer, *each, seed=9 - len(each)) for name, each in shapes.items()}
        pair.check(1e-5, **{**given, "query": drawn(*outer, hc, 8, seed=5)})


@pytest.mark.parametrize("seed", range(12))
def test_ids_of_ngrams_do_not_reach_over_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most, heads, wide = int(rng.integers(2, 5)), int(rng.integers(1, 4)), bool(seed % 2)
    element = np.int64 if wide else np.int32
    bound = int(np.iinfo(element).max)
    columns = (most - 1) * heads
    arrays = {
        "factors": rng.integers(-bound, bound, most + 1).astype(element),
        "sizes": rng.integers(1, 1000, columns).astype(element),
        "offsets": rng.integers(0, bound - 1000, columns).astype(element),
        "end": np.array(3, element),
    }
    optional = {"past": seed & 2, "offsets": seed & 4, "end": seed % 3, "segments": seed % 5 > 1}
    names = [name if there else "" for name, there in optional.items()]
    node = node_of(
        "NGramHashMapping", ["ids", "factors", "sizes", *names], ["hashes", "present"],
        max_ngram_size=most, n_head_per_ngram=heads, pad_id=-7, reset_on_eos=seed % 3 - 1,
    )  # fmt: skip
    kind = TensorProto.INT64 if wide else TensorProto.INT32
    inputs = [make_value("ids", ["b", "t"], kind)]
    if optional["past"]:
        inputs.append(make_value("past", ["b", most - 1], kind))
    if optional["segments"]:
        inputs.append(make_value("segments", ["b", "t"], TensorProto.INT32))
    pair = of_nodes([node], inputs, {name: arrays[name] for name in arrays if name in node.input})
    for batch, tokens in ((1, 1), (2, 9), (2, 0)):
        given = {
            "ids": rng.integers(-2, 5, (batch, tokens)).astype(element),
            "past": rng.integers(0, 5, (batch, most - 1)).astype(element),
            "segments": np.sort(rng.integers(0, 3, (batch, tokens)), 1).astype(np.int32),
        }
        pair.check(**{name: given[name] for name in pair.inputs})


@pytest.mark.parametrize("seed", range(6))
def test_experts_are_chosen_from_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, size = int(rng.integers(1, 5)), int(rng.integers(2, 5))
    kept = int(rng.integers(1, groups + 1))
    options: dict[str, Any] = {
        "n_group": groups, "topk_group": kept, "group_topk": int(rng.integers(1, size + 2)),
        "top_k": int(rng.integers(1, kept * size + 1)),
    }  # fmt: skip
    if seed % 2:
        options["router_sentinel"] = -3.5
    experts = groups * size
    pair = of_nodes(
        [node_of("MoEGroupRouter", ["x", "bias"], ["chosen"], **options)],
        [make_value("x", ["b", "s", experts])],
        {"bias": drawn(experts, seed=seed)},
    )
    pair.check(1e-5, x=3 * drawn(2, 7, experts, seed=seed + 1))


def test_all_scores_of_experts_are_given_instead() -> None:
    """onnxruntime has no kernel of this form for the CPU."""
    bias, weight = drawn(5, seed=1), drawn(5, 256, seed=2) / 16
    pair = of_nodes(
        [
            node_of("MoEGroupRouter", ["x", "bias", "w"], ["", "scores", "weights"], top_k=2),
            node_of("MoEGroupRouter", ["y", "bias"], ["", "s", "w_of_y"], top_k=2),
        ],
        [make_value("x", ["t", 256]), make_value("y", ["t", 5])],
        {"bias": bias, "w": weight},
    )
    x, y = drawn(4, 256, seed=3), drawn(4, 5, seed=4)
    shares, of_y = (1 / (1 + np.exp(-each)) for each in (x @ weight.T, y))
    wanted = {"scores": shares + bias, "weights": shares, "s": of_y + bias, "w_of_y": of_y}
    pair.compare(wanted, 1e-6, x=x, y=y)


@pytest.mark.parametrize("seed", range(16))
def test_ngrams_of_texts_of_unequal_length_are_hashed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most, heads, texts = int(rng.integers(2, 5)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    counts, columns = rng.integers(1, 7, texts), (most - 1) * heads
    tokens = int(counts.sum())
    capacity = int(rng.integers(1, 5)) if seed % 2 else 0

    def segments(*shape: int) -> Array:
        return rng.integers(0, 2, shape).astype(np.int32)

    arrays = {
        "ids": rng.integers(0, 9, tokens), "factors": 2 * rng.integers(1, 10**6, most) + 1,
        "sizes": rng.integers(5, 99, columns),
        "starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "past": rng.integers(0, 9, (texts, most - 1)), "offsets": rng.integers(0, 99, columns),
        "end": np.array(rng.integers(0, 9)), "segments": segments(tokens),
        "before": segments(texts, most - 1),
        "counts": rng.integers(0, 6, texts).astype(np.int32),
    }  # fmt: skip
    left = {name for name in ("past", "offsets", "end", "segments") if rng.random() < 0.4}
    left |= {"before"} if left & {"past", "segments"} else set()
    left |= set() if capacity else {"counts"}
    names = ["" if name in left else name for name in arrays]
    node = node_of(
        "VarlenNGramHashMapping", names,
        ["hashes", "kept", "" if "segments" in left else "last", "states" if capacity else ""],
        max_ngram_size=most, n_head_per_ngram=heads, pad_id=int(rng.integers(0, 9)),
        reset_on_eos=int(rng.integers(0, 2)), state_update_capacity=capacity,
    )  # fmt: skip
    fixed = {"factors", "sizes", "offsets", "end"}
    inputs = [
        make_value(
            name,
            [dim if name in fixed or place else f"{name}_{place}"
             for place, dim in enumerate(array.shape)],
            TensorProto.INT32 if array.dtype == np.int32 else TensorProto.INT64,
        )
        for name, array in arrays.items() if name not in left
    ]  # fmt: skip
    model = of_nodes([node], inputs)
    model.check(**{name: array for name, array in arrays.items() if name not in left})
