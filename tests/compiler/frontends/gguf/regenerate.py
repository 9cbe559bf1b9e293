"""Writes llama_cpp.npz: the logits of llama.cpp behind the ids, for each model of `SHAPES`; and
tokens.npz: how it cuts texts, by tokens of which as many reach over cuts as there may be.

Needs llama-cpp-python (0.3.36 made the file); run from the root of the repository:
python -m tests.compiler.frontends.gguf.regenerate [MODEL ...], the models whose logits are
to be made anew; without any those that the file lacks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import tokenizers

from ingot.language.tokenizer import _SPLITS
from tests.support.cut_texts import CUT, UNMERGED, texts_to_cut
from tests.support.language import IDS, KEYS, PEER_SHAPES, write_model
from tests.support.language_shapes import Shape

_OTHERWISE = {"youtu", "kimi-k2", "tiny_aya", "cohere2moe", "superbpe", "afmoe"}
"""Which llama.cpp cuts in other places than the tokenizers that files were made of: it takes words
of capitals and small letters whole, and other digits, and ends of words, by ASCII."""


def _last_logits(path: Path) -> Any:
    f32 = 0
    options = {"n_ctx": 64, "logits_all": True, "type_k": f32, "type_v": f32}
    model = llama_cpp.Llama(str(path), verbose=False, **options)
    model.eval(IDS.tolist())
    return np.array(model.scores[len(IDS) - 1], np.float32)


def _tokenizer() -> dict[str, Any]:
    """One that was trained on texts without cuts."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    trained.pre_tokenizer = byte_level(add_prefix_space=False, use_regex=False)
    parts = [text[i : i + 12] for text in texts_to_cut(600) for i in range(0, len(text), 6)]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    trained.train_from_iterator(parts, trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + UNMERGED
    merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
    return {"ggml.model": "gpt2", "ggml.tokens": tokens, "ggml.merges": merges,
            "ggml.token_type": [1] * len(tokens), "ggml.bos_token_id": 0,
            "ggml.eos_token_id": 0}  # fmt: skip


def _cut(path: Path) -> dict[str, Any]:
    keys, texts = _tokenizer(), texts_to_cut(60)
    found = {key: np.array(keys[f"ggml.{key}"]) for key in ("tokens", "merges")}
    for pre in _SPLITS.keys() - _OTHERWISE:
        write_model(path, Shape(vocabulary=4), tokenizer={**keys, "ggml.pre": pre})
        try:
            model = llama_cpp.Llama(str(path), verbose=False, vocab_only=True)
        except ValueError:
            continue  # which it does not know by this name
        ids = [model.tokenize(text.encode(), add_bos=True, special=False) for text in texts]
        found[pre] = np.array([id for each in ids for id in (*each, -1)], np.int16)
    return found


def main() -> None:
    expected = Path(__file__).parent / "llama_cpp.npz"
    with np.load(expected) as before:
        found = {name: before[name] for name in before if name in PEER_SHAPES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        for name in sys.argv[1:] or [name for name in PEER_SHAPES if name not in found]:
            write_model(path, PEER_SHAPES[name], tokenizer=KEYS)
            found[name] = _last_logits(path)
        np.savez_compressed(CUT, **_cut(path))
    np.savez(expected, **found)


if __name__ == "__main__":
    main()
