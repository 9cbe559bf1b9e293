"""Language models from folders: every model type against transformers, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

import ingot
from ingot.compiler.frontends.checkpoint import import_checkpoint
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.graph.rewriter import tensor_ops
from ingot.compiler.ir.verifier import verify
from ingot.hal.checkpoint import Checkpoint
from tests.support.checkpoint_configs import MODELS
from tests.support.checkpoints import IDS, read_model, write_folder


def _logits(folder: Path, **options: Any) -> list[Any]:
    """The logits behind the fifth token of a prompt and the last of four behind it."""
    module = import_checkpoint(folder, **options)
    verify(module, GRAPH)
    parameters, state = Checkpoint(folder).parameters(), {}
    found = [interpret(module, "prefill", [IDS[:5]], parameters, state)[0]]
    for id in IDS[5:]:
        (last,) = interpret(module, "decode", [id], parameters, state)
    return [*found, last]


def _close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    config, weights, expected = read_model(name)
    write_folder(tmp_path, config, weights, parts=2 if name == "llama" else 1)
    _close(_logits(tmp_path), expected)


def test_settings_of_older_versions(tmp_path: Path) -> None:
    """rope_theta and rope_scaling stood in config.json itself, and a layer's kind in none."""
    config, weights, expected = read_model("llama")
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {**rope, "type": rope.pop("rope_type")}
    write_folder(tmp_path, config, weights)
    _close(_logits(tmp_path), expected)
    config, weights, expected = read_model("gemma3")
    for key in ("layer_types", "rope_parameters", "_sliding_window_pattern"):
        config.pop(key)
    write_folder(tmp_path, config | {"rope_theta": 1e6, "rope_local_base_freq": 1e4}, weights)
    _close(_logits(tmp_path), expected)


def test_scores_without_a_scale(tmp_path: Path) -> None:
    config, weights, expected = read_model("gpt2")
    for name, value in weights.items():
        if name.endswith(("c_attn.weight", "c_attn.bias")):
            value[..., :64] /= 4  # the root of the length of a head
    write_folder(tmp_path, config | {"scale_attn_weights": False}, weights)
    _close(_logits(tmp_path), expected)


