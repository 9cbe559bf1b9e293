"""Tokenizer of com.microsoft, n-grams and large vocabularies, against onnxruntime; and text
pipelines of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ingot.compiler.frontends.onnx import import_onnx
from ingot.hal.errors import CompileError
from tests.support.devices import load_best
from tests.support.node_tests import interpreted
from tests.support.onnx_models import make_value
from tests.support.onnx_sequences import Node

TEXTS = np.array(
    [
        *("Red green, BLUE sea!", "", "aaa a.b  c", "éü x日本語y", "  lead and trail "),
        *("a\nb,c;;d", "foobar foo bar", "x"),
    ],
    object,
)


def _model(nodes: list[Any], x: onnx.ValueInfoProto, y: int) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [x], [make_value("y", None, y)])
    opsets = [("", 20), ("ai.onnx.ml", 4), ("com.microsoft", 1)]
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in opsets], ir_version=9
    )


def _tokenizer(rank: int, **attributes: Any) -> onnx.ModelProto:
    given: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    x = make_value("x", [f"d{axis}" for axis in range(rank)], TensorProto.STRING)
    return _model([Node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **given)], x, 8)


def _in_onnxruntime(model: onnx.ModelProto, x: Any) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize(
    "attributes",
    [
        {"tokenexp": "[a-zA-Z0-9_]+"},
        {"tokenexp": "[a-z]+", "mark": 1, "mincharnum": 3, "pad_value": "<pad>"},
        {"tokenexp": ".", "mark": 1},
        {"tokenexp": "(?s).b"},
        {"tokenexp": "foo|foobar"},  # the longest one
        {"tokenexp": "a*"},
        {"tokenexp": r"\b\w\w+\b|\bb"},
        {"tokenexp": "^[a-zA-Z]+|!$"},
        {"tokenexp": "..", "mincharnum": 2},
        {"separators": [""]},
        {"separators": [" ", ","], "mark": 1},
        {"separators": ["[ ,;]+"], "mincharnum": 2},
        {"separators": ["oo|foob"]},
        {"separators": [" ", "^a", r"\n"]},  # each sees what the ones before it left as a text
    ],
)
def test_tokens_are_those_of_onnxruntime(attributes: dict[str, Any]) -> None:
    for x in (TEXTS, TEXTS[:4].reshape(2, 2), TEXTS[1:2]):
        model = _tokenizer(x.ndim, **attributes)
        wanted = _in_onnxruntime(model, x)
        (got,) = interpreted(import_onnx(model))([x])
        assert got.shape == wanted.shape
        assert got.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"separators": ["a*"]}, r"its separator 'a\*' may match no character"),
        ({"mincharnum": 0, "tokenexp": "a"}, "its mincharnum is 0"),
        ({}, "it has tokenexp and separators, or neither"),
        ({"tokenexp": "("}, "its pattern"),
    ],
)
def test_tokenizers_of_no_meaning_are_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        import_onnx(_tokenizer(1, **attributes))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_ngrams_of_sequences_of_any_length(mode: str) -> None:
    node = Node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=1, max_gram_length=3,
        max_skip_count=2, ngram_counts=[0, 3, 7], ngram_indexes=[4, 0, 2, 1, 5, 3],
        pool_int64s=[7, -2, 5, 7, 5, 5, 5, 1, 7, 5], weights=[0.5, 2.0, 3.0, 1.0, 4.0, 1.5],
    )  # fmt: skip
    model = _model([node], make_value("x", ["b", "n"], TensorProto.INT64), TensorProto.FLOAT)
    rng = np.random.default_rng(0)
    for length in (9, 2, 1):
        x = rng.choice(np.array([7, -2, 5, 1, 9]), (3, length))
        (got,) = interpreted(import_onnx(model))([x])
        np.testing.assert_allclose(got, _in_onnxruntime(model, x), rtol=1e-6)


def test_words_are_found_among_many() -> None:
    rng = np.random.default_rng(1)
    words = ["", "a", "a" * 8, "a" * 9, "a" * 17, "日本語 text"]
    words += ["".join(rng.choice(list("ab"), size)) for size in rng.integers(1, 20, 60)]
    known = list(dict.fromkeys(words))
    values = {"keys_strings": known, "values_int64s": [*range(len(known))], "default_int64": -1}
    node = Node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **values)
    model = _model([node], make_value("x", ["n"], TensorProto.STRING), TensorProto.INT64)
    others = ["b" * 20, "a\0", "a" * 16, "A", "日本語"]
    x = np.array([*words, *others], object)
    (got,) = interpreted(import_onnx(model))([x])
    assert got.tolist() == [*(known.index(each) for each in words), *[-1] * 5]


@pytest.mark.slow
def test_a_text_pipeline_of_scikit_learn() -> None:
    """As skl2onnx writes it; onnxruntime needs a locale to lower the case."""
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    skl2onnx = pytest.importorskip("skl2onnx")
    texts = ["Red green, BLUE sea!", "the sea is blue_2 a", "a sea-sky with 7 reds", "red? sea!"]
    vectorizer = text.TfidfVectorizer(token_pattern="[a-zA-Z0-9_]+", ngram_range=(1, 2))
    model = pipeline.make_pipeline(vectorizer, linear.LogisticRegression())
    model.fit(texts, [0, 1, 0, 1])
    kind = skl2onnx.common.data_types.StringTensorType([None, 1])
    options = {"zipmap": False}
    made = skl2onnx.to_onnx(model, initial_types=[("x", kind)], target_opset=21, options=options)
    asked = ["red green sea", "the day", "zzz", "BLUE blue, blue"]
    label, scores = load_best(made).main([[each] for each in asked])
    assert np.asarray(label).tolist() == model.predict(asked).tolist()
    np.testing.assert_allclose(scores, model.predict_proba(asked), atol=1e-6)
