"""Writes llama_cpp.npz: the logits of llama.cpp behind the ids, for each model of `SHAPES`; and
tokens.npz: how it cuts texts, by tokens of which as many reach over cuts as there may be;
pieces.npz: by which pieces of words and unigrams; encoders.npz: its vectors of texts.

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
from tests.support.cut_texts import CUT, PIECES, UNMERGED, texts_to_cut
from tests.support.encoders import ENCODER_KEYS, ENCODERS, vectors_of_llama_cpp
from tests.support.halves import HALVES, logits_of_llama_cpp
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


def _word_pieces() -> dict[str, Any]:
    """A tokenizer of BERT, as files have it."""
    trained = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = tokenizers.normalizers.BertNormalizer()
    trained.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=1500, special_tokens=special, show_progress=False
    )
    trained.train_from_iterator(texts_to_cut(600), trainer)
    vocabulary = trained.get_vocab()
    texts = sorted(vocabulary, key=vocabulary.__getitem__)
    rest = [text[2:] if text.startswith("##") else f"\u2581{text}" for text in texts[5:]]
    return {"ggml.model": "bert", "ggml.tokens": [*special, *rest], "ggml.bos_token_id": 2,
            "ggml.unknown_token_id": 1, "ggml.seperator_token_id": 3, "ggml.token_type_count": 2,
            "ggml.token_type": [3] * 5 + [1] * len(rest)}  # fmt: skip


def _unigrams() -> dict[str, Any]:
    trained = tokenizers.Tokenizer(tokenizers.models.Unigram())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=1500, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>",
        show_progress=False,
    )  # fmt: skip
    trained.train_from_iterator(texts_to_cut(600), trainer)
    texts, scores = zip(*json.loads(trained.to_str())["model"]["vocab"], strict=True)
    return {"ggml.model": "t5", "ggml.tokens": list(texts), "ggml.scores": list(map(float, scores)),
            "ggml.bos_token_id": 0, "ggml.eos_token_id": 1, "ggml.unknown_token_id": 2,
            "ggml.add_bos_token": True, "ggml.add_eos_token": True, "ggml.token_type_count": 2,
            "ggml.remove_extra_whitespaces": True,
            "ggml.token_type": [3, 3, 2] + [1] * (len(texts) - 3)}  # fmt: skip


def _longest() -> dict[str, Any]:
    """Tokens as RWKV has them: all bytes, and parts of texts, as Python shows them."""
    parts = [text[i : i + 5].encode() for text in texts_to_cut(40) for i in range(0, len(text), 3)]
    tokens = [b"<s>", *(bytes([byte]) for byte in range(256)), *dict.fromkeys(parts)]
    tokens = [token for token in dict.fromkeys(tokens) if b"\0" not in token or len(token) == 1]
    return {"ggml.model": "rwkv", "ggml.tokens": [repr(token)[2:-1] for token in tokens],
            "ggml.token_type": [3] + [1] * (len(tokens) - 1), "ggml.eos_token_id": 0,
            "ggml.token_type_count": 2}  # fmt: skip


def _in_pieces(path: Path) -> dict[str, Any]:
    """The keys of tokenizers, as JSON, and the ids of texts, by their kind."""
    found = {}
    for keys in (_word_pieces(), _unigrams(), _longest()):
        write_model(path, Shape("bert", vocabulary=4), tokenizer={**keys, "ggml.pre": "default"})
        model, kind = llama_cpp.Llama(str(path), verbose=False, vocab_only=True), keys["ggml.model"]
        ids = [model.tokenize(text.encode(), special=False) for text in texts_to_cut(60)]
        found[f"{kind} keys"] = np.array(json.dumps(keys))
        found[kind] = np.array([id for each in ids for id in (*each, -1)], np.int16)
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
        np.savez_compressed(PIECES, **_in_pieces(path))
        vectors = {}
        for name, shape in ENCODERS.items():
            write_model(path, shape, tokenizer=ENCODER_KEYS)
            vectors[name] = vectors_of_llama_cpp(path)
        for name, shape in HALVES.items():
            write_model(path, shape, tokenizer=KEYS)
            vectors[name] = logits_of_llama_cpp(path)
        np.savez(expected.parent / "encoders.npz", **vectors)
    np.savez(expected, **found)


if __name__ == "__main__":
    main()
