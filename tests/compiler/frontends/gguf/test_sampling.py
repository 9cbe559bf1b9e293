"""Tokens by chance, as a module chooses them: which may come, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.gguf.sampling import OPTION_TYPES, Options, choose
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Block, Function, Module, Region, TensorType
from ingot.hal.spec import dtype

WEIGHTS = np.array([5, 40, 0, 20, 8, 20, 7], np.float64)  # of tokens, in percent
with np.errstate(divide="ignore"):
    LOGITS = np.log(WEIGHTS).astype(np.float32)

Choice = Callable[..., list[int]]


def _program() -> Module:
    shape = (len(WEIGHTS),)
    types = [TensorType(dtype("f32"), shape), TensorType(dtype("i1"), shape)]
    block = Block([*types, TensorType(dtype("i64")), *OPTION_TYPES.values()])
    builder = Builder(block)
    logits, seen, place, *options = block.arguments
    builder.return_(choose(builder, logits, seen, Options(*options), place))
    module = Module()
    names = ["logits", "seen", "place", *OPTION_TYPES]
    module.add(Function("main", Region([block]), names, ["id"]))
    return module


def _arguments(seed: int, place: int, seen: Any = (), **options: Any) -> list[Any]:
    mask = np.zeros(len(WEIGHTS), bool)
    mask[list(seen)] = True
    given = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    given |= options | {"seed": seed}
    values = [np.asarray(given[name], type.dtype.numpy) for name, type in OPTION_TYPES.items()]
    return [LOGITS, mask, np.int64(place), *values]


@pytest.fixture(scope="module")
def draw() -> Choice:
    """A function that draws so many tokens."""
    model = ingot.load(ingot.compile(_program(), variants=["x86-64-v3"]))

    def run(count: int, seed: int = 1, **options: Any) -> list[int]:
        return [int(model(*_arguments(seed, place, **options))) for place in range(count)]

    return run


def test_tokens_come_as_often_as_they_are_likely(draw: Choice) -> None:
    count = 2000
    found = np.bincount(draw(count), minlength=len(WEIGHTS))
    expected = WEIGHTS / 100 * count
    assert found[2] == 0
    assert np.all(np.abs(found - expected) <= 4 * np.sqrt(expected))
    hot = np.bincount(draw(count, temperature=2.0), minlength=len(WEIGHTS))
    roots = np.sqrt(WEIGHTS) / np.sqrt(WEIGHTS).sum() * count
    assert np.all(np.abs(hot - roots) <= 4 * np.sqrt(roots))


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"temperature": 0.0}, {1}),
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {1, 3, 5}),  # two are equal
        ({"top_k": 4}, {1, 3, 4, 5}),
        ({"top_k": 99}, {0, 1, 3, 4, 5, 6}),
        ({"top_p": 0.3}, {1}),
        ({"top_p": 0.5}, {1, 3, 5}),
        ({"top_p": 0.85}, {1, 3, 4, 5}),
        ({"top_k": 3, "top_p": 0.49}, {1}),  # 40 of the 80 that are left
        ({"min_p": 0.49}, {1, 3, 5}),
        ({"min_p": 1.0}, {1}),
        ({"temperature": 0.0, "seen": [1], "repetition_penalty": 2.0}, {3}),
    ],
    ids=str,
)
def test_only_allowed_tokens_come(options: Any, allowed: set[int], draw: Choice) -> None:
    assert set(draw(150, **options)) == allowed


def test_a_seed_gives_the_same_everywhere(draw: Choice) -> None:
    program = _program()
    expected = [interpret(program, "main", _arguments(9, place))[0] for place in range(8)]
    assert draw(8, seed=9) == expected
    assert draw(8, seed=10) != expected
