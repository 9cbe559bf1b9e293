"""Strings as arguments and results: against onnxruntime, where it has the op, and against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.onnxruntime import InferenceSession
from tests.support.devices import load_best
from tests.support.node_tests import interpreted
from tests.support.onnx_models import make_value
from tests.support.onnx_sequences import Node, sequence

TEXT = TensorProto.STRING
WORDS = ["", "a", "b", "ab", "ünï", "eight by", "nine byte", "日本語 text", "a\0"]


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _array(texts: Any) -> Any:
    return np.array(texts, object)


@pytest.fixture(scope="module")
def several() -> tuple[Any, Any]:
    """The graph of an op each on x: string[n, 2], interpreted, and onnxruntime's session of it."""
    classic = {"domain": "ai.onnx.ml"}
    nodes = [
        Node("LabelEncoder", ["x"], ["ids"], keys_strings=WORDS, default_int64=-7,
             values_int64s=[*range(len(WORDS))], **classic),
        Node("LabelEncoder", ["x"], ["other"], keys_strings=WORDS, default_string="?",
             values_strings=WORDS[::-1], **classic),
        Node("LabelEncoder", ["ids"], ["back"], keys_int64s=[0, 3, 4], default_string="none",
             values_strings=["", "ab", "ünï"], **classic),
        Node("CategoryMapper", ["x"], ["mapped"], cats_strings=WORDS[1:4], cats_int64s=[5, 6, 7],
             **classic),
        Node("OneHotEncoder", ["x"], ["hot"], cats_strings=WORDS, **classic),
        Node("StringConcat", ["x", "y"], ["both"]),
        Node("Equal", ["x", "y"], ["same"]),
        Node("Transpose", ["both"], ["turned"], perm=[1, 0]),
        Node("Concat", ["turned", "turned"], ["twice"], axis=1),
        Node("Where", ["same", "x", "both"], ["chosen"]),
    ]  # fmt: skip
    shape = ["n", 2]
    outputs = [
        make_value("ids", shape, TensorProto.INT64), make_value("other", shape, TEXT),
        make_value("back", shape, TEXT), make_value("mapped", shape, TensorProto.INT64),
        make_value("hot", None, TensorProto.FLOAT), make_value("both", shape, TEXT),
        make_value("same", shape, TensorProto.BOOL), make_value("twice", None, TEXT),
        make_value("chosen", shape, TEXT),
    ]  # fmt: skip
    model = _model(nodes, [make_value("x", shape, TEXT), make_value("y", [2], TEXT)], outputs)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return interpreted(import_onnx(model)), session


@pytest.fixture(scope="module")
def joined() -> ingot.Model:
    """x: string[n, 2] and y: string[2], one behind the other."""
    inputs = [make_value("x", ["n", 2], TEXT), make_value("y", [2], TEXT)]
    outputs = [make_value("both", ["n", 2], TEXT), make_value("same", ["n", 2], TensorProto.BOOL)]
    nodes = [Node("StringConcat", ["x", "y"], ["both"]), Node("Equal", ["x", "y"], ["same"])]
    return load_best(_model(nodes, inputs, outputs))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    x=st.lists(st.tuples(*[st.sampled_from([*WORDS, "abc", "nine bytes"])] * 2), max_size=6),
    y=st.lists(st.sampled_from(WORDS), min_size=2, max_size=2),
)
def test_ops_on_strings_agree_with_onnxruntime(several: tuple[Any, Any], x: Any, y: Any) -> None:
    run, session = several
    given_x, given_y = _array(x).reshape(-1, 2), _array(y)
    if not len(given_x):
        assert [np.asarray(each).size for each in run([given_x, given_y])] == [0] * 9
        return
    wanted = session.run(None, {"x": given_x, "y": given_y})
    for place, (got, expected) in enumerate(zip(run([given_x, given_y]), wanted, strict=True)):
        got = np.asarray(got)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tolist() == expected.tolist(), place


def test_signatures_and_raw_arguments(joined: ingot.Model) -> None:
    """A string tensor is where each string ends, and the bytes of all."""
    model = joined
    names = [str(each) for each in model.signature.arguments]
    assert names[:2] == ["x: i64[n,2]", "x.utf8: u8[x_utf8_size]"]
    assert model.signature.arguments[1].doc == "UTF-8 of 'x'"
    by_name = model.call(y=["b", ""], x=[["a", "ab"]], as_dict=True)
    assert by_name["both"].tolist() == [["ab", "ab"]]
    texts = [np.frombuffer(each, np.uint8) for each in (b"aab", b"b")]
    arguments = np.array([[1, 3]]), texts[0], np.array([1, 1]), texts[1]
    raw = model(*arguments)
    assert raw[0].tolist() == [["ab", "ab"]]
    ends, data, _ = model.main.tensors(*arguments)
    assert np.asarray(ends).tolist() == [[2, 4]]
    assert np.asarray(data).tobytes() == b"abab"
    assert [np.asarray(each).size for each in model(np.empty((0, 2), object), ["a", "b"])] == [0, 0]
    # ends that go back or lead outside read no other memory
    model(np.array([[7, -3]]), np.frombuffer(b"aab", np.uint8), np.array([1, 1]),
          np.frombuffer(b"b", np.uint8))  # fmt: skip


