"""Writes llama_cpp.npz: the logits of llama.cpp behind the ids, for each model of `SHAPES`.

Needs llama-cpp-python (0.3.36 made the file); run from the root of the repository:
python -m tests.compiler.frontends.gguf.regenerate
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from tests.support.language import IDS, KEYS, PEER_SHAPES, write_model


def _last_logits(path: Path) -> Any:
    f32 = 0
    options = {"n_ctx": 64, "logits_all": True, "type_k": f32, "type_v": f32}
    model = llama_cpp.Llama(str(path), verbose=False, **options)
    model.eval(IDS.tolist())
    return np.array(model.scores[len(IDS) - 1], np.float32)


def main() -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in PEER_SHAPES.items():
            path = Path(folder) / "model.gguf"
            write_model(path, shape, tokenizer=KEYS)
            found[name] = _last_logits(path)
    np.savez(Path(__file__).parent / "llama_cpp.npz", **found)


if __name__ == "__main__":
    main()
