"""Writes transformers.npz: what transformers makes of the models of `tests/support/checkpoints.py`.

Needs torch and transformers (5.23 made the file); run from the root of the repository:
python -m tests.compiler.frontends.checkpoint.regenerate
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
import transformers

from tests.support.checkpoints import (
    EXPECTED,
    IDS,
    MODELS,
    options_of,
    weights_of,
    write_folder,
)


def _described(name: str, folder: Any) -> tuple[str, Any]:
    kind = MODELS[name][0]
    config = getattr(transformers, f"{kind}Config")(**options_of(name))
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    from safetensors.numpy import load_file

    shapes = {
        key: list(each.shape) for key, each in load_file(folder / "model.safetensors").items()
    }
    written = json.loads((folder / "config.json").read_text())
    write_folder(folder, written, weights_of(shapes, name.startswith("gemma")))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        logits = model(torch.tensor(IDS[None].astype(np.int64))).logits[0].numpy()
    return json.dumps({"config": written, "shapes": shapes}), logits[[4, 8]]


def main() -> None:
    import tempfile
    from pathlib import Path

    found: dict[str, Any] = {}
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            found[f"{name}.json"], found[name] = _described(name, Path(folder))
    np.savez_compressed(EXPECTED, **found)


if __name__ == "__main__":
    main()
