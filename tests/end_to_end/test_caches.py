"""Caches of programs (`ingot.state.cache`): attention over them, token by token, against NumPy that
keeps all keys and values of every sequence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from tests.support.devices import best_variant, load_best, on_every_device, targets

HEADS, GROUP, WIDE, LAYERS, WINDOW = 2, 2, 8, 2, 10
Array = np.ndarray[Any, Any]
LAYOUTS: dict[str, dict[str, Any]] = {
    "linear": {"capacity": 50},
    "ring": {"layout": "ring", "window": WINDOW, "slack": 22},
    "paged": {"layout": "paged", "page": 8, "capacity": 50, "pages": 15},
    "growing": {"layout": "paged", "page": 8},
}


@pytest.fixture(
    scope="module",
    params=[
        "growing",
        "ring",
        pytest.param("paged", marks=pytest.mark.slow),
        pytest.param("linear", marks=pytest.mark.slow),
    ],
)
def decoder(request: pytest.FixtureRequest) -> tuple[str, ingot.Module]:
    """step(x, sequences, counts): `layers`; copy, drop and empty."""
    cache = ingot.state.cache(HEADS, WIDE, sequences=3, layers=LAYERS, **LAYOUTS[request.param])

    def step(x: Any, sequences: Any, counts: Any) -> Any:
        return layers(cache, x, sequences, counts)

    def copy(source: Any, target: Any) -> Any:
        cache.copy(source, target)
        return cache.lengths()

    def drop(tokens: Any, sequences: Any) -> Any:
        cache.drop(tokens, sequences)
        return cache.lengths()

    def empty(sequences: Any) -> Any:
        cache.reset(sequences)
        return cache.lengths()

    number = ingot.spec("i64[]")
    x = ingot.spec(f"f32[rows,tokens,{HEADS * GROUP * WIDE}]", rows=(1, 3), tokens=(1, 64))
    sources = {
        "step": ingot.trace(step, x, ingot.spec("i64[rows]"), ingot.spec("i64[rows]")),
        "copy": ingot.trace(copy, number, number),
        "drop": ingot.trace(drop, ingot.spec("i64[n]"), ingot.spec("i64[n]")),
        "empty": ingot.trace(empty, ingot.spec("i64[n]")),
    }
    return request.param, ingot.compile(sources, target=targets(), variants=[best_variant()])


def layers(cache: Any, x: Any, *of: Any) -> Any:
    """Two layers of attention, each of which adds its tokens to the cache."""
    added = cache.extend(x.shape[1], *of)
    for layer in range(LAYERS):
        q, k, v = (ops.reshape(x @ each, (*x.shape[:2], -1, WIDE)) for each in _weights(layer))
        added.append(k, v, layer)
        x = x + ops.reshape(added.attend(q, layer), x.shape)
    return {"y": x, "positions": added.positions}


def _weights(layer: int) -> list[Array]:
    random = np.random.default_rng(layer)
    wide = HEADS * GROUP * WIDE
    shapes = ((wide, wide), (wide, HEADS * WIDE), (wide, HEADS * WIDE))
    return [random.normal(0, wide**-0.5, shape).astype(np.float32) for shape in shapes]


class Reference:
    """A model and, in NumPy, keys and values of its sequences, whose calls are compared."""

    def __init__(self, model: Any, layout: str) -> None:
        self.model = model
        self.window = WINDOW if layout == "ring" else 10**9
        self.texts: list[list[Any]] = [[([], []) for _ in range(LAYERS)] for _ in range(3)]
        self.random = np.random.default_rng(7)

    def draw(self, rows: int, tokens: int) -> Array:
        shape = (rows, tokens, HEADS * GROUP * WIDE)
        return self.random.standard_normal(shape).astype(np.float32)

    def step(self, sequences: Sequence[int], *counts: int) -> None:
        """So many tokens more in each, or in all."""
        counts = counts if len(counts) > 1 else counts * len(sequences)
        x = self.draw(len(sequences), max(counts))
        y, positions = self.model.step(x, np.array(sequences), np.array(counts))
        for row, (sequence, count) in enumerate(zip(sequences, counts, strict=True)):
            text = self.texts[sequence]
            first = len(text[0][0])
            np.testing.assert_array_equal(positions[row], first + np.arange(max(counts)))
            for token in range(count):
                expected = self._token(text, x[row, token])
                np.testing.assert_allclose(y[row, token], expected, rtol=1e-3, atol=1e-4)
            np.testing.assert_array_equal(y[row, count:], x[row, count:])  # nothing was seen

    def _token(self, text: list[Any], x: Array) -> Array:
        for layer, (keys, values) in enumerate(text):
            q, k, v = ((x @ each).reshape(-1, WIDE) for each in _weights(layer))
            keys.append(k)
            values.append(v)
            seen = [np.stack(each[-self.window :]) for each in (keys, values)]
            k, v = (np.repeat(each, GROUP, axis=1) for each in seen)  # [tokens, heads, wide]
            scores = np.einsum("hd,thd->ht", q, k) / np.sqrt(WIDE)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            y = np.einsum("ht,thd->hd", shares / shares.sum(-1, keepdims=True), v)
            x = x + y.reshape(x.shape)
        return x

    def copy(self, source: int, target: int) -> None:
        lengths = self.model.copy(np.int64(source), np.int64(target))
        self.texts[target] = [(list(k), list(v)) for k, v in self.texts[source]]
        self.check(lengths)

    def drop(self, tokens: dict[int, int]) -> None:
        numbers = (np.array(list(each), np.int64) for each in (tokens.values(), tokens))
        lengths = self.model.drop(*numbers)
        for sequence, count in tokens.items():
            for part in (part for layer in self.texts[sequence] for part in layer):
                del part[len(part) - count :]
        self.check(lengths)

    def empty(self, *sequences: int) -> None:
        lengths = self.model.empty(np.array(sequences, np.int64))
        for each in sequences:
            self.texts[each] = [([], []) for _ in range(LAYERS)]
        self.check(lengths)

    def check(self, lengths: Any) -> None:
        np.testing.assert_array_equal(lengths, [len(text[0][0]) for text in self.texts])


@on_every_device
def test_every_layout_is_attention_over_all_that_a_sequence_sees(
    decoder: tuple[str, ingot.Module], device: str, tmp_path: Path
) -> None:
    layout, module = decoder
    model = ingot.load(module, device=device)
    reference = Reference(model, layout)
    for sequences, tokens in (([0], 5), ([1], 12), ([2, 0], 1), ([0, 1, 2], 1), ([1, 0], 3)):
        reference.step(sequences, tokens)
    reference.copy(1, 2)  # in the middle of a page, and both go on
    reference.step([2], 2)
    reference.step([2, 0, 1], 1, 0, 4)  # not as many in each
    reference.drop({2: 12, 1: 3})  # so far that both have a page, of which one keeps a part
    reference.step([1, 2], 3, 1)
    reference.copy(1, 1)  # whose pages stay its own
    reference.copy(1, 0)
    reference.drop({1: 10, 0: 9})  # which share the page of both ends
    reference.step([0, 1], 2, 5)
    reference.drop({0: 0, 2: len(reference.texts[2][0][0])})  # none, and all
    reference.step([0], 20)
    reference.empty(1)
    reference.step([1, 0], 4)
    reference.copy(2, 1)
    reference.empty(2, 0)  # whose pages another still has
    reference.drop({})
    reference.empty()  # no sequence at all
    reference.step([1], 9)
    model.save_state(tmp_path / "cache.state")
    kept = [[(list(k), list(v)) for k, v in text] for text in reference.texts]
    fork = model.fork()
    reference.step([0, 1], 7)
    other = Reference(fork, layout)
    other.texts = kept
    other.step([2, 1, 0], 2)
    twice = np.array([1, 1])
    with pytest.raises(ingot.OutOfRange, match=r"a sequence of 'cache' is 3, expected 0 to 2"):
        model.step(reference.draw(1, 1), np.array([3]), np.array([1]))
    with pytest.raises(ingot.OutOfRange, match=r"a sequence of 'cache' is -1, expected 0 to 2"):
        model.step(reference.draw(2, 1), np.array([1, -1]), np.array([1, 1]))
    for counts in ([4, 3], [1, -1]):
        with pytest.raises(
            ingot.OutOfRange, match=r"a sequence of 'cache' gets is .*, expected 0 "
        ):
            model.step(reference.draw(2, 3), np.array([0, 1]), np.array(counts))
    for tokens in ([1, 300], [-1, 1]):
        with pytest.raises(ingot.OutOfRange, match=r"a sequence of 'cache' loses is .*, expected"):
            model.drop(np.array(tokens), np.array([0, 1]))
    for function in (
        lambda: model.step(reference.draw(2, 1), twice, twice),
        lambda: model.drop(twice, twice),
        lambda: model.empty(twice),
    ):
        with pytest.raises(
            ingot.OutOfRange, match="a sequence of 'cache' is listed is 2, expected"
        ):
            function()
    refused = {
        "linear": r"the length of a sequence of 'cache' \(capacity 50\) is 67, expected 0 to 50",
        "ring": r"the number of tokens that 'cache' gets at once is 60, expected 0 to 23",
        "paged": r"\(capacity 50\) is 67",
    }
    if layout in refused:
        with pytest.raises(ingot.OutOfRange, match=refused[layout]):
            model.step(reference.draw(1, 60), np.array([0]), np.array([60]))
    if layout == "ring":
        reference.empty(0)
        for _ in range(3):
            reference.step([0], 16)
        reference.drop({0: 9})
        with pytest.raises(ingot.OutOfRange, match="'cache' loses is 14, expected 0 to 13"):
            model.drop(np.array([14]), np.array([0]))
        reference.drop({0: 13})
        reference.step([0], 3)
        reference.drop({0: 29})
        reference.step([0], 2)
        reference.drop({0: 1})
    if layout == "paged":
        reference.empty(0, 1, 2)
        reference.step([0, 1], 48)
        with pytest.raises(ingot.OutOfRange, match="pages of 'cache' in use is 17, expected 0 to"):
            model.step(reference.draw(1, 40), np.array([2]), np.array([40]))
        reference.step([2], 20)
    reference.step([2], 2)  # nothing is lost
    model.load_state(tmp_path / "cache.state")
    assert np.shape(model.state()["cache.length"]) == (3,)


@pytest.mark.parametrize(("layout", "tokens"), [("linear", "tokens"), ("ring", "1")])
def test_tokens_of_one_sequence_are_written_as_one_piece(layout: str, tokens: str) -> None:
    cache = ingot.state.cache(HEADS, WIDE, layers=LAYERS, **LAYOUTS[layout])
    x = ingot.spec(f"f32[1,{tokens},{HEADS * GROUP * WIDE}]")
    model = load_best(ingot.trace(lambda x: layers(cache, x), x))
    reference = Reference(SimpleNamespace(step=lambda x, *of: model(x)), layout)
    for count in (5, 1, 12) if layout == "linear" else (1,) * 40:
        reference.step([0], count)
    with model.trace() as trace:
        reference.step([0], 1)
    assert not [each.kernel for each in trace if "scatter" in each.kernel and each.length > 64]


def test_a_cache_that_cannot_grow_is_as_it_was() -> None:
    cache = ingot.state.cache(HEADS, WIDE, layout="paged", page=4, layers=LAYERS)

    def step(x: Any) -> Any:
        added = cache.extend(x.shape[1])
        for layer in range(LAYERS):
            added.append(x, x, layer)
            x = added.attend(x, layer)
        return x

    x = np.random.default_rng(0).standard_normal((1, 3, HEADS, WIDE)).astype(np.float32)
    module = ingot.compile(
        ingot.trace(step, ingot.spec(f"f32[1,t,{HEADS},{WIDE}]")), variants=[best_variant()]
    )
    free = ingot.load(module)
    expected = [np.array(free(x)) for _ in range(20)]
    for limit in (9000, 12000, 15000):
        model = ingot.load(module, memory_limit=limit)
        made = []

        def call(model: ingot.Model = model, made: list[Any] = made) -> None:
            while True:
                made.append(np.array(model(x)))

        with pytest.raises(ingot.OutOfMemory, match=r"'test_caches\.py"):
            call()
        np.testing.assert_allclose(made, expected[: len(made)], rtol=1e-4, atol=1e-5)
        assert np.asarray(model.state()["cache.length"]) == 3 * len(made)


def test_a_copy_for_which_pages_are_short_changes_nothing() -> None:
    cache = ingot.state.cache(1, 4, layout="paged", page=4, capacity=8, pages=2, sequences=2)

    def step(x: Any) -> Any:
        return cache.extend(x.shape[0], 0).positions

    def copy() -> Any:
        cache.copy(0, 1)
        return cache.lengths()

    sources = {"step": ingot.trace(step, ingot.spec("f32[n]")), "copy": ingot.trace(copy)}
    model = load_best(sources)
    model.step(np.zeros(7, np.float32))
    for _ in range(2):
        with pytest.raises(ingot.OutOfRange, match="pages of 'cache' in use is 3, expected 0 to 2"):
            model.copy()
    model.step(np.zeros(1, np.float32))  # the last page is whole then, and both have it
    np.testing.assert_array_equal(model.copy(), [8, 8])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a linear cache needs a capacity="),
        ({"layout": "circle"}, "layout is 'circle', expected 'linear', 'ring' or 'paged'"),
        ({"layout": "ring", "capacity": 8}, "a ring has a window="),
        ({"capacity": 0}, "capacity is 0, expected a positive integer"),
        ({"capacity": 8, "window": 1.5}, "window is 1.5, expected an integer of at least 0"),
        ({"capacity": 8, "pages": 2}, "pages= is for paged caches"),
        ({"capacity": 8, "dtype": "i8"}, "dtype is 'i8', expected 'f32', 'f16' or 'bf16'"),
        ({"layout": "paged", "pages": 4}, "pages= needs a capacity="),
    ],
)
def test_numbers_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ingot.CompileError, match=message):
        ingot.state.cache(2, 8, **options)


@pytest.mark.parametrize(
    ("shape", "layer", "message"),
    [
        (
            "f32[1,1,3,8]",
            0,
            r"append: 0.k is Tensor\(f32\[1,1,3,8\]\), expected the shape \[1, 1, 2, 8\]",
        ),
        ("f32[1,1,2,4]", 0, r"expected the shape \[1, 1, 2, 8\]"),
        ("f32[1,1,2,8]", 1, "layer 1 of 'cache' with 1"),
    ],
)
def test_keys_that_do_not_fit_are_refused(shape: str, layer: int, message: str) -> None:
    cache = ingot.state.cache(2, 8, capacity=16)

    def wrong(k: Any) -> Any:
        cache.extend(1).append(k, k, layer)
        return k

    with pytest.raises(ingot.CompileError, match=message):
        ingot.trace(wrong, ingot.spec(shape))
