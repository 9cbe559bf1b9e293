"""Models that read whole texts: many texts in calls of some."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from ingot.hal.errors import InvalidArgument, OutOfRange
from ingot.hal.options import checked_options
from ingot.language.loading import check_kind, load_language_model

__all__ = ["WholeTextModel"]

_TEXTS, _TOKENS = 64, 256
"""Of a call. What layers hand on of 1024 tokens is longer than L2: 12 layers of width 768, bytes,
take 345 us a token with 256, 370 with 512 and 390 with 1024, and 392 with 128, which read weights
twice as often."""


class WholeTextModel:
    """`model`, the module on its device, `tokenizer`, its own, and `capacity`, how many tokens a
    text may have. It has one of `_functions` at least."""

    _functions: ClassVar[tuple[str, ...]]

    @checked_options(InvalidArgument)
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        capacity: int | None = None,
        weights: str | None = None,
        precision: str = "f32",
        device: Any = "cpu",
        threads: int | None = None,
        share_weights: bool = False,
        progress: Any = None,
    ) -> None:
        options = {"precision": precision, "device": device, "threads": threads}
        options |= {"share_weights": share_weights, "progress": progress}
        self.tokenizer, self.model = load_language_model(
            path, {"capacity": capacity}, weights=weights, **options
        )
        self._check(path)
        self.capacity = int(self.model.capacity())

    def _check(self, path: str | os.PathLike[str]) -> None:
        """InvalidArgument: the model that was loaded does something else."""
        check_kind(path, self.model, *self._functions)

    def _rows(self, name: str, tokens: Sequence[Sequence[Sequence[int]]]) -> Any:
        """What the function of that name gives, f32[texts, n]. `tokens`: of each text its ids, and
        what else the function takes of each token. OutOfRange: a text has more than `capacity` of
        them, or none."""
        (row,) = self.model.functions[name].signature.results
        rows = np.zeros((len(tokens[0]), row.shape[1]), np.float32)
        for places, made in self._calls(name, tokens):
            rows[places] = made
        return rows

    def _calls(
        self, name: str, tokens: Sequence[Sequence[Sequence[int]]]
    ) -> Iterator[tuple[list[int], Any]]:
        """As `_rows`, call by call: which texts it is of, and what the function gives."""
        lengths = [len(line) for line in tokens[0]]
        for place, length in enumerate(lengths):
            if not 0 < length <= self.capacity:
                raise OutOfRange(
                    f"text {place} has {length} tokens, but the model sees 1 to {self.capacity}: "
                    "split it"
                )
        for places in _together(lengths):
            counts = np.array([lengths[place] for place in places], np.int64)
            flat = (
                np.array([x for place in places for x in each[place]], np.int32) for each in tokens
            )
            yield places, getattr(self.model, name)(counts, *flat).numpy()


def _together(lengths: Sequence[int]) -> Iterator[list[int]]:
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
