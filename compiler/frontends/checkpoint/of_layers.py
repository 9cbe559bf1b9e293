"""What config.json says of single layers: their heads, and how many of their gates are open."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from ingot.compiler.frontends.gguf.configuration import Recurrence
from ingot.compiler.frontends.gguf.keys import GREATEST, Keys, shown

__all__ = ["averages_shared", "check_factors", "factors_of", "read_layers"]

_WINDOW = "sliding_attention"


def read_layers(config: Mapping[str, Any], flat: dict[str, Any], keys: Keys) -> None:
    """Puts what differs from layer to layer into `flat`, by the names of GGUF files."""
    if config.get("per_layer_config") or "global_head_dim" in config:
        _read_heads(config, flat, keys)
    feeds = config.get("intermediate_size")
    if isinstance(feeds, list) and all(
        type(each) is int and 0 < each <= GREATEST for each in feeds
    ):
        flat["intermediate_size"] = np.array(feeds, np.int64)
    attention = config.get("attn_config")
    if isinstance(attention, dict):
        _read_mpt(attention, flat, keys)
    if config.get("activation_sparsity_pattern") is not None:
        _read_thresholds(config["activation_sparsity_pattern"], flat, keys)


def _read_heads(config: Mapping[str, Any], flat: dict[str, Any], keys: Keys) -> None:
    """Heads of layers that see all positions are others than those with windows."""
    types, own = config.get("layer_types"), config.get("per_layer_config") or {}
    if not isinstance(types, list) or not isinstance(own, dict):
        keys.problems.append(
            f"layer_types is {shown(types)} and per_layer_config {shown(own)}, expected a kind for "
            "each layer and what differs by the number of the layer"
        )
        return
    whole = [layer for layer, kind in enumerate(types) if kind != _WINDOW]
    given = [own.get(str(layer), {}) for layer in whole]
    if any(each != given[0] for each in given) or {*own} - {str(layer) for layer in whole}:
        keys.problems.append(f"per_layer_config is {shown(own)}, which is not supported")
        return
    length, count = config.get("global_head_dim"), config.get("num_global_key_value_heads")
    other = given[0] if given and isinstance(given[0], dict) else {}
    length = other.get("head_dim", length)
    if not config.get("attention_k_eq_v", True):
        count = None
    count = other.get("num_key_value_heads", count)
    flat["attention.key_length_swa"] = flat.get("head_dim")
    flat["head_dim"] = length if length is not None else flat.get("head_dim")
    usual = config.get("num_key_value_heads")
    counts = [usual if kind == _WINDOW or count is None else count for kind in types]
    if all(type(each) is int and 0 < each <= GREATEST for each in counts):
        flat["num_key_value_heads"] = np.array(counts)


def _read_mpt(attention: Mapping[str, Any], flat: dict[str, Any], keys: Keys) -> None:
    """Keys of attention that stand together."""
    if attention.get("alibi") is not True or attention.get("qk_ln") or attention.get("prefix_lm"):
        keys.problems.append(
            f"attn_config is {shown(attention)}, expected alibi without qk_ln and prefix_lm"
        )
    given = {"clip_qkv": "clip_qkv", "softmax_scale": "attention_multiplier"}
    flat |= {name: attention[key] for key, name in given.items() if attention.get(key)}
    if attention.get("alibi_bias_max") is not None:
        flat["attention.max_alibi_bias"] = attention["alibi_bias_max"]


def averages_shared(config: Mapping[str, Any]) -> bool:
    """Whether layers take the mean of what experts and the network of all tokens make."""
    is_mean = config.get("shared_expert_combination_strategy") == "average"
    return is_mean and bool(config.get("num_shared_experts"))


def factors_of(config: Mapping[str, Any], r: Recurrence | None) -> dict[str, Any]:
    """By what products of a layer are multiplied, numbers or one for each column."""
    if averages_shared(config):
        return {"ffn_down_shexp": 0.5}
    if r is None or "ssm_multipliers" not in config:
        return {}
    given = {key: value for key, value in config.items() if value is not None}
    into, out = (given.get(f"attention_{each}_multiplier", 1.0) for each in ("in", "out"))
    key, parts = given.get("key_multiplier", 1.0), given.get("ssm_multipliers", [1.0] * 5)
    gate, down = given.get("mlp_multipliers", (1.0, 1.0))
    inner, keys = r.value_heads * r.value_length, r.key_heads * r.key_length
    columns = np.repeat(parts, (inner, inner, keys, keys, r.value_heads))
    return {
        "attn_q": into, "attn_k": into * key, "attn_v": into, "attn_output": out,
        "ffn_gate": gate, "ffn_down": down, "ssm_out": given.get("ssm_out_multiplier", 1.0),
        "ssm_in": (columns * given.get("ssm_in_multiplier", 1.0)).astype(np.float32),
    }  # fmt: skip


def check_factors(config: Mapping[str, Any], keys: Keys) -> None:
    """They are numbers, as many as there are parts."""
    names = ("attention_in", "attention_out", "key", "ssm_in", "ssm_out", "mlp", "ssm")
    for name in names:
        count = {"mlp": 2, "ssm": 5}.get(name, 1)
        key = f"{name}_multiplier{'s' if count > 1 else ''}"
        given = config.get(key)
        listed = given if isinstance(given, list) and count > 1 else [given]
        is_list = len(listed) == count and all(map(_is_number, listed))
        if given is not None and not is_list:
            wanted = f"{count} numbers" if count > 1 else "a number"
            keys.problems.append(f"the key '{key}' is {shown(given)}, expected {wanted}")


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and abs(x) < 1e30


def _read_thresholds(given: Any, flat: dict[str, Any], keys: Keys) -> None:
    """The share of gates that are closed, as deviations of a normal distribution."""
    shares = given if isinstance(given, list) else [given]
    if not all(isinstance(each, (int, float)) and 0 <= each < 1 for each in shares):
        keys.problems.append(
            f"the key 'activation_sparsity_pattern' is {shown(given)}, expected 0 to 1 for each "
            "layer"
        )
        return
    normal = NormalDist()
    found = [normal.inv_cdf(each) if each else -np.inf for each in shares]
    flat["activation_sparsity_scale"] = np.array(found)
