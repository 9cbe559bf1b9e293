"""LoRA adapters with random factors, as llama.cpp and PEFT write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file

Array = Any
Pairs = Mapping[str, tuple[Array, Array]]
"""By the name of a product: down [rank, k] and up [length, rank]."""


def random_pairs(shapes: Mapping[str, tuple[int, ...]], rank: int, seed: int = 0) -> Pairs:
    """Factors for weights [length, k] of these names."""
    random = np.random.default_rng(seed)

    def part(*shape: int) -> Array:
        return random.normal(0, 0.3, shape).astype(np.float32)

    return {name: (part(rank, k), part(length, rank)) for name, (length, k) in shapes.items()}


def write_gguf(path: Path, pairs: Pairs, alpha: float | None, **metadata: str) -> Path:
    """An adapter as convert_lora_to_gguf.py of llama.cpp writes it."""
    writer = gguf.GGUFWriter(path, metadata.get("architecture", "llama"))
    writer.add_string("general.type", metadata.get("type", "adapter"))
    writer.add_string("adapter.type", metadata.get("kind", "lora"))
    if alpha is not None:
        writer.add_float32("adapter.lora.alpha", alpha)
    for name, (down, up) in pairs.items():
        writer.add_tensor(f"{name}.weight.lora_a", down)
        writer.add_tensor(f"{name}.weight.lora_b", up)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_peft(folder: Path, pairs: Pairs, alpha: float, **config: Any) -> Path:
    """An adapter as `save_pretrained` of PEFT writes it."""
    folder.mkdir(exist_ok=True)
    rank = max(down.shape[0] for down, _ in pairs.values())
    targets = sorted({name.rpartition(".")[2] for name in pairs})
    written = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha}
    written |= {"target_modules": targets, "bias": "none", "use_dora": False, **config}
    (folder / "adapter_config.json").write_text(json.dumps(written))
    tensors = {
        f"base_model.model.{name}.lora_{part}.weight": factor
        for name, pair in pairs.items()
        for part, factor in zip("AB", pair, strict=True)
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def merged(weights: Mapping[str, Array], pairs: Pairs, scale: float) -> dict[str, Array]:
    """The weights with the adapter in them."""
    result = dict(weights)
    for name, (down, up) in pairs.items():
        result[f"{name}.weight"] = result[f"{name}.weight"] + np.float32(scale) * (up @ down)
    return result
