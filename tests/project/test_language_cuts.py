"""How byte-level tokenizers of GGUF files cut texts: as llama.cpp does."""

from __future__ import annotations

import json
import random
import time

import numpy as np
import pytest
import tokenizers

import ingot
from ingot.language.tokenizer import _SPLITS, FileTokenizer
from tests.support.cut_texts import CUT, PIECES, texts_to_cut

with np.load(CUT) as found:
    EXPECTED = dict(found)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in ("tokens", "merges")])
def test_texts_are_cut_as_by_llama_cpp(name: str) -> None:
    keys = {"model": "gpt2", "pre": name, "bos_token_id": 0, "eos_token_id": 0}
    keys |= {key: EXPECTED[key].tolist() for key in ("tokens", "merges")}
    tokenizer = FileTokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    ids = [id for text in texts_to_cut(60) for id in (*tokenizer.encode(text), -1)]
    assert ids == EXPECTED[name].tolist()


def test_the_longest_tokens_are_those_of_llama_cpp() -> None:
    with np.load(PIECES) as found:
        keys, expected = json.loads(str(found["rwkv keys"])), found["rwkv"].tolist()
    keys = {f"tokenizer.{key}": value for key, value in keys.items()}
    tokenizer, texts = FileTokenizer(keys), texts_to_cut(60)
    assert [id for text in texts for id in (*tokenizer.whole(text), -1)] == expected
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    keys["tokenizer.ggml.tokens"] = ["<s>", "a", "ab"]
    keys["tokenizer.ggml.token_type"] = [3, 1, 1]
    assert FileTokenizer(keys).encode("aba") == [2, 1]
    with pytest.raises(ingot.InvalidArgument, match="no token for the byte 0x62"):
        FileTokenizer(keys).encode("aab" + "b")


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_words_are_cut_into_pieces_as_by_llama_cpp(kind: str) -> None:
    with np.load(PIECES) as found:
        keys, expected = json.loads(str(found[f"{kind} keys"])), found[kind].tolist()
    tokenizer = FileTokenizer({f"tokenizer.{key}": value for key, value in keys.items()})
    ids = [id for text in texts_to_cut(60) for id in (*tokenizer.whole(text), -1)]
    assert ids == expected
    without = FileTokenizer(
        {f"tokenizer.{key}": value for key, value in keys.items()}
        | {f"tokenizer.ggml.add_{name}_token": False for name in ("bos", "eos", "sep")}
    )
    begin, *rest, end = tokenizer.whole("hello World")
    assert without.whole("hello World") == rest
    assert (tokenizer.begin, tokenizer.close) == (begin, end)


def test_words_may_keep_their_capitals_and_accents() -> None:
    keys = {"model": "bert", "tokens": ["[UNK]", "\u2581\xc9t\xe9", "\u2581ete", "t"]}
    keys |= {"unknown_token_id": 0, "add_bos_token": False, "add_sep_token": False}
    for has_small, ids in ((True, [2, 0]), (False, [1, 0])):
        keys["normalizer.lowercase"] = has_small
        tokenizer = FileTokenizer({f"tokenizer.ggml.{key}": each for key, each in keys.items()})
        assert tokenizer.whole("\xc9t\xe9 t") == ids


def _cut(patterns: tuple[str, ...], text: str) -> list[str]:
    splits = [
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(each), "isolated") for each in patterns
    ]
    return [part for part, _ in tokenizers.pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("afmoe", (r"\d{1,3}(?=(?:\d{3})*\b)", *_SPLITS["afmoe"][1:])),
        ("superbpe", (r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    ],
)
def test_digits_by_threes_from_behind_take_time_by_their_count(
    name: str, plain: tuple[str, ...]
) -> None:
    """And are those that the plain expression gives, whose time grows by the square."""
    draw = random.Random(0)
    for _ in range(500):
        letters = draw.choice(("0123456789", "12\u0661\xbd\u2167 a_\u0301,."))
        text = "".join(draw.choices(letters, k=draw.randrange(16))) + draw.choice(("", "a", "\n"))
        assert _cut(_SPLITS[name], text) == _cut(plain, text), text
    begin = time.process_time()
    for end in ("", "a"):
        _cut(_SPLITS[name], "\u0661" * 30_000 + end)
    assert time.process_time() - begin < 10
