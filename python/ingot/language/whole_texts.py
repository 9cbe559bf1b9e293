"""Many texts in calls of some, to functions that take whole texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ingot.hal.errors import OutOfRange

__all__ = ["calls_of_texts", "rows_of_texts"]

_TEXTS, _TOKENS = 64, 256
"""Of a call. What layers hand on of 1024 tokens is longer than L2: 12 layers of width 768, bytes,
take 345 us a token with 256, 370 with 512 and 390 with 1024, and 392 with 128, which read weights
twice as often."""


def rows_of_texts(
    model: Any, name: str, tokens: Sequence[Sequence[Sequence[int]]], capacity: int
) -> Any:
    """What the function `name` of a loaded model gives, f32[texts, n]. `tokens`: of each text its
    ids, and what else the function takes of each token. OutOfRange: a text has more than
    `capacity` of them, or none."""
    (row,) = model.functions[name].signature.results
    rows = np.zeros((len(tokens[0]), row.shape[1]), np.float32)
    for places, made in calls_of_texts(model, name, tokens, capacity):
        rows[places] = made
    return rows


def calls_of_texts(
    model: Any, name: str, tokens: Sequence[Sequence[Sequence[int]]], capacity: int
) -> Iterator[tuple[list[int], Any]]:
    """As `rows_of_texts`, call by call: which texts it is of, and what the function gives."""
    lengths = [len(line) for line in tokens[0]]
    for place, length in enumerate(lengths):
        if not 0 < length <= capacity:
            raise OutOfRange(
                f"text {place} has {length} tokens, but the model sees 1 to {capacity}: split it"
            )
    for places in _calls(lengths):
        counts = np.array([lengths[place] for place in places], np.int64)
        flat = (np.array([x for place in places for x in each[place]], np.int32) for each in tokens)
        yield places, getattr(model, name)(counts, *flat).numpy()


def _calls(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Which texts go into a call together: those of similar lengths, since attention takes as much
    for each as for the longest."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    some: list[int] = []
    for place in order:
        if some and (len(some) == _TEXTS or (len(some) + 1) * lengths[place] > _TOKENS):
            yield some
            some = []
        some.append(place)
    if some:
        yield some
