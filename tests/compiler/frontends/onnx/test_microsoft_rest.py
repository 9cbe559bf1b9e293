"""Ops of `com.microsoft` of every other kind, against onnxruntime and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ingot.compiler.graph.interpreter import interpret
from ingot.hal.errors import CompileError
from tests.support.onnx_cases import in_onnxruntime
from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import ints, make_value
from tests.support.results import assert_same

Array = np.ndarray[Any, Any]


def test_inverses_and_distances() -> None:
    nodes = [
        node_of("Inverse", ["x"], ["inverse"]),
        node_of("CDist", ["a", "b"], ["squares"]),
        node_of("CDist", ["a", "b"], ["lengths"], metric="euclidean"),
        node_of("GatedAdd", ["x", "x", "gate"], ["gated"]),
    ]
    inputs = [
        make_value("x", ["n", 5, 5]), make_value("a", ["p", 7]), make_value("b", ["q", 7]),
        make_value("gate", ["n", 5, 1]),
    ]  # fmt: skip
    model = of_nodes(nodes, inputs)
    x = drawn(3, 5, 5)
    x[0, 0, 0] = 0
    model.check(1e-5, x=x, a=drawn(4, 7), b=drawn(3, 7, seed=1), gate=drawn(3, 5, 1, seed=2))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tokens_that_would_repeat_a_run_are_blocked(size: int) -> None:
    node = node_of("NGramRepeatBlock", ["ids", "scores"], ["y"], ngram_size=size)
    inputs = [make_value("ids", ["b", "s"], TensorProto.INT64), make_value("scores", ["b", 9])]
    model = of_nodes([node], inputs)
    for length in (1, 2, 12):
        ids = np.random.default_rng(length).integers(0, 4, (3, length))
        model.check(ids=ids, scores=drawn(3, 9))


def test_runs_of_any_length_are_refused_or_read() -> None:
    ids = [make_value(name, [4], TensorProto.INT64) for name in ("source", "tokens", "at")]
    scores = [make_value("ids", [1, 4], TensorProto.INT64), make_value("scores", [1, 9])]
    for size in (0, 65, 2**31):
        with pytest.raises(CompileError, match=rf"runs of {size} tokens .*, expected 1 to 64"):
            of_nodes(
                [node_of("NGramRepeatBlock", ["ids", "scores"], ["y"], ngram_size=size)], scores
            )
        node = node_of(
            "BifurcationDetector", ["source", "tokens", "at"], ["y", "z"], max_ngram_size=size
        )
        with pytest.raises(CompileError, match=f"1 to {size} tokens, expected 1 to 64"):
            of_nodes([node], ids)


def test_predicted_tokens_are_taken_as_far_as_they_fit() -> None:
    nodes = [
        node_of("BifurcationDetector", ["source", "tokens", "at", "next"], ["y", "place"]),
        node_of(
            "BifurcationDetector", ["source", "tokens", "at"], ["same", "long"],
            min_ngram_size=2, max_ngram_size=3,
        ),
    ]  # fmt: skip
    lengths = {"source": "n", "tokens": "m", "at": 1, "next": "k"}
    model = of_nodes(nodes, [make_value(x, [n], TensorProto.INT64) for x, n in lengths.items()])
    rng = np.random.default_rng(0)
    for _ in range(30):
        source, tokens = rng.integers(0, 3, rng.integers(1, 8)), rng.integers(0, 3, 4)
        at = rng.integers(0, len(source) + 1)
        next_tokens = rng.integers(0, 3, len(source) + 1 - at)
        fits = rng.integers(0, len(source) + 1 - at)
        next_tokens[:fits] = source[at : at + fits]
        given = {"source": source, "tokens": tokens[: rng.integers(1, 5)], "at": np.array([at])}
        model.check(**given, next=next_tokens)


def test_hashes_of_numbers_and_strings() -> None:
    nodes = [
        node_of("MurmurHash3", ["i"], ["signed"], positive=0),
        node_of("MurmurHash3", ["d"], ["wide"], seed=7),
        node_of("MurmurHash3", ["f"], ["float"]),
    ]
    inputs = [make_value("i", ["n"], TensorProto.INT32), make_value("f", ["n"])]
    model = of_nodes(nodes, [*inputs, make_value("d", ["n", 2], TensorProto.DOUBLE)])
    model.check(i=np.array([1, -5], np.int32), f=drawn(2), d=drawn(2, 2).astype(np.float64))
    texts = ["", "a", "ab", "abc", "abcd", "Häuser", "0123456789"]
    node = node_of("MurmurHash3", ["s"], ["y"], seed=3)
    words = of_nodes([node], [make_value("s", [len(texts)], TensorProto.STRING)])
    (wanted,) = in_onnxruntime(words.proto)({"s": np.array(texts, object)})
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(each) for each in encoded])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    assert_same(interpret(words.module, "main", [ends, data])[0], wanted)


def test_the_cheapest_path_through_costs() -> None:
    node = node_of("DynamicTimeWarping", ["x"], ["y"])
    model = of_nodes([node], [make_value("x", ["rows", "columns"])])
    for shape in ((1, 1), (1, 4), (5, 1), (5, 3), (4, 9)):
        model.check(x=np.abs(drawn(*shape)))
    model.check(x=np.ones((4, 6), np.float32))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_boxes_of_images(mode: str) -> None:
    nodes = [
        node_of(
            "CropAndResize", ["x", "boxes", "images", name], [f"y_{name}"], mode=mode,
            extrapolation_value=-7.0,
        )
        for name in ("size", "single", "given")
    ]  # fmt: skip
    arrays = {"size": np.array([4, 3], np.int32), "single": np.array([1, 5], np.int32)}
    inputs = [
        make_value("x", ["n", 3, "h", "w"]), make_value("boxes", ["m", 4]),
        make_value("images", ["m"], TensorProto.INT32), make_value("given", [2], TensorProto.INT32),
    ]  # fmt: skip
    boxes = np.random.default_rng(0).uniform(-0.1, 1.1, (5, 4)).astype(np.float32)
    images = np.array([0, 1, 1, 0, 1], np.int32)
    given = {"x": drawn(2, 3, 6, 7), "boxes": boxes, "images": images}
    of_nodes(nodes, inputs, arrays).check(1e-5, **given, given=np.array([3, 1], np.int32))


def test_three_positions_per_token() -> None:
    angle = np.arange(20)[:, None] / 100 ** (np.arange(8) / 8)
    arrays = {"c": np.cos(angle).astype(np.float32), "s": np.sin(angle).astype(np.float32)}
    nodes = [
        node_of(
            "MRotaryEmbedding", ["x", "at", "c", "s"], [f"y{layout}"], mrope_layout=layout,
            mrope_section=[4, 2, 2], num_heads=2, rotary_embedding_dim=16,
        )
        for layout in (0, 1)
    ]  # fmt: skip
    inputs = [make_value("x", ["b", "s", 32]), make_value("at", [3, "b", "s"], TensorProto.INT64)]
    at = np.random.default_rng(0).integers(0, 20, (3, 2, 5))
    of_nodes(nodes, inputs, arrays).check(x=drawn(2, 5, 32), at=at)


def bucket_of(distance: int, buckets: int, greatest: int, both: bool) -> int:
    """As T5 has it."""
    first = 0
    if both:
        buckets //= 2
        first, distance = buckets * (distance > 0), abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = np.log(np.float32(distance / exact)) / np.log(np.float32(greatest / exact))
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)


def test_biases_of_relative_positions() -> None:
    buckets, heads, length, size = 8, 2, 30, 6
    table, arrays = drawn(buckets, heads), {"n": ints(length)}
    arrays |= {"table": table.T.reshape(buckets, heads), "qb": drawn(heads * size)}
    arrays |= {"w": drawn(size, 8, seed=2), "b": drawn(8), "eco": drawn(1, heads, 1, 1, seed=3)}
    nodes = [
        node_of(
            "RelativePositionBias", ["table", "n", "n"], [f"bias{both}"], max_distance=20,
            is_bidirectional=both,
        )
        for both in (0, 1)
    ]  # fmt: skip
    nodes.append(
        node_of(
            "GatedRelativePositionBias", ["q", "qb", "rel", "w", "b", "eco"], ["gated"],
            num_heads=heads,
        )
    )  # fmt: skip
    inputs = [make_value("q", [2, 4, heads * size]), make_value("rel", [1, heads, 4, 4])]
    q, rel = drawn(2, 4, heads * size, seed=4), drawn(1, heads, 4, 4, seed=5)
    wanted = {}
    for both in (0, 1):
        places = [
            [bucket_of(key - query, buckets, 20, bool(both)) for key in range(length)]
            for query in range(length)
        ]
        wanted[f"bias{both}"] = table[np.array(places)].transpose(2, 0, 1)[None]
    split = (q + arrays["qb"]).reshape(2, 4, heads, size).transpose(0, 2, 1, 3)
    gates = (split @ arrays["w"] + arrays["b"]).reshape(2, heads, 4, 2, 4).sum(-1)
    u, r = np.split(1 / (1 + np.exp(-gates)), 2, -1)
    wanted["gated"] = (u * (r * arrays["eco"] - 1) + 2) * rel
    of_nodes(nodes, inputs, arrays).compare(wanted, 1e-5, q=q, rel=rel)


def test_windows_over_a_sequence() -> None:
    arrays = {"w": drawn(4, 1, 3), "b": drawn(4, seed=1), "pads": ints(1, 0)}
    arrays |= {"turned": drawn(4, 2, 3, seed=2)}
    conv = ["x", "w", "b", "past"]
    nodes = [
        node_of("CausalConvWithState", conv, ["silu", "state"], activation="silu"),
        node_of("CausalConvWithState", ["x", "w"], ["plain", "first"]),
        node_of("UnfoldTensor", ["x"], ["runs"], size=2),
        node_of("UnfoldTensor", ["x"], ["columns"], dim=1, size=2, step=2),
        node_of("ConvTransposeWithDynamicPads", ["x", "turned", "pads"], ["up"], strides=[2]),
    ]
    inputs = [make_value("x", ["n", 4, "s"]), make_value("past", ["n", 4, 2])]
    model = of_nodes(nodes, inputs, arrays)
    for length in (2, 9):
        model.check(1e-5, x=drawn(2, 4, length), past=drawn(2, 4, 2, seed=3))


def test_windows_over_the_characters_of_words() -> None:
    arrays = {"w": drawn(6, 1, 2, 4), "b": drawn(6, seed=1), "table": drawn(10, 4, seed=2)}
    node = node_of("WordConvEmbedding", ["x", "w", "b", "table"], ["y"])
    model = of_nodes([node], [make_value("x", ["n", "s"], TensorProto.INT32)], arrays)
    words = [[1, 0, 3, 4, 0], [1, 0, 0, 0, 5], [1, 0, 0, 0, 0], [1, 2, 3, 4, 5]]
    model.check(1e-5, x=np.array(words, np.int32))
    assert not model.results(x=np.array([[0, 2, 3]], np.int32))["y"].any()


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("readers", "heads"), [(4, 2), (2, 4)])
def test_linear_attention(rule: str, readers: int, heads: int) -> None:
    """Decay by key and by head, beta by head and for all, with a past and without."""
    named = {"q_num_heads": readers, "kv_num_heads": heads, "update_rule": rule}
    wide, narrow = ["q", "k", "v", "past", "decays", "beta"], ["q", "k", "v", "", "decay", "one"]
    nodes = [
        node_of("LinearAttention", wide, ["y", "state"], scale=0.5, **named),
        node_of("LinearAttention", narrow, ["z", "first"], **named),
        node_of("LinearAttentionGate", ["decay", "bias", "rate", "decay"], ["gate", "open"]),
    ]
    widths = {"q": 3 * readers, "k": 3 * heads, "v": 5 * heads, "decays": 3 * heads,
              "beta": heads, "decay": heads, "one": 1}  # fmt: skip
    inputs = [make_value(name, ["b", "t", width]) for name, width in widths.items()]
    inputs += [make_value(name, [heads]) for name in ("bias", "rate")]
    model = of_nodes(nodes, [*inputs, make_value("past", ["b", heads, 3, 5])])
    for tokens in (1, 4):
        given = {
            name: drawn(2, tokens, width, seed=seed)
            for seed, (name, width) in enumerate(widths.items())
        }
        rest = {"past": drawn(2, heads, 3, 5), "bias": drawn(heads), "rate": drawn(heads, seed=1)}
        model.check(1e-4, **given, **rest)


def test_gated_delta_nets() -> None:
    """Decays per head and per element, as they are and made of what the model learnt."""
    given = ["q", "k", "v", ""]
    learnt = {"qk_l2_norm": 1, "gate_activation": "softplus", "beta_activation": "sigmoid"}
    nodes = [
        node_of("GatedDeltaNet", [*given, "g", "b", "past"], ["y", "state"], qk_l2_norm=1),
        node_of(
            "GatedDeltaNet", [*given, "wide", "b", "past", "rate", "bias"], ["z", "next"],
            scale=0.5, **learnt,
        ),
        node_of(
            "GatedDeltaNet", [*given, "wide", "", "past", "rate", "bias"], ["u", "bounded"],
            gate_activation="kda", update_rule="gated",
        ),
        node_of("GatedDeltaNet", [*given, "", "", "past"], ["l", "sum"], update_rule="linear"),
    ]  # fmt: skip
    shapes = {"q": (2, 3), "k": (2, 3), "v": (4, 5), "g": (4,), "wide": (4, 3), "b": (4,)}
    inputs = [make_value(name, ["t", *shape]) for name, shape in shapes.items()]
    arrays = {"rate": drawn(4, seed=20), "bias": drawn(4, seed=21)}
    model = of_nodes(nodes, [*inputs, make_value("past", [2, 4, 5, 3])], arrays)
    node = node_of("GatedDeltaNet", [*given, "g", "b"], ["y", "state"], qk_l2_norm=1)
    kept = {name: shape for name, shape in shapes.items() if name != "wide"}
    rows = of_nodes([node], [make_value(x, ["n", "t", *shape]) for x, shape in kept.items()])
    for tokens in (2, 8):
        values = {name: drawn(tokens, *shape, seed=len(name)) for name, shape in shapes.items()}
        values |= {name: -np.abs(values[name]) for name in ("g", "wide")}
        model.check(1e-4, **values, past=drawn(2, 4, 5, 3))
        del values["wide"]
        rows.check(1e-4, **{name: value[None] for name, value in values.items()})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("bounded", [False, True], ids=["whole", "bounded"])
def test_lstms_that_attend_to_a_memory(direction: str, bounded: bool) -> None:
    """With bounds also with peepholes and a layer behind what is attended to."""
    directions, read = 1 + (direction == "bidirectional"), 5 if bounded else 7
    shapes = {"W": (24, 4 + read), "R": (24, 6), "B": (48,), "QW": (6, 3), "MW": (7, 3), "V": (3,)}
    shapes |= {"P": (18,), "AW": (13, read)} if bounded else {}
    arrays = {name: drawn(directions, *shape, seed=len(name)) for name, shape in shapes.items()}
    lengths = ["lengths", "", "", "P"] if bounded else ["", "", "", ""]
    memory = ["M", "rows", "AW"] if bounded else ["M"]
    node = node_of(
        "AttnLSTM", ["X", "W", "R", "B", *lengths, "QW", "MW", "V", *memory], ["Y", "h", "c"],
        hidden_size=6, direction=direction,
    )  # fmt: skip
    inputs = [make_value("X", ["t", 3, 4]), make_value("M", [3, "m", 7])]
    given = {"lengths": np.int32([5, 2, 3]), "rows": np.int32([8, 1, 4])} if bounded else {}
    inputs += [make_value(name, [3], TensorProto.INT32) for name in given]
    model = of_nodes([node], inputs, arrays)
    model.check(1e-5, X=drawn(5, 3, 4, seed=8), M=drawn(3, 8, 7, seed=9), **given)


def test_windows_whose_rows_end_at_a_mask() -> None:
    cases: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((2, 3, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ((2, 3, 6, 7), {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1]}),
    ]
    for shape, window in cases:
        wide = (1, 1, *shape[2:])
        node = node_of("MaxpoolWithMask", ["x", "m"], ["y"], **window)
        model = of_nodes(
            [node], [make_value("x", [*shape]), make_value("m", [*wide], TensorProto.INT32)]
        )
        for seed in range(3):
            mask = np.random.default_rng(seed).random(wide) > 0.3
            model.check(x=drawn(*shape), m=mask.astype(np.int32))
    several = [make_value("x", [2, 3, 9]), make_value("m", [2, 3, 9], TensorProto.INT32)]
    with pytest.raises(CompileError, match=r"expected one for all channels, \[1, 1, \.\.\.\]"):
        of_nodes([node_of("MaxpoolWithMask", ["x", "m"], ["y"], kernel_shape=[3])], several)
