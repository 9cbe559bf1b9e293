"""Attention ops of `com.microsoft` against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import walk
from tests.support.onnx_cases import in_onnxruntime
from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]
HEADS, SIZE = 4, 16
WIDTH = HEADS * SIZE


def tables(count: int, half: int) -> dict[str, Array]:
    angles = np.arange(count)[:, None] / 100 ** (np.arange(half) / half)
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def test_attention_of_a_projection_with_masks_of_every_form() -> None:
    def attention(output: str, mask: str = "", **more: Any) -> onnx.NodeProto:
        return node_of("Attention", ["x", "w", "b", mask], [output], num_heads=HEADS, **more)

    nodes = [
        attention("plain"),
        attention("causal", unidirectional=1),
        attention("scaled", scale=0.3),
        attention("of_keys", "keys", mask_filter_value=-50.0),
        attention("keys_causal", "keys", unidirectional=1),
        attention("of_ends", "ends"),
        attention("of_starts", "starts"),
        attention("of_pairs", "pairs"),
        node_of(
            "Attention", ["x", "wide", "", "", "", "bias"], ["biased"], num_heads=HEADS,
            qkv_hidden_sizes=[WIDTH, WIDTH, 2 * WIDTH],
        ),
    ]  # fmt: skip
    arrays = {
        "w": drawn(16, 3 * WIDTH) / 4, "b": drawn(3 * WIDTH, seed=1),
        "wide": drawn(16, 4 * WIDTH, seed=2) / 4,
    }  # fmt: skip
    masks = {
        "keys": ["batch", "seq"], "ends": ["batch"], "starts": ["twice"],
        "pairs": ["batch", "seq", "seq"],
    }  # fmt: skip
    masks["starts"] = [4]
    inputs = [
        make_value("x", [2, "seq", 16]), make_value("bias", [1, HEADS, "seq", "seq"]),
        *(
            make_value(name, [2 if dim == "batch" else dim for dim in shape], TensorProto.INT32)
            for name, shape in masks.items()
        ),
    ]  # fmt: skip
    pair = of_nodes(nodes, inputs, arrays)
    for length in (1, 7):
        rng = np.random.default_rng(length)
        given = {
            "keys": rng.integers(0, 2, (2, length)),
            "pairs": rng.integers(0, 2, (2, length, length)),
            "ends": np.array([length, (length + 1) // 2]),
            "starts": np.array([length, (length + 1) // 2, 0, length // 3]),
        }  # fmt: skip
        given = {name: value.astype(np.int32) for name, value in given.items()}
        x, bias = drawn(2, length, 16, seed=3), drawn(1, HEADS, length, length, seed=4)
        pair.check(1e-5, x=x, bias=bias, **given)


def test_masks_whose_dims_have_names_of_their_own_are_spread() -> None:
    arrays = {"w": drawn(8, 24, seed=1), "b": drawn(24, seed=2)}
    inputs = [
        make_value("x", ["n", 3, 8]), make_value("m", ["masks", 3, 3], TensorProto.INT32),
        make_value("bias", ["biases", "heads", 3, 3]),
    ]  # fmt: skip
    node = node_of("Attention", ["x", "w", "b", "m", "", "bias"], ["y"], num_heads=2)
    model = of_nodes([node], inputs, arrays)
    mask = np.tril(np.ones((2, 3, 3), np.int32))
    for shape in ((1, 1), (2, 1), (1, 2), (2, 2)):
        bias = drawn(*shape, 3, 3, seed=4)
        model.check(2e-5, x=drawn(2, 3, 8), m=mask, bias=bias)


def test_attention_with_a_cache_as_one_tensor() -> None:
    nodes = [
        node_of(
            "Attention", ["x", "w", "b", "mask", "past"], ["y", "present"], num_heads=HEADS,
            unidirectional=1,
        )
    ]  # fmt: skip
    arrays = {"w": drawn(16, 3 * WIDTH) / 4, "b": drawn(3 * WIDTH, seed=1)}
    inputs = [
        make_value("x", ["b", "s", 16]), make_value("mask", ["b", "total"], TensorProto.INT32),
        make_value("past", [2, "b", HEADS, "p", SIZE]),
    ]  # fmt: skip
    pair = of_nodes(nodes, inputs, arrays)
    for batch, past, length in ((1, 0, 5), (2, 5, 1), (2, 3, 4)):
        mask = np.ones((batch, past + length), np.int32)
        mask[-1, :1] = 0
        cache = drawn(2, batch, HEADS, past, SIZE, seed=5)
        pair.check(1e-5, x=drawn(batch, length, 16, seed=6), mask=mask, past=cache)


def test_multi_head_attention_in_every_form() -> None:
    def attention(output: list[str], *inputs: str, **more: Any) -> onnx.NodeProto:
        return node_of("MultiHeadAttention", inputs, output, num_heads=HEADS, **more)

    nodes = [
        attention(["plain"], "q", "k", "v"),
        attention(["biased"], "q", "k", "v", "bias"),
        attention(["keys"], "q", "k", "v", "bias", "mask"),
        attention(["shown", "", "", "scores"], "q", "k", "v", "bias", "mask", "more"),
        attention(["cross"], "q", "kc", "vc", "bias"),
        attention(["cached", "present_k", "present_v"], "k", "k", "v", "bias", "", "", "kc", "vc"),
        attention(["causal"], "k", "k", "v", unidirectional=1, scale=0.2),
    ]
    cache = [2, HEADS, "t", SIZE]
    inputs = [
        make_value("q", [2, "s", WIDTH]), make_value("k", [2, "t", WIDTH]),
        make_value("v", [2, "t", WIDTH]), make_value("kc", cache), make_value("vc", cache),
        make_value("mask", [2, "t"], TensorProto.INT32), make_value("more", [1, HEADS, "s", "t"]),
    ]  # fmt: skip
    pair = of_nodes(nodes, inputs, {"bias": drawn(3 * WIDTH, seed=1)}, floats=["scores"])
    for s, t in ((1, 6), (5, 5)):
        mask = np.ones((2, t), np.int32)
        mask[1, t // 2 :] = 0
        pair.check(
            1e-5, q=drawn(2, s, WIDTH, seed=2), k=drawn(2, t, WIDTH, seed=3), mask=mask,
            v=drawn(2, t, WIDTH, seed=4), kc=drawn(2, HEADS, t, SIZE, seed=5),
            vc=drawn(2, HEADS, t, SIZE, seed=6), more=drawn(1, HEADS, s, t, seed=7),
        )  # fmt: skip


def test_rotary_embeddings() -> None:
    nodes = [
        node_of("RotaryEmbedding", ["x", "at", "cos", "sin"], ["plain"]),
        node_of("RotaryEmbedding", ["x", "at", "cos", "sin"], ["pairs"], interleaved=1),
        node_of("RotaryEmbedding", ["x", "first", "cos", "sin"], ["offset"]),
        node_of("RotaryEmbedding", ["x4", "at", "cos", "sin"], ["split"]),
        node_of(
            "RotaryEmbedding", ["x", "at", "cos2", "sin2"], ["partly"], num_heads=HEADS,
            rotary_embedding_dim=SIZE // 2,
        ),
    ]  # fmt: skip
    few = {f"{name}2": table for name, table in tables(20, SIZE // 4).items()}
    inputs = [
        make_value("x", [2, "s", WIDTH]), make_value("x4", [2, HEADS, "s", SIZE]),
        make_value("at", [2, "s"], TensorProto.INT64), make_value("first", [1], TensorProto.INT64),
    ]  # fmt: skip
    pair = of_nodes(nodes, inputs, {**tables(20, SIZE // 2), **few})
    for length in (1, 6):
        at = np.random.default_rng(1).integers(0, 20, (2, length))
        x, x4 = drawn(2, length, WIDTH), drawn(2, HEADS, length, SIZE, seed=1)
        pair.check(x=x, x4=x4, at=at, first=np.array([3]))


GROUPS = 2
CACHE = GROUPS * SIZE
Q = ["q", "k", "v", "past_k", "past_v", "last", "total"]


def grouped(output: list[str], inputs: list[str], **more: Any) -> onnx.NodeProto:
    return node_of(
        "GroupQueryAttention", inputs, output, num_heads=HEADS, kv_num_heads=GROUPS, **more
    )


def grouped_inputs(batch: int | str, room: int | str) -> list[onnx.ValueInfoProto]:
    cache = [batch, GROUPS, room, SIZE]
    return [
        make_value("q", [batch, "s", WIDTH]), make_value("k", [batch, "s", CACHE]),
        make_value("v", [batch, "s", CACHE]), make_value("past_k", cache),
        make_value("past_v", cache), make_value("last", [batch], TensorProto.INT32),
        make_value("total", [1], TensorProto.INT32),
    ]  # fmt: skip


def grouped_arrays(length: int, room: int, *before: int) -> dict[str, Array]:
    """For sequences that have so many rows in their caches."""
    batch = len(before)
    used = np.arange(room)[:, None] < np.reshape(before, (-1, 1, 1, 1))
    return {
        "q": drawn(batch, length, WIDTH, seed=2),
        "k": drawn(batch, length, CACHE, seed=3),
        "v": drawn(batch, length, CACHE, seed=4),
        "past_k": np.where(used, drawn(batch, GROUPS, room, SIZE, seed=5), 0),
        "past_v": np.where(used, drawn(batch, GROUPS, room, SIZE, seed=6), 0),
        "last": np.array(before, np.int32) + np.int32(length - 1),
        "total": np.array([max(before) + length], np.int32),
    }


@pytest.mark.parametrize("batch", [1, "batch"])
def test_grouped_queries_with_a_cache_that_grows(batch: int | str) -> None:
    nodes = [
        grouped(["plain", "present_k", "present_v"], Q),
        grouped(["turned", "pk", "pv"], [*Q, "cos", "sin"], do_rotary=1),
        grouped(["window", "wk", "wv"], Q, local_window_size=3, scale=0.25),
    ]
    pair = of_nodes(nodes, grouped_inputs(batch, "p"), tables(40, SIZE // 2))
    for past, length in ((0, 5), (5, 1), (12, 1)):
        before = [past] if batch == 1 else [past, past]
        pair.check(1e-5, **grouped_arrays(length, past, *before))


def test_an_empty_cache_has_no_room() -> None:
    nodes = [grouped(["y", "present_k", "present_v"], Q, local_window_size=3)]
    pair = of_nodes(nodes, grouped_inputs("b", 0))
    pair.check(1e-5, **grouped_arrays(5, 0, 0, 0))


def test_grouped_queries_with_a_cache_that_has_room() -> None:
    room = 16
    packed = ["qkv", "", "", *Q[3:]]
    nodes = [
        grouped(["plain", "present_k", "present_v"], Q),
        grouped(
            ["turned", "pk", "pv"], [*Q, "cos", "sin"], do_rotary=1, rotary_interleaved=1,
            local_window_size=4,
        ),
        grouped(["packed", "qk", "qv"], packed),
        grouped(["capped", "ck", "cv"], Q, softcap=2.0),
        grouped(["smooth", "sk", "sv"], Q, smooth_softmax=1),
        grouped(["sinks", "ik", "iv"], [*Q, "", "", "", "", "sink"]),
    ]  # fmt: skip
    arrays = {**tables(room, SIZE // 2), "sink": drawn(HEADS)}
    inputs = [*grouped_inputs("b", room), make_value("qkv", ["b", "s", WIDTH + 2 * CACHE])]
    pair = of_nodes(nodes, inputs, arrays)
    for batch, before, length in ((1, 0, 6), (1, 6, 1), (3, 8, 1), (1, 5, 3)):
        given = grouped_arrays(length, room, *[before] * batch)
        given["qkv"] = drawn(batch, length, WIDTH + 2 * CACHE, seed=9)
        pair.check(1e-5, **given)


def test_grouped_queries_of_sequences_of_several_lengths() -> None:
    pair = of_nodes([grouped(["y", "present_k", "present_v"], Q)], grouped_inputs("b", 16))
    pair.check(1e-5, **grouped_arrays(1, 16, 7, 3, 10))


def test_attention_of_every_kind_becomes_one_op() -> None:
    """So that its kernel is the one for the ops of the standard."""
    nodes = [
        node_of("MultiHeadAttention", ["q", "q", "q"], ["of_heads"], num_heads=HEADS),
        grouped(["shared", "present_k", "present_v"], Q),
        node_of("Attention", ["q", "w", "", "keys"], ["projected"], num_heads=HEADS),
    ]
    inputs = [*grouped_inputs("b", 32), make_value("keys", ["b", "s"], TensorProto.INT32)]
    module = of_nodes(nodes, inputs, {"w": drawn(WIDTH, 3 * WIDTH)}).module
    names = [op.name for op in walk(run_graph_passes(module).functions["main"])]
    assert names.count("attention") == 3
    assert "exp" not in names


def test_one_new_token_and_a_cache_with_room() -> None:
    room, before = 8, 5
    names = ["q", "k", "v", "mask", "", "past_k", "past_v", "before"]
    more = {"num_heads": HEADS, "past_present_share_buffer": 1}
    nodes = [
        node_of(
            "DecoderMaskedMultiHeadAttention", [*names, "", "", "bias"],
            ["y", "present_k", "present_v"], **more,
        ),
        node_of("DecoderMaskedMultiHeadAttention", ["q", "kc", "vc"], ["cross"], num_heads=HEADS),
    ]  # fmt: skip
    cache = ["b", HEADS, room, SIZE]
    inputs = [
        *(make_value(name, ["b", 1, WIDTH]) for name in "qkv"),
        *(make_value(name, cache) for name in ("past_k", "past_v")),
        *(make_value(name, ["b", HEADS, 6, SIZE]) for name in ("kc", "vc")),
        make_value("mask", ["b", before + 1], TensorProto.INT32),
        make_value("before", [1], TensorProto.INT32),
    ]  # fmt: skip
    model = of_nodes(nodes, inputs, {"bias": drawn(3 * WIDTH, seed=9)})
    used = np.arange(room)[:, None] < before
    given = {name: drawn(2, 1, WIDTH, seed=place) for place, name in enumerate("qkv")}
    given |= {
        name: np.where(used, drawn(2, HEADS, room, SIZE, seed=4 + place), 0)
        for place, name in enumerate(("past_k", "past_v"))
    }
    given |= {name: drawn(2, HEADS, 6, SIZE, seed=ord(name[0])) for name in ("kc", "vc")}
    mask = np.ones((2, before + 1), np.int32)
    mask[1, :2] = 0
    model.check(1e-5, mask=mask, before=np.array([before], np.int32), **given)


def test_packed_operands_are_those_side_by_side() -> None:
    """onnxruntime packs them on other devices only."""
    length = 5
    nodes = [
        node_of("MultiHeadAttention", ["q", "k", "v", "bias"], ["apart"], num_heads=HEADS),
        node_of("MultiHeadAttention", ["qkv", "", "", "bias"], ["all"], num_heads=HEADS),
        node_of("MultiHeadAttention", ["q", "kv", "", "bias"], ["pairs"], num_heads=HEADS),
        node_of("Attention", ["q", "w", "", "square"], ["masked"], num_heads=HEADS),
        node_of("Attention", ["q", "w", "", "pairs_of"], ["of_pairs"], num_heads=HEADS),
    ]
    inputs = [
        *(make_value(name, [2, length, WIDTH]) for name in "qkv"),
        make_value("qkv", [2, length, HEADS, 3, SIZE]),
        make_value("kv", [2, length, HEADS, 2, SIZE]),
        make_value("square", [2, 1, 9, 9], TensorProto.INT32),
        make_value("pairs_of", [2, length, length], TensorProto.INT32),
    ]  # fmt: skip
    arrays = {"bias": drawn(3 * WIDTH, seed=3), "w": drawn(WIDTH, 3 * WIDTH) / 8}
    parts = {name: drawn(2, length, WIDTH, seed=place) for place, name in enumerate("qkv")}
    q, k, v = (part.reshape(2, length, HEADS, SIZE) for part in parts.values())
    square = np.random.default_rng(0).integers(0, 2, (2, 1, 9, 9)).astype(np.int32)
    found = of_nodes(nodes, inputs, arrays).results(
        **parts, qkv=np.stack([q, k, v], 3), kv=np.stack([k, v], 3), square=square,
        pairs_of=square[:, 0, :length, :length],
    )  # fmt: skip
    for name, like in (("all", "apart"), ("pairs", "apart"), ("masked", "of_pairs")):
        np.testing.assert_allclose(found[name], found[like], 1e-6, 1e-6, err_msg=name)


def test_halves_are_computed_in_floats() -> None:
    """Each op rounds once; against itself in f32."""
    found = {}
    for element, dtype in ((TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16)):
        nodes = [
            grouped(["capped", "ck", "cv"], [*Q, "cos", "sin"], softcap=2.0, do_rotary=1),
            node_of("SkipLayerNormalization", ["q", "q", "g"], ["norm", "", "", "sum"]),
            node_of("BiasGelu", ["q", "g"], ["gelu"]),
        ]
        inputs = grouped_inputs(2, 16)
        for value in inputs[:5]:
            value.type.tensor_type.elem_type = element
        arrays = {name: x.astype(dtype) for name, x in tables(16, SIZE // 2).items()}
        arrays["g"] = drawn(WIDTH).astype(dtype)
        given = grouped_arrays(3, 16, 4, 4)
        given |= {name: x.astype(np.float16).astype(dtype) for name, x in list(given.items())[:5]}
        found[dtype] = of_nodes(nodes, inputs, arrays).results(**given)
    for name, wanted in found[np.float32].items():
        got = found[np.float16][name]
        assert got.dtype == np.float16, name
        assert np.abs(got - wanted).max() <= 4e-3 * np.abs(wanted).max(), name


def test_attention_of_texts_without_padding() -> None:
    """onnxruntime has no kernels for it on a CPU, so it runs the same with padding."""
    arrays = {"w": drawn(16, 3 * WIDTH) / 4, "b": drawn(3 * WIDTH, seed=1)}
    many = {"num_heads": HEADS}
    inputs = [
        make_value("x", ["batch", "n", 16]), make_value("ends", ["batch"], TensorProto.INT32),
        make_value("bias", [1, HEADS, "n", "n"]),
    ]  # fmt: skip
    multi, ends = "PackedMultiHeadAttention", ["places", "starts"]
    packed = [
        node_of("RemovePadding", ["x", "ends"], ["rows", *ends, "longest"]),
        node_of("PackedAttention", ["rows", "w", "b", *ends, "bias"], ["one"], **many),
        onnx.helper.make_node("MatMul", ["rows", "w"], ["joined"]),
        onnx.helper.make_node("Split", ["joined"], ["q", "k", "v"], axis=-1, num_outputs=3),
        node_of(multi, ["q", "k", "v", "b", *ends, "bias"], ["two"], **many),
        onnx.helper.make_node("Reshape", ["joined", "apart"], ["split"]),
        onnx.helper.make_node("Transpose", ["split"], ["heads"], perm=[0, 2, 1, 3]),
        node_of(multi, ["heads", "", "", "b", *ends], ["three"], **many),
        *(
            node_of("RestorePadding", [name, "places"], [f"{name}_padded"])
            for name in ("one", "two", "three")
        ),
    ]
    padded = [
        node_of("Attention", ["x", "w", "b", "ends", "", "bias"], ["one_padded"], **many),
        node_of("Attention", ["x", "w", "b", "ends"], ["three_padded"], **many),
    ]
    apart = {"apart": np.array([-1, 3, HEADS, SIZE])}
    model = of_nodes(packed, inputs, arrays | apart)
    whole = in_onnxruntime(of_nodes(padded, inputs, arrays).proto)
    for counts in ([3, 5, 1], [4, 4, 4]):
        longest = max(counts)
        given = {
            "x": drawn(3, longest, 16),
            "ends": np.array(counts, np.int32),
            "bias": drawn(1, HEADS, longest, longest),
        }
        kept = np.arange(longest) < np.array(counts)[:, None]
        one, three = (np.where(kept[..., None], each, 0) for each in whole(given))
        places = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept)])
        wanted = {
            "rows": given["x"][kept], "places": places.reshape(kept.shape).astype(np.int32),
            "starts": np.cumsum([0, *counts], dtype=np.int32), "one_padded": one, "two_padded": one,
            "longest": np.array([longest], np.int32), "three_padded": three,
        }  # fmt: skip
        model.compare(wanted, 1e-5, **given)


@pytest.mark.parametrize("past", ["", "self", "cross"])
def test_attention_of_a_decoder(past: str) -> None:
    """Against NumPy: onnxruntime has it for one device. Masked keys are those that are true."""
    length, others, batch, before = 3, 5, 2, 4
    flags = {"static_kv": past == "cross", "use_past": bool(past), "state": True, "masks": True}
    arrays: dict[str, Any] = {
        "wq": drawn(WIDTH, WIDTH) / 8, "wkv": drawn(WIDTH, 2 * WIDTH, seed=1) / 8,
        "b": drawn(3 * WIDTH, seed=2), **{name: np.array(flag) for name, flag in flags.items()},
    }  # fmt: skip
    node = node_of(
        "DecoderAttention", ["q", "k", "wq", "wkv", "b", "mask", "kc", "vc", *flags],
        ["y", "new_k", "new_v"], num_heads=HEADS,
    )  # fmt: skip
    inputs = [
        make_value("q", ["s", batch, WIDTH]), make_value("k", ["t", batch, WIDTH]),
        make_value("mask", [batch, "keys"], TensorProto.BOOL),
        *(make_value(name, [batch, HEADS, "p", SIZE]) for name in ("kc", "vc")),
    ]  # fmt: skip
    x, y = drawn(length, batch, WIDTH, seed=3), drawn(others, batch, WIDTH, seed=4)
    caches = [drawn(batch, HEADS, before, SIZE, seed=seed) for seed in (5, 6)]
    weights = np.split(arrays["wkv"], 2, axis=1)

    def heads(rows: Array, weight: Array, at: int) -> Array:
        made = rows.transpose(1, 0, 2) @ weight + arrays["b"][at * WIDTH : (at + 1) * WIDTH]
        return made.reshape(batch, -1, HEADS, SIZE).transpose(0, 2, 1, 3)

    pair = [heads(x, each, at) for at, each in enumerate(weights, 1)]
    if past == "self":
        pair = [np.concatenate(each, 2) for each in zip(caches, pair, strict=True)]
    elif past == "cross":
        pair = caches
    mask = np.random.default_rng(0).random((batch, pair[0].shape[2])) < 0.3
    scores = heads(x, arrays["wq"], 0) @ pair[0].swapaxes(2, 3) / SIZE**0.5
    powers = np.where(mask[:, None, None], 0, np.exp(scores))
    result = powers / powers.sum(-1, keepdims=True) @ pair[1]
    result = result.transpose(2, 0, 1, 3).reshape(length, batch, WIDTH)
    model = of_nodes([node], inputs, arrays)
    wanted = {"y": result, "new_k": pair[0], "new_v": pair[1]}
    model.compare(wanted, 1e-5, q=x, k=y, mask=mask, kc=caches[0], vc=caches[1])