def test_limits_of_queries_and_keys_are_behind_their_norms(tmp_path: Path) -> None:
    config, weights, expected = read_model("olmoe")
    for name, value in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            value *= 1024
    write_folder(tmp_path, config | {"clip_qkv": 16.0}, weights)
    got = _logits(tmp_path)  # the epsilon of the norms counts less
    np.testing.assert_allclose(got, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize(("codes", "kind"), [("int8", "Q8_0"), ("int4", "Q4_0")])
def test_codes_are_those_of_gguf(codes: str, kind: str, tmp_path: Path) -> None:
    """Rounded when loaded, or before: the same logits; and products keep the codes."""
    config, weights, _ = read_model("qwen3")
    write_folder(tmp_path, config, weights)
    random = np.random.default_rng(2)  # numbers of bf16 are often equal
    for name, value in weights.items():
        weights[name] = value * random.uniform(0.99, 1, value.shape).astype(np.float32)
    save_file(weights, tmp_path / "model.safetensors")
    module = import_checkpoint(tmp_path, weights=codes)
    parameters = Checkpoint(tmp_path).parameters()
    (got,) = interpret(module, "prefill", [IDS], parameters, {})
    for name, value in weights.items():
        if value.ndim == 2 and "embed" not in name:
            type = gguf.GGMLQuantizationType[kind]
            weights[name] = gguf.quants.dequantize(gguf.quants.quantize(value, type), type)
    save_file(weights, tmp_path / "model.safetensors")
    plain, parameters = import_checkpoint(tmp_path), Checkpoint(tmp_path).parameters()
    (expected,) = interpret(plain, "prefill", [IDS], parameters, {})
    assert np.abs(got - expected).max() < 2e-3 * np.abs(expected).max()
    products = [op.name for op in tensor_ops(run_graph_passes(module).functions["decode"].block)]
    assert products.count("dot_coded") == 2 * 7 + 1


@pytest.mark.slow
def test_a_compiled_folder(tmp_path: Path) -> None:
    config, weights, expected = read_model("qwen3 experts")
    config["num_hidden_layers"], config["layer_types"] = 1, ["full_attention"]
    weights = {name: each for name, each in weights.items() if ".layers.1." not in name}
    write_folder(tmp_path, config, weights)
    expected = _logits(tmp_path)
    model = ingot.load(ingot.compile(tmp_path, variants=["x86-64-v3"]), parameters=tmp_path)
    _close(model.prefill(IDS[:5]).numpy(), expected[0])
    for id in IDS[5:]:
        last = model.decode(id).numpy()
    _close(last, expected[1])


def _refused(folder: Path, changes: Any = (), model: str = "llama", **weights: Any) -> str:
    """What is said of a model with keys changed (None: left out) and other tensors."""
    config, found, _ = read_model(model)
    config |= dict(changes)
    found |= {name.replace("__", "."): each for name, each in weights.items()}
    config = {key: value for key, value in config.items() if value is not None}
    write_folder(folder, config, {k: v for k, v in found.items() if v is not None})
    with pytest.raises(ingot.CompileError) as caught:
        import_checkpoint(folder)
    return str(caught.value)


def test_what_is_wrong_is_told_with_the_names_of_the_folder(tmp_path: Path) -> None:
    text = _refused(
        tmp_path,
        model__norm__weight=None,
        model__layers__1__mlp__up_proj__weight=np.zeros((96, 32), np.float32),
    )
    assert "tensor 'model.norm.weight' is missing" in text
    assert "'model.layers.1.mlp.up_proj.weight' has the shape [96, 32], expected [96, 64]" in text
    text = _refused(tmp_path, extra__weight=np.zeros(3, np.float32))
    assert "1 tensors belong to nothing that llama is known to have: 'extra.weight'" in text
    text = _refused(tmp_path, {"hidden_size": None, "rms_norm_eps": -1.0, "hidden_act": "relu6"})
    assert "the key 'hidden_size' is missing" in text
    assert "the key 'rms_norm_eps' is -1.0, expected a positive number" in text
    assert "the activation is 'relu6', expected silu, swish, gelu_py" in text
    text = _refused(tmp_path, {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}})
    assert "positions are scaled as 'dynamic'" in text
    rope = {
        "rope_type": "yarn",
        "truncate": 3,
        "rope_theta": 1.0,
        "factor": [],
        "original_max_position_embeddings": 8,
    }
    text = _refused(tmp_path, {"rope_parameters": rope})
    assert "the base of rotations is 1.0" in text
    assert "the key 'rope_parameters.truncate' is 3, expected true or false" in text
    assert "the key 'rope_parameters.factor' is [], expected a positive number" in text
    text = _refused(tmp_path, {"layer_types": [["conv"]] * 4, "conv_L_cache": 65}, "lfm2")
    assert "layer_types is [['conv'], ['conv'], ['conv'], ['conv']], expected 'conv' or" in text
    assert "the key 'conv_L_cache' is 65, expected a positive integer up to 64" in text
    for name, key in (("qwen3 next", "hidden_act"), ("nemotron of states", "mamba_hidden_act")):
        text = _refused(tmp_path, {key: "relu2"}, name)
        assert "the activation in layers with a state is 'relu2', not silu" in text
    assert "model_type in config.json is 'bart'" in _refused(tmp_path, {"model_type": "bart"})
    text = _refused(tmp_path, {"num_hidden_layers": 1 << 20})
    assert "'num_hidden_layers' is 1048576, but there are only 21 tensors" in text
    text = _refused(tmp_path, {"quantization_config": {"quant_method": "vptq"}})
    assert "quantised by 'vptq', which cannot be read from a folder; methods that can be" in text
    assert "layer_types is ['full_attention']" in _refused(
        tmp_path, {"layer_types": ["full_attention"]}
    )
    with pytest.raises(ingot.CompileError, match="weights is 'int3', expected 'int8' or 'int4'"):
        ingot.compile(tmp_path, weights="int3")


