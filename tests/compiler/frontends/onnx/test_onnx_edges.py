"""Sequences and optionals as graph inputs and outputs, against the ONNX reference evaluator."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.devices import load_best
from tests.support.onnx_models import build_model
from tests.support.onnx_sequences import BOOL, FLOAT, INT64, Node, X, body, rows, sequence, tensor

XS = rows(2), rows(0), rows(3, first=9)


def elements(*shape: Any) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(FLOAT, shape or None)


def listed(name: str, *shape: Any) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(elements(*shape)))


def optional(name: str, type: onnx.TypeProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(type))


def maybe(name: str) -> onnx.ValueInfoProto:
    return optional(name, elements("k", 3))


def maybe_list(name: str) -> onnx.ValueInfoProto:
    return optional(name, helper.make_sequence_type_proto(elements("k", 3)))


def model_of(nodes: list[Any], inputs: list[Any], *outputs: Any) -> onnx.ModelProto:
    values = [each if isinstance(each, onnx.ValueInfoProto) else None for each in outputs]
    names = [each if value is None else value.name for each, value in zip(outputs, values)]  # noqa: B905
    proto = build_model(nodes, inputs, names, opset=18)
    for place, value in enumerate(values):
        if value is not None:
            proto.graph.output[place].CopyFrom(value)
    return proto


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if value is None else (np.asarray(value).shape, np.asarray(value).tolist())


def check(proto: onnx.ModelProto, *calls: dict[str, Any]) -> ingot.Model:
    """The compiled model gives what the reference evaluator does."""
    model, reference = load_best(import_onnx(proto)), ReferenceEvaluator(proto)
    for inputs in calls:
        wanted = plain(reference.run(None, deepcopy(inputs)))  # it changes lists in place
        assert plain(list(model.call(as_dict=True, **inputs).values())) == wanted
    return model


NEGATE = body(
    [Node("Neg", ["e"], ["f"]), Node("Shape", ["e"], ["s"])],
    [tensor("e", "k", 3)],
    [tensor("f", "k", 3), tensor("s", 2, element=INT64)],
)


def test_sequences_are_made_changed_and_given() -> None:
    proto = model_of(
        [
            Node("SequenceMap", ["xs"], ["minus", "shapes"], body=NEGATE),
            Node("SequenceInsert", ["minus", "x"], ["more"]),
            Node("SequenceErase", ["more", "place"], ["less"]),
            Node("SequenceLength", ["less"], ["length"]),
            Node("ConcatFromSequence", ["more"], ["joined"], axis=0),
            Node("SplitToSequence", ["x"], ["split"], keepdims=0),
            Node("SequenceEmpty", [], ["empty"]),
            Node("SequenceConstruct", ["x", "x"], ["pair"]),
        ],
        [listed("xs", "k", 3), X, tensor("place", element=INT64)],
        *[listed(name) for name in ("minus", "more", "less", "split", "empty", "pair")],
        helper.make_value_info(
            "shapes", helper.make_sequence_type_proto(helper.make_tensor_type_proto(INT64, [2]))
        ),
        tensor("length", element=INT64),
        tensor("joined", "all", 3),
    )
    model = check(
        proto,
        {"xs": list(XS), "x": rows(2), "place": np.int64(1)},
        {"xs": [rows(1)], "x": rows(1), "place": np.int64(0)},  # it maps no empty ones
    )
    assert plain(model([], rows(1), np.int64(0))[1]) == plain([rows(1)])
    assert str(model.signature.arguments[0]) == "xs: sequence(f32[?,3])"
    assert str(model.signature.results[6]) == "shapes: sequence(i64[2])"


def test_an_optional_is_given_or_not_at_the_call() -> None:
    there = body([Node("OptionalGetElement", ["o"], ["r"])], [], [tensor("r", "k", 3)])
    absent = body([Node("Neg", ["x"], ["r"])], [], [tensor("r", "n", 3)])
    some = body([Node("Identity", ["o"], ["m"])], [], [maybe("m")])
    made = body([Node("Optional", ["x"], ["m"])], [], [maybe("m")])
    proto = model_of(
        [
            Node("OptionalHasElement", ["o"], ["has"]),
            Node("If", ["has"], ["chosen"], then_branch=there, else_branch=absent),
            Node("If", ["has"], ["mixed"], then_branch=some, else_branch=made),
            Node("Identity", ["o"], ["same"]),
            Node("Identity", ["os"], ["sames"]),
            Node("OptionalHasElement", ["os"], ["lists"]),
            Node("Optional", ["x"], ["always"]),
        ],
        [X, maybe("o"), maybe_list("os")],
        *[tensor(name, element=BOOL) for name in ("has", "lists")],
        tensor("chosen", "c", 3),
        *[maybe(name) for name in ("mixed", "same", "always")],
        maybe_list("sames"),
    )
    model = load_best(import_onnx(proto))
    for o, os in ((None, None), (rows(3), list(XS)), (rows(0), [])):
        has, lists, chosen, mixed, same, always, sames = model(rows(2), o, os)
        assert (bool(has), bool(lists)) == (o is not None, os is not None)
        assert plain(chosen) == plain(-rows(2) if o is None else o)
        assert plain(mixed) == plain(rows(2) if o is None else o)
        assert plain([same, always, sames]) == plain([o, rows(2), os])


def test_what_an_optional_lacks_is_told_when_it_is_read() -> None:
    proto = model_of([Node("OptionalGetElement", ["o"], ["y"])], [maybe("o")], tensor("y", "k", 3))
    model = load_best(import_onnx(proto))
    assert plain(model(rows(2))) == plain(rows(2))
    with pytest.raises(InvalidArgument, match="the optional has no element"):
        model(None)


def test_a_loop_carries_a_sequence_from_the_caller() -> None:
    step = body(
        [
            Node("SequenceInsert", ["s", "x"], ["t"]),
            Node("Identity", ["go"], ["on"]),
        ],
        [tensor("i", element=INT64), tensor("go", element=BOOL), sequence("s")],
        [tensor("on", element=BOOL), sequence("t")],
    )
    proto = model_of(
        [Node("Loop", ["n", "", "xs"], ["ys"], body=step)],
        [tensor("n", element=INT64), X, listed("xs")],
        listed("ys"),
    )
    model = load_best(import_onnx(proto))
    for n in (0, 2):  # the evaluator gives back what it was given
        assert plain(model(np.int64(n), rows(1), XS)) == plain([*XS, *[rows(1)] * n])
    assert str(model.signature.arguments[2]) == "xs: sequence(f32[?,?])"  # what is put in tells


def test_an_open_rank_passes_through_and_is_refused_where_it_is_needed() -> None:
    nodes = [Node("Identity", ["xs"], ["ys"]), Node("SequenceLength", ["xs"], ["n"])]
    outputs = listed("ys"), tensor("n", element=INT64)
    model = check(model_of(nodes, [listed("xs")], *outputs), {"xs": list(XS)}, {"xs": []})
    assert str(model.signature.arguments[0]) == "xs: sequence(f32[*])"
    vectors = [np.ones(2, "f4"), np.zeros(1, "f4")]
    assert plain(model(vectors)[0]) == plain(vectors)
    with pytest.raises(InvalidArgument, match="element 1 of argument 0 'xs' has rank 2"):
        model([np.ones(2, "f4"), np.ones((2, 2), "f4")])
    for node in (
        Node("SequenceAt", ["xs", "i"], ["y"]),
        Node("ConcatFromSequence", ["xs"], ["y"], axis=0),
    ):
        proto = model_of([node], [listed("xs"), tensor("i", element=INT64)], "y")
        with pytest.raises(CompileError, match="not known of which rank the elements"):
            import_onnx(proto)


PLACE = tensor("i", element=INT64)
ROW = tensor("row", "k", 3)
AT_0 = Node("SequenceAt", ["xs", "i"], ["row"])


@pytest.mark.parametrize(
    ("nodes", "inputs", "output", "noted"),
    [
        ([AT_0], [listed("xs"), PLACE], ROW, []),
        ([AT_0, Node("Neg", ["row"], ["y"])], [listed("xs"), PLACE], "y", [ROW]),
        (
            [Node("ConcatFromSequence", ["xs"], ["y"], axis=0, new_axis=1)],
            [listed("xs")],
            tensor("y", "a", "b", 3),
            [],
        ),
        (
            [Node("Identity", ["xs"], ["ys"]), Node("SequenceAt", ["ys", "i"], ["y"])],
            [listed("xs"), PLACE],
            "y",
            [listed("ys", None, 3)],
        ),
        ([AT_0], [listed("xs"), listed("others"), PLACE], ROW, []),
        (
            [
                Node(
                    "If",
                    ["go"],
                    ["y"],
                    then_branch=body([AT_0], [], [ROW]),
                    else_branch=body([Node("Neg", ["x"], ["negative"])], [], [tensor("negative")]),
                )
            ],
            [listed("xs"), PLACE, tensor("go", element=BOOL), tensor("x", 2, 3)],
            "y",
            [],
        ),
    ],
)
def test_a_type_that_the_model_notes_of_an_element_tells_an_open_rank(
    nodes: list[Any], inputs: list[Any], output: Any, noted: list[Any]
) -> None:
    proto = model_of(nodes, inputs, output)
    proto.graph.value_info.extend(noted)
    given = {"xs": [rows(2), rows(2, first=5)], "others": [np.ones(3, "f4")], "i": np.int64(1)}
    given |= {"go": np.bool_(True), "x": rows(2, first=7)}
    model = check(proto, {value.name: given[value.name] for value in inputs})
    assert str(model.signature.arguments[0]) == "xs: sequence(f32[?,?])"
    shapes = {value.name: value.shape for value in model.signature.arguments}
    assert shapes.get("others", ("*",)) == ("*",)  # of which nothing is said


def test_a_type_that_the_model_notes_of_a_content_tells_an_open_rank() -> None:
    proto = model_of(
        [Node("OptionalGetElement", ["x"], ["y"]), Node("Neg", ["y"], ["z"])],
        [optional("x", elements())],
        "z",
    )
    with pytest.raises(CompileError, match="not known of which rank the elements"):
        import_onnx(proto)
    proto.graph.value_info.append(tensor("y", "k"))
    model = check(proto, {"x": np.ones(3, "f4")})
    assert str(model.signature.arguments[0]) == "x: optional(f32[?])"


def test_sequences_and_optionals_of_strings_hide_no_problem() -> None:
    words = helper.make_tensor_type_proto(onnx.TensorProto.STRING, [2])
    proto = model_of(
        [
            Node("Identity", ["words"], ["kept"]),
            Node("OptionalGetElement", ["word"], ["got"]),
            Node("StringNormalizer", ["got"], ["lower"]),
            Node("LabelEncoder", ["labels"], ["numbers"], domain="ai.onnx.ml", keys_strings=["a"]),
            Node("ImageDecoder", ["x"], ["photo"], name="photo"),
        ],
        [
            X,
            helper.make_value_info("words", helper.make_sequence_type_proto(words)),
            optional("word", words),
        ],
        *("kept", "lower", "numbers", "photo"),
    )
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    labels = onnx.numpy_helper.from_array(np.array(["a", "b"], object), "labels")
    proto.graph.initializer.append(labels)
    with pytest.raises(CompileError) as refused:
        import_onnx(proto)
    message = str(refused.value)
    assert "2 problems" in message
    for text in ("LabelEncoder(string[2])", "layer 'photo': ImageDecoder"):
        assert text in message, text


def test_state_lies_beside_sequences_and_is_none() -> None:
    nodes = [
        Node("Concat", ["cache", "x"], ["grown"], axis=0),
        Node("SequenceInsert", ["xs", "x"], ["more"]),
    ]
    cache, x = tensor("cache", "p", 3), tensor("x", "s", 3)
    proto = model_of(nodes, [cache, x, listed("xs", None, 3)], "grown", listed("more", None, 3))
    model = load_best(proto, state=ingot.state.named({"grown": "cache"}, capacity=8))
    for count in (1, 2):
        more = model(np.ones((1, 3), np.float32), [np.zeros((2, 3), np.float32)])
        assert [each.shape for each in more] == [(2, 3), (1, 3)]
        assert int(model.state()["p"]) == count
    with pytest.raises(CompileError, match=r"argument .xs. of .main. .* cannot be state"):
        ingot.compile(proto, state={"more": "xs"})
