"""Layers with windows hold a ring: logits far behind its end are those of the whole text, also
after tokens were taken back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.frontends.gguf.cache import SLACK
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir.verifier import verify
from ingot.hal.gguf import Gguf
from tests.support.language import KEYS, write_model
from tests.support.language_logits import logits
from tests.support.language_shapes import SHAPES, UNDEFINED

IDS = np.random.default_rng(2).integers(0, 100, 160).astype(np.int32)
WINDOWED = [name for name, shape in SHAPES.items() if shape.has_window(0)]


def _close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", WINDOWED)
def test_logits_behind_the_end_of_a_ring(name: str, tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", replace(SHAPES[name], context=256)
    expected = logits(shape, write_model(path, shape), IDS)
    module = import_gguf(path)
    verify(module, GRAPH)
    window = shape.metadata.get("attention.sliding_window", shape.metadata.get("shortconv.l_cache"))
    parts = (".k", ".rows")
    lengths = [each.type.shape[1] for key, each in module.variables.items() if key.endswith(parts)]
    wanted = [window + SLACK if shape.has_window(n) else 256 for n in range(shape.layers)]
    assert lengths == wanted
    parameters, state = Gguf(path).parameters(), {}
    for start, end in ((0, 1), (1, 9), (9, 90), (90, 92), (92, 155)):
        (got,) = interpret(module, "prefill", [IDS[start:end]], parameters, state)
        _close(got, expected[end - 1])
    for place in range(155, 158):
        (got,) = interpret(module, "decode", [IDS[place]], parameters, state)
        _close(got, expected[place])
    for length in (120, 158 - SLACK):
        interpret(module, "rewind", [np.int64(length)], parameters, state)
        for place in range(length, length + 2):
            (got,) = interpret(module, "decode", [IDS[place]], parameters, state)
            _close(got, expected[place])
    kept = rf"rewound is {158 - SLACK - 1}, expected {158 - SLACK} to"
    with pytest.raises(ingot.OutOfRange, match=kept):
        interpret(module, "rewind", [np.int64(158 - SLACK - 1)], parameters, state)
    interpret(module, "rewind", [np.int64(0)], parameters, state)
    (got,) = interpret(module, "prefill", [IDS[:30]], parameters, state)
    _close(got, expected[29])
    interpret(module, "rewind", [np.int64(3)], parameters, state)


@pytest.mark.slow
def test_a_compiled_ring_is_written_in_place(tmp_path: Path) -> None:
    """All layers have windows, so the capacity is that of the model, in little memory."""
    path = tmp_path / "model.gguf"
    shape = replace(SHAPES["phi3"], context=1 << 16, vocabulary=264)
    weights = write_model(path, shape, tokenizer=KEYS)
    expected = logits(shape, weights, IDS)
    language = ingot.LanguageModel(path)
    model = language.model
    assert language.capacity == 1 << 16
    for start, end in ((0, 40), (40, 149)):
        _close(model.prefill(IDS[start:end]).numpy(), expected[end - 1])
    for place in range(149, 160):
        _close(model.decode(IDS[place]).numpy(), expected[place])
    with model.trace() as trace:
        model.decode(IDS[0])
    assert not [each for each in trace if each.kernel == "copy" and each.length > 4096]
    language.ids = [*IDS.tolist(), int(IDS[0])]
    for ids in (IDS[:120], IDS[:40]):  # what can be taken back, and what is computed anew
        language.hold(ids.tolist())
        _close(model.state()["logits"].numpy(), expected[len(ids) - 1])


def test_layers_that_attend_to_the_rings_of_others(tmp_path: Path) -> None:
    """One prompt and many calls; the last layers have no caches."""
    path, shape = tmp_path / "model.gguf", replace(UNDEFINED["gemma4"], context=256)
    write_model(path, replace(shape, vocabulary=264))
    module, parameters = import_gguf(path), Gguf(path).parameters()
    layers = [key.split(".")[1] for key in module.variables if key.endswith(".k")]
    assert layers == ["0", "1"]
    (expected,) = interpret(module, "prefill", [IDS], parameters, {})
    state: dict[str, Any] = {}
    for start, end in ((0, 70), (70, 71), (71, 158)):
        interpret(module, "prefill", [IDS[start:end]], parameters, state)
    for id in IDS[158:]:
        (got,) = interpret(module, "decode", [id], parameters, state)
    _close(got, expected)
