"""Tokens with the logarithms of their probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Token"]


@dataclass(frozen=True)
class Token:
    """A token of a text. `text`: what became whole with it. `logprob`: the natural logarithm of its
    probability, as the model gives it, whatever it was chosen by. `alternatives`: the most likely
    tokens there with theirs, the first one first."""

    id: int
    text: str
    logprob: float
    alternatives: tuple[tuple[int, float], ...]

    @staticmethod
    def of(id: int, text: str, logits: Any, alternatives: int) -> Token:
        """That of logits f32[words]."""
        numbers = np.asarray(logits).astype(np.float64)
        numbers -= numbers.max()
        numbers -= np.log(np.exp(numbers).sum())
        most = np.argsort(-numbers, kind="stable")[:alternatives]
        pairs = tuple((int(each), float(numbers[each])) for each in most)
        return Token(id, text, float(numbers[id]), pairs)
