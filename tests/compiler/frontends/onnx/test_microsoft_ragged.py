"""Texts of unequal length one behind another: ops of onnxruntime-genai's schedulers, against
onnxruntime, and NumPy for attention over pages, which only its CUDA provider has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.devices import load_best
from tests.support.onnx_contrib import Read, drawn, node_of, of_nodes
from tests.support.onnx_models import make_value
from tests.support.results import assert_same

Array = np.ndarray[Any, Any]
INT32 = TensorProto.INT32
LENGTHS = ([3, 1, 5], [2], [1, 1])
HEADS, GROUPS, SIZE, ROWS = 4, 2, 8, 4
CACHED = ["kc", "vc", "starts", "past", "table"]


def starts_of(lengths: Sequence[int]) -> Array:
    return np.cumsum([0, *lengths]).astype(np.int32)


def test_windows_stay_in_their_texts() -> None:
    nodes = [
        node_of(
            "VarlenCausalConvWithState", ["x", "w", "starts", "b", "past"], ["y", "state"],
            activation="silu",
        ),
        node_of(
            "VarlenCausalConvWithState", ["x", "w", "starts", "", "wide", "count"],
            ["z", "kept", "update"], dilation=2, state_update_capacity=3,
        ),
    ]  # fmt: skip
    inputs = [make_value("x", ["t", 4]), make_value("starts", ["n"], INT32)]
    inputs += [make_value("past", ["m", 4, 2]), make_value("wide", ["m", 4, 4])]
    inputs.append(make_value("count", ["m"], INT32))
    model = of_nodes(nodes, inputs, {"w": drawn(4, 1, 3), "b": drawn(4, seed=1)})
    for lengths in LENGTHS:
        texts = len(lengths)
        past, wide = drawn(texts, 4, 2, seed=3), drawn(texts, 4, 4, seed=5)
        given = {"x": drawn(sum(lengths), 4), "starts": starts_of(lengths), "past": past}
        model.check(1e-5, **given, wide=wide, count=np.array([2, 9, 1][:texts], np.int32))
    given["starts"] = starts_of([1, 2])
    with pytest.raises(InvalidArgument, match="the number of tokens of all texts"):
        model.results(**given, wide=wide, count=np.zeros(2, np.int32))


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_texts_have_states_of_their_own(rule: str) -> None:
    """With what the first tokens change, and queries, keys and values side by side."""
    gates = ["g" if "gated" in rule else "", "b" if "delta" in rule else ""]
    shapes = {"q": (2, 3), "k": (2, 3), "v": (4, 5), "g": (4,), "b": (4,), "whole": (32,)}
    counted = ["count", "active"]
    nodes = [
        node_of(
            "GatedDeltaNet", ["q", "k", "v", "starts", *gates, "state", "", "", *counted],
            ["y", "next", "update"], state_update_capacity=3, qk_l2_norm=1, update_rule=rule,
        ),
        node_of(
            "GatedDeltaNet", ["whole", "", "", "starts", *gates, "state"], ["z", "last"],
            update_rule=rule, qk_l2_norm=1,
        ),
    ]  # fmt: skip
    shapes = {name: shape for name, shape in shapes.items() if name not in "gb" or name in gates}
    inputs = [make_value(name, ["t", *shape]) for name, shape in shapes.items()]
    inputs += [make_value("starts", ["n"], INT32), make_value("state", ["m", 4, 5, 3])]
    inputs += [make_value("count", ["m"], INT32), make_value("active", [1], INT32)]
    model = of_nodes(nodes, inputs)
    for active, lengths in enumerate(LENGTHS):
        tokens, texts = sum(lengths), len(lengths)
        given = {x: drawn(tokens, *shape, seed=ord(x[0])) for x, shape in shapes.items()}
        given |= {"g": -np.abs(given["g"])} if "g" in given else {}
        given |= {"state": drawn(texts, 4, 5, 3), "starts": starts_of(lengths)}
        count = np.array([2, 9, 1][:texts], np.int32)
        model.check(1e-4, **given, count=count, active=np.array([active], np.int32))


def attended(
    given: dict[str, Array], *, window: int = 0, cap: float = 0.0, causal: bool = True,
    scale: float = SIZE**-0.5, turned: bool = False, sink: Array | None = None,
) -> list[Array]:  # fmt: skip
    """PagedAttention token by token."""
    q, k, v, starts, past, table = (given[x] for x in ("q", "k", "v", "starts", "past", "table"))
    caches = given["kc"].copy(), given["vc"].copy()
    result = np.zeros((len(q), HEADS, SIZE), np.float32)

    def shown(x: Array, place: int, norm: str) -> Array:
        if not turned:
            return x
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * given[norm]
        c, s = given["cos"][place], given["sin"][place]
        a, b = x[:, : len(c)], x[:, len(c) : 2 * len(c)]
        return np.concatenate([a * c - b * s, b * c + a * s, x[:, 2 * len(c) :]], -1)

    for text, (first, end) in enumerate(pairwise(starts)):
        places = past[text] + np.arange(end - first)
        for token, place in zip(range(first, end), places, strict=True):
            at = table[text][place // ROWS], place % ROWS
            caches[0][at] = shown(k[token].reshape(GROUPS, SIZE), place, "kn")
            caches[1][at] = v[token].reshape(GROUPS, SIZE)
        for token, place in zip(range(first, end), places, strict=True):
            seen = np.arange(place + 1 if causal else places[-1] + 1)
            seen = seen[seen > place - window] if window else seen
            at = table[text][seen // ROWS], seen % ROWS
            keys, values = (np.repeat(each[at], HEADS // GROUPS, 1) for each in caches)
            query = shown(q[token].reshape(HEADS, SIZE), place, "qn")
            scores = np.einsum("hd,nhd->nh", query, keys) * scale
            scores = cap * np.tanh(scores / cap) if cap else scores
            weights = np.exp(scores - scores.max(0))
            total = weights.sum(0) + (0 if sink is None else np.exp(sink - scores.max(0)))
            result[token] = np.einsum("nh,nhd->hd", weights / total, values)
    return [result.reshape(len(q), -1), *caches]


def paged(nodes: Sequence[Any], arrays: dict[str, Array] | None = None) -> Read:
    widths = {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
    widths["whole"] = sum(widths.values())
    inputs = [make_value(name, ["t", width]) for name, width in widths.items()]
    inputs += [make_value(name, ["pages", ROWS, GROUPS, SIZE]) for name in ("kc", "vc")]
    dims = {"starts": ["n"], "past": ["m"], "table": ["m", "columns"]}
    inputs += [make_value(name, shape, INT32) for name, shape in dims.items()]
    return of_nodes(nodes, inputs, arrays)


def test_attention_over_pages() -> None:
    """Norms, angles and a window; queries, keys and values side by side, which see all."""
    named: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    turned = ["q", "k", "v", *CACHED, "cos", "sin", "", "", "qn", "kn"]
    nodes = [
        node_of("PagedAttention", turned, ["y", "yk", "yv"], do_rotary=1, local_window_size=3,
                **named),
        node_of("PagedAttention", ["whole", "", "", *CACHED], ["z", "zk", "zv"], is_causal=0,
                softcap=2.0, scale=0.3, **named),
    ]  # fmt: skip
    arrays = {"cos": np.cos(drawn(20, 3)), "sin": np.sin(drawn(20, 3))}
    arrays |= {"qn": drawn(SIZE), "kn": drawn(SIZE, seed=1)}
    model = paged(nodes, arrays)
    table = np.array([[7, 2, 5], [0, 11, 3], [4, 1, 9]], np.int32)
    compiled = load_best(model.module)
    for lengths, past in (([3, 1, 5], [2, 0, 6]), ([1, 1], [5, 3]), ([4], [0])):
        widths = {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
        given = {x: drawn(sum(lengths), width, seed=ord(x)) for x, width in widths.items()}
        given["whole"] = np.concatenate(list(given.values()), 1)
        given |= {x: drawn(12, ROWS, GROUPS, SIZE, seed=ord(x[0])) for x in ("kc", "vc")}
        given |= {"starts": starts_of(lengths), "past": np.array(past, np.int32)}
        given["table"] = table[: len(lengths)]
        wanted = attended(given | arrays, window=3, turned=True)
        wanted += attended(given, cap=2.0, scale=0.3, causal=False)
        model.compare(dict(zip(model.names, wanted, strict=True)), 1e-5, **given)
        found = compiled(*(given[name] for name in model.inputs))
        for each, expected in zip(found, wanted, strict=True):
            assert_same(np.asarray(each), expected, 1e-4, 1e-4)
    for count in (-1, 9):
        given["past"] = np.array([count], np.int32)
        with pytest.raises(InvalidArgument, match="texts for which their blocks have no room is 1"):
            compiled(*(given[name] for name in model.inputs))


def test_sinks_over_pages() -> None:
    """What a page holds behind its text, such as NaN, is not seen."""
    named: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    inputs = ["q", "k", "v", *CACHED, "", "", "", "sink"]
    nodes = [
        node_of("PagedAttention", inputs, ["y", "yk", "yv"], local_window_size=3, **named),
        node_of("PagedAttention", inputs, ["z", "zk", "zv"], softcap=2.0, is_causal=0, **named),
    ]
    sink = 2 * drawn(HEADS, seed=2)
    model = paged(nodes, {"sink": sink})
    lengths, widths = [3, 1, 5], {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
    given = {x: drawn(sum(lengths), width, seed=ord(x)) for x, width in widths.items()}
    given |= {x: drawn(12, ROWS, GROUPS, SIZE, seed=ord(x[0])) for x in ("kc", "vc")}
    given |= {"starts": starts_of(lengths), "past": np.array([2, 0, 6], np.int32)}
    given["table"] = np.array([[7, 2, -1], [0, 11, 3], [4, 1, 9]], np.int32)
    for cache in (given["kc"], given["vc"]):
        cache[[3, 11]] = cache[2, 1:] = np.nan
    wanted = attended(given, window=3, sink=sink)
    wanted += attended(given, cap=2.0, causal=False, sink=sink)
    given["whole"] = drawn(sum(lengths), sum(widths.values()))
    model.compare(dict(zip(model.names, wanted, strict=True)), 1e-5, **given)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"kv_cache_layout": "LATENT"}, "kv_cache_layout is 'LATENT'"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type is 'PER_TENSOR'"),
        ({"is_causal": 0, "local_window_size": 2}, "has a window, but is not causal"),
    ],
)
def test_pages_that_are_refused(named: dict[str, Any], message: str) -> None:
    node = node_of("PagedAttention", ["q", "k", "v", *CACHED], ["y", "kk", "vv"],
                   num_heads=HEADS, kv_num_heads=GROUPS, **named)  # fmt: skip
    with pytest.raises(CompileError, match=message):
        paged([node])
