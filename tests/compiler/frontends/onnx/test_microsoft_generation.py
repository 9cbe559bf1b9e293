"""GreedySearch, Sampling and BeamSearch over small random decoders, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ingot.compiler.graph.ops import Constant
from ingot.compiler.ir import walk
from ingot.hal.errors import CompileError, Error
from tests.support.devices import load_best
from tests.support.onnx_cases import in_onnxruntime
from tests.support.onnx_contrib import DOMAIN, Read, drawn, node_of
from tests.support.onnx_models import make_value
from tests.support.results import arrays_of, assert_same

Array = np.ndarray[Any, Any]
INT = TensorProto.INT32
WORDS, WIDTH, HEADS, SIZE, PLACES = 11, 8, 2, 4, 24
PROMPT = np.array([[1, 2, 3], [0, 0, 5]], np.int32)  # the second one has padding in front
NUMBERS = {
    "max_length": INT, "min_length": INT, "num_beams": INT, "num_return_sequences": INT,
    "length_penalty": TensorProto.FLOAT, "repetition_penalty": TensorProto.FLOAT, "seed": INT,
}  # fmt: skip
ARRAYS = {
    "vocab_mask": [WORDS], "prefix_vocab_mask": ["batch", WORDS],
    "attention_mask": ["batch", "prompt"], "presence_mask": ["batch", WORDS],
    "decoder_input_ids": ["batch", "start"],
}  # fmt: skip
GREEDY = (
    "input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask",
    "prefix_vocab_mask", "attention_mask",
)  # fmt: skip
ORDER = {
    "GreedySearch": GREEDY,
    "Sampling": (*GREEDY, "presence_mask", "seed"),
    "BeamSearch": (
        *GREEDY[:3], "num_beams", "num_return_sequences", "length_penalty", *GREEDY[3:],
        "decoder_input_ids",
    ),
}  # fmt: skip
BEAM = {"min_length": 1, "num_beams": 3, "num_return_sequences": 2, "length_penalty": 1.0}
ORDER["WhisperBeamSearch"] = ORDER["BeamSearch"]


def weights(**arrays: Array) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def embedded() -> list[onnx.NodeProto]:
    nodes = [
        ("Gather", ["words", "input_ids"], "word"),
        ("Gather", ["places", "position_ids"], "place"),
    ]
    return [
        *(helper.make_node(op, inputs, [output]) for op, inputs, output in nodes),
        helper.make_node("Add", ["word", "place"], ["x"]),
    ]


def decoder(has_room: bool = False) -> onnx.GraphProto:
    """A layer as that of GPT-2, whose cache may have room for all tokens."""
    attention = node_of(
        "Attention", ["x", "qkv", "bias", "attention_mask", "past_0"], ["attended", "present_0"],
        num_heads=HEADS, unidirectional=1, past_present_share_buffer=int(has_room),
    )  # fmt: skip
    if has_room:
        attention.input.extend(["", "past_sequence_length"])
    nodes = [
        *embedded(),
        attention,
        helper.make_node("Add", ["x", "attended"], ["y"]),
        helper.make_node("MatMul", ["y", "head"], ["logits"]),
    ]
    cache = [2, "rows", HEADS, "past", SIZE]
    inputs = [
        *(make_value(name, ["rows", "n"], INT) for name in ("input_ids", "position_ids")),
        make_value("attention_mask", ["rows", "all"], INT),
        make_value("past_0", cache),
    ]
    if has_room:
        inputs.append(make_value("past_sequence_length", [1], INT))
    outputs = [
        make_value("logits", ["rows", "n", WORDS]),
        make_value("present_0", [*cache[:3], "all", SIZE]),
    ]
    tensors = weights(
        words=1.5 * drawn(WORDS, WIDTH), places=drawn(PLACES, WIDTH, seed=1),
        qkv=drawn(WIDTH, 3 * WIDTH, seed=2), bias=drawn(3 * WIDTH, seed=3) / 9,
        head=drawn(WIDTH, WORDS, seed=4),
    )  # fmt: skip
    return helper.make_graph(nodes, "decoder", inputs, outputs, tensors)


def search(op: str, given: Sequence[str], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """A model of one node that generates, with these inputs."""
    known = {"eos_token_id": 2, "pad_token_id": 0, "decoder": decoder(), **attributes}
    values = [make_value(name, ARRAYS.get(name, [1]), NUMBERS.get(name, INT)) for name in given]
    names = [name if name in ("input_ids", *given) else "" for name in ORDER[op]]
    while not names[-1]:
        names.pop()
    results = ["sequences", "sequences_scores", "scores"][:outputs]
    node = node_of(op, names, results, **known)
    model = helper.make_graph(
        [node], "search", [make_value("input_ids", ["batch", "prompt"], INT), *values],
        [onnx.ValueInfoProto(name=name) for name in results],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(model, opset_imports=opsets, ir_version=10)


def arguments(**numbers: Any) -> dict[str, Array]:
    result: dict[str, Array] = {"input_ids": PROMPT}
    for name, value in numbers.items():
        kind = np.float32 if "penalty" in name else np.int32
        result[name] = np.asarray([value] if np.isscalar(value) else value, kind)
    return result


def check(op: str, outputs: int, attributes: dict[str, Any], **numbers: Any) -> None:
    model = search(op, list(numbers), outputs, **attributes)
    Read(model).check(1e-5, **arguments(**numbers))


LIMITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"eos_token_id": 1}, {}),
    ({}, {"repetition_penalty": 1.7}),
    ({"no_repeat_ngram_size": 2}, {"min_length": 6}),
    ({"eos_token_id": 7}, {"min_length": 9}),
    ({}, {"vocab_mask": np.arange(WORDS) % 3 != 1, "prefix_vocab_mask": np.eye(2, WORDS, 5)}),
    ({}, {"attention_mask": [[0, 1, 1], [0, 1, 1]]}),
]


@pytest.mark.parametrize(("attributes", "numbers"), LIMITS)
def test_the_most_likely_token_each_time(attributes: Any, numbers: Any) -> None:
    check("GreedySearch", 1, attributes, max_length=12, **numbers)


@pytest.mark.parametrize(("attributes", "numbers"), LIMITS)
def test_the_most_likely_texts(attributes: Any, numbers: Any) -> None:
    check("BeamSearch", 2, attributes, max_length=10, **(BEAM | {"length_penalty": 0.8} | numbers))


def test_scores_of_all_tokens_and_early_ends() -> None:
    numbers = {"min_length": 1, "num_beams": 2, "num_return_sequences": 1, "length_penalty": -0.5}
    for early in (0, 1):
        attributes = {"early_stopping": early, "eos_token_id": 8}
        model = search("BeamSearch", ["max_length", *numbers], 2, **attributes)
        for row in range(2):
            given = arguments(max_length=10, **numbers) | {"input_ids": PROMPT[row : row + 1]}
            Read(model).check(1e-5, **given)
    check("BeamSearch", 3, {"eos_token_id": 10}, max_length=6, **numbers)


def test_the_first_step_and_a_cache_with_room() -> None:
    attributes = {"init_decoder": decoder(True), "decoder": decoder(True)}
    model = search("GreedySearch", ["max_length"], **attributes)
    plain = in_onnxruntime(search("GreedySearch", ["max_length"]))
    given = arguments(max_length=12)
    found = Read(model).results(**given)["sequences"]
    assert_same(found, plain(given)[0])


@pytest.mark.parametrize("custom", [0, 1])
def test_tokens_by_chance(custom: int) -> None:
    first = np.eye(2, WORDS) * [[1], [0]]  # onnxruntime counts all at the first token
    few = {"top_p": 0.05, "custom": custom, "temperature": 0.7}  # one token has so much
    check("Sampling", 1, few, max_length=10, seed=3, repetition_penalty=1.2)
    check("Sampling", 1, few | {"presence_penalty": 4.0}, max_length=10, presence_mask=first)
    model = Read(
        search("Sampling", ["max_length", "seed"], top_p=0.9, temperature=3.0, custom=custom)
    )
    drawn = [
        model.results(**arguments(max_length=20, seed=seed))["sequences"] for seed in (1, 1, 2)
    ]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def split(name: str, x: str) -> list[onnx.NodeProto]:
    """x times a weight, as [batch, heads, n, size]."""
    return [
        helper.make_node("MatMul", [x, f"{name}.w"], [f"{name}.flat"]),
        helper.make_node("Reshape", [f"{name}.flat", "heads"], [f"{name}.split"]),
        helper.make_node("Transpose", [f"{name}.split"], [name], perm=[0, 2, 1, 3]),
    ]


def decoded(ids: str, past: Sequence[str], cross: Sequence[str], mask: str) -> list[onnx.NodeProto]:
    """Attention to earlier tokens and to the encoder's; logits."""
    q = [helper.make_node("MatMul", ["x", f"{name}.w"], [f"{name}.x"]) for name in ("q", "k", "v")]
    attention = [
        node_of("MultiHeadAttention", ["q.x", "k.x", "v.x", "", "", "", *past],
                ["own", "present_key_self_0", "present_value_self_0"], num_heads=HEADS),
        node_of("MultiHeadAttention", ["y", *cross, "", mask], ["seen"], num_heads=HEADS),
    ]  # fmt: skip
    return [
        helper.make_node("Gather", ["words", ids], ["x"]), *q, attention[0],
        helper.make_node("Add", ["x", "own"], ["y"]), attention[1],
        helper.make_node("Add", ["y", "seen"], ["z"]),
        helper.make_node("MatMul", ["z", "head"], ["logits"]),
    ]  # fmt: skip


