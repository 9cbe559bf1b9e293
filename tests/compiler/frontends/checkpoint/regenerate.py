"""Writes transformers.npz and encoders.npz, what transformers makes of the models of
`tests/support/checkpoint_configs.py`, and peft.npz, what PEFT makes of some with adapters.

Needs torch, transformers and peft (5.23 and 0.21 made the files); run from the root of the
repository: python -m tests.compiler.frontends.checkpoint.regenerate [MODEL ...], the models whose
logits are to be made anew; without any those that the files lack.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
import transformers

from tests.support.adapters import write_peft
from tests.support.checkpoint_configs import ENCODERS, HALVES, MODELS, RANKED
from tests.support.checkpoints import (
    ADAPTED,
    ENCODED,
    EXPECTED,
    IDS,
    PARTS,
    WITH_ADAPTERS,
    adapter_of,
    kinds_of,
    options_of,
    read_model,
    weights_of,
    write_folder,
)
from tests.support.halves import SOURCE, TARGET


def _described(name: str, folder: Any) -> tuple[str, Any]:
    kind = MODELS[name][0]
    config = getattr(transformers, f"{kind}Config")(**options_of(name))
    has_parts = hasattr(config, "text_config")
    auto = (
        transformers.AutoModelForImageTextToText if has_parts else transformers.AutoModelForCausalLM
    )
    model = auto.from_config(config)
    model.save_pretrained(folder)
    from safetensors.numpy import load_file

    shapes = {
        key: list(each.shape) for key, each in load_file(folder / "model.safetensors").items()
    }
    written = json.loads((folder / "config.json").read_text())
    write_folder(folder, written, weights_of(name, shapes))
    attention = "sdpa" if name == "falcon of slopes" else "eager"  # which adds slopes twice
    model = auto.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor(IDS[None].astype(np.int64))).logits[0].numpy()
    return json.dumps({"config": written, "shapes": shapes}), logits[[4, 8]]


def _encoded(name: str, folder: Any) -> tuple[str, Any]:
    kind, options, mode = (ENCODERS | RANKED)[name]
    config = getattr(transformers, f"{kind}Config")(**options)
    auto = (
        transformers.AutoModel
        if name in ENCODERS
        else transformers.AutoModelForSequenceClassification
    )
    auto.from_config(config).save_pretrained(folder)
    from safetensors.numpy import load_file

    shapes = {
        key: list(each.shape) for key, each in load_file(folder / "model.safetensors").items()
    }
    written = json.loads((folder / "config.json").read_text())
    write_folder(folder, written, weights_of(name, shapes))
    model = auto.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    vectors = []
    for part in PARTS:
        with torch.no_grad():
            ids = torch.tensor(IDS[None, part].astype(np.int64))
            if name in RANKED:
                kinds = torch.tensor(kinds_of(part)[None].astype(np.int64))
                types = {"token_type_ids": kinds} if any("_type_" in key for key in shapes) else {}
                vectors.append(model(ids, **types).logits[0].numpy())
                continue
            rows = model(ids).last_hidden_state[0].numpy()
        every = {"cls_token": rows[0], "lasttoken": rows[-1], "mean_tokens": rows.mean(0)}
        vectors.append(every[mode])
    return json.dumps({"config": written, "shapes": shapes}), np.array(vectors)


def _halves(name: str, folder: Any) -> tuple[str, Any]:
    kind, options = HALVES[name]
    made = getattr(transformers, kind)(transformers.AutoConfig.for_model(**options))
    made.save_pretrained(folder)
    from safetensors.numpy import load_file

    shapes = {
        key: list(each.shape) for key, each in load_file(folder / "model.safetensors").items()
    }
    written = json.loads((folder / "config.json").read_text())
    write_folder(folder, written, weights_of(name, shapes))
    model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32).eval()
    ids = {"input_ids": torch.tensor(SOURCE[None].astype(np.int64))}
    with torch.no_grad():
        if "Encoder" in kind:
            result = model(**ids).last_hidden_state[0].numpy()
        else:
            ids["decoder_input_ids"] = torch.tensor(TARGET[None].astype(np.int64))
            result = model(**ids).logits[0, [4, 8]].numpy()
    return json.dumps({"config": written, "shapes": shapes}), result


def _adapted(name: str, folder: Any) -> Any:
    from peft import PeftModel

    config, weights, _ = read_model(WITH_ADAPTERS[name][0])
    write_folder(folder / "base", config, weights)
    pairs, alpha, options = adapter_of(name, weights)
    write_peft(folder / "adapter", pairs, alpha, **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "base", attn_implementation="eager", dtype=torch.float32
    )
    model = PeftModel.from_pretrained(model, folder / "adapter")
    with torch.no_grad():
        logits = model(torch.tensor(IDS[None].astype(np.int64))).logits[0].numpy()
    return logits[[4, 8]]


def main() -> None:
    import tempfile
    from pathlib import Path

    with np.load(ADAPTED) as before:
        adapted = {name: before[name] for name in before if name in WITH_ADAPTERS}
    for name in WITH_ADAPTERS:
        if name not in adapted or WITH_ADAPTERS[name][0] in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as folder:
                adapted[name] = _adapted(name, Path(folder))
    np.savez_compressed(ADAPTED, **adapted)
    encoded = {}
    for name in [*ENCODERS, *RANKED]:
        with tempfile.TemporaryDirectory() as folder:
            encoded[f"{name}.json"], encoded[name] = _encoded(name, Path(folder))
    for name in HALVES:
        with tempfile.TemporaryDirectory() as folder:
            encoded[f"{name}.json"], encoded[name] = _halves(name, Path(folder))
    np.savez_compressed(ENCODED, **encoded)
    with np.load(EXPECTED) as before:
        found = {name: before[name] for name in before if name.removesuffix(".json") in MODELS}
    for name in sys.argv[1:] or [name for name in MODELS if name not in found]:
        with tempfile.TemporaryDirectory() as folder:
            found[f"{name}.json"], found[name] = _described(name, Path(folder))
    np.savez_compressed(EXPECTED, **found)


if __name__ == "__main__":
    main()
