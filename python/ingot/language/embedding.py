"""Vectors of texts: `EmbeddingModel("model.gguf").embed(["Once", "Twice upon"])`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument
from ingot.hal.options import checked_options
from ingot.language.loading import check_kind, load_language_model
from ingot.language.whole_texts import calls_of_texts, rows_of_texts

__all__ = ["EmbeddingModel"]


class EmbeddingModel:
    """A GGUF file, or a folder with config.json, safetensors files and tokenizer.json, of a model
    that makes vectors of texts, compiled and loaded. `model` is the module on its device,
    `tokenizer` its own, `capacity` how many tokens a text may have.

    The options are those of `ingot.compile` and `ingot.load`. Raises what these raise, NotFound
    and Unsupported for tokenizers, and InvalidArgument for a model that does something else.
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
        check_kind(path, self.model, "embed", "embed_tokens")
        self.capacity = int(self.model.capacity())

    @checked_options(InvalidArgument)
    def embed(self, texts: str | Sequence[str], *, unit: bool = True) -> Any:
        """The vector of a text, f32[n], or of each of several, f32[texts, n]; `unit`: of length
        1, else as the model gives it. Of a model that says nothing of vectors of texts those of
        all tokens, f32[tokens, n], in a list for several texts. OutOfRange: a text is longer than
        the model can see."""
        if isinstance(texts, str):
            return self.embed([texts], unit=unit)[0]
        lines = [self.tokenizer.whole(text) for text in texts]
        if "embed" not in self.model.functions:
            found: list[Any] = [None] * len(lines)
            calls = calls_of_texts(self.model, "embed_tokens", [lines], self.capacity)
            for places, vectors in calls:
                ends = np.cumsum([len(lines[place]) for place in places])
                for place, own in zip(places, np.split(vectors, ends[:-1]), strict=True):
                    found[place] = _of_unit_length(own) if unit else own
            return found
        vectors = rows_of_texts(self.model, "embed", [lines], self.capacity)
        return _of_unit_length(vectors) if unit else vectors


def _of_unit_length(vectors: Any) -> Any:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
