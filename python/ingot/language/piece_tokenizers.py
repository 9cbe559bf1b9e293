"""Tokenizers of GGUF files whose pieces are chosen of a whole word at once: those of BERT, and of
SentencePiece's unigrams."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.language.package import package

__all__ = ["MARK", "unigrams", "word_pieces"]

MARK = "\u2581"
"""SentencePiece's space."""

_SPECIAL = re.compile(r"\[.*\]", re.DOTALL)
_BYTE = 6  # type of a token


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
