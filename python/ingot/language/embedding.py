"""Vectors of texts: `EmbeddingModel("model.gguf").embed(["Once", "Twice upon"])`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument, OutOfRange
from ingot.hal.options import checked_options
from ingot.language.loading import load_language_model

__all__ = ["EmbeddingModel"]

_TEXTS, _TOKENS = 64, 1024  # of a call: more make it no faster


class EmbeddingModel:
    """A GGUF file, or a folder with config.json, safetensors files and tokenizer.json, of a model
    that makes vectors of texts, compiled and loaded. `model` is the module on its device,
    `tokenizer` its own, `capacity` how many tokens a text may have.

    The options are those of `ingot.compile` and `ingot.load`. Raises what these raise, NotFound
    and Unsupported for tokenizers, and InvalidArgument for a model that writes texts.
    """

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
        if "embed" not in self.model.functions:
            raise InvalidArgument(
                f"'{path}' is a model that writes texts: make an ingot.LanguageModel of it"
            )
        self.capacity = int(self.model.capacity())

    @checked_options(InvalidArgument)
    def embed(self, texts: str | Sequence[str], *, unit: bool = True) -> Any:
        """The vector of a text, f32[n], or of each of several, f32[texts, n]; `unit`: of length
        1, else as the model gives it. OutOfRange: a text is longer than the model can see."""
        if isinstance(texts, str):
            return self.embed([texts], unit=unit)[0]
        lines = [self.tokenizer.whole(text) for text in texts]
        for place, line in enumerate(lines):
            if not 0 < len(line) <= self.capacity:
                raise OutOfRange(
                    f"text {place} has {len(line)} tokens, but the model sees 1 to "
                    f"{self.capacity}: split it"
                )
        (vector,) = self.model.functions["embed"].signature.results
        vectors = np.zeros((len(lines), vector.shape[1]), np.float32)
        for places in _calls([len(line) for line in lines]):
            counts = np.array([len(lines[place]) for place in places], np.int64)
            ids = np.array([id for place in places for id in lines[place]], np.int32)
            vectors[places] = self.model.embed(counts, ids).numpy()
        if unit:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors /= np.maximum(lengths, np.finfo(np.float32).tiny)
        return vectors


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