def test_what_is_no_string_is_refused(joined: ingot.Model) -> None:
    model = joined
    with pytest.raises(ingot.InvalidArgument, match=r"argument 'x'.*must be of strings"):
        model([[1, 2]], ["a", "b"])
    with pytest.raises(ingot.InvalidArgument, match=r"3 arguments.*takes x, y"):
        model([["a", "b"]], ["a", "b"], ["c"])


def test_words_are_normalized_and_counted() -> None:
    nodes = [
        Node("StringNormalizer", ["x"], ["kept"], case_change_action="LOWER", stopwords=["The"]),
        Node("TfIdfVectorizer", ["x"], ["counts"], mode="TF", min_gram_length=1, max_gram_length=2,
             max_skip_count=0, ngram_counts=[0, 2], ngram_indexes=[0, 1, 2],
             pool_strings=["the", "Cat", "the", "Cat"]),
    ]  # fmt: skip
    outputs = [make_value("kept", ["m"], TEXT), make_value("counts", [3])]
    model = load_best(_model(nodes, [make_value("x", [4], TEXT)], outputs))
    kept, counts = model(["the", "Cat", "THE", "MAT"])
    assert kept.tolist() == ["cat", "mat"]
    assert np.asarray(counts).tolist() == [1, 1, 1]
    assert model(["the"] * 4)[0].tolist() == [""]
    assert model(["THE", "ÜNÏ", "Größe", "日本"])[0].tolist() == ["ünï", "größe", "日本"]
    with pytest.raises(ingot.InvalidArgument, match="whose case changes keep their length"):
        model(["the", "İ", "THE", "MAT"])


@pytest.mark.parametrize("action", ["LOWER", "UPPER"])
def test_the_case_of_characters_is_that_of_onnxruntime(action: str) -> None:
    """Of all but those that change their length, and a few of old Greek."""
    others = {0x130, 0x131, 0x17F, 0x23A, 0x23E, *range(0x23F, 0x2B0), 0x1E9E}
    others |= {0x2126, 0x212A, 0x212B}
    codes = [*range(1, 0x1C80), *range(0x1E00, 0x1F80), *range(0x2100, 0x2C60)]
    codes += [*range(0x4E00, 0x4E20), *range(0xFF00, 0xFFF0), *range(0x10400, 0x10450)]
    texts = _array(["".join(chr(code) for code in codes if code not in others), "", "a"])
    node = Node("StringNormalizer", ["x"], ["y"], case_change_action=action, locale="C.UTF-8")
    model = _model([node], [make_value("x", ["n"], TEXT)], [make_value("y", None, TEXT)])
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": texts})[0]
    (got,) = interpreted(import_onnx(model))([texts])
    assert got.tolist() == wanted.tolist()
    assert len(got[0]) > 5000


def test_constants_and_maps() -> None:
    texts = helper.make_tensor("t", TEXT, [2], [b"no", b"yes"])
    nodes = [
        Node("Constant", [], ["names"], value=texts),
        Node("Gather", ["names", "i"], ["answer"]),
        Node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"]),
    ]
    map_value = make_value("maps", None)
    map_value.ClearField("type")
    map = map_value.type.sequence_type.elem_type.map_type
    map.key_type, map.value_type.tensor_type.elem_type = TEXT, TensorProto.FLOAT
    inputs = [make_value("i", ["n"], TensorProto.INT64), make_value("p", ["n", 2])]
    model = ingot.load(
        ingot.compile(_model(nodes, inputs, [make_value("answer", ["n"], TEXT), map_value]))
    )
    answer, maps = model(np.array([1, 0]), np.array([[0.25, 0.75], [1, 0]], np.float32))
    assert answer.tolist() == ["yes", "no"]
    assert maps == [{"no": 0.25, "yes": 0.75}, {"no": 1.0, "yes": 0.0}]


def test_what_takes_no_strings_is_refused() -> None:
    model = _model(
        [Node("Relu", ["x"], ["y"])], [make_value("x", [2], TEXT)], [make_value("y", [2])]
    )
    with pytest.raises(ingot.CompileError, match=r"Relu\(string\[2\]\).*the op takes a tensor"):
        ingot.compile(model)