@pytest.mark.parametrize(
    ("name", "key"), [("llama4", "attention_chunk_size"), ("deepseek v32", "index_topk")]
)
def test_positions_that_are_all_seen_are_the_longest_text(
    name: str, key: str, tmp_path: Path
) -> None:
    config, weights, _ = read_model(name)
    write_folder(tmp_path, config | {key: 8}, weights)
    assert import_checkpoint(tmp_path).functions["prefill"].symbols["s"] == (1, 8)
    with pytest.raises(
        ingot.CompileError, match="capacity is 9, but layers of the model see 8 positions at most"
    ):
        import_checkpoint(tmp_path, capacity=9)


def test_what_single_layers_have_is_checked(tmp_path: Path) -> None:
    text = _refused(tmp_path, {"num_kv_shared_layers": 3}, "gemma4")
    assert "the key 'num_kv_shared_layers' is 3, but no layer in front of these has keys" in text
    text = _refused(tmp_path, {"per_layer_config": {"0": {"head_dim": 8}}}, "gemma4")
    assert "per_layer_config is {'0': {'head_dim': 8}}, which is not supported" in text
    text = _refused(tmp_path, {"activation_sparsity_pattern": [0.5, 2]}, "gemma3n")
    assert "the key 'activation_sparsity_pattern' is [0.5, 2], expected 0 to 1" in text
    text = _refused(tmp_path, {"activation_sparsity_pattern": [0.5]}, "gemma3n")
    assert "expected a number for each layer" in text


def test_factors_of_products_are_numbers_or_left_out(tmp_path: Path) -> None:
    config, weights, _ = read_model("falcon h1")
    names = [key for key in config if key.endswith(("_multiplier", "_multipliers"))]
    write_folder(tmp_path, config | dict.fromkeys(names), weights)
    assert import_checkpoint(tmp_path).functions
    text = _refused(tmp_path, {"ssm_multipliers": [1.0], "key_multiplier": [2.0]}, "falcon h1")
    assert "the key 'ssm_multipliers' is [1.0], expected 5 numbers" in text
    assert "the key 'key_multiplier' is [2.0], expected a number" in text


def test_joined_experts_that_are_square_are_refused(tmp_path: Path) -> None:
    config, weights, _ = read_model("qwen3 experts of images")
    config["text_config"]["moe_intermediate_size"] = 32
    for name in weights:
        if name.endswith("_proj"):
            weights[name] = np.ones((6, 64, 64 if "gate" in name else 32), np.float32)
    write_folder(tmp_path, config, weights)
    with pytest.raises(ingot.CompileError, match="gate_up_proj' has the shape"):
        import_checkpoint(tmp_path)


def test_damaged_folders_are_compile_errors(tmp_path: Path) -> None:
    config, weights, _ = read_model("llama")

    def said() -> str:
        with pytest.raises(ingot.CompileError) as caught:
            import_checkpoint(tmp_path)
        return str(caught.value)

    assert "config.json' cannot be read" in said()
    write_folder(tmp_path, config, weights)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    assert "does not lie in it" in said()
    file.write_bytes(whole[:40])
    assert "its header does not fit" in said()
    file.write_bytes(whole.replace(b"[100,64]", b"[100,65]"))
    assert "has 12800 bytes, but BF16 of the shape [100, 65] has 13000" in said()
    file.write_bytes(whole.replace(b'"BF16"', b'"I16" '))
    assert "has the dtype I16; those that can be compiled are F32, F16 and BF16" in said()
    file.write_bytes(whole.replace(b'"BF16"', b"[1,16]"))
    assert "has the dtype [1, 16]; those that can be compiled" in said()
    file.unlink()
    assert "has no .safetensors file" in said()
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "../b"}})
    )
    assert "no map of tensors to files beside it" in said()
    (tmp_path / "config.json").write_text("{")
    assert "holds no JSON" in said()
