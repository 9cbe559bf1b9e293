"""Texts from language models: `ingot.generate("model.gguf", "Once upon a time")`.

A `LanguageModel` is a compiled GGUF file or folder, loaded, with its tokenizer. Tokens are chosen
inside of the module, several in one call, or checked there when a draft proposed them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ingot.hal.errors import CompileError, InvalidArgument, OutOfRange
from ingot.hal.gguf import Gguf
from ingot.language.adapters import lora as adapter_parameters
from ingot.language.draft import Draft, check_count
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
    `ingot.load`. `lora`: adapters as for `ingot.lora`, one or a list, or the rank that there is
    room for, without any; `set_adapters` takes others. `draft`: a smaller model with the same
    vocabulary, or its path, which proposes `draft_tokens` (1 to 32) at a time; texts stay the same.
    Raises what these raise, NotFound and Unsupported for tokenizers, and InvalidArgument for a
    draft that does not fit.
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
        lora: Any = None,
        draft: LanguageModel | str | os.PathLike[str] | None = None,
        draft_tokens: int = 4,
        progress: Any = None,
    ) -> None:
        import ingot

        check_count(draft_tokens)
        is_folder = os.path.isdir(path)
        self.tokenizer = FolderTokenizer(path) if is_folder else FileTokenizer(Gguf(path).metadata)
        target = device.partition(":")[0] if isinstance(device, str) else device.uri
        adapters = _adapters(lora)
        room = lora if isinstance(lora, int) else [_path(each) for each in adapters] or None
        module = ingot.compile(
            path,
            capacity=capacity,
            cache=cache,
            weights=weights,
            verify=draft is not None,
            lora=room,
            precision=precision,
            target=target,
            progress=progress,
        )
        parameters: list[Any] = [path]
        if room is not None:
            parameters.append({"lora": adapter_parameters(module, *adapters)})
        self.model = ingot.load(module, parameters=parameters, device=device, threads=threads)
        self.ids: list[int] = []
        caches = (each for each in self.model.variables if each.name.startswith("cache."))
        self.capacity = int(next(caches).shape[1])
        self.draft: Draft | None = None
        if draft is not None:
            options = {"cache": cache, "precision": precision, "device": device}
            options |= {"threads": threads, "progress": progress}
            if not isinstance(draft, LanguageModel):
                draft = self._smaller(draft, weights=weights, **options)
            self.draft = Draft(draft, draft_tokens)
            self.draft.check(self)

    def _smaller(
        self, path: str | os.PathLike[str], weights: str | None, **options: Any
    ) -> LanguageModel:
        """The model of a draft, with a cache as long as this one's."""
        if os.path.isdir(path):
            options["weights"] = weights
        try:
            return LanguageModel(path, capacity=self.capacity, **options)
        except CompileError as error:
            raise CompileError(f"the draft '{path}': {error}") from None

    def set_adapters(self, *adapters: Any) -> None:
        """Put these in the place of the adapters that the model has, as `ingot.lora` takes them;
        none without any. The cache forgets its tokens. Raises as `ingot.lora`; then nothing has
        changed."""
        self.model.swap_parameters(adapter_parameters(self.model, *adapters), scope="lora")
        self.model.reset()
        self.ids = []

    @property
    def words(self) -> int:
        """How many tokens have logits."""
        (logits,) = (each for each in self.model.variables if each.name == "logits")
        return int(logits.shape[0])

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
        self.hold(ids)
        stops = np.array(self.tokenizer.ends, np.int32)
        piece = self.tokenizer.stream()
        left = self.capacity - len(ids)
        left = left if max_tokens is None else min(left, max_tokens)
        steps = self._alone if self.draft is None else self._checked
        for new in steps(left, stops, chosen):
            self.ids += new
            text = "".join(piece(id) for id in new)
            if text:
                yield text
            if new and new[-1] in self.tokenizer.ends:
                return

    def _alone(self, left: int, stops: Any, chosen: Sequence[Any]) -> Iterator[list[int]]:
        """The next tokens, some at a time; `left` at most."""
        while left > 0:
            made, count = self.model.generate(min(left, _AT_ONCE), stops, *chosen)
            new: list[int] = np.asarray(made)[: int(count)].tolist()
            left -= len(new)
            yield new

    def _checked(self, left: int, stops: Any, chosen: Sequence[Any]) -> Iterator[list[int]]:
        """As `_alone`: what the draft proposes, up to where this model chooses another token,
        which is the first to be checked then."""
        assert self.draft is not None
        known: list[int] = []
        while left > 0:
            most = 0 if set(known) & set(self.tokenizer.ends) else left - len(known)
            proposed = self.draft.propose(self.ids + known, most, stops, chosen)
            ids = np.array(known + proposed, np.int32)
            count, following = (int(each) for each in self.model.verify(ids, *chosen))
            self.draft.accepted += max(count - len(known), 0)
            left -= count
            yield ids[:count].tolist()
            known = [following]

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Iterator[str]:
        """The answer to a conversation, as `generate`; see `Tokenizer.conversation`."""
        text = self.tokenizer.conversation(messages)
        return self.generate(self.tokenizer.encode(text, is_start=False), **options)

    def hold(self, ids: Sequence[int]) -> None:
        """Let the cache hold these tokens; those that it begins with already are not computed
        again. Raises as `generate`."""
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
            self.model.rewind(np.int64(common))
            self.ids = self.ids[:common]
        if common == len(ids) - 1:
            self.model.decode(np.int32(ids[-1]))
        else:
            self.model.prefill(np.array(ids[common:], np.int32))
        self.ids = list(ids)


def _adapters(lora: Any) -> list[Any]:
    """The adapters of the option `lora`."""
    if lora is None or isinstance(lora, int):
        return []
    return lora if isinstance(lora, list) else [lora]


def _path(adapter: Any) -> Any:
    return adapter[0] if isinstance(adapter, tuple) else adapter


def generate(
    model: LanguageModel | str | os.PathLike[str],
    prompt: str | Sequence[int],
    *,
    max_tokens: int | None = None,
    draft: LanguageModel | str | os.PathLike[str] | None = None,
    lora: Any = None,
    **sampling: Any,
) -> Iterator[str]:
    """The text that a language model writes behind a prompt, in pieces: `LanguageModel.generate`.

    `model` may be the path of a GGUF file or of a folder, which is compiled first, with the
    `draft` and the adapters `lora`. InvalidArgument: these for a model that is compiled already.
    """
    if not isinstance(model, LanguageModel):
        model = LanguageModel(model, draft=draft, lora=lora)
    elif draft is not None or lora is not None:
        raise InvalidArgument("the model is compiled already: give draft and lora to LanguageModel")
    return model.generate(prompt, max_tokens=max_tokens, **sampling)
