"""The text of tokens that come one by one: a character is given when its last byte is there.

Tokens are bytes, and what they make together need not be UTF-8: what is not becomes U+FFFD as soon
as that is certain, and nothing that was given is taken back.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingot.hal.errors import InvalidArgument, Unsupported
from ingot.language.package import package, whole

__all__ = ["LETTERS", "StopTexts", "TextStream"]

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


def _byte_letters() -> dict[str, int]:
    """The letters by which byte-level tokenizers write bytes: those that can be seen stand for
    themselves, the others for the next ones behind 255."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in seen]
    letters = {chr(byte): byte for byte in seen}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


LETTERS = _byte_letters()


class TextStream:
    """The text of the tokens of a tokenizer of the package tokenizers, without those that only
    control, `controls`. Called with an id it gives what is whole with it."""

    def __init__(self, tokenizer: Any, controls: frozenset[int]) -> None:
        self._tokenizer, self._controls = tokenizer, controls
        state = tokenizer.decoder
        steps = [] if state is None else _steps(json.loads(state.__getstate__()))
        self._bytes, self._stripped = _pieces(steps)
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._other = package("tokenizers").decoders.DecodeStream(skip_special_tokens=True)

    def __call__(self, id: int) -> str:
        token = self._tokenizer.id_to_token(id)
        if token is None or id in self._controls:
            return ""
        if self._bytes is None:
            with whole("the tokenizer"):
                return self._other.step(self._tokenizer, id) or ""
        text = self._text.decode(self._bytes(token))
        while self._stripped and text:
            self._stripped = self._stripped - 1 if text[0] == " " else 0
            text = text.removeprefix(" ")
        return text

    def pieces(self, count: int) -> tuple[list[bytes], int]:
        """See `Tokenizer.pieces`."""
        if self._bytes is None:
            raise Unsupported(
                "what a token of this tokenizer stands for depends on others, so nothing can be "
                "demanded of texts byte by byte"
            )
        tokens = (
            None if id in self._controls else self._tokenizer.id_to_token(id) for id in range(count)
        )
        made = [b"" if token is None else self._bytes(token) for token in tokens]
        return made, self._stripped

    def all(self, ids: Sequence[int]) -> str:
        """The text of all ids, the first ones that come."""
        if self._bytes is not None:
            return "".join([*map(self, ids), self.end()])
        known = [id for id in ids if self._tokenizer.id_to_token(id) is not None]
        with whole("the tokenizer"):
            text: str = self._tokenizer.decode(known, skip_special_tokens=True)
        return text

    def end(self) -> str:
        """U+FFFD where the text ends within a character."""
        return self._text.decode(b"", final=True)


def _steps(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The steps of a decoder, one behind another."""
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for each in decoder["decoders"] for step in _steps(each)]


def _pieces(steps: list[Mapping[str, Any]]) -> tuple[Callable[[str], bytes] | None, int]:
    """What makes bytes of a token, and how many spaces in front of a text go; None where the steps
    are others than that of byte-level tokenizers and those of SentencePiece's with bytes: texts in
    a token are replaced, bytes are read, and the text, once it is one, is stripped."""
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _of_letters, 0
    if "ByteFallback" not in kinds:
        return None, 0
    place = kinds.index("ByteFallback")
    before, behind = steps[:place], steps[place + 1 :]
    is_fused = not behind or behind.pop(0)["type"] == "Fuse"
    if not (is_fused and all(map(_is_replacing, before)) and all(map(_is_stripping, behind))):
        return None, 0
    replaced = [(step["pattern"]["String"], step["content"]) for step in before]

    def of_piece(token: str) -> bytes:
        for old, new in replaced:
            token = token.replace(old, new)
        byte = _BYTE.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.encode()

    return of_piece, sum(step["start"] for step in behind)


def _is_replacing(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Replace" and "String" in step["pattern"]


def _is_stripping(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Strip" and (step["content"], step["stop"]) == (" ", 0)


def _of_letters(token: str) -> bytes:
    """The bytes of a token; one with other letters is a text."""
    try:
        return bytes(LETTERS[letter] for letter in token)
    except KeyError:
        return token.encode()


class StopTexts:
    """A text in pieces up to the first of some texts, `stops`. What may be the beginning of one is
    kept until that is certain. InvalidArgument: one of them is empty."""

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not each for each in stops):
            raise InvalidArgument("stop has an empty text, which is everywhere")
        self._stops, self._kept = tuple(stops), ""
        self.is_over = False

    def __call__(self, piece: str) -> str:
        """What is certain with the next piece."""
        text, self._kept = self._kept + piece, ""
        places = [place for each in self._stops if (place := text.find(each)) >= 0]
        if places:
            self.is_over = True
            return text[: min(places)]
        longest = max(map(len, self._stops), default=1) - 1
        for place in range(max(len(text) - longest, 0), len(text)):
            if any(each.startswith(text[place:]) for each in self._stops):
                self._kept = text[place:]
                return text[:place]
        return text

    def rest(self, piece: str) -> str:
        """What is left at the end, which has this piece."""
        return "" if self.is_over else self(piece) + ("" if self.is_over else self._kept)
