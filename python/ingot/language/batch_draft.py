"""Drafts for several texts at once: a smaller model over pages of the same numbers as the model's,
which writes some tokens ahead for all texts that go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BatchDraft", "Wanted"]


class Wanted(NamedTuple):
    """A text that goes on: its tokens, how many of them the model's cache has, and how many may be
    proposed behind them."""

    slot: int
    row: Any  # of the table of pages
    ids: Sequence[int]
    held: int
    most: int
    options: Sequence[Any]


class BatchDraft:
    """`model` proposes at most `count` tokens at a time. `proposed` and `accepted` say how many
    they were so far, and how many of them stayed."""

    def __init__(self, model: Any, count: int, ends: frozenset[int]) -> None:
        self.model, self.count, self.ends = model, count, ends
        self.proposed = self.accepted = 0
        self._lengths: dict[int, int] = {}  # of each slot, the tokens that the cache has

    def place(self, slot: int, length: int, row: Any) -> None:
        """Let a slot have these pages, and of the tokens in them no more than so many."""
        self._lengths[slot] = min(self._lengths.get(slot, 0), length)
        self.model.place(slot, self._lengths[slot], row)

    def fork(self, source: int, target: int, row: Any) -> None:
        """Let another slot go on from a text."""
        self.model.copy_slot(source, target, row)
        self._lengths[target] = self._lengths[source]

    def reset(self) -> None:
        """Forget all texts."""
        self.model.reset()
        self._lengths.clear()

    def hold(self, texts: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Put the tokens of texts, by their slots, into the cache that it lacks."""
        parts = [(slot, ids[self._lengths[slot] :]) for slot, ids in texts]
        parts = [(slot, part) for slot, part in parts if part]
        if not parts:
            return
        slots, ids = zip(*parts, strict=True)
        counts = np.array([len(each) for each in ids], np.int64)
        self.model.prefill(np.array(slots, np.int64), counts, np.concatenate(ids, dtype=np.int32))
        for slot, part in parts:
            self._lengths[slot] += len(part)

    def propose(self, texts: Sequence[Wanted]) -> list[list[int]]:
        """What may come behind each text, up to a token that ends texts."""
        made: list[list[int]] = [[] for _ in texts]
        going = [number for number, text in enumerate(texts) if text.most > 0]
        for text in (texts[number] for number in going):
            length = min(text.held, len(text.ids) - 1)
            if self._lengths[text.slot] > length:  # what was refused stands behind
                self.place(text.slot, length, text.row)
        self.hold([(texts[number].slot, texts[number].ids) for number in going])
        while going:
            slots = np.array([texts[number].slot for number in going], np.int64)
            columns = zip(*(texts[number].options for number in going), strict=True)
            chosen = np.asarray(self.model.choose(slots, *map(np.array, columns))).tolist()
            for number, id in zip(going, chosen, strict=True):
                made[number].append(id)
            left = [
                (number, id)
                for number, id in zip(going, chosen, strict=True)
                if len(made[number]) < texts[number].most and id not in self.ends
            ]
            going = [number for number, _ in left]
            if left:
                slots = np.array([texts[number].slot for number in going], np.int64)
                self.model.decode(slots, np.array([id for _, id in left], np.int32))
                for number in going:
                    self._lengths[texts[number].slot] += 1
        self.proposed += sum(map(len, made))
        return made
