"""Models with an encoder: what they make of texts, beside llama.cpp, and texts that they write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.frontends.gguf.halves_configuration import Relative
from ingot.compiler.frontends.gguf.relative import _buckets
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir.verifier import verify
from ingot.hal.gguf import Gguf
from tests.support.halves import HALVES, SOURCE, TARGET
from tests.support.language import KEYS, write_model


def _expected(name: str) -> Any:
    with np.load(Path(__file__).parent / "encoders.npz") as found:
        return found[name]


@pytest.mark.parametrize("name", HALVES)
def test_results_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    """Which looks up a GELU of f16."""
    path, expected = tmp_path / "model.gguf", _expected(name)
    write_model(path, HALVES[name])
    module, parameters = import_gguf(path, capacity=64), Gguf(path).parameters()
    verify(module, GRAPH)
    state: dict[str, Any] = {}
    if "encode" in module.functions:
        interpret(module, "encode", [SOURCE], parameters, state)
        (first,) = interpret(module, "prefill", [TARGET[:5]], parameters, state)
        for id in TARGET[5:]:
            (last,) = interpret(module, "decode", [id], parameters, state)
        got = np.array([first, last])
    else:
        (got,) = interpret(module, "embed_tokens", [np.array([40]), SOURCE], parameters, state)
    bound = (3e-3 if HALVES[name].normed else 4e-6) * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=bound)


@pytest.mark.parametrize(
    ("metadata", "options", "message"),
    [
        ({}, {"sequences": 2, "verify": True}, "has an encoder .* verify and sequences cannot be"),
        ({"attention.relative_buckets_count": 2}, {}, "distances up to 128 are in 2 buckets"),
        ({"decoder_block_count": 3}, {}, "tensor 'dec.blk.2.attn_q.weight' is missing"),
        ({"block_count": 2}, {}, "tensors belong to nothing .* 'enc.blk.2.attn_norm.weight'"),
    ],
)
def test_what_cannot_be_is_refused(
    metadata: Any, options: Any, message: str, tmp_path: Path
) -> None:
    path, shape = tmp_path / "model.gguf", HALVES["t5"]
    names = {*write_model(path, shape)}
    write_model(path, replace(shape, metadata=shape.metadata | metadata), names=names)
    with pytest.raises(ingot.CompileError, match=message):
        import_gguf(path, **options)


def test_distances_are_in_the_buckets_of_transformers() -> None:
    """Also those at which one begins, which are what rounding makes of them."""
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    for sizes in ((32, 128), (8, 9), (100, 512), (7, 20)):
        buckets, farthest = sizes
        distances = torch.arange(-farthest, farthest + 1)
        for has_both in (True, False):
            expected = t5.T5Attention._relative_position_bucket(
                distances, bidirectional=has_both, num_buckets=buckets, max_distance=farthest
            )
            np.testing.assert_array_equal(_buckets(Relative(*sizes), has_both), expected.numpy())


@pytest.mark.slow
def test_texts_follow_from_what_was_read(tmp_path: Path) -> None:
    """As the interpreter chooses tokens; each prompt is read anew."""
    path = tmp_path / "model.gguf"
    write_model(path, HALVES["t5 gated"], tokenizer={**KEYS, "ggml.add_eos_token": True})
    model, parameters = ingot.LanguageModel(path, capacity=48), Gguf(path).parameters()
    module = import_gguf(path, capacity=48)
    with pytest.raises(ingot.OutOfRange, match="the tokens that `encode` has read, is 0"):
        model.model.decode(np.int32(3))
    for prompt in ("hello", "well, well"):
        ids, state = model.tokenizer.encode(prompt), dict[str, Any]()
        assert model.tokenizer.whole(prompt) == [*ids, 260]
        interpret(module, "encode", [np.array([*ids, 260], np.int32)], parameters, state)
        chosen = [3]
        for _ in range(6):
            arguments = [np.int32(chosen[-1])]
            (logits,) = interpret(module, "decode", arguments, parameters, state)
            chosen.append(int(logits.argmax()))
        text = "".join(model.generate(prompt, max_tokens=6, temperature=0))
        assert model.ids == chosen[: len(model.ids)]
        assert text == model.tokenizer.decode(model.ids[1:])
    with pytest.raises(ingot.OutOfRange, match="the prompt has 61 tokens, but the cache has room"):
        model.generate([5] * 61).__next__()


@pytest.mark.slow
def test_tokens_become_vectors(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, HALVES["t5encoder"], tokenizer=KEYS)
    model = ingot.EmbeddingModel(path, capacity=48)
    texts = ["hello", "well, well", "he"]
    for text, vectors in zip(texts, model.embed(texts, unit=False), strict=True):
        ids = np.array(model.tokenizer.whole(text), np.int32)
        arguments = [np.array([len(ids)]), ids]
        parameters = Gguf(path).parameters()
        (expected,) = interpret(import_gguf(path), "embed_tokens", arguments, parameters, {})
        np.testing.assert_allclose(vectors, expected, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(np.linalg.norm(model.embed("hello"), axis=1), 1, rtol=1e-5)
