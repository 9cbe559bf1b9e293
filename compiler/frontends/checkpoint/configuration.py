"""What config.json says of a language model."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite, log, prod
from pathlib import Path
from typing import Any

from ingot.compiler.frontends.checkpoint.model_types import (
    DEFAULTS,
    MODEL_TYPES,
    STATES_ALONE,
    WITHOUT,
)
from ingot.compiler.frontends.checkpoint.of_layers import (
    averages_shared,
    check_factors,
    read_layers,
)
from ingot.compiler.frontends.gguf.architectures import Architecture
from ingot.compiler.frontends.gguf.configuration import Configuration, read_keys
from ingot.compiler.frontends.gguf.keys import Keys, shown
from ingot.hal.checkpoint import Checkpoint, read_json
from ingot.hal.errors import CompileError, DataLoss, NotFound

__all__ = ["MODEL_TYPES", "read_config", "text_config"]

_NAMES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "query_pre_attn_scalar": "query_pre_attn_scalar",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_group_used_count": "topk_group",
    "nextn_predict_layers": "num_nextn_predict_layers",
    "shortconv.l_cache": "conv_L_cache",
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.time_step_rank": "linear_num_value_heads",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.state_size": "linear_key_head_dim",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.value_length_mla": "v_head_dim",
    "attention.scale": "attention_multiplier",
    "attention.clamp_kqv": "clip_qkv",
    "rope.dimension_count": "rotary_dim",
    "residual_scale": "residual_multiplier",
    "attention.shared_kv_layers": "num_kv_shared_layers",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "altup.num_inputs": "altup_num_inputs",
    "attention.chunk_size": "attention_chunk_size",
    "depth_scale": "scale_depth",
    "kda.head_dim": "linear_head_dim",
    "kda.head_count": "linear_num_heads",
    "base_width": "dim_model_base",
    "mixer_noise": "router_jitter_noise",
    "attention.indexer.top_k": "index_topk",
}
"""Keys of GGUF files, as config.json has them."""

_ROPE = {
    "rope.freq_base": "rope_theta",
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "rope.scaling.truncate": "truncate",
    "rope.scaling.yarn_log_multiplier": "mscale_all_dim",
    "rope.scaling.low_freq_factor": "low_freq_factor",
    "rope.scaling.high_freq_factor": "high_freq_factor",
    "rope.scaling.short_factor": "short_factor",
    "rope.scaling.long_factor": "long_factor",
    "attention.temperature_scale": "llama_4_scaling_beta",
    "rope.scaling.share": "partial_rotary_factor",
}
"""Those that stand in `rope_parameters`."""

_OTHER_NAMES = {
    "expert_used_count": (
        *("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts", "num_experts_per_token"),
    ),
    "expert_weights_norm": ("norm_topk_prob", "moe_renormalize"),
    "expert_group_count": ("n_group", "num_expert_group"),
    "expert_count": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.layer_norm_epsilon": (
        *("layer_norm_eps", "norm_epsilon", "layer_norm_epsilon", "norm_eps", "rms_norm_eps"),
    ),
    "block_count": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "embedding_length": ("hidden_size", "n_embd", "d_model"),
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length"),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "attention.sliding_window": ("local_attention", "sliding_window", "window_size"),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "use_parallel_residual": ("use_parallel_residual", "parallel_attn"),
    "embedding_scale": ("embedding_multiplier", "scale_emb"),
    "expert_weights_scale": ("routed_scaling_factor", "route_scale", "router_scaling_factor"),
}
"""Those that some models call otherwise."""

_MAMBA = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.time_step_rank": "mamba_n_heads",
    "ssm.group_count": "mamba_n_groups",
    "ssm.state_size": "mamba_d_state",
}
_NEMOTRON = {
    "ssm.conv_kernel": "conv_kernel",
    "ssm.time_step_rank": "mamba_num_heads",
    "ssm.group_count": "n_groups",
    "ssm.state_size": "ssm_state_size",
}
_MAMBA_ALONE = {
    "ssm.conv_kernel": "conv_kernel",
    "ssm.time_step_rank": "num_heads",
    "ssm.group_count": "n_groups",
    "ssm.state_size": "state_size",
}
_MAMBA_1 = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.time_step_rank": "mamba_dt_rank",
    "ssm.state_size": "mamba_d_state",
}
_MAMBA_1_ALONE = {
    "ssm.conv_kernel": "conv_kernel",
    "ssm.time_step_rank": "time_step_rank",
    "ssm.state_size": "state_size",
    "ssm.norm_epsilon": "mixer_rms_eps",
}
_INNER = (
    ("mamba_d_ssm", ""),
    ("linear_num_value_heads", "linear_value_head_dim"),
    ("mamba_num_heads", "mamba_head_dim"),
    ("expand", "hidden_size"),
    ("mamba_expand", "hidden_size"),
)
"""Keys whose product is the length of what a state gives, where there is the first one."""
_WHOLE_INNER = dict.fromkeys(("mamba", "falcon_mamba"), (("intermediate_size", ""),))

_HALVES = {
    "attention.key_length": "d_kv",
    "feed_forward_length": "d_ff",
    "attention.relative_buckets_count": "relative_attention_num_buckets",
    "attention.relative_farthest": "relative_attention_max_distance",
    "decoder_block_count": "num_decoder_layers",
}
_SHOWN_ROPE = "rope_parameters."
_ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_tanh", "gelu_new", "gelu_fast"), "gelu"),
    "gelu": "gelu_erf",
    "relu": "relu",
    "relu2": "relu2",
    "xielu": "xielu",
}
"""What functions are called."""
_KNOWN = ", ".join(_ACTIVATIONS)
_MOST_LAYERS = 1 << 16  # that are made of a list of some
_FIXED = ("gemma", "gpt_oss")
_OWN_ACTIVATIONS = {"gelu": ("gelu", "gelu_erf"), "swiglu_oai": ("silu",)}
"""What models that have one function only call it."""
_WINDOW, _BOUNDED = "sliding_attention", ("chunked_attention", "indexed_attention")


def read_config(folder: Checkpoint) -> Configuration:
    """The configuration of a folder. CompileError: config.json lacks something, or asks for what
    cannot be compiled."""
    config, what = text_config(folder), f"the model in '{folder.path}'"
    name = config.get("model_type")
    if not isinstance(name, str) or name not in MODEL_TYPES:
        raise CompileError(
            f"{what}: the model_type in config.json is {shown(name)}; those that can be compiled "
            f"are: {', '.join(MODEL_TYPES)}; export others to ONNX, as with `optimum-cli export "
            "onnx --model FOLDER OUT`"
        )
    config = {**DEFAULTS.get(name, {}), **config, **_of_states(config)}
    local, rope = _rope_of(config)
    if type(config.get("head_dim")) is int:
        _with_alpha(rope, config["head_dim"])
    config = {**config, **_pooling_of(folder)}
    flat = {**config, **{f"{_SHOWN_ROPE}{key}": value for key, value in rope.items()}}
    names = _names_of(name, config)
    _settle(name, config, names, flat)
    keys = Keys(flat, name, {key: f"{_SHOWN_ROPE}{own}" for key, own in _ROPE.items()} | names)
    _check_factors(rope, keys)
    for key in WITHOUT.get(name, ()):
        if config.get(key):
            keys.problems.append(f"the key '{key}' is {shown(config[key])}, which is not supported")
    parts = config.get("rope_parameters")
    window = parts.get(_WINDOW) if isinstance(parts, dict) else None
    if isinstance(window, dict) and window.get("rope_type", "default") != "default":
        keys.problems.append("positions of layers with windows are scaled, which is not supported")
    architecture = _architecture(name, config, keys)
    if rope.get("short_mscale") != rope.get("long_mscale"):
        keys.problems.append(
            f"the keys 'short_mscale' and 'long_mscale' are {shown(rope.get('short_mscale'))} and "
            f"{shown(rope.get('long_mscale'))}, which is not supported: expected one number"
        )
    _read_rotated(config, flat, rope, keys)
    if local is not None and (architecture.local_rope_base or architecture.has_plain_windows):
        flat["rope.freq_base_swa"] = local
    read_layers(config, flat, keys)
    if keys.has("attention.kv_lora_rank"):
        _read_latent(config, flat, keys)
    if architecture.recurrence:
        if architecture.recurrence != "kimi":
            pairs = (*_WHOLE_INNER.get(name, ()), *_INNER)
            given = (pair for pair in pairs if config.get(pair[0]) is not None)
            flat["ssm.inner_size"] = prod(keys.size(x) for x in next(given, _INNER[-1]) if x)
        _check_states(config, architecture, keys)
    types = kinds = convolved = networks = None
    if keys.has("shortconv.l_cache") or architecture.recurrence:
        kinds = _kinds(config, keys, architecture)
    else:
        types = _window_layers(config, keys, architecture)
    if kinds is not None:
        flat.setdefault("num_hidden_layers", len(kinds))
        convolved = [each in ("conv", "linear_attention") for each in kinds]
        networks = [each in _NETWORKS for each in kinds]
    rotated, tensors = _rotated_layers(config, keys), len(folder.tensors)
    lists = (types, convolved, rotated, networks)
    made = read_keys(keys, what, architecture, tensors, *lists, counts_ahead=False)
    return _with_attention_factor(made, rope)


_POOLING = "pooling_mode in 1_Pooling/config.json"
_MODE = "pooling_mode_"
_BEHIND = re.compile(r"\d+_(?!Pooling$|Normalize$).+")  # folders of further modules
_POOLINGS = {"mean_tokens": 1, "cls_token": 2, "lasttoken": 3}
_RANKED, _RANKING = 4, "ForSequenceClassification"


def _pooling_of(folder: Checkpoint) -> dict[str, Any]:
    """How tokens become a vector, which sentence-transformers keeps in a folder beside, or that
    texts have scores; the text of what is not known."""
    path = Path(folder.path) / "1_Pooling" / "config.json"
    if not path.is_file():
        classes = folder.config.get("architectures")
        is_ranked = isinstance(classes, list) and str([*classes, ""][0]).endswith(_RANKING)
        return {_POOLING: _RANKED} if is_ranked else {}
    behind = [each for each in sorted(os.listdir(folder.path)) if _BEHIND.fullmatch(each)]
    if behind:
        raise CompileError(
            f"the model in '{folder.path}' has {behind[0][:60]!r} behind its pooling, which is not "
            "supported: expected 1_Pooling, and perhaps a norm"
        )
    try:
        given = read_json(path)
    except (DataLoss, NotFound) as error:
        raise CompileError(str(error)) from None
    chosen = [key for key, value in given.items() if key.startswith(_MODE) and value is True]
    kind = ", ".join(each.removeprefix(_MODE) for each in chosen)
    return {_POOLING: _POOLINGS.get(kind, kind)}


def _settle(
    name: str, config: Mapping[str, Any], names: Mapping[str, str], flat: dict[str, Any]
) -> None:
    """Puts what follows from other keys into `flat`."""
    if not config.get("use_sliding_window", True):
        flat.pop("sliding_window", None)
    if name == "deepseek_v2" and config.get("topk_method", "greedy") == "greedy":
        flat.pop("n_group", None)
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        flat[names["attention.head_count_kv"]] = 1
    if config.get("attn_temperature_tuning") is False:
        flat["attn_scale"] = 0.0
    for key in ("time_step_rank", "mamba_dt_rank"):
        if config.get(key) == "auto" and type(config.get("hidden_size")) is int:
            flat[key] = -(-config["hidden_size"] // 16)
    if MODEL_TYPES[name].is_encoder and MODEL_TYPES[name].first_position:
        rows = config.get("max_position_embeddings")
        if type(rows) is int:
            flat["max_position_embeddings"] = rows - MODEL_TYPES[name].first_position
    if name == "falcon_mamba":
        flat["ssm.dt_b_c_rms"] = True
    if config.get("use_bidirectional_attention") or config.get("is_causal") is False:
        flat["attention.causal"] = False
    is_scaled = config.get("mup_enabled") or (name == "biogpt" and config.get("scale_embedding"))
    if is_scaled and type(config.get("hidden_size")) is int:
        flat["embedding_multiplier"] = config["hidden_size"] ** 0.5
    if averages_shared(config):
        flat["routed_scaling_factor"] = 0.5
    if MODEL_TYPES[name].has_halves:
        is_tied = config.get("tie_word_embeddings") is not False
        flat.setdefault("scale_decoder_outputs", is_tied)
    if config.get("scale_attn_weights") is False:
        flat["attention_multiplier"] = 1.0


def _of_states(config: Mapping[str, Any]) -> dict[str, Any]:
    """What stands together of layers with states, under the keys for each."""
    given = config.get("linear_attn_config")
    if not isinstance(given, dict):
        return {}
    names = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
    names["short_conv_kernel_size"] = "linear_conv_kernel_dim"
    found = {other: given[own] for own, other in names.items() if own in given}
    whole, count = given.get("full_attn_layers"), config.get("num_hidden_layers")
    if isinstance(whole, list) and type(count) is int and 0 < count <= _MOST_LAYERS:
        kinds = ("linear_attention", "full_attention")
        numbers = {each for each in whole if type(each) is int}
        found["layer_types"] = [kinds[layer + 1 in numbers] for layer in range(count)]
    return found


def _read_rotated(
    config: Mapping[str, Any], flat: dict[str, Any], rope: Mapping[str, Any], keys: Keys
) -> None:
    """How many features of heads are rotated, where it is a share of them."""
    shares = (each.get("partial_rotary_factor") for each in (config, rope))
    partial = next((x for x in shares if x is not None), config.get("rotary_pct"))
    is_share = rope["rope_type"] != "proportional"
    if is_share and isinstance(partial, (int, float)) and 0 < partial < 1:
        whole = keys.size("embedding_length") // keys.size("attention.head_count")
        length = keys.size("attention.key_length", max(whole, 1))
        flat["rotary_dim"] = int(length * partial)


def _names_of(name: str, config: Mapping[str, Any]) -> dict[str, str]:
    """What this model's config.json calls keys."""
    names = _NAMES | (_MAMBA if MODEL_TYPES[name].recurrence == "mamba" else {})
    if MODEL_TYPES[name].recurrence == "mamba 1":
        names |= _MAMBA_1_ALONE if MODEL_TYPES[name].has_single_parts else _MAMBA_1
    elif MODEL_TYPES[name].has_single_parts:
        names |= _MAMBA_ALONE if name == "mamba2" else _NEMOTRON
    for key, others in _OTHER_NAMES.items():
        names[key] = next((each for each in others if each in config), others[0])
    if "attn_temperature_tuning" in config:
        names["attention.unit_heads"] = "use_qk_norm"
        names["attention.temperature_scale"] = "attn_scale"
        names["attention.temperature_length"] = "floor_scale"
    names["pooling_type"] = _POOLING
    names |= _HALVES if MODEL_TYPES[name].has_halves else {}
    if name == "falcon_h1":
        names["logit_scale"] = "lm_head_multiplier"
    if "logits_scaling" in config:
        names["logit_scale"] = "logits_scaling"
    return names


