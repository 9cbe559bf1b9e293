"""GGUF files of language models with random weights, written by the `gguf` package, and what such a
model computes, in NumPy, from the definition of its architecture."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

Array = Any


@dataclass(frozen=True)
class Shape:
    """A model: its sizes and what its architecture asks for."""

    architecture: str = "llama"
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_length: int = 16
    feed: int = 96
    vocabulary: int = 100
    context: int = 64
    tied: bool = False
    rope_length: int | None = None
    has_rope_factors: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    experts: int = 0
    chosen: int = 2
    shared: int = 0  # features of the expert of all tokens
    rank: int = 0  # of rows that keys and values follow from
    query_rank: int = 0
    dense: int = 0  # layers in front that have no experts
    ahead: int = 0  # layers behind that guess further tokens
    normed: bool = False  # heads of glm4moe

    @property
    def is_centered(self) -> bool:
        """Whether norms are those of LayerNorm."""
        return self.architecture in ("command-r", "cohere2", "stablelm", "starcoder2")

    @property
    def is_parallel(self) -> bool:
        """Whether attention and network read the same norm."""
        return self.architecture in ("command-r", "cohere2")

    @property
    def is_interleaved(self) -> bool:
        """Whether neighbours turn, not halves."""
        return self.architecture in (
            "llama", "mistral3", "granite", "smollm3", "glm4", "ernie4_5", "command-r", "cohere2",
            "arcee", "ernie4_5-moe", "granitemoe", "deepseek2",
        )  # fmt: skip

    def is_rotated(self, layer: int) -> bool:
        """Whether a layer turns queries and keys."""
        if self.architecture == "smollm3":
            return (layer + 1) % 4 > 0
        has_windows = "attention.sliding_window" in self.metadata
        is_mixed = self.architecture in ("exaone4", "cohere2") and has_windows
        return not is_mixed or self.has_window(layer)

    def has_window(self, layer: int) -> bool:
        """Whether a layer sees the last positions only."""
        if "shortconv.l_cache" in self.metadata:
            return not self.metadata["attention.head_count_kv"][layer]
        periods = {"gemma2": 2, "gemma3": 6, "olmo2": 4, "exaone4": 4, "cohere2": 4, "gpt-oss": 2}
        period = periods.get(self.architecture, 0)
        if "attention.sliding_window" not in self.metadata:
            return False
        if self.architecture == "phi3":
            return True
        return period > 0 and layer % period < period - 1


SHAPES = {
    "llama": Shape(has_rope_factors=True),
    "llama tied": Shape(
        tied=True, metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    ),
    "llama yarn": Shape(
        metadata={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 16,
            "rope.freq_base": 100.0,
        }
    ),
    "mistral": Shape(kv_heads=1, head_length=24, metadata={"rope.freq_base": 1e6}),
    "qwen2": Shape("qwen2", tied=True),
    "qwen3": Shape("qwen3", head_length=32),
    "gemma": Shape("gemma", tied=True),
    "gemma2": Shape(
        "gemma2", tied=True, layers=3,
        metadata={
            "attention.sliding_window": 3,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Shape(
        "gemma3", tied=True, layers=6,
        metadata={"attention.sliding_window": 3, "rope.freq_base": 1e6,
                  "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    ),
    "phi3": Shape("phi3", rope_length=12, metadata={"attention.sliding_window": 4}),
    "mistral3": Shape("mistral3", metadata={
        "attention.temperature_scale": 0.1, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 4,
        "rope.scaling.yarn_log_multiplier": 1.0, "rope.freq_base": 100.0,
    }),
    "qwen2vl": Shape("qwen2vl", metadata={"rope.dimension_sections": [2, 3, 3, 0]}),
    "qwen3vl": Shape("qwen3vl", metadata={"rope.dimension_sections": [3, 3, 2, 0]}),
    "olmo2": Shape("olmo2"),
    "olmo3": Shape("olmo2", layers=4, metadata={
        "attention.sliding_window": 3, "attention.sliding_window_pattern": [True] * 3 + [False],
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.freq_base": 100.0,
    }),
    "olmoe": Shape("olmoe", kv_heads=4, experts=6, chosen=3, feed=32),
    "exaone4": Shape("exaone4"),
    "exaone4 windows": Shape("exaone4", layers=4, metadata={"attention.sliding_window": 3}),
    "granite": Shape("granite", metadata={
        "embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 2.0,
    }),
    "smollm3": Shape("smollm3", layers=4),
    "glm4": Shape("glm4", rope_length=8),
    "ernie4_5": Shape("ernie4_5"),
    "command-r": Shape("command-r", tied=True, metadata={"logit_scale": 0.25}),
    "cohere2": Shape("cohere2", tied=True, layers=4, metadata={
        "logit_scale": 0.25, "attention.sliding_window": 3,
    }),
    "stablelm": Shape("stablelm", rope_length=8),
    "starcoder2": Shape("starcoder2"),
    "arcee": Shape("arcee"),
    "gpt-oss": Shape("gpt-oss", layers=3, experts=4, feed=32, metadata={
        "attention.sliding_window": 3, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.freq_base": 100.0,
    }),
    "glm4moe": Shape("glm4moe", layers=3, dense=1, ahead=1, experts=6, chosen=3, feed=32,
        shared=64, rope_length=8, normed=True, metadata={
            "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_gating_func": 2,
        }),
    "ernie4_5-moe": Shape("ernie4_5-moe", layers=3, dense=1, experts=6, chosen=3, feed=32,
        shared=32, metadata={"interleave_moe_layer_step": 1}),
    "dots1": Shape("dots1", layers=3, kv_heads=4, dense=1, experts=6, chosen=3, feed=32, shared=64,
        metadata={"expert_weights_norm": True, "expert_weights_scale": 2.5,
                  "expert_gating_func": 2}),
    "deepseek2": Shape("deepseek2", layers=3, dense=1, experts=6, chosen=3, feed=32, shared=64,
        kv_heads=1, head_length=40, rope_length=8, rank=32, query_rank=24, metadata={
            "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_gating_func": 2,
            "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.freq_base": 100.0,
            "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 0.1,
        }),
    "deepseek2 lite": Shape("deepseek2", layers=3, dense=1, experts=6, chosen=3, feed=32,
        shared=64, kv_heads=1, head_length=40, rope_length=8, rank=32),
    "lfm2": Shape("lfm2", layers=4, tied=True, metadata={
        "attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3,
    }),
    "lfm2 experts": Shape("lfm2moe", layers=4, tied=True, dense=1, experts=6, chosen=3, feed=32,
        metadata={"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3,
                  "expert_gating_func": 2}),
    "qwen3vlmoe": Shape("qwen3vlmoe", experts=8, feed=32, metadata={
        "rope.dimension_sections": [3, 3, 2, 0],
    }),
    "granitemoe": Shape("granitemoe", experts=4, feed=32, shared=48, metadata={
        "embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 2.0,
    }),
    "seed_oss": Shape("seed_oss"),
    "hunyuan": Shape("hunyuan-dense", tied=True),
    "hunyuan experts": Shape("hunyuan-moe", experts=4, feed=32, shared=32),
    "mixtral": Shape(experts=4, feed=32),
    "qwen2moe": Shape("qwen2moe", experts=6, chosen=3, feed=32, shared=48),
    "qwen3moe": Shape("qwen3moe", experts=8, feed=32),
}  # fmt: skip
"""A small model of each architecture."""

IDS = np.random.default_rng(1).integers(0, 100, 9).astype(np.int32)

TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"


SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
TOKENS = [*sorted(ByteLevel.alphabet()), "he", "ll", "hell", "\u0120w", *SPECIAL]
KEYS = {
    "ggml.model": "gpt2",
    "ggml.pre": "gpt-2",
    "ggml.tokens": TOKENS,
    "ggml.token_type": [1] * 260 + [3] * 4,
    "ggml.merges": ["h e", "l l", "he ll", "\u0120 w"],
    "ggml.eos_token_id": 260,
    "chat_template": TEMPLATE,
}
"""The tokenizer of a model with a vocabulary of 264."""

PEER_SHAPES = {
    name: replace(shape, vocabulary=len(TOKENS), metadata={} if name == "phi3" else shape.metadata)
    for name, shape in SHAPES.items()
    if name not in ("exaone4 windows", "deepseek2 lite")
}
"""Models that llama.cpp reads, too; it leaves the window of phi3 out, and knows by the number of
layers those of exaone4, and whether deepseek2 has rows for queries."""


def write_model(
    path: Path,
    shape: Shape,
    type: str = "F32",
    types: Mapping[str, str] | None = None,
    names: Collection[str] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
    """Write a model; gives its weights, decoded, by name. `types`: those of some tensors, by the
    last part of their names. `names`: the tensors of a broken file. `tokenizer`: its
    keys, which begin with tokenizer."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    _write_metadata(writer, shape)
    for key, value in (tokenizer or {}).items():
        add = writer.add_array if isinstance(value, list) else writer.add_uint32
        add = {str: writer.add_string, bool: writer.add_bool}.get(builtins.type(value), add)
        add(f"tokenizer.{key}", value)
    random = np.random.default_rng(0)
    weights = {}
    for name, dims in tensors(shape).items():
        if names is not None and name not in names:
            continue
        scale = 0.02 if len(dims) == 1 else dims[-1] ** -0.5
        values = random.normal(0, scale, dims).astype(np.float32)
        if name.endswith("norm.weight"):
            values += 1
        if name.endswith("attn_sinks.weight"):
            values += 1
        if name.endswith("exp_probs_b.bias"):
            values *= 10
        if name == "rope_freqs.weight":
            values = random.uniform(1, 8, dims).astype(np.float32)
        chosen = "F32" if len(dims) == 1 else (types or {}).get(name.split(".")[-2], type)
        kind = gguf.GGMLQuantizationType[chosen]
        is_wide = chosen == "F64"
        data = values.astype(np.float64) if is_wide else gguf.quants.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        weights[name] = values if is_wide else gguf.quants.dequantize(data, kind).astype("f4")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _write_metadata(writer: Any, shape: Shape) -> None:
    """The keys of its sizes; those of `metadata` come last, and count."""
    keys = {
        "context_length": shape.context,
        "embedding_length": shape.width,
        "block_count": shape.layers + shape.ahead,
        "feed_forward_length": shape.feed,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_length,
        "attention.value_length": shape.rank or shape.head_length,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.rope_length or shape.head_length,
    }
    if shape.experts:
        keys |= {"expert_count": shape.experts, "expert_used_count": shape.chosen}
        if shape.architecture != "llama":
            keys["expert_feed_forward_length"] = shape.feed
        if shape.shared:
            keys["expert_shared_feed_forward_length"] = shape.shared
    if shape.rank:
        keys |= {"attention.kv_lora_rank": shape.rank, "vocab_size": shape.vocabulary}
        keys |= {"attention.key_length_mla": KEY, "attention.value_length_mla": VALUE}
    if shape.query_rank:
        keys["attention.q_lora_rank"] = shape.query_rank
    if shape.architecture in ("glm4moe", "ernie4_5-moe", "dots1", "deepseek2", "lfm2moe"):
        keys |= {
            "leading_dense_block_count": shape.dense,
            "expert_shared_count": shape.shared // shape.feed,
        }
        keys["feed_forward_length"] = 96
    if shape.ahead:
        keys["nextn_predict_layers"] = shape.ahead
    keys |= shape.metadata
    if shape.is_centered:
        keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    add |= {list: writer.add_array, bool: writer.add_bool}
    for key, value in keys.items():
        add[type(value)](f"{writer.arch}.{key}", value)


