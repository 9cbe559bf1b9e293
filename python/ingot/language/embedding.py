"""Vectors of texts: `EmbeddingModel("model.gguf").embed(["Once", "Twice upon"])`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument
from ingot.hal.options import checked_options
from ingot.language.whole_texts import WholeTextModel

__all__ = ["EmbeddingModel"]


class EmbeddingModel(WholeTextModel):
    """A GGUF file, or a folder with config.json, safetensors files and tokenizer.json, of a model
    that makes vectors of texts, compiled and loaded. `model` is the module on its device,
    `tokenizer` its own, `capacity` how many tokens a text may have.

    The options are those of `ingot.compile` and `ingot.load`. Raises what these raise, NotFound
    and Unsupported for tokenizers, and InvalidArgument for a model that does something else.
    """

    _functions = ("embed", "embed_tokens")

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
            for places, vectors in self._calls("embed_tokens", [lines]):
                ends = np.cumsum([len(lines[place]) for place in places])
                for place, own in zip(places, np.split(vectors, ends[:-1]), strict=True):
                    found[place] = _of_unit_length(own) if unit else own
            return found
        vectors = self._rows("embed", [lines])
        return _of_unit_length(vectors) if unit else vectors


def _of_unit_length(vectors: Any) -> Any:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
