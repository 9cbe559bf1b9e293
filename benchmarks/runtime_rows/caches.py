"""A token of a decoder's attention over 4000 tokens, by the layout of its cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from runtime_rows.row import Row

import ingot

LENGTH, HEADS, WIDE = 4000, 8, 64
LAYOUTS: dict[str, dict[str, Any]] = {
    "linear": {"capacity": 1 << 15},
    "ring": {"layout": "ring", "window": LENGTH},
    "paged": {"layout": "paged", "capacity": 1 << 15},
    "growing": {"layout": "paged"},
}


def rows() -> Iterator[Row]:
    yield Row("a token, 4000 before", {name: _step(**each) for name, each in LAYOUTS.items()})
    branch = _branch()
    yield Row("4000 tokens go on twice", {"copy of a sequence": branch})


def _model(**options: Any) -> ingot.Model:
    """A model whose sequence 0 has the tokens."""
    cache = ingot.state.cache(HEADS, WIDE, sequences=2, **options)
    shape = f"f32[1,tokens,{HEADS},{WIDE}]"

    def step(x: Any) -> Any:
        added = cache.extend(x.shape[1], np.zeros(1, np.int64))
        added.append(x, x)
        return added.attend(x)

    def branch() -> Any:
        cache.copy(0, 1)
        return cache.lengths()

    sources = {"step": ingot.trace(step, ingot.spec(shape)), "branch": ingot.trace(branch)}
    model = ingot.load(ingot.compile(sources), threads=1)
    random = np.random.default_rng(0)
    for _ in range(LENGTH // 50):
        model.step(random.standard_normal((1, 50, HEADS, WIDE)).astype(np.float32))
    return model


def _step(**options: Any) -> Callable[[], Any]:
    model = _model(**options)
    x = np.ones((1, 1, HEADS, WIDE), np.float32)
    return lambda: model.step(x)


def _branch() -> Callable[[], Any]:
    model = _model(layout="paged")
    return model.branch
