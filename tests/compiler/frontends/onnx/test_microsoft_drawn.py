"""Attention, products and norms of `com.microsoft` with drawn attributes and optional inputs,
against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from tests.support.drawn import examples
from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]
I32 = TensorProto.INT32


@examples(25)
@given(st.data())
def test_grouped_queries(data: st.DataObject) -> None:
    def draw(values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    groups, share, size, room = draw([1, 2, 3]), draw([1, 2, 4]), draw([16, 32]), draw([12, 20])
    heads, prompt = groups * share, draw([True, False])
    batch = draw([1, 3])
    before = 0 if prompt else draw([1, 5, 9])
    length = draw([2, 7]) if prompt else 1 if batch > 1 else draw([1, 3])
    if not prompt and batch > 1:
        befores = np.array(data.draw(st.lists(st.integers(1, before), min_size=3, max_size=3)))
        befores[0] = before
    else:
        befores = np.full(batch, before)
    total = before + length
    more: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    more |= draw([{}, {"scale": 0.3}]) | draw([{}, {"softcap": 1.5}])
    more |= draw([{}, {"local_window_size": 3}, {"local_window_size": 8}])
    turns, is_packed = draw([None, 0, 1]), draw([True, False])
    arrays: dict[str, Array] = {}
    names = ["q", *(["", ""] if is_packed else ["k", "v"]), "pk", "pv", "last", "total"]
    names += [""] * 5
    if turns is not None:
        more |= {"do_rotary": 1, "rotary_interleaved": turns}
        half = draw([8, size // 2])  # onnxruntime takes multiples of 8
        angle = np.arange(room)[:, None] / 50 ** (np.arange(half) / half)
        arrays |= {"cos": np.cos(angle).astype(np.float32)}
        arrays |= {"sin": np.sin(angle).astype(np.float32)}
        names[7:9] = ["cos", "sin"]
    extra = draw(["", "smooth", "sink", "bias"])
    if extra == "smooth":
        more["smooth_softmax"] = 1
    elif extra == "sink":
        arrays["sink"] = drawn(heads, seed=8)
        names[11] = "sink"
    widths = {"q": (heads + 2 * groups * is_packed) * size, "k": groups * size, "v": groups * size}
    used = np.arange(room)[:, None] < befores.reshape(-1, 1, 1, 1)
    values: dict[str, Array] = {
        name: drawn(batch, length, width, seed=place)
        for place, (name, width) in enumerate(widths.items())
        if name == "q" or not is_packed
    }
    for place, name in enumerate(("pk", "pv"), 4):
        values[name] = np.where(used, drawn(batch, groups, room, size, seed=place), 0)
    if extra == "bias":
        names[10] = "bias"
        values["bias"] = drawn(draw([1, batch]), draw([1, heads]), length, total, seed=9)
    inputs = [make_value(name, value.shape) for name, value in values.items()]
    values["last"] = (befores + length - 1).astype(np.int32)
    values["total"] = np.array([total], np.int32)
    inputs += [make_value(name, values[name].shape, I32) for name in ("last", "total")]
    node = node_of("GroupQueryAttention", names, ["y", "present_k", "present_v"], **more)
    of_nodes([node], inputs, arrays).check(2e-5, **values)


@examples(20)
@given(st.data())
def test_multi_head_attention(data: st.DataObject) -> None:
    def draw(values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    heads, size, extra_v = draw([1, 3]), draw([8, 16]), draw([1, 2])
    batch, queries = draw([1, 2]), draw([1, 4])
    past = draw([0, 0, 5])
    keys = queries if past else draw([queries, 6])
    total = past + keys
    extra_v = 1 if past else extra_v
    more = {"num_heads": heads, **draw([{}, {"scale": 0.2}]), **draw([{}, {"unidirectional": 1}])}
    if keys != queries:
        more.pop("unidirectional", None)
    more |= draw([{}, {"mask_filter_value": -30.0}])
    widths = {"q": heads * size, "k": heads * size, "v": heads * size * extra_v}
    lengths = {"q": queries, "k": keys, "v": keys}
    values: dict[str, Array] = {
        name: drawn(batch, lengths[name], width, seed=place)
        for place, (name, width) in enumerate(widths.items())
    }
    names = ["q", "k", "v"] + [""] * 5
    arrays = {}
    if draw([True, False]):
        arrays["b"], names[3] = drawn(sum(widths.values()), seed=5), "b"
    if draw([True, False]):
        shape = draw([(1, 1), (batch, heads), (1, heads)])
        values["bias"], names[5] = drawn(*shape, queries, total, seed=6), "bias"
    if past:
        for place, name in enumerate(("pk", "pv"), 6):
            values[name], names[place] = drawn(batch, heads, past, size, seed=place), name
    inputs = [make_value(name, value.shape) for name, value in values.items()]
    mask = draw(["", "keys", "ends"])
    if mask == "keys":
        values["mask"] = np.random.default_rng(7).integers(0, 2, (batch, total)).astype(np.int32)
    elif mask == "ends":
        values["mask"] = np.random.default_rng(7).integers(1, total + 1, batch).astype(np.int32)
    if mask:
        names[4] = "mask"
        inputs.append(make_value("mask", values["mask"].shape, I32))
    outputs = ["y", "present_k", "present_v"] if past else ["y"]
    node = node_of("MultiHeadAttention", names, outputs, **more)
    of_nodes([node], inputs, arrays).check(2e-5, **values)


@examples(20)
@given(st.data())
def test_products_of_blocks(data: st.DataObject) -> None:
    def draw(values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    bits, block, blocks, n = draw([2, 4, 8]), draw([16, 32, 64]), draw([1, 2, 5]), draw([1, 7, 16])
    k = blocks * block - draw([0, 0, 8])
    seed = data.draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    arrays: dict[str, Array] = {
        "w": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "s": (rng.random((n, blocks)) + 0.1).astype(np.float32),
    }
    if draw([True, False]):
        arrays["s"] = arrays["s"].reshape(-1)
    names = ["x", "w", "s", "", "", ""]
    zeros = draw(["", "codes", "numbers"])
    if zeros == "codes":
        shape = (n, -(-blocks * bits // 8))
        arrays["z"], names[3] = rng.integers(0, 256, shape).astype(np.uint8), "z"
    elif zeros == "numbers" and bits < 8:
        arrays["z"], names[3] = (rng.random((n, blocks)) * 4).astype(np.float32), "z"
    if draw([True, False]):
        arrays["b"], names[5] = drawn(n, seed=seed), "b"
    lead = draw([(3,), (2, 3), (1, 1)])
    more = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 1}
    model = of_nodes(
        [node_of("MatMulNBits", names, ["y"], **more)], [make_value("x", [*lead, k])], arrays
    )
    model.check(2e-5, x=drawn(*lead, k, seed=seed))
