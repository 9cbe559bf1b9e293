"""Several texts in one cache: their logits are those of each alone, whatever the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.compiler.frontends.attributes import ADAPTERS
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.ops import Parameter
from ingot.compiler.ir import walk
from ingot.compiler.ir.verifier import verify
from ingot.hal.adapter import read_adapter
from ingot.hal.errors import CompileError
from ingot.hal.gguf import Gguf
from ingot.language.adapters import Room
from tests.support.adapters import merged, random_pairs, write_gguf
from tests.support.language import write_model
from tests.support.language_logits import logits
from tests.support.language_shapes import SHAPES

FIRST = np.random.default_rng(0).integers(0, 100, 12).astype(np.int32)
SECOND = np.random.default_rng(1).integers(0, 100, 9).astype(np.int32)


def _close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


class Interpreted:
    """The functions of a module, by the interpreter, over one state."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.module = import_gguf(path, **options)
        verify(self.module, GRAPH)
        self.parameters, self.state = Gguf(path).parameters(), {}

    def __call__(self, name: str, *arguments: Any) -> Any:
        values = [np.asarray(each) for each in arguments]
        self.results = interpret(self.module, name, values, self.parameters, self.state)
        return self.results[0] if self.results else None


def prefill(model: Interpreted, texts: dict[int, Any]) -> Any:
    """Put tokens behind those of some slots in one call."""
    counts = np.int64([len(each) for each in texts.values()])
    return model("prefill", np.int64(list(texts)), counts, np.concatenate(list(texts.values())))


@pytest.mark.parametrize("name", SHAPES)
def test_texts_of_unequal_length_are_those_of_each_alone(name: str, tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", SHAPES[name]
    weights = write_model(path, shape)
    first, second = (logits(shape, weights, ids) for ids in (FIRST, SECOND))
    model = Interpreted(path, sequences=3, capacity=40, cache_tokens=120)
    assert model("capacity") == 40
    model("place", np.int64(0), np.int64(0), np.int32([1]))
    model("place", np.int64(2), np.int64(0), np.int32([0]))
    _close(prefill(model, {0: FIRST[:3]}), first[2:3])
    _close(prefill(model, {2: SECOND[:4]}), second[3:4])
    together = {0: FIRST[3:8], 2: SECOND[4:5]}
    _close(prefill(model, together), np.stack([first[7], second[4]]))
    for place in range(4):
        got = model("decode", np.int64([2, 0]), np.int32([SECOND[5 + place], FIRST[8 + place]]))
        _close(got, np.stack([second[5 + place], first[8 + place]]))


def test_drafted_tokens_stay_as_far_as_the_model_would_choose_them(tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", SHAPES["llama"]
    weights = write_model(path, shape)
    texts = {2: SECOND[:5].tolist(), 0: FIRST[:3].tolist()}
    start = {slot: np.int32(ids) for slot, ids in texts.items()}
    for ids in texts.values():
        for _ in range(6):
            ids.append(int(logits(shape, weights, np.int32(ids))[-1].argmax()))
    model = Interpreted(path, sequences=3, capacity=40, cache_tokens=120, verify=True)
    for page, slot in enumerate(texts):
        model("place", np.int64(slot), np.int64(0), np.int32([page]))
    prefill(model, start)
    greedy = [np.zeros(2, np.float32), np.int32([0, 0]), *[np.ones(2, np.float32)] * 3]
    greedy.append(np.int64([0, 0]))
    slots = np.int64([2, 0])

    def wrong(id: int) -> int:
        return (id + 1) % shape.vocabulary

    second, first = texts[2][5:], texts[0][3:]
    drafted = [second[0], second[1], wrong(second[2]), wrong(first[0])]
    counts = model("verify", slots, np.int64([3, 1]), np.int32(drafted), *greedy)
    assert counts.tolist() == [2, 0]
    assert model.results[1].tolist() == [second[2], first[0]]
    drafted = [second[2], first[0], first[1], first[2], first[3]]
    assert model("verify", slots, np.int64([1, 4]), np.int32(drafted), *greedy).tolist() == [1, 4]
    assert model.results[1].tolist() == [second[3], first[4]]
    assert model("choose", slots, *greedy).tolist() == [second[3], first[4]]
    got = model("decode", slots, np.int32([second[3], first[4]]))
    assert got.argmax(1).tolist() == [second[4], first[5]]


def test_a_fork_goes_on_in_pages_of_both(tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", SHAPES["llama"]
    weights = write_model(path, shape)
    other = np.concatenate([FIRST[:8], SECOND[:4]])
    expected = [logits(shape, weights, ids) for ids in (FIRST, other)]
    model = Interpreted(path, sequences=2, capacity=64, cache_tokens=128)
    model("place", np.int64(0), np.int64(0), np.int32([0]))
    prefill(model, {0: FIRST[:8]})
    model("copy_slot", np.int64(0), np.int64(1), np.int32([1]))
    model("copy_page", np.int64(0), np.int64(1))
    for place in range(8, 12):
        got = model("decode", np.int64([0, 1]), np.int32([FIRST[place], other[place]]))
        _close(got, np.stack([each[place] for each in expected]))
    greedy = [np.zeros(2, np.float32), np.int32([0, 0]), *[np.ones(2, np.float32)] * 3]
    ids = model("choose", np.int64([1, 0]), *greedy, np.int64([0, 0]))
    assert ids.tolist() == [int(each[11].argmax()) for each in expected[::-1]]


def test_adapters_change_all_texts(tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", SHAPES["llama"]
    weights = write_model(path, shape)
    pairs = random_pairs({"blk.0.attn_q": weights["blk.0.attn_q.weight"].shape}, 2)
    adapter = write_gguf(tmp_path / "adapter.gguf", pairs, 4.0)
    expected = logits(shape, merged(weights, pairs, 2.0), FIRST)
    model = Interpreted(path, sequences=2, capacity=40, cache_tokens=80, lora=[adapter])
    read = [Parameter.of(op) for op in walk(model.module) if op.name == "parameter"]
    room = Room(
        model.module.attributes[ADAPTERS],
        {each.key: each.shape for each in read if each.scope == "lora"},
    )
    room.add(read_adapter(adapter), 1.0)
    model.parameters = {**model.parameters, **room.arrays}
    model("place", np.int64(1), np.int64(0), np.int32([0]))
    _close(prefill(model, {1: FIRST[:5]})[0], expected[4])
    _close(model("decode", np.int64([1]), FIRST[5:6])[0], expected[5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequences": 0}, "sequences is 0, expected 1 to 256"),
        ({"sequences": 2, "cache_tokens": 39, "capacity": 40}, "cache_tokens is 39, expected 40,"),
        ({"sequences": 2, "cache_tokens": 81, "capacity": 40}, "to 80, that of all 2"),
        ({"cache_tokens": 81}, "give sequences too"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_model(tmp_path / "model.gguf", SHAPES["llama"])
    with pytest.raises(CompileError, match=message):
        import_gguf(tmp_path / "model.gguf", **options)
