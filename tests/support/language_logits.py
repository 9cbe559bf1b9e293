"""What a language model computes, in NumPy, from the definition of its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.support.language import KEY, POST_NORMED
from tests.support.language_shapes import Shape

Array = Any


def logits(shape: Shape, weights: Mapping[str, Array], ids: Array) -> Array:
    """The logits behind each of the tokens, [count, vocabulary], in f64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    is_gemma = shape.architecture.startswith("gemma")
    scale = {key: shape.metadata.get(f"{key}_scale", 1.0) for key in ("residual", "embedding")}
    x = w["token_embd.weight"][ids] * (shape.width**0.5 if is_gemma else scale["embedding"])
    for layer in range(shape.layers):
        start = f"blk.{layer}."
        part = {name.removeprefix(start): w[name] for name in w if name.startswith(start)}
        if shape.is_centered:
            part["centered"] = np.ones(1)
        part["factors"] = w.get("rope_freqs.weight", np.ones(1))
        before = _normed(x, part, "attn_norm")
        mixed = _short_convolution if "shortconv.conv.weight" in part else _attention
        y = mixed(shape, part, before, layer)
        if shape.architecture in POST_NORMED:
            part["ffn_norm.weight"] = part.pop("post_attention_norm.weight")
        x = x + _normed(y, part, "post_attention_norm") * scale["residual"]
        feed = _mixture if "ffn_gate_inp.weight" in part else _feed_forward
        y = feed(shape, part, before if shape.is_parallel else _normed(x, part, "ffn_norm"))
        x = x + _normed(y, part, "post_ffw_norm") * scale["residual"]
    if shape.is_centered:
        w["centered"] = np.ones(1)
    x = _normed(x, w, "token_embd_norm" if shape.architecture.startswith("lfm2") else "output_norm")
    y = x @ w.get("output.weight", w["token_embd.weight"]).T
    factor = shape.metadata.get("logit_scale", 1.0)
    y = y / factor if shape.architecture.startswith("granite") else y * factor
    return _capped(y, shape.metadata.get("final_logit_softcapping"))


_NETWORK = ("up", "gate_exps", "up_exps", "down_exps")


def _feed_forward(
    shape: Shape, part: Mapping[str, Array], x: Array, suffix: str = "", index: Any = ...
) -> Array:
    gate, up, down = (part.get(f"ffn_{n}{suffix}.weight", x)[index] for n in ("gate", "up", "down"))
    bias = {n: part[f"ffn_{n}.bias"][index] for n in _NETWORK if f"ffn_{n}.bias" in part}
    up = x @ up.T + bias.get(f"up{suffix}", 0)
    if shape.architecture == "gpt-oss":
        gate, up = np.minimum(x @ gate.T + bias[f"gate{suffix}"], 7), np.clip(up, -7, 7)
        active = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
        return active @ down.T + bias[f"down{suffix}"]
    if shape.architecture == "arcee":
        return np.maximum(up, 0) ** 2 @ down.T
    if shape.architecture == "starcoder2":
        return _gelu(up) @ down.T + part["ffn_down.bias"]
    gate, up = (x @ gate.T, up) if f"ffn_gate{suffix}.weight" in part else np.split(up, 2, -1)
    active = gate / (1 + np.exp(-gate))
    if shape.architecture.startswith("gemma"):
        active = _gelu(gate)
    return (active * up) @ down.T


def _gelu(x: Array) -> Array:
    return x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2