def encoder_and_decoder(kind: str) -> dict[str, Any]:
    """Of T5 in both forms: the encoder makes the first step, too, or only what is attended to; and
    of Whisper, which reads sounds."""
    names = ("words", "q.w", "k.w", "v.w", "a.w", "b.w", "head")
    shapes = [(WORDS, WIDTH), *[(WIDTH, WIDTH)] * 5, (WIDTH, WORDS)]
    arrays = {
        name: drawn(*shape, seed=place)
        for place, (name, shape) in enumerate(zip(names, shapes, strict=True))
    }
    arrays["heads"] = np.array([0, 0, HEADS, SIZE])
    is_sound = kind == "sounds"
    mask = "" if is_sound else "encoder_attention_mask"
    given = [] if is_sound else [make_value(mask, ["rows", "source"], INT)]
    logits = make_value("logits", ["rows", 1, WORDS])
    (own, presents), (cross, crosses) = (
        [
            [make_value(f"{time}_{each}_{what}_0", ["rows", HEADS, length, SIZE])
             for each in ("key", "value")]
            for time in ("past", "present")
        ]
        for what, length in (("self", "past"), ("cross", "source"))
    )  # fmt: skip
    step = decoded("input_ids", [each.name for each in own], [each.name for each in cross], mask)
    ids = make_value("input_ids", ["rows", 1], INT)
    decoder = helper.make_graph(
        step, "decoder", [ids, *given, *own, *cross], [logits, *presents], weights(**arrays)
    )
    hidden = "encoder_hidden_states"
    if is_sound:
        source = make_value("encoder_input_ids", ["rows", WIDTH, "source"])
        read = helper.make_node("Transpose", [source.name], [hidden], perm=[0, 2, 1])
    else:
        source = make_value("encoder_input_ids", ["rows", "source"], INT)
        read = helper.make_node("Gather", ["words", source.name], [hidden])
    nodes = [read, *split("a", hidden), *split("b", hidden)]
    nodes += [
        helper.make_node("Identity", [name], [each.name])
        for name, each in zip("ab", crosses, strict=True)
    ]
    start = make_value("decoder_input_ids", ["rows", 1], INT)
    if kind == "apart":
        inputs, outputs = [source, *given], crosses
    else:
        nodes += decoded(start.name, [], [each.name for each in crosses], mask)
        inputs = [source, *given, start]
        outputs = [logits, make_value(hidden, ["rows", "source", WIDTH]), *presents, *crosses]
    encoder = helper.make_graph(nodes, "encoder", inputs, outputs, weights(**arrays))
    return {
        "encoder": encoder,
        "decoder": decoder,
        "model_type": 2 if is_sound else 1,
        "decoder_start_token_id": 3,
    }