_NORMED = ("qwen3", "qwen3vl", "qwen3moe", "qwen3vlmoe", "gemma3", "exaone4", "dots1")
_NORMED += ("hunyuan-dense", "hunyuan-moe", "lfm2", "lfm2moe")
"""Models that normalize heads."""

KEY, VALUE = 24, 12
"""Features of heads of models whose keys and values follow from rows."""

_QKV = ("attn_q", "attn_k", "attn_v")
_POST_NORMED = ("gpt-oss", "glm4moe", "seed_oss")
"""Those whose norm of networks is called post_attention_norm."""

_OF_EXPERTS = ("_exps", "_shexp", "_inp", "exp_probs_b")
_BIASED = {
    **dict.fromkeys(("qwen2", "qwen2moe", "qwen2vl", "glm4"), _QKV),
    "stablelm": (*_QKV, "attn_norm", "ffn_norm"),
    "starcoder2": (*_QKV, "attn_output", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"),
    "glm4moe": _QKV,
    "seed_oss": _QKV,
    "gpt-oss": (
        *_QKV,
        "attn_output",
        "ffn_gate_inp",
        "ffn_gate_exps",
        "ffn_up_exps",
        "ffn_down_exps",
    ),
}
"""Parts of layers that have a bias."""


def tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors, by name."""
    queries, keys = shape.heads * shape.head_length, shape.kv_heads * shape.head_length
    has, width = shape.architecture, shape.width
    layer = {"attn_norm": (width,), "attn_output": (width, queries), "ffn_norm": (width,)}
    if has == "phi3":
        layer |= {"attn_qkv": (queries + 2 * keys, width), "ffn_up": (2 * shape.feed, width)}
    elif has in ("glm4", "starcoder2", "arcee"):
        layer |= {"attn_q": (queries, width), "attn_k": (keys, width), "attn_v": (keys, width)}
        layer |= {"ffn_up": (shape.feed * (2 if has == "glm4" else 1), width)}
    else:
        layer |= {"attn_q": (queries, width), "attn_k": (keys, width), "attn_v": (keys, width)}
        layer |= {"ffn_gate": (shape.feed, width), "ffn_up": (shape.feed, width)}
    layer["ffn_down"] = (width, shape.feed)
    front = dict(layer)
    if shape.experts:
        layer = {name: dims for name, dims in layer.items() if not name.startswith("ffn_")}
        layer |= {"ffn_norm": (width,), "ffn_gate_inp": (shape.experts, width)}
        wide, narrow = (shape.experts, shape.feed, width), (shape.experts, width, shape.feed)
        layer |= {"ffn_gate_exps": wide, "ffn_up_exps": wide, "ffn_down_exps": narrow}
    if shape.rank:
        for name in _QKV:
            del layer[name]
        plain, rank, turned = KEY - (shape.rope_length or 0), shape.rank, shape.rope_length or 0
        layer |= {"attn_kv_a_mqa": (rank + turned, width), "attn_kv_a_norm": (rank,)}
        layer["attn_k_b"] = (shape.heads, rank, plain)
        layer["attn_v_b"] = (shape.heads, VALUE, rank)
        layer["attn_output"] = (width, shape.heads * VALUE)
        queries = {"attn_q": (shape.heads * KEY, width)}
        if shape.query_rank:
            queries = {"attn_q_a": (shape.query_rank, width), "attn_q_a_norm": (shape.query_rank,)}
            queries["attn_q_b"] = (shape.heads * KEY, shape.query_rank)
        layer |= queries
    if has in ("glm4moe", "ernie4_5-moe", "dots1", "lfm2moe") or shape.query_rank:
        layer["exp_probs_b"] = (shape.experts,)
    if has == "qwen2moe":
        layer["ffn_gate_inp_shexp"] = (width,)
    if shape.shared:
        layer["ffn_down_shexp"] = (width, shape.shared)
        layer |= {f"ffn_{part}_shexp": (shape.shared, width) for part in ("gate", "up")}
    if shape.normed or has in _NORMED:
        layer |= {"attn_q_norm": (shape.head_length,), "attn_k_norm": (shape.head_length,)}
    if has in ("olmo2", "olmoe"):
        layer |= {"attn_q_norm": (queries,), "attn_k_norm": (keys,)}
    if has in ("olmo2", "exaone4"):
        del layer["attn_norm"], layer["ffn_norm"]
    if shape.is_parallel:
        del layer["ffn_norm"]
    if has == "gpt-oss":
        layer["attn_sinks"] = (shape.heads,)
    if has in _POST_NORMED:
        layer["post_attention_norm"] = layer.pop("ffn_norm")
    if has in ("gemma2", "gemma3", "olmo2", "exaone4", "glm4"):
        layer |= {"post_attention_norm": (width,), "post_ffw_norm": (width,)}
    result = {"token_embd.weight": (shape.vocabulary, width)}
    if shape.has_rope_factors:
        result["rope_freqs.weight"] = (shape.head_length // 2,)
    feeds = {name: (96 if n == shape.feed else n for n in dims) for name, dims in front.items()}
    front = {name: tuple(feeds[name]) for name in ("ffn_gate", "ffn_up", "ffn_down") if shape.dense}
    for number in range(shape.layers):
        own = layer
        if number < shape.dense:
            parts = {name: d for name, d in layer.items() if not name.endswith(_OF_EXPERTS)}
            own = parts | front
        if not shape.metadata.get("attention.head_count_kv", [1] * shape.layers)[number]:
            own = {part: dims for part, dims in own.items() if not part.startswith("attn_")}
            own |= {"attn_norm": (width,), "shortconv.in_proj": (3 * width, width)}
            own |= {"shortconv.conv": (width, 3), "shortconv.out_proj": (width, width)}
        result |= {f"blk.{number}.{_whole(part)}": dims for part, dims in own.items()}
        for part in _BIASED.get(has, ()):
            dims = own[part]
            result[f"blk.{number}.{part}.bias"] = dims[: max(len(dims) - 1, 1)]
    for number in range(shape.layers, shape.layers + shape.ahead):
        result |= {f"blk.{number}.{_whole(part)}": dims for part, dims in layer.items()}
        result |= {f"blk.{number}.{part}.bias": layer[part][:1] for part in _BIASED[has]}
        result |= {f"blk.{number}.nextn.eh_proj.weight": (width, 2 * width)}
        result |= {f"blk.{number}.nextn.{part}norm.weight": (width,) for part in "eh"}
    result["token_embd_norm.weight" if has.startswith("lfm2") else "output_norm.weight"] = (width,)
    if has in ("stablelm", "starcoder2"):
        result["output_norm.bias"] = (width,)
    if not shape.tied:
        result["output.weight"] = (shape.vocabulary, width)
    return result


def _whole(part: str) -> str:
    """The name of a tensor."""
    return f"{part}.{'bias' if part == 'exp_probs_b' else 'weight'}"


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
        if shape.architecture in _POST_NORMED:
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
        chosen = np.argsort(-(share + part.get("exp_probs_b.bias", 0)))[: shape.chosen]
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
