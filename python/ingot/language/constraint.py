"""Tokens that a grammar allows, one after another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument
from ingot.language.gbnf import read_gbnf
from ingot.language.grammar import Grammar, State
from ingot.language.json_schema import grammar_of_schema
from ingot.language.tokenizer import Tokenizer

__all__ = ["Constraint", "bias_of", "grammar_of"]

_TRIES = 64
_KEPT = 256  # states whose tokens are remembered
_OTHER_SEED = 0x9E3779B97F4A7C15
Choose = Callable[[Any, int], int]
"""The token that is chosen with these numbers added to logits, f32[words], and this seed."""


def grammar_of(grammar: str | None, schema: Mapping[str, Any] | bool | None) -> Grammar | None:
    """The grammar of what a caller asks for. InvalidArgument: it is none, or there are two."""
    if grammar is not None and schema is not None:
        raise InvalidArgument("grammar and schema are given: a text can follow one of them only")
    if schema is not None:
        return grammar_of_schema(schema)
    return None if grammar is None else read_gbnf(grammar)


class Constraint:
    """What a text may go on with. `bias`: what is added to logits, f32[words]."""

    def __init__(self, grammar: Grammar | None, tokenizer: Tokenizer, bias: Any) -> None:
        self.grammar, self.bias, self.ends = grammar, bias, set(tokenizer.ends)
        if grammar is None:
            return
        self.state, self.tokenizer = grammar.start, tokenizer
        self.pieces, self.cut = tokenizer.pieces(len(bias))
        self.kept: dict[State, Any] = {}

    def next(self, choose: Choose, seed: int) -> int | None:
        """The next token; None: the text is whole. One that is not allowed is left out, and another
        is chosen by a seed of its own, so that those which are allowed have the chances that they
        have among each other. Where many are not, all that are allowed are found."""
        if self.grammar is None:
            return choose(self.bias, seed)
        bias = self.bias.copy()
        for number in range(_TRIES):
            if self.state == {None}:
                return None
            id = choose(bias, _other(seed, number))
            if bias[id] > -np.inf and self._takes(id):
                return id
            bias[id] = -np.inf
        bias = np.where(self._allowed(), self.bias, np.float32(-np.inf))
        if not np.isfinite(bias).any():
            return None
        id = choose(bias, _other(seed, _TRIES))
        return id if self._takes(id) else None

    def _takes(self, id: int) -> bool:
        """Whether a token may stand here; then it does."""
        if id in self.ends:
            return None in self.state
        piece = self.pieces[id]
        following = self._after(piece) if piece else frozenset()
        if following:
            self.state, self.cut = following, 0
        return bool(following)

    def _after(self, piece: bytes) -> State:
        assert self.grammar is not None
        cut = min(self.cut, len(piece) - len(piece.lstrip(b" ")))
        return self.grammar.after(self.state, piece[cut:])

    def _allowed(self) -> Any:
        """Whether each token may stand here, i1[words]."""
        if self.cut:  # the order of pieces is another one without their first spaces
            found = [bool(piece and self._after(piece)) for piece in self.pieces]
            return self._with_ends(np.array(found))
        if self.state not in self.kept:
            if len(self.kept) >= _KEPT:
                self.kept.clear()
            self.kept[self.state] = self._with_ends(self._found())
        return self.kept[self.state]

    def _with_ends(self, found: Any) -> Any:
        found[list(self.ends)] = None in self.state
        return found

    def _found(self) -> Any:
        """As `_allowed`, without ends: pieces with a beginning that cannot stand are passed over
        together, and those with a common beginning take its steps once."""
        assert self.grammar is not None
        found, place, before = np.zeros(len(self.pieces), bool), 0, b""
        in_order = self.tokenizer.pieces_in_order(len(self.pieces))
        states = [self.state]  # behind each of the bytes of `before`
        while place < len(in_order):
            piece, id = in_order[place]
            length = _common(before, piece, len(states) - 1)
            del states[length + 1 :]
            while len(states) <= len(piece) and states[-1]:
                byte = len(states) - 1
                states.append(self.grammar.after(states[-1], piece[byte : byte + 1]))
            if states[-1]:
                found[id], place = True, place + 1
            else:
                wrong = piece[: len(states) - 1]
                place = bisect_left(in_order, _behind(wrong), place, key=lambda each: each[0])
                states.pop()
            before = piece
        return found


def _common(before: bytes, piece: bytes, most: int) -> int:
    """How many bytes both begin with, at most so many."""
    most = min(most, len(before), len(piece))
    return next((n for n in range(most) if before[n] != piece[n]), most)


def _behind(piece: bytes) -> bytes:
    """What comes behind all that begin so."""
    rest = piece.rstrip(b"\xff")
    return rest[:-1] + bytes([rest[-1] + 1]) if rest else piece + b"\xff" * 256


def _other(seed: int, number: int) -> int:
    """Another seed of 64 bits for each number."""
    made = (seed + number * _OTHER_SEED) & ((1 << 64) - 1)
    return made - (1 << 64) if made >> 63 else made


def bias_of(given: Mapping[int, float] | None, words: int) -> Any:
    """Numbers for all tokens, f32[words]. InvalidArgument: for a token that there is not, or no
    number."""
    bias = np.zeros(words, np.float32)
    for id, number in (given or {}).items():
        with np.errstate(over="ignore"):
            element = np.float32(number)
        if not 0 <= id < words or not element < np.inf:
            raise InvalidArgument(
                f"logit_bias has {number!r} for {id!r}, expected a number of f32, or -inf, for a "
                f"token from 0 to {words - 1}"
            )
        bias[id] = element
    return bias
