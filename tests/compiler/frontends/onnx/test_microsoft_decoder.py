"""A decoder as the model builder of onnxruntime-genai writes it, compiled, beside onnxruntime.

Its cache grows, has room, or is state of the module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from tests.support.devices import best_variant, load_best
from tests.support.onnx_cases import in_onnxruntime
from tests.support.onnx_contrib import DOMAIN, drawn, node_of
from tests.support.onnx_models import ints, make_value
from tests.support.results import arrays_of

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
WIDTH, HEADS, GROUPS, SIZE, WORDS, BLOCK = 64, 4, 2, 16, 50, 32
QKV = (HEADS + 2 * GROUPS) * SIZE


def _blocks(name: str, n: int, k: int) -> dict[str, Array]:
    rng = np.random.default_rng(n + k)
    codes = rng.integers(0, 256, (n, k // BLOCK, BLOCK // 2)).astype(np.uint8)
    scales = (0.02 + 0.02 * rng.random((n, k // BLOCK))).astype(np.float32)
    return {f"{name}.w": codes, f"{name}.s": scales}


def decoder(batch: int | str, past: int | str, total: int | str) -> onnx.ModelProto:
    """One layer: f32[batch, sequence, words] of the tokens and a mask of all of them."""
    angle = np.arange(64)[:, None] / 100 ** (np.arange(SIZE // 2) / (SIZE // 2))
    arrays = {
        "words": drawn(WORDS, WIDTH), "norm": 1 + drawn(WIDTH, seed=1) / 9, "one": ints(1),
        "cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32),
        **_blocks("qkv", QKV, WIDTH), **_blocks("out", WIDTH, WIDTH),
        **_blocks("up", 2 * WIDTH, WIDTH), **_blocks("down", WIDTH, 2 * WIDTH),
        **_blocks("head", WORDS, WIDTH),
    }  # fmt: skip

    def product(x: str, name: str, n: int, k: int) -> onnx.NodeProto:
        inputs, more = [x, f"{name}.w", f"{name}.s"], {"bits": 4, "accuracy_level": 1}
        return node_of("MatMulNBits", inputs, [name], N=n, K=k, block_size=BLOCK, **more)

    std = helper.make_node
    nodes = [
        std("ReduceSum", ["attention_mask", "one"], ["counts"], keepdims=0),
        std("Sub", ["counts", "one"], ["lasts"]),
        std("Cast", ["lasts"], ["seqlens_k"], to=TensorProto.INT32),
        std("Shape", ["attention_mask"], ["shape"]),
        std("Gather", ["shape", "one"], ["length"]),
        std("Cast", ["length"], ["total"], to=TensorProto.INT32),
        std("Gather", ["words", "input_ids"], ["embedded"]),
        std("SimplifiedLayerNormalization", ["embedded", "norm"], ["normal"]),
        product("normal", "qkv", QKV, WIDTH),
        node_of(
            "GroupQueryAttention",
            ["qkv", "", "", "past_key_values.0.key", "past_key_values.0.value", "seqlens_k",
             "total", "cos", "sin"],
            ["attended", "present.0.key", "present.0.value"],
            num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1,
        ),
        product("attended", "out", WIDTH, WIDTH),
        node_of(
            "SkipSimplifiedLayerNormalization", ["embedded", "out", "norm"],
            ["second", "", "", "sum"],
        ),
        product("second", "up", 2 * WIDTH, WIDTH),
        node_of("QuickGelu", ["up"], ["gated"], alpha=1.0),
        product("gated", "down", WIDTH, 2 * WIDTH),
        node_of(
            "SkipSimplifiedLayerNormalization", ["sum", "down", "norm"], ["last"],
        ),
        product("last", "head", WORDS, WIDTH),
        std("Identity", ["head"], ["logits"]),
    ]  # fmt: skip
    integers = TensorProto.INT64
    inputs = [
        make_value("input_ids", [batch, "sequence_length"], integers),
        make_value("attention_mask", [batch, "total_sequence_length"], integers),
    ]
    outputs = [make_value("logits", [batch, "sequence_length", WORDS])]
    for kind in ("key", "value"):
        inputs.append(make_value(f"past_key_values.0.{kind}", [batch, GROUPS, past, SIZE]))
        outputs.append(make_value(f"present.0.{kind}", [batch, GROUPS, total, SIZE]))
    tensors = [numpy_helper.from_array(np.asarray(x), name) for name, x in arrays.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def check(got: Array, wanted: Array) -> None:
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def given(ids: Array, total: int, caches: list[Array]) -> dict[str, Array]:
    names = ("past_key_values.0.key", "past_key_values.0.value")
    mask = np.ones((len(ids), total), np.int64)
    return {"input_ids": ids, "attention_mask": mask, **dict(zip(names, caches, strict=True))}


@pytest.mark.parametrize(
    ("past", "total", "room"),
    [
        ("past_sequence_length", "total_sequence_length", 0),
        ("room", "room", 12),
    ],
)
def test_a_decoder_with_its_cache_as_arguments(past: str, total: str, room: int) -> None:
    proto = decoder("batch", past, total)
    model, wanted = load_best(proto), in_onnxruntime(proto)
    ids = np.random.default_rng(0).integers(0, WORDS, (2, 9))
    caches = [np.zeros((2, GROUPS, room, SIZE), np.float32)] * 2
    for first, end in ((0, 5), (5, 6), (6, 7)):
        arguments = given(ids[:, first:end], end, caches)
        expected = wanted(arguments)
        found = arrays_of(model.main(**arguments))
        for got, each in zip(found, expected, strict=True):
            assert got.shape == each.shape
            check(got, each)
        caches = expected[1:]


def test_a_decoder_whose_cache_is_state() -> None:
    proto = decoder(1, "past_sequence_length", "total_sequence_length")
    module = ingot.compile(
        proto, state=ingot.state.past_present(capacity=16), variants=[best_variant()]
    )
    model, wanted = ingot.load(module), in_onnxruntime(proto)
    ids = np.random.default_rng(1).integers(0, WORDS, (1, 9))
    caches = [np.zeros((1, GROUPS, 0, SIZE), np.float32)] * 2
    for first, end in ((0, 5), (5, 6), (6, 7)):
        arguments = given(ids[:, first:end], end, caches)
        logits, *caches = wanted(arguments)
        check(np.asarray(model(ids[:, first:end], arguments["attention_mask"])), logits)
