"""How byte-level tokenizers of GGUF files cut texts: as llama.cpp does."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.language.tokenizer import FileTokenizer
from tests.support.cut_texts import CUT, texts_to_cut

with np.load(CUT) as found:
    EXPECTED = dict(found)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in ("tokens", "merges")])
def test_texts_are_cut_as_by_llama_cpp(name: str) -> None:
    keys = {"model": "gpt2", "pre": name, "bos_token_id": 0, "eos_token_id": 0}
    keys |= {key: EXPECTED[key].tolist() for key in ("tokens", "merges")}
    tokenizer = FileTokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    ids = [id for text in texts_to_cut(60) for id in (*tokenizer.encode(text), -1)]
    assert ids == EXPECTED[name].tolist()
