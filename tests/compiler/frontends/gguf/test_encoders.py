"""Models of GGUF files that make vectors of texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.frontends.gguf.architectures import ARCHITECTURES
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir.verifier import verify
from ingot.hal.gguf import Gguf
from ingot.language.tokenizer import FileTokenizer
from tests.support.cut_texts import PIECES
from tests.support.encoders import COUNTS, ENCODER_KEYS, ENCODERS, TEXTS
from tests.support.language import write_model


def _expected(name: str) -> Any:
    with np.load(Path(__file__).parent / "encoders.npz") as found:
        return found[name]


def test_there_is_a_model_of_each_architecture() -> None:
    known = {name for name, each in ARCHITECTURES.items() if each.is_encoder}
    known -= {"t5encoder"}
    decoders = {"qwen3", "qwen3 ranked"}
    assert known == {name.removesuffix(" ranked") for name in set(ENCODERS) - decoders}


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    """Of three texts in one call, where that makes one by one; it looks up a GELU of f16, with
    tanh."""
    path, expected = tmp_path / "model.gguf", _expected(name)
    write_model(path, ENCODERS[name], tokenizer=ENCODER_KEYS)
    module = import_gguf(path)
    verify(module, GRAPH)
    counts = np.array(COUNTS, np.int64)
    (function,) = (each for each in module.functions.values() if each.name != "capacity")
    kinds = [np.zeros_like(TEXTS)] * (len(function.argument_names) - 2)
    arguments = [counts, TEXTS, *kinds]
    (got,) = interpret(module, function.name, arguments, Gguf(path).parameters(), {})
    assert function.name == ("rank" if "ranked" in name else "embed")
    is_rounded = "gelu" in ARCHITECTURES[ENCODERS[name].architecture].activation
    bound = (1e-3 if is_rounded else 2e-6) * max(np.abs(expected).max(), 1)
    np.testing.assert_allclose(got, expected, atol=bound)


@pytest.mark.parametrize(
    ("name", "metadata", "options", "message"),
    [
        ("bert", {"pooling_type": None}, {}, r"pooling_type' is missing, expected 0 \(a vector"),
        ("bert", {"pooling_type": 5}, {}, "'bert.pooling_type' is 5, expected 0"),
        ("bert", {}, {"verify": True, "cache": "f16"}, "so verify and cache cannot be chosen"),
        ("bert", {}, {"sequences": 2}, "a call of `embed` takes many texts"),
        ("bert", {}, {"capacity": 65}, "the capacity is 65, but the model has 64 positions"),
        ("qwen3", {"attn_logit_softcapping": 5.0}, {}, "its layers have limits of scores"),
        ("bert ranked", {"classifier.output_labels": ["yes", "no"]}, {}, "has 1 scores, but"),
    ],
)
def test_what_cannot_be_is_refused(
    name: str, metadata: Any, options: Any, message: str, tmp_path: Path
) -> None:
    path, shape = tmp_path / "model.gguf", ENCODERS[name]
    keys = {**shape.metadata, **metadata}
    keys = {key: value for key, value in keys.items() if value is not None}
    write_model(path, replace(shape, metadata=keys))
    with pytest.raises(ingot.CompileError, match=message):
        import_gguf(path, **options)


def test_labels_that_are_no_texts_choose_nothing(tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", ENCODERS["bert ranked"]
    labels = {"classifier.output_labels": [1, 2]}
    write_model(path, replace(shape, metadata=shape.metadata | labels))
    (scores,) = import_gguf(path).functions["rank"].result_types
    assert scores.shape[1] == 1


@pytest.mark.slow
def test_texts_become_vectors(tmp_path: Path) -> None:
    """By their own tokens, in calls of some; those of a text are the same in each."""
    path = tmp_path / "model.gguf"
    with np.load(PIECES) as found:
        keys = json.loads(str(found["bert keys"]))
    shape = replace(ENCODERS["eurobert"], layers=1, vocabulary=len(keys["ggml.tokens"]))
    write_model(path, shape, tokenizer=keys)
    model = ingot.EmbeddingModel(path, capacity=20)
    texts = ["hello " * count for count in (18, 1, 3)] * 70
    vectors = model.embed(texts)
    assert vectors.shape == (210, 64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[3:], vectors[:-3], atol=1e-5)
    raw = model.embed(texts[2], unit=False)
    np.testing.assert_allclose(raw / np.linalg.norm(raw), vectors[2], atol=1e-5)
    parameters, ids = Gguf(path).parameters(), model.tokenizer.whole(texts[2])
    arguments = [np.array([len(ids)]), np.array(ids, np.int32)]
    (expected,) = interpret(import_gguf(path), "embed", arguments, parameters, {})
    np.testing.assert_allclose(raw, expected[0], atol=2e-5 * np.abs(expected).max())
    assert model.embed([]).shape == (0, 64)
    with pytest.raises(ingot.OutOfRange, match="text 1 has 21 tokens, but the model sees 1 to 20"):
        model.embed(["hello", "hello " * 19])
    with pytest.raises(ingot.OutOfRange, match=r"the greatest of 'counts' is 21, expected 0 to 20"):
        model.model.embed(np.array([21]), np.zeros(21, np.int32))
    with pytest.raises(ingot.InvalidArgument, match=r"make an ingot\.EmbeddingModel of it"):
        ingot.LanguageModel(path)
    write_model(path, replace(ENCODERS["qwen3"], metadata={}), tokenizer=ENCODER_KEYS)
    with pytest.raises(ingot.InvalidArgument, match=r"make an ingot\.LanguageModel of it"):
        ingot.EmbeddingModel(path)


@pytest.mark.slow
def test_texts_are_ranked(tmp_path: Path) -> None:
    """By a query and a document together; a model that has a template for these by that."""
    path = tmp_path / "model.gguf"
    with np.load(PIECES) as found:
        keys = json.loads(str(found["bert keys"]))
    shape = replace(ENCODERS["bert ranked"], layers=1, vocabulary=len(keys["ggml.tokens"]))
    write_model(path, shape, tokenizer=keys)
    model = ingot.Reranker(path, capacity=24)
    documents = ["hello " * count for count in (9, 1, 4)]
    ids, kinds = model.tokenizer.pair("he", documents[2])
    query, document = (model.tokenizer.whole(text) for text in ("he", documents[2]))
    assert ids == query + document[1:]
    assert kinds == [0] * len(query) + [1] * (len(document) - 1)
    arguments = [np.array([len(ids)]), np.array(ids, np.int32), np.array(kinds, np.int32)]
    (expected,) = interpret(import_gguf(path), "rank", arguments, Gguf(path).parameters(), {})
    scores = model.score("he", documents)
    np.testing.assert_allclose(scores[2], expected[0, 0], atol=1e-5)
    ranked = model.rank("he", documents)
    assert [number for number, _ in ranked] == np.argsort(-scores).tolist()
    with pytest.raises(ingot.InvalidArgument, match="documents is 'hello', expected a list"):
        model.score("he", "hello")
    with pytest.raises(
        ingot.OutOfRange, match=r"text 0 has \d+ tokens, but the model sees 1 to 24"
    ):
        model.score("he", ["hello " * 30])
    with pytest.raises(ingot.InvalidArgument, match=r"make an ingot\.Reranker of it"):
        ingot.EmbeddingModel(path)
    write_model(path, replace(shape, own={**shape.own, "cls.output.weight/": (3, 64),
                                          "cls.output.bias/": (3,)}), tokenizer=keys)  # fmt: skip
    with pytest.raises(ingot.InvalidArgument, match="gives 3 scores for each text, expected 1"):
        ingot.Reranker(path)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"chat_template.rerank": "{document}<|end|>{query}{query}"}, "hell{query}<|end|>hehe"),
        ({"ggml.add_eos_token": True}, "he<|end|>hell{query}<|end|>"),
        ({"ggml.add_eos_token": True, "ggml.add_sep_token": True,
          "ggml.seperator_token_id": 261}, "he<|end|><|user|>hell{query}<|end|>"),
    ],
)  # fmt: skip
def test_two_texts_become_one(keys: Any, expected: str) -> None:
    metadata = {f"tokenizer.{key}": value for key, value in (ENCODER_KEYS | keys).items()}
    tokenizer = FileTokenizer(metadata)
    ids, kinds = tokenizer.pair("he", "hell{query}")
    assert ids == tokenizer.encode(expected)
    assert kinds == [0] * len(ids)