@pytest.mark.parametrize("doc", ["maps of Europe", 'maps of ["a", "b"]', "UTF-8 of 'y'"])
def test_docs_of_a_model_are_no_marks_of_strings(doc: str) -> None:
    x = make_value("x", [2], TensorProto.FLOAT)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2], doc)
    model = load_best(_model([Node("Neg", ["x"], ["y"])], [x], [y]))
    np.testing.assert_array_equal(model(np.ones(2, np.float32)), [-1, -1])


def test_strings_that_are_no_unicode_text_are_refused() -> None:
    values = [make_value(name, ["n"], TEXT) for name in "xy"]
    nodes = [Node("Identity", ["x"], ["y"])]
    model = load_best(_model(nodes, values[:1], values[1:]))
    with pytest.raises(ingot.InvalidArgument, match="'x': a string is no Unicode text"):
        model(["a\ud800"])


SPLITS: list[dict[str, Any]] = [
    {}, {"maxsplit": 0}, {"maxsplit": 1}, {"maxsplit": 2}, {"delimiter": " "}, {"delimiter": "aa"},
    {"delimiter": "aba", "maxsplit": 1}, {"delimiter": "日"}, {"delimiter": "a ", "maxsplit": 0},
]  # fmt: skip


@pytest.fixture(scope="module")
def splitting() -> Any:
    """Ways to split x: string[n], interpreted."""
    nodes = [Node("StringSplit", ["x"], [f"y{i}", f"n{i}"], **w) for i, w in enumerate(SPLITS)]
    outputs = [
        each
        for i in range(len(SPLITS))
        for each in (make_value(f"y{i}", None, TEXT), make_value(f"n{i}", ["n"], TensorProto.INT64))
    ]
    return interpreted(import_onnx(_model(nodes, [make_value("x", ["n"], TEXT)], outputs)))


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(x=st.lists(st.text("ab \t日\n", max_size=12), max_size=4))
def test_strings_are_split_as_python_does(splitting: Any, x: list[str]) -> None:
    made = splitting([_array(x)])
    for place, way in enumerate(SPLITS):
        wanted = [each.split(way.get("delimiter"), way.get("maxsplit", -1)) for each in x]
        longest = max(map(len, wanted), default=0)
        pieces, counts = made[2 * place], made[2 * place + 1]
        assert pieces.tolist() == [each + [""] * (longest - len(each)) for each in wanted], way
        assert np.asarray(counts).tolist() == [len(each) for each in wanted]


def test_split_and_compiled() -> None:
    nodes = [
        Node("StringSplit", ["x"], ["words", "counts"]),
        Node("StringSplit", ["x"], ["parts", "_"], delimiter="aa"),
    ]
    outputs = [make_value("words", None, TEXT), make_value("counts", ["n", 1], TensorProto.INT64),
               make_value("parts", None, TEXT)]  # fmt: skip
    model = load_best(_model(nodes, [make_value("x", ["n", 1], TEXT)], outputs))
    words, counts, parts = model([["aaa b"], [" c"]])
    assert words.tolist() == [[["aaa", "b"]], [["c", ""]]]
    assert np.asarray(counts).tolist() == [[2], [1]]
    assert parts.tolist() == [[["", "a b"]], [[" c", ""]]]


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
    return _model(nodes, inputs, outputs)


def test_branches_and_loops_hand_strings_on() -> None:
    run = interpreted(import_onnx(_of_branches_and_loops()))
    x, y = _array(["a", "ünï", ""]), _array(["", "bc", "d"])
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
    model = _model(nodes, inputs, outputs)
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
        given = {"x": _array(x), "k": np.array(k), "stop": _array(stop)}
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
    model = _model(nodes, inputs, outputs)
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
        given = {"x": _array(x), "y": _array(y), "k": np.array(k), "b": np.array(b)}
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
    model = load_best(_model(nodes, inputs, outputs))
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
    source = _model(nodes, inputs, [sequence(name, kind) for name, kind in kinds.items()])
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    run = interpreted(import_onnx(source))
    for words in (["a", "", "ünï"], []):
        got = run([_array(words), _array(["!"])])
        wanted = [[[word + "!"] for word in words], [1] * len(words), ["2"] * len(words)]
        wanted.append([["!!"]] * 2)
        assert [[np.asarray(x).tolist() for x in each] for each in got] == wanted


