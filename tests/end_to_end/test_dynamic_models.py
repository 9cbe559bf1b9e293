"""Small models as exporters write them, with dynamic dims throughout, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import ingot
from tests.support.devices import load_best

Array = np.ndarray[Any, Any]
Node = helper.make_node
RANDOM = np.random.default_rng(0)
WIDTH, HEADS, DEPTH = 16, 4, 4


def normal(*shape: int, scale: float = 1.0) -> Array:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "model", values, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> ingot.Model:
    model = load_best(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for feed in feeds:
        for found, wanted in zip(model(**feed), session.run(None, dict(feed)), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-4)
    return model


def test_boxes_are_selected_and_the_best_of_them_taken() -> None:
    nodes = [
        Node("Unsqueeze", ["boxes", "zero"], ["batch"]),
        Node("Transpose", ["scores"], ["by_class"], perm=[1, 0]),
        Node("Unsqueeze", ["by_class", "zero"], ["batched"]),
        Node("NonMaxSuppression", ["batch", "batched", "most", "overlap", "least"], ["chosen"]),
        Node("Slice", ["chosen", "one", "three", "one"], ["places"]),
        Node("GatherND", ["by_class", "places"], ["score"]),
        Node("Shape", ["score"], ["count"]),
        Node("Min", ["count", "most"], ["k"]),
        Node("TopK", ["score", "k"], ["best", "order"]),
        Node("Slice", ["chosen", "two", "three", "one"], ["column"]),
        Node("Squeeze", ["column", "one"], ["box"]),
        Node("Gather", ["box", "order"], ["first"]),
        Node("Gather", ["boxes", "first"], ["kept"]),
    ]
    constants = {name: np.array([n]) for n, name in enumerate(("zero", "one", "two", "three"))}
    limits = {"overlap": np.array([0.5], np.float32), "least": np.array([0.3], np.float32)}
    proto = model_of(
        nodes,
        {"boxes": (TensorProto.FLOAT, ["n", 4]), "scores": (TensorProto.FLOAT, ["n", "c"])},
        ["kept", "best"],
        {**constants, **limits, "most": np.array([5])},
    )

    def feed(count: int, classes: int) -> dict[str, Array]:
        corner, size = RANDOM.random((2, count, 2), np.float32)
        scores = RANDOM.random((count, classes), np.float32)
        return {"boxes": np.concatenate([corner, corner + size], 1), "scores": scores}

    check(proto, [feed(1, 1), feed(7, 2), feed(30, 3), feed(5, 1)])


def test_an_image_of_any_size_goes_down_and_up_again() -> None:
    def convolve(x: str, w: str, y: str) -> list[onnx.NodeProto]:
        return [Node("Conv", [x, w], [f"{y}_"], pads=[1] * 4), Node("Relu", [f"{y}_"], [y])]

    nodes = [
        *convolve("x", "w1", "fine"),
        Node("MaxPool", ["fine"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        *convolve("pooled", "w2", "coarse"),
        Node("Shape", ["fine"], ["sizes"], start=2),
        Node("Shape", ["coarse"], ["channels"], end=2),
        Node("Concat", ["channels", "sizes"], ["size"], axis=0),
        Node("Resize", ["coarse", "", "", "size"], ["up"], mode="linear"),
        Node("Concat", ["fine", "up"], ["both"], axis=1),
        *convolve("both", "w3", "y"),
        Node("GlobalAveragePool", ["y"], ["mean"]),
    ]
    weights = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (4, 16, 3, 3)}
    proto = model_of(
        nodes,
        {"x": (TensorProto.FLOAT, ["n", 3, "h", "w"])},
        ["y", "mean"],
        {name: normal(*shape, scale=0.2) for name, shape in weights.items()},
    )
    sizes = ((1, 8, 8), (2, 7, 9), (1, 16, 5))
    model = check(proto, [{"x": normal(n, 3, h, w)} for n, h, w in sizes])
    assert str(model.signature).endswith("-> (y: f32[n,4,h,w], mean: f32[n,4,1,1])")


def decoder() -> onnx.ModelProto:
    """One layer of a decoder with past keys and values, positions counted behind them."""
    heads = [
        node
        for name in ("q", "k", "v")
        for node in (
            Node("Reshape", [name, "split"], [f"{name}s"]),
            Node("Transpose", [f"{name}s"], [f"{name}h"], perm=[0, 2, 1, 3]),
        )
    ]
    nodes = [
        Node("Shape", ["ids"], ["new"], start=1),
        Node("Shape", ["past_k"], ["before"], start=2, end=3),
        Node("Add", ["new", "before"], ["all"]),
        *(Node("Squeeze", [name, "i0"], [f"{name}_"]) for name in ("before", "all")),
        Node("Range", ["before_", "all_", "one"], ["position"]),
        Node("Gather", ["tokens", "ids"], ["token"]),
        Node("Gather", ["places", "position"], ["place"]),
        Node("Add", ["token", "place"], ["x"]),
        Node("MatMul", ["x", "w"], ["qkv"]),
        Node("Split", ["qkv"], ["q", "k", "v"], axis=2, num_outputs=3),
        *heads,
        Node("Concat", ["past_k", "kh"], ["present_k"], axis=2),
        Node("Concat", ["past_v", "vh"], ["present_v"], axis=2),
        Node("Transpose", ["present_k"], ["turned"], perm=[0, 1, 3, 2]),
        Node("MatMul", ["qh", "turned"], ["scores"]),
        Node("Range", ["zero", "all_", "one"], ["keys"]),
        Node("Unsqueeze", ["position", "i1"], ["rows"]),
        Node("LessOrEqual", ["keys", "rows"], ["mask"]),
        Node("Where", ["mask", "scores", "low"], ["masked"]),
        Node("Softmax", ["masked"], ["weights"]),
        Node("MatMul", ["weights", "present_v"], ["context"]),
        Node("Transpose", ["context"], ["back"], perm=[0, 2, 1, 3]),
        Node("Reshape", ["back", "join"], ["joined"]),
        Node("MatMul", ["joined", "o"], ["y"]),
    ]
    cache = (TensorProto.FLOAT, ["batch", HEADS, "past", DEPTH])
    constants = {
        "tokens": normal(50, WIDTH),
        "places": normal(64, WIDTH),
        "w": normal(WIDTH, 3 * WIDTH, scale=0.3),
        "o": normal(WIDTH, WIDTH, scale=0.3),
        "split": np.array([0, 0, HEADS, DEPTH]),
        "join": np.array([0, 0, WIDTH]),
        "low": np.float32(-1e9),
        "i0": np.array([0]),
        "i1": np.array([1]),
        "zero": np.int64(0),
        "one": np.int64(1),
    }
    inputs = {"ids": (TensorProto.INT64, ["batch", "seq"]), "past_k": cache, "past_v": cache}
    return model_of(nodes, inputs, ["y", "present_k", "present_v"], constants)


def test_a_decoder_takes_any_past() -> None:
    feeds = [
        {
            "ids": RANDOM.integers(0, 50, (batch, seq)),
            "past_k": normal(batch, HEADS, past, DEPTH),
            "past_v": normal(batch, HEADS, past, DEPTH),
        }
        for batch, seq, past in ((1, 3, 0), (2, 1, 5), (1, 4, 7))
    ]
    model = check(decoder(), feeds)
    assert "present_k: f32[batch,4,past+seq,4]" in str(model.signature)
