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
from tests.support.devices import load_best
from tests.support.node_tests import interpreted
from tests.support.onnx_models import make_value
from tests.support.onnx_sequences import Node
from tests.support.onnx_strings import TEXT, WORDS, string_array, string_model


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
    model = string_model(nodes, [make_value("x", shape, TEXT), make_value("y", [2], TEXT)], outputs)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return interpreted(import_onnx(model)), session


@pytest.fixture(scope="module")
def joined() -> ingot.Model:
    """x: string[n, 2] and y: string[2], one behind the other."""
    inputs = [make_value("x", ["n", 2], TEXT), make_value("y", [2], TEXT)]
    outputs = [make_value("both", ["n", 2], TEXT), make_value("same", ["n", 2], TensorProto.BOOL)]
    nodes = [Node("StringConcat", ["x", "y"], ["both"]), Node("Equal", ["x", "y"], ["same"])]
    return load_best(string_model(nodes, inputs, outputs))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    x=st.lists(st.tuples(*[st.sampled_from([*WORDS, "abc", "nine bytes"])] * 2), max_size=6),
    y=st.lists(st.sampled_from(WORDS), min_size=2, max_size=2),
)
def test_ops_on_strings_agree_with_onnxruntime(several: tuple[Any, Any], x: Any, y: Any) -> None:
    run, session = several
    given_x, given_y = string_array(x).reshape(-1, 2), string_array(y)
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
    model = load_best(string_model(nodes, [make_value("x", [4], TEXT)], outputs))
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
    texts = string_array(["".join(chr(code) for code in codes if code not in others), "", "a"])
    node = Node("StringNormalizer", ["x"], ["y"], case_change_action=action, locale="C.UTF-8")
    model = string_model([node], [make_value("x", ["n"], TEXT)], [make_value("y", None, TEXT)])
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
        ingot.compile(string_model(nodes, inputs, [make_value("answer", ["n"], TEXT), map_value]))
    )
    answer, maps = model(np.array([1, 0]), np.array([[0.25, 0.75], [1, 0]], np.float32))
    assert answer.tolist() == ["yes", "no"]
    assert maps == [{"no": 0.25, "yes": 0.75}, {"no": 1.0, "yes": 0.0}]


def test_what_takes_no_strings_is_refused() -> None:
    model = string_model(
        [Node("Relu", ["x"], ["y"])], [make_value("x", [2], TEXT)], [make_value("y", [2])]
    )
    with pytest.raises(ingot.CompileError, match=r"Relu\(string\[2\]\).*the op takes a tensor"):
        ingot.compile(model)


@pytest.mark.parametrize("doc", ["maps of Europe", 'maps of ["a", "b"]', "UTF-8 of 'y'"])
def test_docs_of_a_model_are_no_marks_of_strings(doc: str) -> None:
    x = make_value("x", [2], TensorProto.FLOAT)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2], doc)
    model = load_best(string_model([Node("Neg", ["x"], ["y"])], [x], [y]))
    np.testing.assert_array_equal(model(np.ones(2, np.float32)), [-1, -1])


def test_strings_that_are_no_unicode_text_are_refused() -> None:
    values = [make_value(name, ["n"], TEXT) for name in "xy"]
    nodes = [Node("Identity", ["x"], ["y"])]
    model = load_best(string_model(nodes, values[:1], values[1:]))
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
    return interpreted(import_onnx(string_model(nodes, [make_value("x", ["n"], TEXT)], outputs)))


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(x=st.lists(st.text("ab \t日\n", max_size=12), max_size=4))
def test_strings_are_split_as_python_does(splitting: Any, x: list[str]) -> None:
    made = splitting([string_array(x)])
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
    model = load_best(string_model(nodes, [make_value("x", ["n", 1], TEXT)], outputs))
    words, counts, parts = model([["aaa b"], [" c"]])
    assert words.tolist() == [[["aaa", "b"]], [["c", ""]]]
    assert np.asarray(counts).tolist() == [[2], [1]]
    assert parts.tolist() == [[["", "a b"]], [[" c", ""]]]


def test_names_of_bytes_are_taken() -> None:
    x, number = make_value("x", ["n"], TEXT), make_value("x.utf8", ["n"])
    y, result = make_value("y", ["n"], TEXT), make_value("y.utf8", ["n"])
    nodes = [Node("Identity", ["x"], ["y"]), Node("Identity", ["z"], ["y.utf8"])]
    with pytest.raises(ingot.CompileError, match=r"input 'x' is .* 'x\.utf8', .* rename it"):
        import_onnx(string_model(nodes[:1], [number, x], [y]))
    with pytest.raises(ingot.CompileError, match=r"output 'y' is .* 'y\.utf8', .* rename it"):
        import_onnx(string_model(nodes, [x, make_value("z", ["n"])], [y, result]))


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
        name: string_model(
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
            import_onnx(string_model([node], [_map(TensorProto.INT64)], [make_value("y", None)]))


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
    source = string_model([node], [x], [make_value("y", [1, 3])])
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
        ingot.compile(string_model([node, other], [x], results))


def test_a_map_whose_vocabulary_is_empty() -> None:
    node = Node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml")
    node.attribute.add(name="string_vocabulary", type=onnx.AttributeProto.STRINGS)
    source = string_model([node], [_map(TEXT)], [make_value("y", None)])
    assert np.asarray(load_best(source)({"a": 1.0})).shape == (1, 0)
