"""Any value of any key of a model is read or refused, in files and folders of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingot.compiler.frontends.checkpoint.configuration import read_config
from ingot.compiler.frontends.gguf.architectures import ARCHITECTURES
from ingot.compiler.frontends.gguf.configuration import read_configuration
from ingot.hal.errors import CompileError
from ingot.hal.gguf import Gguf
from tests.support.checkpoint_configs import MODELS
from tests.support.checkpoints import EXPECTED
from tests.support.language import write_model
from tests.support.language_shapes import SHAPES, UNDEFINED

PLAIN = (True, 0, 1, -1, 2**40, 3.5, 1e300, float("nan"), "", "x", [], [1, 2], ["a"], {}, {"a": 1})
ARRAYS = ([], [0, 0, 0], [2**62, 2**62], [1.5], [True, False], ["a"])
OTHERS = (
    "attention.kv_lora_rank", "attention.key_length_mla", "attention.head_count_kv",
    "attention.sliding_window_pattern", "shortconv.l_cache", "nextn_predict_layers",
    "expert_group_count", "expert_gating_func", "expert_weights_norm", "rope.scaling.type",
    "rope.scaling.truncate", "swiglu_limit", "full_attention_interval", "feed_forward_length",
    "rope.scaling.finetuned", "activation_sparsity_scale", "altup.num_inputs",
    "embedding_length_per_layer_input", "attention.shared_kv_layers", "attention.chunk_size",
    "attention.key_length_swa", "rope.dimension_count_swa", "rope.freq_base_swa",
    "attention.temperature_length", "attention.unit_heads", "pooling_type", "attention.causal",
    "wkv.head_size", "token_shift_count", "rescale_every_n_layers", "attention.indexer.top_k",
    "attention.value_scale",
)  # fmt: skip
"""Keys that a file need not have."""


def _is_read(read: Any, *args: Any) -> bool:
    try:
        read(*args)
    except CompileError:
        return False
    return True


FURTHER = ("qwen35", "granitehybrid", "nemotron_h experts", "gemma3n", "gemma4", "llama4", "rwkv6")
FURTHER += ("arwkv7",)


@pytest.mark.parametrize("name", [*SHAPES, *FURTHER])
def test_keys_of_files(name: str, tmp_path: Path) -> None:
    shape = {**SHAPES, **UNDEFINED}[name]
    write_model(tmp_path / "model.gguf", shape)
    file = Gguf(tmp_path / "model.gguf")
    keys = {*file.metadata, *(f"{shape.architecture}.{key}" for key in OTHERS)}
    values = [*PLAIN, *(np.array(each) for each in ARRAYS)]
    found = {
        _is_read(
            read_configuration,
            SimpleNamespace(
                path=file.path, tensors=file.tensors, metadata={**file.metadata, key: value}
            ),
        )
        for key in sorted(keys)
        for value in values
    }
    assert found == {True, False}
    assert shape.architecture in ARCHITECTURES


@pytest.mark.parametrize("name", MODELS)
def test_keys_of_folders(name: str) -> None:
    with np.load(EXPECTED) as found:
        described = json.loads(str(found[f"{name}.json"]))
    config = described["config"]
    inner = config.get("text_config", config)
    rope = inner.get("rope_parameters") or {}
    changes = [{key: value} for key in inner for value in (*PLAIN, None)]
    changes += [
        {"rope_parameters": {**rope, key: value}} for key in rope for value in (*PLAIN, None)
    ]
    for change in changes:
        whole = {**inner, **change}
        if "text_config" in config:
            whole = {**config, "text_config": whole}
        folder = SimpleNamespace(path=Path("model"), config=whole, tensors=described["shapes"])
        _is_read(read_config, folder)


def test_layers_of_which_some_are_listed_are_not_looked_for_one_by_one() -> None:
    """A list of many, and a count of as many layers, would take minutes."""
    with np.load(EXPECTED) as found:
        described = json.loads(str(found["kimi linear.json"]))
    listed = {"full_attn_layers": [*range(-(1 << 16), 0)], "head_dim": 8, "num_heads": 4}
    for count in (1 << 14, 1 << 24):
        change = {"linear_attn_config": listed, "num_hidden_layers": count, "layer_types": None}
        config = {**described["config"], **change}
        folder = SimpleNamespace(path=Path("model"), config=config, tensors=described["shapes"])
        assert not _is_read(read_config, folder)
