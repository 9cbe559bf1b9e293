"""What config.json says of single layers: their heads, and how many of their gates are open."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from ingot.compiler.frontends.gguf.keys import GREATEST, Keys, shown

__all__ = ["read_layers"]

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