def _mixture(shape: Shape, part: Mapping[str, Array], x: Array) -> Array:
    scores = x @ part["ffn_gate_inp.weight"].T + part.get("ffn_gate_inp.bias", 0)
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    if shape.metadata.get("expert_gating_func") == 2:
        shares = 1 / (1 + np.exp(-scores))
    scale = shape.metadata.get("expert_weights_scale", 1)
    y = np.zeros_like(x)
    for row, share in enumerate(shares):
        sums = share + part.get("exp_probs_b.bias", 0)
        groups = sums.reshape(shape.metadata.get("expert_group_count", 1), -1)
        best = np.argsort(-np.sort(groups)[:, -2:].sum(1))
        groups[best[shape.metadata.get("expert_group_used_count", 1) :]] = -np.inf
        chosen = np.argsort(-groups.reshape(-1))[: shape.chosen]
        is_whole = shape.architecture in ("qwen2moe", "olmoe")
        is_whole |= shape.architecture == "deepseek2" and not shape.query_rank
        whole = 1 if is_whole else share[chosen].sum()
        for expert in chosen:
            made = _feed_forward(shape, part, x[row], "_exps", expert)
            y[row] += made * share[expert] / whole * scale
    if shape.shared:
        gate = part.get("ffn_gate_inp_shexp.weight")
        share = 1 if gate is None else 1 / (1 + np.exp(-x @ gate))[:, None]
        y += _feed_forward(shape, part, x, "_shexp") * share
    return y


def _norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def _normed(x: Array, part: Mapping[str, Array], name: str) -> Array:
    """x, normalized if there is a weight of this name; less its mean where there is a bias, or the
    model wants that."""
    if f"{name}.weight" not in part:
        return x
    if "centered" in part:
        x = x - x.mean(-1, keepdims=True)
    return _norm(x, part[f"{name}.weight"]) + part.get(f"{name}.bias", 0)


def _capped(x: Array, cap: float | None) -> Array:
    return x if cap is None else cap * np.tanh(x / cap)


def _short_convolution(shape: Shape, part: Mapping[str, Array], x: Array, layer: int) -> Array:
    first, last, x = np.split(x @ part["shortconv.in_proj.weight"].T, 3, -1)
    rows = np.pad(first * x, ((2, 0), (0, 0)))
    taps = part["shortconv.conv.weight"].T
    y = sum(rows[place : place + len(x)] * tap for place, tap in enumerate(taps))
    return (last * y) @ part["shortconv.out_proj.weight"].T


def _latent_attention(shape: Shape, part: Mapping[str, Array], x: Array, layer: int) -> Array:
    """Keys and values of all heads are made, and seen as others are."""
    count, rank, turned = len(x), shape.rank, shape.rope_length or 0
    q = x
    if shape.query_rank:
        q = _normed(x @ part["attn_q_a.weight"].T, part, "attn_q_a_norm")
    q = q @ part.get("attn_q_b.weight", part.get("attn_q.weight")).T
    q = q.reshape(count, shape.heads, KEY)
    row = x @ part["attn_kv_a_mqa.weight"].T
    latent = _normed(row[:, :rank], part, "attn_kv_a_norm")
    k = np.einsum("ir,hrn->ihn", latent, part["attn_k_b.weight"])
    v = np.einsum("ir,hvr->ihv", latent, part["attn_v_b.weight"])
    rotated = np.repeat(row[:, None, rank:], shape.heads, 1)
    k = np.concatenate([k, _turned(shape, rotated, layer, np.ones(1))], -1)
    plain, rotated = q[..., : KEY - turned], q[..., KEY - turned :]
    q = np.concatenate([plain, _turned(shape, rotated, layer, np.ones(1))], -1)
    log = 10 * shape.metadata.get("rope.scaling.yarn_log_multiplier", 0.0)
    magnitude = 0.1 * log * np.log(shape.metadata.get("rope.scaling.factor", 1.0)) + 1
    scores = np.einsum("ihd,jhd->hij", q, k) * KEY**-0.5 * magnitude**2
    scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = np.einsum("hij,jhv->ihv", weights, v).reshape(count, -1)
    return y @ part["attn_output.weight"].T


