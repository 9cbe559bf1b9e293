"""Drafts: a smaller model writes some tokens ahead, and the model itself checks all at once.

A token is chosen by the seed and its place, of both models alike, and those of the draft stay
which are the model's own choice: the text is the same as without a draft, by chance, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.hal.errors import InvalidArgument

if TYPE_CHECKING:
    from ingot.language.model import LanguageModel
    from ingot.language.tokenizer import Tokenizer

__all__ = ["Draft", "check_count", "check_vocabulary", "check_words"]

_MOST = 32  # what a call of a module's `generate` gives at most


def check_count(count: int) -> None:
    """InvalidArgument: a draft cannot propose so many tokens at a time."""
    if not 1 <= count <= _MOST:
        raise InvalidArgument(f"draft_tokens is {count}, expected 1 to {_MOST}")


def check_vocabulary(draft: Tokenizer, model: Tokenizer) -> None:
    """InvalidArgument: the tokenizer of the draft is another one."""
    own, others = draft.vocabulary(), model.vocabulary()
    if own != others:
        _, text = min((id, text) for text, id in own.items() ^ others.items())
        raise InvalidArgument(
            f"the vocabulary of the draft is not that of the model: {text!r} is "
            f"{_id(own, text)} in the draft and {_id(others, text)} in the model; a draft "
            "needs the same tokenizer"
        )


def check_words(draft: int, model: int) -> None:
    """InvalidArgument: the draft knows more tokens than the model."""
    if draft > model:
        raise InvalidArgument(
            f"the draft gives logits of {draft} tokens, but the model knows "
            f"{model}: expected at most so many"
        )


class Draft:
    """`model`, which proposes `count` tokens at a time. `proposed` and `accepted` say how many
    they were so far, and how many of them stayed."""

    def __init__(self, model: LanguageModel, count: int) -> None:
        self.model, self.count = model, count
        self.proposed = self.accepted = 0

    def check(self, model: LanguageModel) -> None:
        """InvalidArgument: the draft does not fit this model."""
        check_vocabulary(self.model.tokenizer, model.tokenizer)
        check_words(self.model.words, model.words)
        if self.model.capacity < model.capacity:
            raise InvalidArgument(
                f"the cache of the draft has room for {self.model.capacity} tokens, that of the "
                f"model for {model.capacity}: expected at least so many"
            )

    def propose(
        self, ids: Sequence[int], most: int, stops: Any, sampling: Sequence[Any]
    ) -> list[int]:
        """What may come behind these tokens, at most so many."""
        count = min(self.count, most)
        if count < 1:
            return []
        self.model.hold(ids)
        made, number = self.model.model.generate(count, stops, *sampling)
        proposed: list[int] = np.asarray(made)[: int(number)].tolist()
        self.model.ids += proposed
        self.proposed += len(proposed)
        return proposed


def _id(vocabulary: dict[str, int], text: str) -> str:
    return f"token {vocabulary[text]}" if text in vocabulary else "no token"
