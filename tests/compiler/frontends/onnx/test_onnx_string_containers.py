"""Strings in branches, loops, sequences and optionals: against onnxruntime, where it has the op."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.onnxruntime import InferenceSession
from tests.support.devices import load_best
from tests.support.node_tests import interpreted
from tests.support.onnx_models import make_value
from tests.support.onnx_sequences import Node, sequence
from tests.support.onnx_strings import TEXT, WORDS, string_array, string_model


def _of_branches_and_loops() -> onnx.ModelProto:
    """x and y: string[n]; the one or the two joined, and x behind itself several times."""

    def branch(op: str, inputs: list[str], name: str) -> onnx.GraphProto:
        output = make_value(name, ["n"], TEXT)
        return helper.make_graph([Node(op, inputs, [name])], name, [], [output])

    body = helper.make_graph(
        [Node("StringConcat", ["s", "x"], ["t"]), Node("Identity", ["c"], ["d"])],
        "body",
        [make_value("i", [], TensorProto.INT64), make_value("c", [], TensorProto.BOOL),
         make_value("s", ["n"], TEXT)],
        [make_value("d", [], TensorProto.BOOL), make_value("t", ["n"], TEXT)],
    )  # fmt: skip
    choices = {"then_branch": branch("StringConcat", ["x", "y"], "both"),
               "else_branch": branch("Identity", ["y"], "one")}  # fmt: skip
    nodes = [Node("If", ["b"], ["chosen"], **choices),
             Node("Loop", ["k", "", "x"], ["long"], body=body)]  # fmt: skip
    inputs = [make_value(name, ["n"], TEXT) for name in "xy"]
    inputs += [make_value("b", [], TensorProto.BOOL), make_value("k", [], TensorProto.INT64)]
    outputs = [make_value("chosen", ["n"], TEXT), make_value("long", ["n"], TEXT)]
    return string_model(nodes, inputs, outputs)


def test_branches_and_loops_hand_strings_on() -> None:
    run = interpreted(import_onnx(_of_branches_and_loops()))
    x, y = string_array(["a", "ünï", ""]), string_array(["", "bc", "d"])
    for both, wanted in ((True, x + y), (False, y)):
        chosen, long = run([x, y, np.array(both), np.array(3 * both)])
        assert chosen.tolist() == wanted.tolist()
        assert long.tolist() == [each * (1 + 3 * both) for each in x]


def _of_stacks() -> onnx.ModelProto:
    """x: string[n, 2]. Its rows from the last one, each joined to those before it, side by side;
    and the first k words of a table, but none behind `stop`: they, each one twice, and numbers."""

    def value(name: str, shape: Any = None, element: int = TEXT) -> onnx.ValueInfoProto:
        return make_value(name, shape, element)

    index, go_on = value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL)
    scanned = helper.make_graph(
        [Node("StringConcat", ["s", "row"], ["t"]), Node("Identity", ["t"], ["u"])],
        "scanned",
        [value("s", [2]), value("row", [2])],
        [value("t", [2]), value("u", [2])],
    )
    taken = helper.make_graph(
        [Node("Gather", ["words", "i"], ["word"]), Node("Equal", ["word", "stop"], ["stops"]),
         Node("StringConcat", ["word", "word"], ["twice"]), Node("Not", ["stops"], ["d"]),
         Node("Add", ["i", "k"], ["sum"])],
        "taken",
        [index, go_on],
        [value("d", [], TensorProto.BOOL), value("word", []), value("twice", []),
         value("sum", [], TensorProto.INT64)],
    )  # fmt: skip
    nodes = [
        Node("Scan", ["first", "x"], ["last", "rows"], body=scanned, num_scan_inputs=1,
             scan_input_directions=[1], scan_output_axes=[1]),
        Node("Loop", ["k", "true"], ["words_taken", "twice_taken", "sums"], body=taken),
    ]  # fmt: skip
    inputs = [value("x", ["n", 2]), value("k", [], TensorProto.INT64), value("stop", [])]
    outputs = [value("last", [2]), value("rows", [2, "n"]), value("words_taken", ["m"]),
               value("twice_taken", ["m"]), value("sums", ["m"], TensorProto.INT64)]  # fmt: skip
    model = string_model(nodes, inputs, outputs)
    constants = {"first": ["<", ""], "words": WORDS}
    tensors = [helper.make_tensor(name, TEXT, [len(texts)], [each.encode() for each in texts])
               for name, texts in constants.items()]  # fmt: skip
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    model.graph.initializer.extend([*tensors, true])
    return model


STACKED = [
    ([["a", "ünï"], ["", "b"], ["日本", "cd"]], 5, "ünï"),
    ([["", ""]], 9, "none of them"),
    ([["a", "b"]] * 2, 0, ""),
]


def test_loops_stack_strings() -> None:
    source = _of_stacks()
    run = interpreted(import_onnx(source))
    session = onnxruntime.InferenceSession(source.SerializeToString())
    for x, k, stop in STACKED:
        given = {"x": string_array(x), "k": np.array(k), "stop": string_array(stop)}
        wanted = session.run(None, given)
        for got, expected in zip(run(list(given.values())), wanted, strict=True):
            assert np.asarray(got).shape == expected.shape
            assert np.asarray(got).tolist() == expected.tolist()


def _of_sequences() -> onnx.ModelProto:
    """x: string[n, 2], y: string[m, 2], k and b: sequences of known and of unknown lengths."""

    def graph(nodes: list[Any], name: str, inputs: Any = ()) -> onnx.GraphProto:
        made = nodes[-1].output[0]
        outputs = [sequence(made, TEXT)]
        if inputs:
            outputs.insert(0, make_value("c", [], TensorProto.BOOL))
        return helper.make_graph(nodes, name, list(inputs), outputs)

    body = graph(
        [Node("Gather", ["x", "i"], ["row"]), Node("SequenceInsert", ["s", "row"], ["t"])],
        "body",
        [make_value("i", [], TensorProto.INT64), make_value("c", [], TensorProto.BOOL),
         sequence("s", TEXT)],
    )  # fmt: skip
    choices = {
        "then_branch": graph([Node("SequenceConstruct", ["x", "y", "x"], ["three"])], "yes"),
        "else_branch": graph([Node("SequenceConstruct", ["y", "x"], ["two"])], "no"),
    }
    nodes = [
        Node("SequenceEmpty", [], ["none"], dtype=TEXT),
        Node("Loop", ["k", "", "none"], ["rows"], body=body),
        Node("SequenceLength", ["rows"], ["count"]),
        Node("ConcatFromSequence", ["rows"], ["stacked"], axis=1, new_axis=1),
        Node("If", ["b"], ["several"], **choices),
        Node("ConcatFromSequence", ["several"], ["joined"], axis=0),
        Node("SequenceAt", ["several", "b_index"], ["one"]),
        Node("SequenceErase", ["several", "b_index"], ["fewer"]),
        Node("SplitToSequence", ["x"], ["parts"], axis=0, keepdims=0),
        Node("SequenceAt", ["parts", "last"], ["part"]),
        Node("SplitToSequence", ["x", "one_each"], ["columns"], axis=1),
        Node("ConcatFromSequence", ["columns"], ["again"], axis=1),
        Node("SequenceConstruct", ["x", "y"], ["pair"]),
        Node("SequenceInsert", ["pair", "again", "zero"], ["triple"]),
        Node("SequenceErase", ["triple"], ["firsts"]),
        Node("Cast", ["b"], ["b_index"], to=TensorProto.INT64),
        Node("Optional", ["pair"], ["maybe"]),
        Node("OptionalGetElement", ["maybe"], ["got"]),
        Node("SequenceAt", ["got", "last"], ["second"]),
    ]
    inputs = [
        make_value("x", ["n", 2], TEXT), make_value("y", ["m", 2], TEXT),
        make_value("k", [], TensorProto.INT64), make_value("b", [], TensorProto.BOOL),
    ]  # fmt: skip
    outputs = [make_value("count", [], TensorProto.INT64)]
    texts = ("stacked", "joined", "one", "part", "again", "second")
    outputs += [make_value(name, None, TEXT) for name in texts]
    outputs += [sequence(name, TEXT) for name in ("rows", "fewer", "parts", "firsts", "none")]
    model = string_model(nodes, inputs, outputs)
    constants = {"last": np.array(-1), "zero": np.array(0), "one_each": np.array([1, 1])}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    return model


def _listed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_listed(each) for each in value]
    return np.asarray(value).shape, np.asarray(value).tolist()


SEQUENCES = [
    ([["a", "ünï"], ["", "b"], ["日本", "cd"]], [["", "e"]], 2, True),
    ([["a", "b"]], [["c", ""], ["", "d"]], 1, False),
]


def test_sequences_of_strings() -> None:
    source = _of_sequences()
    run = interpreted(import_onnx(source))
    session = onnxruntime.InferenceSession(source.SerializeToString())
    for x, y, k, b in SEQUENCES:
        given = {"x": string_array(x), "y": string_array(y), "k": np.array(k), "b": np.array(b)}
        names = [each.name for each in source.graph.output]
        wanted = dict(zip(names, session.run(None, given), strict=True))
        # onnxruntime gathers only the first string of a row
        taken = [*given["x"][:k]]
        wanted |= {"rows": taken, "stacked": np.stack(taken, 1)}
        for name, got in zip(names, run([*given.values()]), strict=True):
            assert _listed(got) == _listed(wanted[name]), name


def test_sequences_of_strings_as_arguments() -> None:
    nodes = [
        Node("SequenceAt", ["s", "i"], ["one"]),
        Node("SequenceInsert", ["s", "one"], ["more"]),
    ]
    element = helper.make_tensor_type_proto(TEXT, [None])
    s = helper.make_value_info("s", helper.make_sequence_type_proto(element))
    inputs = [s, make_value("i", [], TensorProto.INT64)]
    outputs = [make_value("one", None, TEXT), sequence("more", TEXT)]
    model = load_best(string_model(nodes, inputs, outputs))
    one, more = model([["a", "ünï"], [], ["b"]], np.array(0))
    assert one.tolist() == ["a", "ünï"]
    assert [each.tolist() for each in more] == [["a", "ünï"], [], ["b"], ["a", "ünï"]]
    kinds = [(each.name, each.kind) for each in model.signature.arguments]
    assert kinds == [("s", "sequence"), ("s.utf8", "sequence"), ("i", "tensor")]
    for wrong, said in (("ab", "a list of arrays of strings"), ([[1]], "must be of strings")):
        with pytest.raises(ingot.InvalidArgument, match=f"argument 's'.*{said}"):
            model(wrong, np.array(0))
    with pytest.raises(ingot.OutOfRange, match="position"):  # bytes of fewer elements than ends
        model([np.array([1])], [], np.array(0))


def test_a_body_is_mapped_over_sequences_of_strings() -> None:
    """Strings to strings and numbers, and numbers to strings."""
    ends = [make_value("e", ["k"], TEXT), make_value("f", None, TEXT)]
    nodes = [Node("StringConcat", ["e", "x"], ["f"]), Node("Size", ["e"], ["n"])]
    size = make_value("n", [], TensorProto.INT64)
    joins = helper.make_graph(nodes, "join", ends[:1], [ends[1], size])
    names = helper.make_graph(
        [Node("Add", ["k", "one"], ["next"]), Node("Cast", ["next"], ["text"], to=TEXT)], "name",
        [make_value("k", [], TensorProto.INT64)], [make_value("text", [], TEXT)],
    )  # fmt: skip
    nodes = [
        Node("SplitToSequence", ["w"], ["s"], axis=0),
        Node("SequenceMap", ["s"], ["long", "sizes"], body=joins),
        Node("SequenceMap", ["sizes"], ["texts"], body=names),
        Node("SequenceConstruct", ["x", "x"], ["pair"]),
        Node("SequenceMap", ["pair"], ["twice", "ones"], body=joins),
    ]
    kinds = {"long": TEXT, "sizes": TensorProto.INT64, "texts": TEXT, "twice": TEXT}
    inputs = [make_value("w", ["n"], TEXT), make_value("x", [1], TEXT)]
    source = string_model(nodes, inputs, [sequence(name, kind) for name, kind in kinds.items()])
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    run = interpreted(import_onnx(source))
    for words in (["a", "", "ünï"], []):
        got = run([string_array(words), string_array(["!"])])
        wanted = [[[word + "!"] for word in words], [1] * len(words), ["2"] * len(words)]
        wanted.append([["!!"]] * 2)
        assert [[np.asarray(x).tolist() for x in each] for each in got] == wanted


def _optional(name: str, *, of_sequences: bool = False) -> onnx.ValueInfoProto:
    type = helper.make_tensor_type_proto(TEXT, [None])
    type = helper.make_sequence_type_proto(type) if of_sequences else type
    return helper.make_value_info(name, helper.make_optional_type_proto(type))


def _of_optionals() -> onnx.ModelProto:
    """Optionals of the caller and of the program: asked, joined by branches, carried by a loop."""
    none = Node("Optional", [], ["n"], type=helper.make_tensor_type_proto(TEXT, [None]))
    twice = [
        Node("OptionalGetElement", ["s"], ["one"]),
        Node("StringConcat", ["one", "one"], ["two"]),
        Node("Optional", ["two"], ["s2"]),
    ]

    def branch(node: Any, *, text: bool = False) -> Any:
        (name,) = node.output
        value = make_value(name, None, TEXT) if text else _optional(name)
        return helper.make_graph([node], name, [], [value])

    step = [make_value("i", [], TensorProto.INT64), make_value("c", [], TensorProto.BOOL)]
    body = helper.make_graph(
        [Node("Identity", ["c"], ["c2"]), *twice],
        *("body", [*step, _optional("s")]),
        [make_value("c2", [], TensorProto.BOOL), _optional("s2")],
    )
    own, given = Node("Optional", ["d"], ["o"]), Node("Identity", ["y"], ["g"])
    element = branch(Node("OptionalGetElement", ["y"], ["e"]), text=True)
    other = branch(Node("Identity", ["d"], ["f"]), text=True)
    nodes = [
        Node("OptionalHasElement", ["y"], ["has"]),
        Node("If", ["has"], ["value"], then_branch=element, else_branch=other),
        Node("If", ["has"], ["mine"], then_branch=branch(own), else_branch=branch(none)),
        Node("If", ["has"], ["either"], then_branch=branch(given), else_branch=branch(own)),
        Node("Loop", ["k", "", "y"], ["long"], body=body),
        Node("Identity", ["z"], ["lists"]),
        Node("Identity", ["y"], ["same"]),
        none,
    ]
    inputs = [_optional("y"), make_value("d", ["m"], TEXT), make_value("k", [], TensorProto.INT64)]
    outputs = [make_value("has", [], TensorProto.BOOL), make_value("value", None, TEXT)]
    outputs += [_optional(name) for name in ("mine", "either", "long", "same", "n")]
    lists = [_optional(name, of_sequences=True) for name in ("z", "lists")]
    return string_model(nodes, [*inputs, lists[0]], [*outputs, lists[1]])


def test_optionals_of_strings() -> None:
    model = load_best(_of_optionals())
    words, others = ["a", "größe"], ["x"]
    found = model(words, others, np.array(1), [others, []])
    rows = [None if each is None else [np.asarray(x).tolist() for x in each] for each in found[1:]]
    assert rows[:5] == [words, others, words, ["aa", "größegröße"], words]
    assert (rows[5], rows[6]) == (None, [others, []])
    found = model(None, others, np.array(0), None)
    rows = [None if each is None else [np.asarray(x).tolist() for x in each] for each in found[1:]]
    assert rows == [others, None, others, None, None, None, None]
    with pytest.raises(ingot.InvalidArgument, match="the optional has no element"):
        model(None, others, np.array(1), None)


@pytest.mark.slow
def test_optionals_of_strings_may_be_left_out_of_a_session() -> None:
    source = _of_optionals().SerializeToString()
    feed = {"d": np.array(["x"], object), "k": np.array(0)}
    for words in ({}, {"y": None}, {"y": np.array(["a", "b"], object)}):
        value, same = InferenceSession(source).run(["value", "same"], {**feed, **words})
        given = words.get("y")
        assert value.tolist() == (["x"] if given is None else ["a", "b"])
        assert (same is None) if given is None else same.tolist() == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stacks", "sequences"])
def test_stacks_and_sequences_when_compiled(kind: str) -> None:
    source = _of_stacks() if kind == "stacks" else _of_sequences()
    model = load_best(source)
    run = interpreted(import_onnx(source))
    for row in STACKED if kind == "stacks" else SEQUENCES:
        arrays = [string_array(x) if isinstance(x, (list, str)) else np.array(x) for x in row]
        for got, wanted in zip(model(*arrays), run(arrays), strict=True):
            assert _listed(got) == _listed(wanted)


@pytest.mark.slow
def test_branches_and_loops_hand_strings_on_when_compiled() -> None:
    model = load_best(_of_branches_and_loops())
    chosen, long = model(["a", "b"], ["c", ""], np.array(True), np.array(2))
    assert (chosen.tolist(), long.tolist()) == (["ac", "b"], ["aaa", "bbb"])
