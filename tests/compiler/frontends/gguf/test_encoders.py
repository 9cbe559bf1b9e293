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
from tests.support.cut_texts import PIECES
from tests.support.encoders import COUNTS, ENCODER_KEYS, ENCODERS, TEXTS
from tests.support.language import write_model


def _expected(name: str) -> Any:
    with np.load(Path(__file__).parent / "encoders.npz") as found:
        return found[name]


def test_there_is_a_model_of_each_architecture() -> None:
    known = {name for name, each in ARCHITECTURES.items() if each.is_encoder}
    assert known == set(ENCODERS) - {"qwen3"}


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    """Of three texts in one call, where that makes one by one; it looks up a GELU of f16, with
    tanh."""
    path, expected = tmp_path / "model.gguf", _expected(name)
    write_model(path, ENCODERS[name], tokenizer=ENCODER_KEYS)
    module = import_gguf(path)
    verify(module, GRAPH)
    counts = np.array(COUNTS, np.int64)
    (got,) = interpret(module, "embed", [counts, TEXTS], Gguf(path).parameters(), {})
    is_rounded = "gelu" in ARCHITECTURES[ENCODERS[name].architecture].activation
    bound = (1e-3 if is_rounded else 2e-6) * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=bound)


@pytest.mark.parametrize(
    ("name", "metadata", "options", "message"),
    [
        ("bert", {"pooling_type": 0}, {}, r"'bert.pooling_type' is 0, expected 1 \(the mean"),
        ("bert", {"pooling_type": None}, {}, "'bert.pooling_type' is missing, expected 1"),
        ("bert", {"pooling_type": 4}, {}, "'bert.pooling_type' is 4, expected 1"),
        ("bert", {}, {"verify": True, "cache": "f16"}, "so verify and cache cannot be chosen"),
        ("bert", {}, {"sequences": 2}, "a call of `embed` takes many texts"),
        ("bert", {}, {"capacity": 65}, "the capacity is 65, but the model has 64 positions"),
        ("qwen3", {"attn_logit_softcapping": 5.0}, {}, "its layers have limits of scores"),
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
