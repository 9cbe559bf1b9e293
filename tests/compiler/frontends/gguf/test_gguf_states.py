"""Language models with layers whose state goes from token to token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.frontends.gguf.chunks import LENGTH, Steps, passed
from ingot.compiler.frontends.gguf.configuration import Recurrence
from ingot.compiler.frontends.gguf.feature_chunks import FeatureChunk
from ingot.compiler.frontends.gguf.in_turn import passed_in_turn
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Block, Function, Module, Region, TensorType
from ingot.hal.gguf import Gguf
from ingot.hal.spec import dtype
from tests.support.language import IDS, KEYS, PEER_SHAPES, write_model

STATES = ("qwen3next", "qwen35moe", "granitehybrid", "nemotron_h experts", "jamba", "rwkv7")


def _expected(name: str) -> Any:
    """What llama.cpp makes of all of IDS."""
    with np.load(Path(__file__).parent / "llama_cpp.npz") as found:
        return found[name]


def _close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


def test_a_text_begins_anew_or_goes_on(tmp_path: Path) -> None:
    """States cannot go back: `rewind` to the start clears them, and to where they are does nothing;
    all else is refused, and leaves them."""
    path = tmp_path / "model.gguf"
    write_model(path, PEER_SHAPES["qwen35"], tokenizer=KEYS)
    module, parameters = import_gguf(path), Gguf(path).parameters()
    state: dict[str, Any] = {}

    def call(name: str, *arguments: Any) -> Any:
        return interpret(module, name, arguments, parameters, state)

    call("prefill", IDS[::-1].copy())
    with pytest.raises(ingot.OutOfRange, match="rewound is 4, expected 9"):
        call("rewind", np.int64(4))
    call("rewind", np.int64(0))
    call("prefill", IDS[:8])
    call("rewind", np.int64(8))
    _close(call("decode", IDS[8])[0], _expected("qwen35"))
    ids, count = call(
        "generate", np.int64(3), np.zeros(0, np.int32), np.float32(0), np.int32(0), np.float32(1),
        np.float32(0), np.float32(1), np.int64(0),
    )  # fmt: skip
    assert count == 3
    assert ids[0] == _expected("qwen35").argmax()
    assert state["length"] == len(IDS) + 3


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_a_compiled_model(name: str, tmp_path: Path) -> None:
    """A prompt shorter than a convolution, one behind it, and tokens."""
    path = tmp_path / "model.gguf"
    write_model(path, PEER_SHAPES[name], tokenizer=KEYS)
    module = ingot.compile(path, variants=["x86-64-v3"], capacity=32)
    model = ingot.load(module, parameters=path)
    model.prefill(IDS[:2])
    model.prefill(IDS[2:7])
    other = model.fork()
    for each in (model, other):
        each.decode(IDS[7])
        _close(each.decode(IDS[8]).numpy(), _expected(name))
    model.rewind(np.int64(0))
    _close(model.prefill(IDS).numpy(), _expected(name))


def test_drafts_and_texts_together_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, PEER_SHAPES["qwen35"], tokenizer=KEYS)
    for options in ({"verify": True}, {"sequences": 2}):
        with pytest.raises(ingot.CompileError, match="state goes from token to token and cannot"):
            import_gguf(path, **options)


@pytest.mark.parametrize("has_beta", [True, False])
@pytest.mark.parametrize("takes_turns", [True, False])
def test_chunks_are_what_tokens_are_one_by_one(has_beta: bool, takes_turns: bool) -> None:
    """Also equal keys, for which powers of the triangle are large, and strong decays."""
    r = Recurrence(has_beta, takes_turns, 2, 4, 8, 6)
    count, random = 2 * LENGTH + 5, np.random.default_rng(3)
    query, key = (random.normal(size=(count, 2, 8)).astype(np.float32) for _ in range(2))
    key[LENGTH:] = key[LENGTH]
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value = random.normal(size=(count, 4, 6)).astype(np.float32)
    decay = -random.choice([0, 1e-3, 0.3, 40], (count, 4)).astype(np.float32)
    beta = random.choice([0.5, 1.0], (count, 4)).astype(np.float32)
    state = random.normal(size=(4, 8, 6)).astype(np.float32)
    types = [TensorType(dtype("f32"), x.shape) for x in (query, key, value, decay, beta, state)]
    block = Block(types)
    b, given = Builder(block), block.arguments
    steps = Steps(*given[:4], given[4] if has_beta else None)
    b.return_(*passed(b, r, steps, given[5]))
    module = Module()
    module.add(Function("main", Region([block]), list("qkvdbs"), ["state", "y"]))
    got = interpret(module, "main", [query, key, value, decay, beta, state], {}, {})
    heads = np.arange(4) % 2 if takes_turns else np.arange(4) // 2
    expected, s = np.zeros((count, 4, 6)), state.astype(np.float64)
    for i in range(count):
        s = s * np.exp(decay[i].astype(np.float64))[:, None, None]
        k, q = key[i, heads], query[i, heads]
        d = value[i] - np.einsum("hk,hkv->hv", k, s) if has_beta else value[i]
        s = s + k[:, :, None] * (d * (beta[i][:, None] if has_beta else 1))[:, None]
        expected[i] = np.einsum("hk,hkv->hv", q, s)
    for each, wanted in zip(got, (s, expected), strict=True):
        np.testing.assert_allclose(each, wanted, atol=3e-6 * np.abs(wanted).max())


def test_chunks_of_features_that_decay_are_what_tokens_are_one_by_one() -> None:
    """Equal keys, and features that stay, fade or go at once."""
    r = Recurrence(True, False, 3, 3, 8, 6, has_own_decays=True)
    count, random = 2 * FeatureChunk.length + 5, np.random.default_rng(5)
    query, key = (random.normal(size=(count, 3, 8)).astype(np.float32) for _ in range(2))
    key[FeatureChunk.length :] = key[FeatureChunk.length]
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value = random.normal(size=(count, 3, 6)).astype(np.float32)
    decay = -random.choice([0, 1e-3, 0.3, 40, 200], (count, 3, 8)).astype(np.float32)
    beta = random.choice([0.5, 1.0], (count, 3)).astype(np.float32)
    state = random.normal(size=(3, 8, 6)).astype(np.float32)
    arguments = [query, key, value, decay, beta, state]
    block = Block([TensorType(dtype("f32"), x.shape) for x in arguments])
    b, (*rows, last) = Builder(block), block.arguments
    b.return_(*passed(b, r, Steps(*rows), last))
    module = Module()
    module.add(Function("main", Region([block]), list("qkvdbs"), ["state", "y"]))
    got = interpret(module, "main", arguments, {}, {})
    expected, s = np.zeros((count, 3, 6)), state.astype(np.float64)
    for i in range(count):
        s = s * np.exp(decay[i].astype(np.float64))[..., None]
        d = (value[i] - np.einsum("hk,hkv->hv", key[i], s)) * beta[i][:, None]
        s = s + key[i][..., None] * d[:, None]
        expected[i] = np.einsum("hk,hkv->hv", query[i], s)
    for each, wanted in zip(got, (s, expected), strict=True):
        np.testing.assert_allclose(each, wanted, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("has_beta", [True, False])
def test_features_of_keys_decay_each_by_itself(count: int, has_beta: bool) -> None:
    """By numbers of their own, or by one of the head times a rate of the feature."""
    random, heads, keys, values = np.random.default_rng(4), 3, 8, 1 if has_beta else 4
    query, key = (random.normal(size=(count, 1, keys)).astype(np.float32) for _ in range(2))
    value = random.normal(size=(count, heads, values)).astype(np.float32)
    state = random.normal(size=(heads, keys, values)).astype(np.float32)
    rates = -random.random((heads, keys)).astype(np.float32)
    steps = random.random((count, heads)).astype(np.float32)
    decay = steps if has_beta else steps[..., None] * rates
    beta = random.random((count, heads)).astype(np.float32)
    arguments = [query, key, value, decay, beta, rates, state]
    block = Block([TensorType(dtype("f32"), x.shape) for x in arguments])
    b, (*rows, wide, last) = Builder(block), block.arguments
    passing = Steps(*rows) if has_beta else Steps(*rows[:4], None)
    passing = replace(passing, rates=wide) if has_beta else passing
    r = Recurrence(has_beta, False, 1, heads, keys, values)
    b.return_(*passed_in_turn(b, r, passing, last))
    module = Module()
    module.add(Function("main", Region([block]), list("qkvdbrs"), ["state", "y"]))
    got = interpret(module, "main", arguments, {}, {})
    s, expected = state.astype(np.float64), np.zeros((count, heads, values))
    for i in range(count):
        s = s * np.exp(steps[i, :, None].astype(np.float64) * rates)[..., None]
        d = value[i]
        if has_beta:
            d = (d - np.einsum("k,hkv->hv", key[i, 0], s)) * beta[i][:, None]
        s = s + key[i, 0][:, None] * d[:, None]
        expected[i] = np.einsum("k,hkv->hv", query[i, 0], s)
    for each, wanted in zip(got, (s, expected), strict=True):
        np.testing.assert_allclose(each, wanted, atol=3e-6 * np.abs(wanted).max())
