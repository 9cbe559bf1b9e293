"""Tokenizers of GGUF files without merges: pieces of words of BERT, unigrams of SentencePiece, and
the longest tokens of RWKV."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument
from ingot.language.package import package
from ingot.language.text_stream import LETTERS

__all__ = ["MARK", "longest_tokens", "unigrams", "word_pieces"]

MARK = "\u2581"
"""SentencePiece's space."""

_SPECIAL = re.compile(r"\[.*\]", re.DOTALL)
_BYTE = 6  # type of a token
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)
_SHORT = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def word_pieces(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """Words in small letters without accents, each by the longest pieces from its start on. Files
    mark pieces at the start of words, where BERT's vocabularies mark all others."""
    tokenizers = package("tokenizers")
    vocabulary = {_as_bert_has_it(text): id for id, text in enumerate(texts)}
    unknown = _as_bert_has_it(texts[key("unknown_token_id", 100)])
    model = tokenizers.models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=100)
    result = tokenizers.Tokenizer(model)
    has_small = bool(key("normalizer.lowercase", True))
    result.normalizer = tokenizers.normalizers.BertNormalizer(
        strip_accents=bool(key("normalizer.strip_accents", has_small)), lowercase=has_small
    )
    result.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    result.decoder = tokenizers.decoders.WordPiece()
    return result


def _as_bert_has_it(text: str) -> str:
    if _SPECIAL.fullmatch(text):
        return text
    return text[1:] if text.startswith(MARK) else f"##{text}"


def unigrams(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """The pieces of a word whose scores have the greatest sum."""
    tokenizers = package("tokenizers")
    normalizers, has_bytes = tokenizers.normalizers, _BYTE in key("token_type", ())
    pairs = [(text, float(score)) for text, score in zip(texts, key("scores"), strict=True)]
    model = tokenizers.models.Unigram(pairs, key("unknown_token_id", 2), has_bytes)
    result = tokenizers.Tokenizer(model)
    steps, table = [], key("precompiled_charsmap")
    if table is not None and len(table):
        steps.append(normalizers.Precompiled(np.asarray(table).astype(np.uint8).tobytes()))
    if key("remove_extra_whitespaces", False):
        for extra, kept in ((r"\A +| +\z", ""), (" {2,}", " ")):
            steps.append(normalizers.Replace(tokenizers.Regex(extra), kept))
    result.normalizer = normalizers.Sequence(steps)
    options = {"prepend_scheme": "always" if key("add_space_prefix", True) else "never"}
    result.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(**options)
    result.decoder = tokenizers.decoders.Metaspace(**options)
    return result


def longest_tokens(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """At each place of a text's bytes the longest token."""
    return _Longest([_unescaped(text) for text in texts])


def _unescaped(text: str) -> bytes:
    """The bytes of a token, which files have as Python shows them."""

    def one(match: re.Match[bytes]) -> bytes:
        code, letter = match.groups()
        return bytes([int(code, 16)]) if code else _SHORT.get(letter, letter)

    return _ESCAPED.sub(one, text.encode())


class _Longest:
    """What `tokenizers` has no model for; all but `encode` is its own."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        tokenizers = package("tokenizers")
        letters = {byte: letter for letter, byte in LETTERS.items()}
        vocabulary = {"".join(letters[x] for x in token): id for id, token in enumerate(tokens)}
        unknown = next(iter(vocabulary), "")
        self._made = tokenizers.Tokenizer(
            tokenizers.models.WordPiece(vocabulary, unk_token=unknown)
        )
        self._made.decoder = tokenizers.decoders.ByteLevel()
        self._tokens = tokens
        self._ids = {token: id for id, token in enumerate(tokens) if token}
        self._lengths: dict[bytes, list[int]] = {}  # of tokens that begin with a byte
        for token in self._ids:
            self._lengths.setdefault(token[:1], []).append(len(token))
        for begin, lengths in self._lengths.items():
            self._lengths[begin] = sorted({*lengths}, reverse=True)

    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        """The tokens of a text. InvalidArgument: there is none for a byte of it."""
        data, place, ids = text.encode(), 0, list[int]()
        while place < len(data):
            lengths = self._lengths.get(data[place : place + 1], ())
            id = next(
                (
                    self._ids[part]
                    for n in lengths
                    if (part := data[place : place + n]) in self._ids
                ),
                None,
            )
            if id is None:
                raise InvalidArgument(f"the tokenizer has no token for the byte {data[place]:#04x}")
            ids.append(id)
            place += len(self._tokens[id])
        return SimpleNamespace(ids=ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)