def test_names_of_bytes_are_taken() -> None:
    x, number = make_value("x", ["n"], TEXT), make_value("x.utf8", ["n"])
    y, result = make_value("y", ["n"], TEXT), make_value("y.utf8", ["n"])
    nodes = [Node("Identity", ["x"], ["y"]), Node("Identity", ["z"], ["y.utf8"])]
    with pytest.raises(ingot.CompileError, match=r"input 'x' is .* 'x\.utf8', .* rename it"):
        import_onnx(_model(nodes[:1], [number, x], [y]))
    with pytest.raises(ingot.CompileError, match=r"output 'y' is .* 'y\.utf8', .* rename it"):
        import_onnx(_model(nodes, [x, make_value("z", ["n"])], [y, result]))


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
    return _model(nodes, [*inputs, lists[0]], [*outputs, lists[1]])


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
        arrays = [_array(x) if isinstance(x, (list, str)) else np.array(x) for x in row]
        for got, wanted in zip(model(*arrays), run(arrays), strict=True):
            assert _listed(got) == _listed(wanted)


@pytest.mark.slow
def test_branches_and_loops_hand_strings_on_when_compiled() -> None:
    model = load_best(_of_branches_and_loops())
    chosen, long = model(["a", "b"], ["c", ""], np.array(True), np.array(2))
    assert (chosen.tolist(), long.tolist()) == (["ac", "b"], ["aaa", "bbb"])


def _map(key: int) -> onnx.ValueInfoProto:
    """The graph input x, of floats."""
    x = onnx.ValueInfoProto(name="x", doc_string="of words")
    map = x.type.map_type
    map.key_type, map.value_type.tensor_type.elem_type = key, TensorProto.FLOAT
    return x


def test_maps_without_a_vocabulary() -> None:
    classic = {"domain": "ai.onnx.ml"}
    graphs = {
        "dense": ({"cast_to": "TO_INT64"}, TensorProto.INT64),
        "sparse": ({"map_form": "SPARSE", "max_map": 4}, TensorProto.FLOAT),
    }
    sources = {
        name: _model(
            [Node("CastMap", ["x"], ["y"], **attributes, **classic)],
            [_map(TensorProto.INT64)],
            [make_value("y", [1, None], element)],
        )
        for name, (attributes, element) in graphs.items()
    }
    model = load_best(sources)
    for name, source in sources.items():
        session = onnxruntime.InferenceSession(source.SerializeToString())
        for row in ({3: 1.5, 0: -2.75, 7: 1e10}, {2: 0.5}):
            wanted, got = session.run(None, {"x": row})[0], np.asarray(getattr(model, name)(row))
            assert (got.dtype, got.tolist()) == (wanted.dtype, wanted.tolist())
    assert np.asarray(model.dense({})).shape == (1, 0)
    with pytest.raises(ingot.InvalidArgument, match="'x': a map must have numbers"):
        model.dense({1: 2.0, "a": 1.0})
    for wrong in ({"cast_to": "TO_STRING"}, {"map_form": "SPARSE", "max_map": 0}):
        node = Node("CastMap", ["x"], ["y"], **wrong, **classic)
        with pytest.raises(ingot.CompileError, match=r"its cast_to is|its map_form is"):
            import_onnx(_model([node], [_map(TensorProto.INT64)], [make_value("y", None)]))


@pytest.mark.parametrize(
    ("vocabulary", "key"),
    [
        ({"string_vocabulary": ["a", "ü", "c"]}, TEXT),
        ({"int64_vocabulary": [4, -1, 0]}, TensorProto.INT64),
    ],
)
def test_maps_as_arguments(vocabulary: dict[str, Any], key: int) -> None:
    node = Node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", **vocabulary)
    x = _map(key)
    source = _model([node], [x], [make_value("y", [1, 3])])
    session = onnxruntime.InferenceSession(source.SerializeToString())
    model = load_best(source)
    first, second, third = next(iter(vocabulary.values()))
    for row in ({second: 2.5}, {third: 1.0, first: -3.0}):
        wanted = session.run(None, {"x": row})[0]
        assert np.array_equal(model(row), wanted)
        assert np.array_equal(model(x=row), wanted)
    assert np.asarray(model({})).tolist() == [[0, 0, 0]]
    assert np.asarray(model(np.arange(3, dtype=np.float32))).tolist() == [[0, 1, 2]]
    with pytest.raises(ingot.InvalidArgument, match="'x': a map must have numbers"):
        model({first: "b"})
    other = Node("DictVectorizer", ["x"], ["z"], domain="ai.onnx.ml", string_vocabulary=["q"])
    results = [make_value("y", [1, 3]), make_value("z", [1, 1])]
    with pytest.raises(ingot.CompileError, match=r"'x' is a map: .* with one vocabulary"):
        ingot.compile(_model([node, other], [x], results))


def test_a_map_whose_vocabulary_is_empty() -> None:
    node = Node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml")
    node.attribute.add(name="string_vocabulary", type=onnx.AttributeProto.STRINGS)
    source = _model([node], [_map(TEXT)], [make_value("y", None)])
    assert np.asarray(load_best(source)({"a": 1.0})).shape == (1, 0)