@pytest.mark.parametrize("kind", ["joined", "apart"])
def test_texts_for_other_texts(kind: str) -> None:
    attributes = encoder_and_decoder(kind) | {"eos_token_id": 7, "no_repeat_ngram_size": 3}
    check("BeamSearch", 2, attributes, max_length=8, **BEAM)


def test_texts_for_sounds() -> None:
    attributes = encoder_and_decoder("sounds") | {"eos_token_id": 7}
    for op in ("BeamSearch", "WhisperBeamSearch"):
        model = search(op, ["max_length", *BEAM, "decoder_input_ids"], 2, **attributes)
        sound = make_value("input_ids", ["batch", WIDTH, "source"])
        model.graph.input[0].CopyFrom(sound)
        start = np.array([[3], [4]], np.int32)
        given = arguments(max_length=8, **BEAM) | {
            "input_ids": drawn(2, WIDTH, 5),
            "decoder_input_ids": start,
        }
        Read(model).check(1e-5, **given)


def test_both_steps_read_the_same_weights() -> None:
    main = Read(search("GreedySearch", ["max_length"])).module.functions["main"]
    values = [Constant.of(op).value for op in walk(main) if op.name == "constant"]
    heads = [each for each in values if each.array.shape == (WIDTH, WORDS)]
    assert len(heads) > 1
    assert all(each is heads[0] for each in heads)


