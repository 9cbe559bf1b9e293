"""Texts from language models: `ingot.generate("model.gguf", "Once upon a time")`.

A `LanguageModel` is a compiled GGUF file or folder, loaded, with its tokenizer. Tokens are chosen
inside of the module, several in one call, or checked there when a draft proposed them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from numbers import Integral
from typing import Any, overload

import numpy as np

from ingot.hal.errors import CompileError, InvalidArgument, OutOfRange
from ingot.hal.options import checked_options
from ingot.language.adapters import lora as adapter_parameters
from ingot.language.batch import LanguageBatch
from ingot.language.chances import Token
from ingot.language.constraint import Constraint, bias_of, grammar_of
from ingot.language.draft import Draft, check_count
from ingot.language.loading import TYPES, check_kind, check_prompt, load_language_model
from ingot.language.sampling import Sampling
from ingot.language.text_stream import StopTexts

__all__ = ["LanguageModel", "generate"]

_AT_ONCE = 4  # tokens of one call: a text comes in such steps
_READ_AT_ONCE = 512
"""Tokens of a prompt in one call: of more what layers hand on lies farther than L2, and takes room.
A prompt of 2048 takes 934 us a token so, in one call 1073 (135M, Q4_0, bytes)."""
_TOGETHER = 8  # texts at most of a list of prompts at a time


class LanguageModel:
    """A GGUF file, or a folder with config.json, safetensors files and tokenizer.json, compiled and
    loaded. `model` is the module on its device, `tokenizer` its own, `ids` the tokens that the
    cache holds; of a model with an encoder, which reads prompts, those that it wrote.

    `capacity`: how many tokens the cache has room for; others as for `ingot.compile` and
    `ingot.load`. `lora`: adapters as for `ingot.lora`, one or a list, or the rank that there is
    room for, without any; `set_adapters` takes others. `draft`: a smaller model with the same
    vocabulary, or its path, which proposes `draft_tokens` (1 to 32) at a time; texts stay the same.
    Raises what these raise, NotFound and Unsupported for tokenizers, and InvalidArgument for a
    draft that does not fit.
    """

    @checked_options(InvalidArgument)
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
        share_weights: bool = False,
        draft: LanguageModel | str | os.PathLike[str] | None = None,
        draft_tokens: int = 4,
        progress: Any = None,
    ) -> None:
        check_count(draft_tokens)
        layout = {"capacity": capacity, "verify": draft is not None}
        options = {"cache": cache, "precision": precision, "device": device}
        options |= {"threads": threads, "progress": progress, "share_weights": share_weights}
        self.tokenizer, self.model = load_language_model(
            path, layout, weights=weights, lora=lora, **options
        )
        check_kind(path, self.model, "generate")
        self.ids: list[int] = []
        self.capacity = int(self.model.capacity())
        self.draft: Draft | None = None
        if draft is not None:
            if isinstance(draft, (str, os.PathLike)):
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

    @checked_options(InvalidArgument)
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | bool | None = None,
        grammar: str | None = None,
        logit_bias: Mapping[int, float] | None = None,
        stop: Sequence[str] = (),
        **sampling: Any,
    ) -> Iterator[str]:
        """The text behind a prompt, in pieces, as they are made; up to a token that ends texts,
        to `max_tokens`, to the end of the cache, or to one of the texts in `stop`, without that.

        What the prompt has in common with the tokens before it is not computed again. `schema`: the
        text is JSON that fits this JSON Schema (True: any); `grammar`: it follows one of llama.cpp
        (GBNF). Either way it is cut where the tokens end. `logit_bias`: numbers that are added to
        logits, by token. `sampling`: the fields of `Sampling`. InvalidArgument: the prompt is
        empty, or there is no such schema or grammar. OutOfRange: it is longer than the cache.
        Unsupported: the tokenizer does not tell the bytes of tokens.
        """
        constraint, chosen = self._chosen(schema, grammar, logit_bias, sampling)
        left = self._started(prompt, max_tokens)
        ends = np.array(self.tokenizer.ends, np.int32)
        piece, shown = self.tokenizer.stream(), StopTexts(stop)
        steps: Iterator[list[int]]
        if constraint is not None:
            steps = ([id] for id, _ in self._one_by_one(constraint, left, chosen))
        else:
            steps = (self._alone if self.draft is None else self._checked)(left, ends, chosen)
        for new in steps:
            self.ids += new
            text = shown("".join(piece(id) for id in new))
            if text:
                yield text
            if shown.is_over or (new and new[-1] in self.tokenizer.ends):
                break
        if text := shown.rest(piece.end()):
            yield text

    @checked_options(InvalidArgument)
    def tokens(
        self,
        prompt: str | Sequence[int],
        *,
        alternatives: int = 0,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | bool | None = None,
        grammar: str | None = None,
        logit_bias: Mapping[int, float] | None = None,
        **sampling: Any,
    ) -> Iterator[Token]:
        """As `generate`, token by token, the one that ends the text too: each with the logarithm of
        its probability, and so many that were the most likely ones. No draft helps."""
        if not 0 <= alternatives <= self.words:
            raise InvalidArgument(
                f"alternatives is {alternatives}, expected 0 to {self.words}, the count of tokens"
            )
        constraint, chosen = self._chosen(schema, grammar, logit_bias or {}, sampling)
        assert constraint is not None
        left = self._started(prompt, max_tokens)
        piece = self.tokenizer.stream()
        for id, logits in self._one_by_one(constraint, left, chosen):
            self.ids.append(id)
            yield Token.of(id, piece(id), logits, alternatives)
            if id in self.tokenizer.ends:
                break

    def _chosen(
        self,
        schema: Mapping[str, Any] | bool | None,
        grammar: str | None,
        logit_bias: Mapping[int, float] | None,
        sampling: Mapping[str, Any],
    ) -> tuple[Constraint | None, list[Any]]:
        """What tokens have to follow, if something, and how they are chosen."""
        rules, values = grammar_of(grammar, schema), asdict(Sampling(**sampling))
        chosen = [TYPES.get(name, np.float32)(value) for name, value in values.items()]
        if rules is None and logit_bias is None:
            return None, chosen
        return Constraint(rules, self.tokenizer, bias_of(logit_bias, self.words)), chosen

    def _started(self, prompt: str | Sequence[int], max_tokens: int | None) -> int:
        """Lets the cache hold a prompt; how many tokens there may be behind it."""
        ids = self._begun(prompt)
        self.hold(ids)
        left = self.capacity - len(ids)
        return left if max_tokens is None else min(left, max_tokens)

    def _begun(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens to go on from: those of the prompt, or where an encoder reads it that with
        which texts begin."""
        has_encoder = "encode" in self.model.functions
        if isinstance(prompt, str):
            make = self.tokenizer.whole if has_encoder else self.tokenizer.encode
            prompt = make(prompt)
        if not has_encoder:
            return list(prompt)
        check_prompt(prompt, self.capacity)
        self.model.encode(np.array(prompt, np.int32))
        self.ids = []
        return [int(self.model.start())]

    def _alone(self, left: int, stops: Any, chosen: Sequence[Any]) -> Iterator[list[int]]:
        """The next tokens, some at a time; `left` at most."""
        while left > 0:
            made, count = self.model.generate(min(left, _AT_ONCE), stops, *chosen)
            new: list[int] = np.asarray(made)[: int(count)].tolist()
            left -= len(new)
            yield new

    def _one_by_one(
        self, constraint: Constraint, left: int, chosen: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]:
        """The next tokens that the constraint allows, one at a time, each with the logits that it
        was chosen by, f32[words]; `left` at most."""
        *options, seed = chosen
        logits: Any = None

        def choose(bias: Any, seed: int) -> int:
            nonlocal logits
            id, logits = self.model.choose(bias, *options, np.int64(seed))
            return int(id)

        for _ in range(left):
            id = constraint.next(choose, int(seed))
            if id is None:
                return
            self.model.decode(np.int32(id))
            yield id, logits

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

    @checked_options(InvalidArgument)
    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """The answer to a conversation, as `generate`; see `Tokenizer.conversation`, to which
        `tools` and the options in `template` go."""
        known = dict(template or {})
        if tools is not None and "tools" in known:
            raise InvalidArgument("the tools are given twice: as tools, and in template")
        text = self.tokenizer.conversation(messages, **{"tools": tools, **known})
        return self.generate(self.tokenizer.encode(text, is_start=False), **options)

    def hold(self, ids: Sequence[int]) -> None:
        """Let the cache hold these tokens; those that it begins with already are not computed
        again. Raises as `generate`."""
        check_prompt(ids, self.capacity)
        common = 0
        for old, new in zip(self.ids, ids[:-1], strict=False):
            if old != new:
                break
            common += 1
        if common < len(self.ids):
            common = self._rewound(common)
            self.ids = self.ids[:common]
        for start in range(common, len(ids), _READ_AT_ONCE):
            some = ids[start : start + _READ_AT_ONCE]
            if len(some) == 1:
                self.model.decode(np.int32(some[0]))
            else:
                self.model.prefill(np.array(some, np.int32))
            self.ids = list(ids[: start + len(some)])

    def _rewound(self, length: int) -> int:
        """The length to which the cache could be rewound: this one, or none where the layers with
        windows have lost what stood there."""
        try:
            self.model.rewind(np.int64(length))
        except OutOfRange:
            length = 0
            self.model.rewind(np.int64(length))
        return length


