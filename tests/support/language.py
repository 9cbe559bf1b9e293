"""GGUF files of language models with random weights, written by the `gguf` package. What these
compute is in `language_logits.py`."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from tests.support.language_shapes import GPT, QKV, SHAPES, UNDEFINED, Shape

Array = Any

_EXACT = ("ssm_conv1d", "ssm_a", "ssm_d", "ssm_norm")
_JOINED = (
    "bloom",
    "mpt",
    "phi3",
    "chatglm",
    "gpt2",
    "starcoder",
    "gptneox",
    "falcon",
    "qwen",
    "phi2",
    "dbrx",
    "codeshell",
    "bailingmoe2",
    "jais",
)
_UNGATED = (
    "nemotron_h_moe",
    "nemotron_h",
    "glm4",
    "starcoder2",
    "arcee",
    *(each for each in GPT if each not in ("orion", "olmo")),
)
_KINDS = {"ssm_": (), "attn_": (), "ffn_": ("exp_probs_b",)}
_PLACED = ("gpt2", "starcoder")


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
    for name, shape in (SHAPES | UNDEFINED).items()
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
        if "norm" in name or name.endswith(("scale", "scale.weight")):
            values += name.endswith(("weight", "scale"))
        if name.endswith("ssm_a"):
            values = -np.exp(50 * values if len(dims) == 1 else values)
        if name.endswith("attn_sinks.weight"):
            values += 1
        if name.endswith("exp_probs_b.bias"):
            values *= 10
        if name == "rope_freqs.weight":
            values = random.uniform(1, 8, dims).astype(np.float32)
        is_exact = len(dims) == 1 or any(f".{part}" in name for part in _EXACT)
        chosen = "F32" if is_exact else (types or {}).get(name.split(".")[-2], type)
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
    if shape.dense or shape.rank:
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
        whole = key if key.startswith("xielu") else f"{writer.arch}.{key}"
        add[type(value)](whole, value)


_NORMED = ("qwen3", "qwen3vl", "qwen3moe", "qwen3vlmoe", "gemma3", "exaone4", "dots1", "gemma3n")
_NORMED += (
    "hunyuan-dense",
    "hunyuan_vl",
    "hunyuan-moe",
    "lfm2",
    "lfm2moe",
    "qwen3next",
    "qwen35",
    "qwen35moe",
)
_NORMED += (
    "gemma4",
    "exaone-moe",
    "apertus",
    "afmoe",
    "maincoder",
    "mellum",
    "hy_v3",
    "bailingmoe2",
)
"""Models that normalize heads."""

KEY, VALUE = 24, 12
"""Features of heads of models whose keys and values follow from rows."""

_RECURRENT = ("qwen3next", "qwen35", "qwen35moe")
POST_NORMED = ("gpt-oss", "glm4moe", "seed_oss", *_RECURRENT)
"""Those whose norm of networks is called post_attention_norm."""

_OF_EXPERTS = ("_exps", "_shexp", "_inp", "exp_probs_b")
_BIASED = {
    **dict.fromkeys(("qwen2", "qwen2moe", "qwen2vl", "glm4"), QKV),
    "stablelm": (*QKV, "attn_norm", "ffn_norm"),
    "starcoder2": (*QKV, "attn_output", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"),
    "glm4moe": QKV,
    "pangu-embedded": (*QKV, "attn_output"),
    **dict.fromkeys(("chatglm", "qwen"), ("attn_qkv",)),
    **dict.fromkeys(("nemotron", "orion"), ("attn_norm", "ffn_norm")),
    "falcon": ("attn_norm",),
    "jais": (
        *("attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"),
    ),
    "jais2": (*QKV, "attn_output", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"),
    "phi2": ("attn_qkv", "attn_output", "ffn_up", "ffn_down", "attn_norm"),
    **dict.fromkeys(
        ("gpt2", "starcoder", "gptneox", "bloom", "codeshell"),
        ("attn_qkv", "attn_output", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"),
    ),
    "seed_oss": QKV,
    "gpt-oss": (
        *QKV,
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
    if shape.architecture in ("t5", "t5encoder"):
        return _tensors_of_halves(shape)
    queries, keys = shape.heads * shape.head_length, shape.kv_heads * shape.head_length
    has, width = shape.architecture, shape.width
    layer = {"attn_norm": (width,), "attn_output": (width, queries), "ffn_norm": (width,)}
    if has in _JOINED:
        layer |= {"attn_qkv": (queries + 2 * keys, width)}
    else:
        layer |= {"attn_q": (queries, width), "attn_k": (keys, width), "attn_v": (keys, width)}
    is_joined = has in ("phi3", "glm4", "chatglm")
    if not is_joined and has not in _UNGATED:
        layer["ffn_gate"] = (shape.feed, width)
    layer["ffn_up"] = (shape.feed * (2 if is_joined else 1), width)
    layer["ffn_down"] = (width, shape.feed)
    front = dict(layer)
    if shape.experts:
        layer = {name: dims for name, dims in layer.items() if not name.startswith("ffn_")}
        layer |= {"ffn_norm": (width,), "ffn_gate_inp": (shape.experts, width)}
        wide, narrow = (shape.experts, shape.feed, width), (shape.experts, width, shape.feed)
        layer |= {"ffn_gate_exps": wide, "ffn_up_exps": wide, "ffn_down_exps": narrow}
    if shape.rank:
        for name in QKV:
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
    if has == "nemotron_h_moe":
        del layer["ffn_gate_exps"]
    biased = ("nemotron_h_moe", "glm4moe", "ernie4_5-moe", "dots1", "lfm2moe", "minimax-m2")
    biased += ("exaone-moe", "afmoe", "bailingmoe2")
    if has in biased or shape.query_rank:
        layer["exp_probs_b"] = (shape.experts,)
    if has in _RECURRENT:
        layer["attn_q"] = (2 * queries, width)
    if has in ("qwen2moe", "qwen3next", "qwen35moe"):
        layer["ffn_gate_inp_shexp"] = (width,)
    if shape.shared:
        layer["ffn_down_shexp"] = (width, shape.shared)
        parts = ("up",) if has == "nemotron_h_moe" else ("gate", "up")
        layer |= {f"ffn_{part}_shexp": (shape.shared, width) for part in parts}
    if shape.normed or has in _NORMED:
        layer |= {"attn_q_norm": (shape.head_length,), "attn_k_norm": (shape.head_length,)}
    if has in ("olmo2", "olmoe", "minimax-m2"):
        layer |= {"attn_q_norm": (queries,), "attn_k_norm": (keys,)}
    if has == "bitnet":
        layer |= {"attn_sub_norm": (width,), "ffn_sub_norm": (shape.feed,)}
    if has in ("olmo", "olmo2", "exaone4"):
        del layer["attn_norm"], layer["ffn_norm"]
    if shape.is_parallel:
        del layer["ffn_norm"]
    if has == "gpt-oss":
        layer["attn_sinks"] = (shape.heads,)
    if has in POST_NORMED:
        layer["post_attention_norm"] = layer.pop("ffn_norm")
    if has in ("gemma2", "gemma3", "gemma3n", "gemma4", "olmo2", "exaone4", "glm4"):
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
        has_keys = shape.metadata.get("attention.head_count_kv", [1] * shape.layers)[number]
        if has.startswith("nemotron_h"):
            kind = ("ssm_", "ffn_", "attn_", "ssm_")[number]
            own = {"attn_norm": (width,), **layer, **_recurrent(has, width)}
            own = {
                part: dims
                for part, dims in own.items()
                if part == "attn_norm" or part.startswith((kind, *_KINDS[kind]))
            }
            own.pop("ffn_norm", None)
        elif not has_keys and has == "granitehybrid":
            own = {part: dims for part, dims in own.items() if not part.startswith("attn_")}
            own |= _recurrent(has, width)
        elif not has_keys:
            own = {part: dims for part, dims in own.items() if not part.startswith("attn_")}
            own |= {"attn_norm": (width,), "shortconv.in_proj": (3 * width, width)}
            own |= {"shortconv.conv": (width, 3), "shortconv.out_proj": (width, width)}
        if has in _RECURRENT and (number + 1) % 4:
            own = {part: dims for part, dims in own.items() if not part.startswith("attn_")}
            own |= _recurrent(has, width)
        result |= {f"blk.{number}.{_whole(part)}": dims for part, dims in own.items()}
        if "ssm_in" in own:
            result[f"blk.{number}.ssm_conv1d.bias"] = own["ssm_conv1d"][:1]
        for part in _BIASED.get(has, ()):
            dims = own[part]
            result[f"blk.{number}.{part}.bias"] = dims[: max(len(dims) - 1, 1)]
    for number in range(shape.layers, shape.layers + shape.ahead):
        result |= {f"blk.{number}.{_whole(part)}": dims for part, dims in layer.items()}
        result |= {f"blk.{number}.{part}.bias": layer[part][:1] for part in _BIASED[has]}
        result |= {f"blk.{number}.nextn.eh_proj.weight": (width, 2 * width)}
        result |= {f"blk.{number}.nextn.{part}norm.weight": (width,) for part in "eh"}
    if has != "olmo":
        result["token_embd_norm.weight" if has.startswith("lfm2") else "output_norm.weight"] = (
            width,
        )
    if has in ("stablelm", "starcoder2", *GPT) and has != "olmo":
        result["output_norm.bias"] = (width,)
    if has in _PLACED:
        result["position_embd.weight"] = (shape.context, width)
    if has == "phi2":
        result["output.bias"] = (shape.vocabulary,)
    if not shape.tied:
        result["output.weight"] = (shape.vocabulary, width)
    for part, dims in shape.own.items():
        numbers = range(shape.layers) if part[0].isalpha() else [int(part.split(".")[0])]
        part = part.lstrip("0123456789.")
        names = [f"blk.{number}.{_whole(part)}" for number in numbers]
        for name in [part[:-1]] if part.endswith("/") else names:
            if dims is None:
                result.pop(name, None)
            else:
                result[name] = dims
    return result


def _tensors_of_halves(shape: Shape) -> dict[str, tuple[int, ...]]:
    width, inner, feed = shape.width, shape.heads * shape.head_length, (shape.feed, shape.width)
    result = {"token_embd.weight": (shape.vocabulary, width)}
    if not shape.tied:
        result["output.weight"] = (shape.vocabulary, width)
    layers = {"enc": shape.layers}
    if shape.architecture == "t5":
        layers["dec"] = shape.metadata.get("decoder_block_count", shape.layers)
    for which, count in layers.items():
        result[f"{which}.output_norm.weight"] = (width,)
        own = {"attn_norm": (width,), "ffn_norm": (width,), "ffn_up": feed, "ffn_down": feed[::-1]}
        for kind in ("attn", "cross_attn") if which == "dec" else ("attn",):
            own |= {f"{kind}_norm": (width,), f"{kind}_o": (width, inner)}
            own |= {f"{kind}_{part}": (inner, width) for part in "qkv"}
        if shape.normed:
            own["ffn_gate"] = feed
        for number in range(count):
            result |= {f"{which}.blk.{number}.{part}.weight": dims for part, dims in own.items()}
            if number == 0 or shape.ahead:
                name = f"{which}.blk.{number}.attn_rel_b.weight"
                result[name] = (shape.metadata["attention.relative_buckets_count"], shape.heads)
    return result


def _recurrent(architecture: str, width: int) -> dict[str, tuple[int, ...]]:
    """What layers have that are no attention: two heads of keys of 8, four of values of 8."""
    if architecture.startswith("nemotron_h"):
        return {
            "ssm_in": (100, width), "ssm_conv1d": (64, 4), "ssm_dt": (4,), "ssm_a": (4, 1),
            "ssm_d": (4, 1), "ssm_norm": (2, 16), "ssm_out": (width, 32),
        }  # fmt: skip
    if architecture == "granitehybrid":
        return {
            "attn_norm": (width,), "ssm_in": (292, width), "ssm_conv1d": (160, 4), "ssm_dt": (4,),
            "ssm_a": (4, 1), "ssm_d": (4, 1), "ssm_norm": (2, 64), "ssm_out": (width, 128),
        }  # fmt: skip
    if architecture == "qwen3next":
        shares = {"ssm_ba": (8, width)}
    else:
        shares = {"ssm_beta": (4, width), "ssm_alpha": (4, width)}
    return {
        "attn_norm": (width,), "attn_qkv": (64, width), "attn_gate": (32, width), **shares,
        "ssm_conv1d": (64, 4), "ssm_dt": (4,), "ssm_a": (4,), "ssm_norm": (8,),
        "ssm_out": (width, 32),
    }  # fmt: skip


def _whole(part: str) -> str:
    """The name of a tensor."""
    if part in ("ssm_a", "ssm_d") or part.endswith((".scale", ".bias", ".weight", "/")):
        return part
    return f"{part}.{'bias' if part in ('exp_probs_b', 'ssm_dt') else 'weight'}"
