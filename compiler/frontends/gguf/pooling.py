"""How tokens become a vector, and that a score, as keys of a file tell it."""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.gguf.architectures import Architecture
from ingot.compiler.frontends.gguf.keys import Keys, shown
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Head", "read_pooling"]

_POOLINGS = {1: "mean", 2: "first", 3: "last"}
_RANKED, _LABELS = 4, "classifier.output_labels"
_CHOICE = ["yes", "no"]


@dataclass(frozen=True)
class Head:
    """What makes scores of a vector, of models that rank texts."""

    activation: str  # of a first product, where there is one
    is_choice: bool  # yes or no: the score is the probability of yes


def read_pooling(keys: Keys, architecture: Architecture) -> dict[str, Any]:
    """How tokens become a vector, and what becomes of that; none where they do not."""
    key = "pooling_type"
    given = keys.value(key, None)
    is_none = type(given) is int and given == 0
    if (is_none or given is None) and not architecture.is_encoder:
        return {"pooling": "", "head": None}
    if is_none or (given is None and architecture.has_halves):
        return {"pooling": "tokens", "head": None}
    if type(given) is int and given in _POOLINGS:
        return {"pooling": _POOLINGS[given], "head": None}
    if type(given) is int and given == _RANKED:
        labels = keys.value(_LABELS, None)  # an array, if it is one of numbers
        is_choice = isinstance(labels, list) and labels == _CHOICE
        head = Head(architecture.head_activation, is_choice)
        pooling = architecture.ranked_pooling if architecture.is_encoder else "last"
        return {"pooling": pooling, "head": head}
    found = "missing" if given is None else shown(given)
    keys.problems.append(
        f"the key '{keys.name_of(key)}' is {found}, expected 0 (a vector of each token), 1 (the "
        "mean of a text's tokens), 2 (the first), 3 (the last) or 4 (a score of two texts)"
    )
    return {"pooling": "", "head": None}
