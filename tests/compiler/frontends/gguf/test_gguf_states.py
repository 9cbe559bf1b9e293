"""Language models with layers whose state goes from token to token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.graph.interpreter import interpret
from ingot.hal.gguf import Gguf
from tests.support.language import IDS, KEYS, PEER_SHAPES, write_model

STATES = ("qwen3next", "qwen35moe", "granitehybrid", "nemotron_h experts")


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
