"""Which texts answer a query: `Reranker("model.gguf").rank("Who?", ["Ann did.", "In May."])`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ingot.hal.errors import InvalidArgument
from ingot.hal.options import checked_options
from ingot.language.whole_texts import WholeTextModel

__all__ = ["Reranker"]


class Reranker(WholeTextModel):
    """A GGUF file, or a folder with config.json, safetensors files and tokenizer.json, of a model
    that reads a query and a document together and says how well they fit, compiled and loaded.
    `model` is the module on its device, `tokenizer` its own, `capacity` how many tokens both may
    have together.

    The options are those of `ingot.compile` and `ingot.load`. Raises what these raise, NotFound
    and Unsupported for tokenizers, and InvalidArgument for a model that does something else, or
    gives several scores.
    """

    _functions = ("rank",)

    def _check(self, path: str | os.PathLike[str]) -> None:
        super()._check(path)
        (scores,) = self.model.functions["rank"].signature.results
        if scores.shape[1] != 1:
            raise InvalidArgument(
                f"'{path}' gives {scores.shape[1]} scores for each text, expected 1: a model that "
                "tells classes apart ranks nothing; its module has the function `rank`"
            )

    @checked_options(InvalidArgument)
    def score(self, query: str, documents: Sequence[str]) -> Any:
        """How well each document fits the query, f32[documents], as the model gives it: greater is
        better. OutOfRange: a document is with the query longer than the model can see."""
        pairs = [self.tokenizer.pair(query, each) for each in documents]
        taken = len(self.model.functions["rank"].signature.arguments) - 1
        tokens = [[pair[part] for pair in pairs] for part in range(taken)]
        return self._rows("rank", tokens)[:, 0]

    def rank(self, query: str, documents: Sequence[str]) -> list[tuple[int, float]]:
        """The numbers of documents with their scores, the best first; raises as `score`."""
        scores = self.score(query, documents).tolist()
        return sorted(enumerate(scores), key=lambda each: -each[1])
