"""Texts from language models: `ingot.generate("model.gguf", "Once upon a time")`.

A `LanguageModel` is a compiled GGUF file or folder, loaded, with its tokenizer. Tokens are chosen
inside of the module, several in one call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument, OutOfRange
from ingot.hal.gguf import Gguf
from ingot.language.folder import FolderTokenizer
from ingot.language.sampling import Sampling
from ingot.language.tokenizer import FileTokenizer

__all__ = ["LanguageModel", "generate"]

_TYPES = {"top_k": np.int32, "seed": np.int64}  # of arguments; f32 for the others
_AT_ONCE = 4  # tokens of one call: a text comes in such steps


class LanguageModel:
    """A GGUF file, or a folder with config.json, safetensors files and tokenizer.json, compiled and
    loaded. `model` is the module on its device, `tokenizer` its own, `ids` the tokens that the
    cache holds.

    `capacity`: how many tokens the cache has room for; others as for `ingot.compile` and
    `ingot.load`. Raises what these raise, and NotFound and Unsupported for tokenizers.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        capacity: int | None = None,
        cache: str = "f32",
        weights: str | None = None,
        precision: str = "f32",
        device: Any = "cpu",
        threads: int | None = None,
        progress: Any = None,
    ) -> None:
        import ingot

        is_folder = os.path.isdir(path)
        self.tokenizer = FolderTokenizer(path) if is_folder else FileTokenizer(Gguf(path).metadata)
        target = device.partition(":")[0] if isinstance(device, str) else device.uri
        module = ingot.compile(
            path,
            capacity=capacity,
            cache=cache,
            weights=weights,
            precision=precision,
            target=target,
            progress=progress,
        )
        self.model = ingot.load(module, parameters=path, device=device, threads=threads)
        self.ids: list[int] = []
        caches = (each for each in self.model.variables if each.name.startswith("cache."))
        self.capacity = int(next(caches).shape[1])

    def generate(
        self, prompt: str | Sequence[int], *, max_tokens: int | None = None, **sampling: Any
    ) -> Iterator[str]:
        """The text behind a prompt, in pieces, as they are made; up to a token that ends texts,
        to `max_tokens` or to the end of the cache.

        What the prompt has in common with the tokens before it is not computed again. `sampling`:
        the fields of `Sampling`. InvalidArgument: the prompt is empty. OutOfRange: it is longer
        than the cache.
        """
        chosen = [
            _TYPES.get(name, np.float32)(value)
            for name, value in asdict(Sampling(**sampling)).items()
        ]
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        self._begin(ids)
        stops = np.array(self.tokenizer.ends, np.int32)
        piece = self.tokenizer.stream()
        left = self.capacity if max_tokens is None else max_tokens
        while left > 0:
            made, count = self.model.generate(min(left, _AT_ONCE), stops, *chosen)
            new = np.asarray(made)[: int(count)].tolist()
            self.ids += new
            left -= len(new)
            text = "".join(piece(id) for id in new)
            if text:
                yield text
            if not new or new[-1] in self.tokenizer.ends:
                return

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Iterator[str]:
        """The answer to a conversation, as `generate`; see `Tokenizer.conversation`."""
        text = self.tokenizer.conversation(messages)
        return self.generate(self.tokenizer.encode(text, is_start=False), **options)

    def _begin(self, ids: Sequence[int]) -> None:
        """Let the cache hold these tokens."""
        if not ids:
            raise InvalidArgument("the prompt has no tokens: write something to go on from")
        if len(ids) > self.capacity:
            raise OutOfRange(
                f"the prompt has {len(ids)} tokens, but the cache has room for {self.capacity}: "
                "compile with more capacity="
            )
        common = 0
        for old, new in zip(self.ids, ids[:-1], strict=False):
            if old != new:
                break
            common += 1
        if common < len(self.ids):
            self._forget(common)
        self.model.prefill(np.array(ids[common:], np.int32))
        self.ids = list(ids)

    def _forget(self, count: int) -> None:
        """Keep the first `count` tokens only."""
        kept = self.ids[:count]
        state = self.model.state() if kept else {}
        self.model.reset()
        if kept:
            seen = np.zeros_like(state["seen"])
            seen[kept] = True
            self.model.load_state({**state, "length": np.int64(count), "seen": seen})
        self.ids = kept


def generate(
    model: LanguageModel | str | os.PathLike[str],
    prompt: str | Sequence[int],
    *,
    max_tokens: int | None = None,
    **sampling: Any,
) -> Iterator[str]:
    """The text that a language model writes behind a prompt, in pieces: `LanguageModel.generate`.

    `model` may be the path of a GGUF file or of a folder, which is compiled first.
    """
    if not isinstance(model, LanguageModel):
        model = LanguageModel(model)
    return model.generate(prompt, max_tokens=max_tokens, **sampling)