@overload
def generate(
    model: LanguageModel | str | os.PathLike[str],
    prompt: str | list[int],
    *,
    max_tokens: int | None = None,
    draft: LanguageModel | str | os.PathLike[str] | None = None,
    lora: Any = None,
    **sampling: Any,
) -> Iterator[str]: ...


@overload
def generate(
    model: LanguageBatch | str | os.PathLike[str],
    prompt: list[str] | list[list[int]],
    *,
    max_tokens: int | None = None,
    draft: str | os.PathLike[str] | None = None,
    lora: Any = None,
    **sampling: Any,
) -> Iterator[tuple[int, str]]: ...


@checked_options(InvalidArgument)
def generate(
    model: LanguageModel | LanguageBatch | str | os.PathLike[str],
    prompt: str | Sequence[Any],
    *,
    max_tokens: int | None = None,
    draft: LanguageModel | str | os.PathLike[str] | None = None,
    lora: Any = None,
    **sampling: Any,
) -> Any:
    """The text that a language model writes behind a prompt, in pieces: `LanguageModel.generate`.
    Behind each of a list of prompts: `LanguageBatch.generate`, which gives the number of the
    prompt with each piece.

    `model` may be the path of a GGUF file or of a folder, which is compiled first, with the
    `draft` and the adapters `lora`. InvalidArgument: these for a model that is compiled already;
    several prompts for a model that has one cache.
    """
    options = {"max_tokens": max_tokens, **sampling}
    is_many = not isinstance(prompt, str) and any(not isinstance(each, Integral) for each in prompt)
    if is_many and isinstance(model, LanguageModel):
        raise InvalidArgument(
            "a LanguageModel has one text in its cache: for several prompts make a LanguageBatch"
        )
    if not isinstance(model, (LanguageModel, LanguageBatch)):
        if is_many:
            if isinstance(draft, LanguageModel):
                raise InvalidArgument(
                    "a draft for several prompts is compiled for them: give its path"
                )
            count = min(len(prompt), _TOGETHER)
            model = LanguageBatch(model, sequences=count, draft=draft, lora=lora)
        else:
            model = LanguageModel(model, draft=draft, lora=lora)
    elif draft is not None or lora is not None:
        raise InvalidArgument("the model is compiled already: give draft and lora when it is made")
    if isinstance(model, LanguageModel):
        return model.generate(prompt, **options)
    return model.generate(prompt, **options) if is_many else model.submit(prompt, **options)