def _check_states(config: Mapping[str, Any], architecture: Architecture, keys: Keys) -> None:
    """What states take is behind silu, and their steps have no bounds."""
    given, limit = architecture.activation, config.get("time_step_limit")
    if architecture.has_single_parts:
        given = config.get("mamba_hidden_act", "silu")
    if given not in ("silu", "swish"):
        keys.problems.append(f"the activation in layers with a state is {shown(given)}, not silu")
    if "ssm_multipliers" in config:
        check_factors(config, keys)
    if config.get("mamba_rms_norm") and config.get("mamba_norm_before_gate", True):
        keys.problems.append("the key 'mamba_norm_before_gate' is true, which is not supported")
    if limit is None:
        return
    is_list = isinstance(limit, list) and len(limit) == 2 and limit[0] == 0
    if not is_list or (isinstance(limit[1], (int, float)) and isfinite(limit[1])):
        problem = f"the key 'time_step_limit' is {shown(limit)}, expected [0, Infinity]"
        keys.problems.append(problem)


def _read_latent(config: Mapping[str, Any], flat: dict[str, Any], keys: Keys) -> None:
    """The features of heads whose keys and values follow from rows."""
    plain, turned = (keys.size(f"qk_{kind}_head_dim") for kind in ("nope", "rope"))
    flat |= {"attention.key_length_mla": plain + turned, "rotary_dim": turned}
    if config.get("rope_interleave", True) is not True:
        keys.problems.append("the key 'rope_interleave' is false, which is not supported")