@pytest.mark.slow
def test_a_beam_as_kernels() -> None:
    proto = search("BeamSearch", ["max_length", *BEAM], 2, eos_token_id=7)
    model = load_best(proto)
    for beams in (2, 3):
        given = arguments(max_length=10, **(BEAM | {"num_beams": beams}))
        wanted = in_onnxruntime(proto)(given)
        for found, expected in zip(arrays_of(model.main(**given)), wanted, strict=True):
            assert_same(found, expected, 1e-5, 1e-6)
    with pytest.raises(Error, match="max_length is 3, expected 4 to"):
        model.main(**arguments(max_length=3, **BEAM))


def test_what_does_not_fit_is_refused() -> None:
    numbers = ("max_length", "min_length", "num_beams", "num_return_sequences")
    wrong = decoder()
    wrong.input[3].type.tensor_type.shape.Clear()
    rules = search("BeamSearch", numbers)
    rules.graph.input.append(make_value("rules", [1], INT))
    rules.graph.node[0].input.extend([""] * 6 + ["rules"])
    more = decoder()
    more.input.append(make_value("cache_indirection", ["rows", 1, 1], INT))
    for model, text in (
        (search("GreedySearch", ["max_length"], decoder=wrong), "'past_0' does not tell heads"),
        (search("GreedySearch", ["max_length"], decoder=more), "looks up beams in its cache"),
        (search("GreedySearch", ["max_length"], model_type=1), "use BeamSearch"),
        (search("BeamSearch", numbers, model_type=1), "decoder_start_token_id is missing"),
        (rules, "rules of timestamps"),
    ):
        with pytest.raises(CompileError, match=text):
            Read(model)