def _attention(shape: Shape, part: Mapping[str, Array], x: Array, layer: int) -> Array:
    if shape.rank:
        return _latent_attention(shape, part, x, layer)
    count, length = len(x), shape.head_length
    queries, keys = shape.heads * length, shape.kv_heads * length
    if "attn_qkv.weight" in part:
        q, k, v = np.split(x @ part["attn_qkv.weight"].T, [queries, queries + keys], -1)
    else:
        q, k, v = (
            x @ part[f"attn_{name}.weight"].T + part.get(f"attn_{name}.bias", 0) for name in "qkv"
        )
    if part.get("attn_q_norm.weight", x).shape == (queries,):
        q, k = (_normed(each, part, f"attn_{name}_norm") for name, each in (("q", q), ("k", k)))
    q, k, v = (each.reshape(count, -1, length) for each in (q, k, v))
    has_norms = part.get("attn_q_norm.weight", x).shape == (length,)
    is_first = not shape.architecture.startswith("hunyuan")
    if has_norms and is_first:
        q, k = (_normed(each, part, f"attn_{name}_norm") for name, each in (("q", q), ("k", k)))
    if shape.is_rotated(layer):
        q, k = (_turned(shape, each, layer, part["factors"]) for each in (q, k))
    if has_norms and not is_first:
        q, k = (_normed(each, part, f"attn_{name}_norm") for name, each in (("q", q), ("k", k)))
    if warmth := shape.metadata.get("attention.temperature_scale"):
        steps = np.arange(count) // shape.metadata["rope.scaling.original_context_length"]
        q = q * (1 + warmth * np.log(1 + steps))[:, None, None]
    group = shape.heads // shape.kv_heads
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("ihd,jhd->hij", q, k)
    scores *= shape.metadata.get("attention.scale", length**-0.5)
    scores = _capped(scores, shape.metadata.get("attn_logit_softcapping"))
    seen = np.tri(count, dtype=bool)
    if shape.has_window(layer):
        seen &= ~np.tri(count, k=-shape.metadata["attention.sliding_window"], dtype=bool)
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores)
    sinks = np.exp(part["attn_sinks.weight"])[:, None, None] if "attn_sinks.weight" in part else 0
    weights /= weights.sum(-1, keepdims=True) + sinks
    y = np.einsum("hij,jhd->ihd", weights, v)
    return y.reshape(count, -1) @ part["attn_output.weight"].T + part.get("attn_output.bias", 0)


def _turned(shape: Shape, x: Array, layer: int, factors: Array) -> Array:
    length = shape.rope_length or shape.head_length
    base = shape.metadata.get("rope.freq_base", 10000.0)
    divisor, scale = shape.metadata.get("rope.scaling.factor", 1.0), 1.0
    if shape.metadata.get("rope.scaling.type") == "yarn":
        log = shape.metadata.get("rope.scaling.yarn_log_multiplier", 0.0)
        log *= 10 if shape.rank else 1
        scale = (0.1 * np.log(divisor) + 1) / (0.1 * log * np.log(divisor) + 1)
        divisor = _yarn(divisor, base, length, shape.metadata)
    if shape.architecture == "gemma3" and shape.has_window(layer):
        base, divisor = 10000.0, 1.0
    if shape.architecture == "olmo2" and shape.has_window(layer):
        divisor, scale = 1.0, 1.0
    frequencies = base ** (-np.arange(0, length, 2) / length) / divisor / factors
    angles = np.arange(len(x))[:, None] * frequencies
    cosine, sine = (f(angles)[:, None] * scale for f in (np.cos, np.sin))
    result = x.copy()
    a, b = slice(0, length, 2), slice(1, length, 2)
    if not shape.is_interleaved:
        a, b = slice(0, length // 2), slice(length // 2, length)
    result[..., a] = x[..., a] * cosine - x[..., b] * sine
    result[..., b] = x[..., b] * cosine + x[..., a] * sine
    return result


def _yarn(factor: float, base: float, length: int, metadata: Mapping[str, Any]) -> Array:
    """By what frequencies are divided: 1 for 32 turns in the original context, `factor` for one."""
    original = metadata["rope.scaling.original_context_length"]
    ends = [length * np.log(original / (n * 2 * np.pi)) / (2 * np.log(base)) for n in (32, 1)]
    low, high = max(np.floor(ends[0]), 0), min(np.ceil(ends[1]), length - 1)
    slow = np.clip((np.arange(length // 2) - low) / max(high - low, 1e-3), 0, 1)
    return 1 / (slow / factor + 1 - slow)
