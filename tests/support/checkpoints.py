"""Small models of transformers with random weights that follow from their names' order: what
transformers says of them, and folders of them without it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.checkpoint_configs import MODELS, SIZES

Array = Any

IDS = np.random.default_rng(1).integers(0, 100, 9).astype(np.int32)
EXPECTED = Path(__file__).parents[1] / "compiler/frontends/checkpoint/transformers.npz"
"""By model: the logits behind the fifth and the last of IDS, f32[2, vocabulary]; under the name
with .json the config and the shapes of its tensors."""

ENCODED = EXPECTED.with_name("encoders.npz")
"""As EXPECTED, of ENCODERS and RANKED: the vectors of the texts in PARTS, f32[3, width], or their
scores, f32[3, 1]."""
PARTS = (slice(0, 4), slice(4, 5), slice(0, 9))

_LESS_ONE = ("gemma3 of both sides", "vaultgemma", "gemma", "gemma2", "gemma3", "gemma3 of images")
"""Models whose weights of norms are near 0."""

ADAPTED = EXPECTED.with_name("peft.npz")
"""By the name of WITH_ADAPTERS: logits as in EXPECTED, of the model with its adapter."""

WITH_ADAPTERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", r"self_attn\.|mlp\.", {}),
    "llama some": ("llama", r"\.1\..*(q_proj|v_proj)", {"use_rslora": True}),
    "qwen3": ("qwen3", r"(q_proj|k_proj|down_proj)", {"alpha_pattern": {"q_proj": 3}}),
    "phi3": ("phi3", r"(qkv_proj|o_proj|gate_up_proj)", {}),
}
"""A model, the modules that are changed, and further keys of adapter_config.json."""


def adapter_of(name: str, weights: Mapping[str, Array]) -> tuple[Any, float, dict[str, Any]]:
    """Factors of rank 3 by module, alpha, and further keys."""
    from tests.support.adapters import random_pairs

    _, pattern, options = WITH_ADAPTERS[name]
    shapes = {
        key.removesuffix(".weight"): each.shape
        for key, each in sorted(weights.items())
        if each.ndim == 2 and re.search(pattern, key)
    }
    return random_pairs(shapes, 3), 2.0, options


def kinds_of(part: slice) -> Array:
    """Of a text in PARTS the first half is of one text, the other of another, i32[tokens]."""
    length = len(IDS[part])
    return (np.arange(length) >= length // 2).astype(np.int32)


def options_of(name: str) -> dict[str, Any]:
    """The options of a configuration."""
    options = {**SIZES, **MODELS[name][1]}
    if not options.pop("has_groups", True):
        del options["num_key_value_heads"]
    if "vision_config" not in options:
        return options
    vision = options.pop("vision_config")
    return {"text_config": options, "vision_config": vision, "tie_word_embeddings": False}


def weights_of(name: str, shapes: Mapping[str, list[int]]) -> dict[str, Array]:
    """Weights of a model of these shapes, which bf16 has exactly."""
    random, is_less_one = np.random.default_rng(0), name in _LESS_ONE
    weights = {}
    for name in sorted(shapes):
        shape = shapes[name]
        values = random.normal(0, 0.1 if len(shape) < 2 else shape[-1] ** -0.5, shape)
        is_factor = "norm" in name.lower() and not is_less_one
        values += len(shape) == 1 and (is_factor or name.endswith(("scale", "scalar")))
        weights[name] = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    return weights


def write_pooling(folder: Path, mode: str) -> None:
    """Write how tokens become a vector, as sentence-transformers does."""
    (folder / "1_Pooling").mkdir(exist_ok=True)
    given = {"word_embedding_dimension": 64, "pooling_mode_max_tokens": False, mode: True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(given))


def write_folder(
    folder: Path, config: Mapping[str, Any], weights: Mapping[str, Array], parts: int = 1
) -> None:
    """Write config.json and the weights, in bf16, in one file or several."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    index = {}
    for part in range(parts):
        names = list(weights)[part::parts]
        file = "model.safetensors" if parts == 1 else f"model-{part}.safetensors"
        index |= dict.fromkeys(names, file)
        halves = {name: weights[name].astype(ml_dtypes.bfloat16) for name in names}
        save_file(halves, folder / file)
    if parts > 1:
        text = json.dumps({"weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)


def read_model(name: str) -> tuple[dict[str, Any], dict[str, Array], Array]:
    """Config, weights and logits of a model."""
    with np.load(EXPECTED) as found:
        described = json.loads(str(found[f"{name}.json"]))
        weights = weights_of(name, described["shapes"])
        return described["config"], weights, found[name]