_FACTORS = ("attention_factor", "factor", "mscale", "mscale_all_dim", "long_mscale")


def _check_factors(rope: Mapping[str, Any], keys: Keys) -> None:
    """Factors of rotations are numbers that f32 holds, and no less than 0."""
    for key in _FACTORS:
        given = rope.get(key)
        if isinstance(given, (int, float)) and not 0 <= given < 1e30:
            keys.problems.append(f"the key '{_SHOWN_ROPE}{key}' is {shown(given)}, expected from 0")


def text_config(folder: Checkpoint) -> dict[str, Any]:
    """What config.json says of the language model: all, or a part where there are others."""
    inner = folder.config.get("text_config")
    if not isinstance(inner, dict):
        return folder.config
    outer = ("tie_word_embeddings", "quantization_config")
    return {**inner, **{key: folder.config[key] for key in outer if key in folder.config}}


def _rope_of(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The base of layers with windows, if it is another, and what is said of rotations."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope if isinstance(rope, dict) else {"rope_type": rope}
    local = config.get("rope_local_base_freq", config.get("local_rope_theta"))
    if isinstance(rope.get("full_attention"), dict):
        window = rope.get(_WINDOW)
        local = window.get("rope_theta", local) if isinstance(window, dict) else local
        rope = rope["full_attention"]
    rope = dict(rope)
    rope.setdefault("rope_type", rope.pop("type", "default"))
    if rope["rope_type"] == "su":  # as it was called first
        rope["rope_type"] = "longrope"
    for key in ("rope_theta", "original_max_position_embeddings"):
        if config.get(key) is not None:
            rope.setdefault(key, config[key])
    for key in ("rotary_emb_base", "global_rope_theta"):
        if config.get(key) is not None:
            rope.setdefault("rope_theta", config[key])
    return local, rope


def _with_alpha(rope: dict[str, Any], length: int) -> None:
    """What "dynamic" with an alpha is: another base, for heads of so many features."""
    given = [rope.get(key) for key in ("alpha", "rope_theta")]
    alpha, base = (x if isinstance(x, (int, float)) and 0 < x < 1e30 else 0 for x in given)
    if rope["rope_type"] == "dynamic" and alpha and base and length > 2:
        rope |= {"rope_type": "default", "rope_theta": base * alpha ** (length / (length - 2))}


def _of_halves(architecture: Architecture, config: Mapping[str, Any], keys: Keys) -> Architecture:
    """Of models of an encoder, and perhaps a decoder."""
    given = config.get("feed_forward_proj", "relu")
    gated, _, activation = given.rpartition("gated-") if isinstance(given, str) else ("", "", "")
    is_gated = given != activation
    activation = "gelu_new" if is_gated and activation == "gelu" else activation
    if gated or activation not in _ACTIVATIONS:
        keys.problems.append(
            f"the key 'feed_forward_proj' is {shown(given)}, expected an activation, {_KNOWN}, "
            "perhaps behind 'gated-'"
        )
    classes = config.get("architectures")
    is_alone = isinstance(classes, list) and str([*classes, ""][0]).endswith("EncoderModel")
    return replace(
        architecture,
        is_gated=is_gated,
        activation=_ACTIVATIONS.get(activation, "relu"),
        is_encoder=is_alone or config.get(_POOLING) is not None,
    )


def _architecture(name: str, config: Mapping[str, Any], keys: Keys) -> Architecture:
    architecture = MODEL_TYPES[name]
    if architecture.has_halves:
        return _of_halves(architecture, config, keys)
    names = ["hidden_activation", "hidden_act", "activation", "activation_function"]
    names += ["mlp_hidden_act"] if architecture.has_single_parts else []
    given = next((config[key] for key in names if config.get(key)), "silu")
    activation = _ACTIVATIONS.get(given) if isinstance(given, str) else None
    own = _OWN_ACTIVATIONS.get(architecture.activation) if name.startswith(_FIXED) else None
    if activation is None or (own and activation not in own):
        known = [each for each, kind in _ACTIVATIONS.items() if kind in (own or (kind,))]
        keys.problems.append(f"the activation is {shown(given)}, expected {', '.join(known)}")
    elif not own:
        architecture = replace(architecture, activation=activation)
    if name == "falcon" and config.get("alibi"):
        architecture = replace(architecture, sloped_layers=-1, scales_slopes=True)
    if name == "falcon" and config.get("parallel_attn") is False:
        architecture = replace(architecture, network_norm="ffn_norm")
    if config.get("classifier_pooling") == "cls":
        architecture = replace(architecture, ranked_pooling="first")
    if config.get("expert_selection_fn") == "softmax":
        architecture = replace(architecture, gating="softmax", normalizes_shares=True)
        keys.metadata = {**keys.metadata, "norm_topk_prob": True}
    return replace(architecture, large_layers=0)


def _kinds(config: Mapping[str, Any], keys: Keys, architecture: Architecture) -> list[str] | None:
    """What each layer is; None: that follows from a period."""
    types = config.get("layer_types", config.get("layers_block_type"))
    if architecture.has_both or keys.prefix in STATES_ALONE:
        return ["linear_attention"] * keys.size("block_count")
    if types is None and keys.has("attn_layer_period"):
        period, first = keys.size("attn_layer_period"), keys.size("attn_layer_offset", 0)
        types = [
            "attention" if layer % period == first else "mamba"
            for layer in range(keys.size("block_count"))
        ]
    if types is None and isinstance(config.get("attn_layer_indices"), list):
        own, count = config["attn_layer_indices"], keys.size("block_count")
        types = ["attention" if layer in own else "mamba" for layer in range(count)]
    kinds: tuple[str, ...] = ("linear_attention",) if architecture.recurrence else ("conv",)
    if architecture.has_single_parts:
        kinds += _NETWORKS
        if types is None and isinstance(config.get("hybrid_override_pattern"), str):
            types = [_LETTERS.get(each, each) for each in config["hybrid_override_pattern"]]
    if types is None and architecture.recurrence == "delta":
        return None
    is_list = isinstance(types, list) and all(isinstance(each, str) for each in types)
    found = [_OLDER.get(each, each) for each in types or ()] if is_list else [""]
    is_whole = len(found) == config.get("num_hidden_layers", len(found))
    if is_whole and all(each in (*kinds, "full_attention") for each in found):
        return found
    expected = " or ".join(map(repr, (*kinds, "full_attention")))
    keys.problems.append(f"layer_types is {shown(types)}, expected {expected} for each layer")
    return [""]


_NETWORKS = ("mlp", "moe")
_OLDER = {"mamba": "linear_attention", "attention": "full_attention"}
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
"""What kinds of layers were called first, and in patterns."""


def _window_layers(
    config: Mapping[str, Any], keys: Keys, architecture: Architecture
) -> list[bool] | None:
    """Which layers have windows, where config.json says so."""
    types, layers = config.get("layer_types"), config.get("num_hidden_layers")
    if isinstance(config.get("attention_layers"), list):
        named, layers = config["attention_layers"], keys.size("block_count")
        types = [_KINDS_OF_GPT.get(each, each) for each in named if isinstance(each, str)]
    if isinstance(types, list) and len(types) == layers:
        unknown = {str(each) for each in types} - {_WINDOW, "full_attention", *_BOUNDED}
        if unknown:
            keys.problems.append(f"layers have attention of the kinds {sorted(unknown)}")
        return [each == _WINDOW for each in types]
    if types is not None:
        keys.problems.append(f"layer_types is {shown(types)}, expected one of each layer")
    first = config.get("max_window_layers")
    if type(layers) is int and type(first) is int and not architecture.window_period:
        return [layer >= first for layer in range(min(layers, 1 << 16))]
    return None


_KINDS_OF_GPT = {"local": _WINDOW, "global": "full_attention"}


def _rotated_layers(config: Mapping[str, Any], keys: Keys) -> list[bool] | None:
    """Which layers are rotated, where config.json says so."""
    rotated, bases = config.get("no_rope_layers"), config.get("layer_rope_theta")
    if isinstance(bases, list) and {*map(type, bases)} <= {int, float}:
        if len({*bases} - {0}) > 1:
            keys.problems.append(f"layer_rope_theta is {shown(bases)}, expected one base and zeros")
        rotated = [int(base != 0) for base in bases]
    if keys.prefix == "granitemoehybrid" and config.get("position_embedding_type") != "rope":
        rotated = [0] * keys.size("block_count")
    if rotated is None:
        return None
    layers = config.get("num_hidden_layers")
    if (
        isinstance(rotated, list)
        and len(rotated) == layers
        and all(each in (0, 1) for each in rotated)
    ):
        return [each == 1 for each in rotated]
    keys.problems.append(f"no_rope_layers is {shown(rotated)}, expected 0 or 1 for each layer")
    return None


def _with_attention_factor(made: Configuration, rope: Mapping[str, Any]) -> Configuration:
    """With the factor of sines and cosines that is given, or follows from the contexts."""
    given, kind = rope.get("attention_factor"), rope["rope_type"]
    scale = made.rope.scale
    if isinstance(given, (int, float)) and given > 0:
        scale = float(given)
    elif kind == "yarn" and rope.get("mscale") and rope.get("mscale_all_dim"):
        scale = _yarn_scale(rope, "mscale") / _yarn_scale(rope, "mscale_all_dim")
    elif kind == "longrope" and rope.get("long_mscale"):
        scale = float(rope["long_mscale"])
    elif kind == "longrope":
        given = rope.get("factor")
        factor = given if isinstance(given, (int, float)) else made.context / made.rope.original
        if factor > 1 and made.rope.original > 1:
            scale = (1 + log(factor) / log(made.rope.original)) ** 0.5
    return replace(made, rope=replace(made.rope, scale=scale))


def _yarn_scale(rope: Mapping[str, Any], key: str) -> float:
    factor, given = rope.get("factor"), rope[key]
    if isinstance(factor, (int, float)) and factor > 1 and isinstance(given, (int, float)):
        return 0.1 * float(given) * log(factor) + 1
    return 1.0
