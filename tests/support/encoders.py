"""Small models that make vectors of texts: what sizes and tensors their GGUF files have, and how
llama.cpp reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.language import KEYS, TOKENS
from tests.support.language_shapes import QKV, Shape

__all__ = ["COUNTS", "ENCODERS", "ENCODER_KEYS", "TEXTS", "vectors_of_llama_cpp"]

COUNTS = (9, 1, 12)
TEXTS = np.random.default_rng(2).integers(0, len(TOKENS), sum(COUNTS)).astype(np.int32)
"""Three texts, one behind another."""

ENCODER_KEYS = {**KEYS, "ggml.token_type_count": 2}

_WIDTH, _FEED, _CONTEXT = 64, 96, 64
_MEAN, _FIRST = ({"pooling_type": each, "attention.causal": False} for each in (1, 2))
_LINE, _JOINED = (_WIDTH,), dict.fromkeys(QKV)
_PLAIN = {"ffn_gate": None}
_POST = {
    **dict.fromkeys(("attn_norm", "ffn_norm", "ffn_gate", "output_norm.weight/")),
    **{f"attn_output_norm{end}": _LINE for end in ("", ".bias")},
    **{f"layer_output_norm{end}": _LINE for end in ("", ".bias")},
    "token_embd_norm.weight/": _LINE, "token_embd_norm.bias/": _LINE,
    "token_types.weight/": (2, _WIDTH),
}  # fmt: skip
_BIASED = {"attn_output.bias": _LINE, "ffn_up.bias": (_FEED,), "ffn_down.bias": _LINE}

_SHAPES = {
    "bert": Shape("bert", tied=True, metadata=_FIRST, own=_POST | _BIASED | {
        "attn_q.bias": (64,), "attn_k.bias": (32,), "attn_v.bias": (32,),
        "position_embd.weight/": (_CONTEXT, _WIDTH),
    }),
    "nomic-bert": Shape("nomic-bert", tied=True, metadata=_MEAN, own=_POST | _JOINED | {
        "attn_qkv": (128, _WIDTH), "ffn_gate": (_FEED, _WIDTH),
    }),
    "nomic-bert-moe": Shape("nomic-bert-moe", tied=True, kv_heads=4, metadata=_MEAN | {
        "moe_every_n_layers": 2, "expert_count": 6, "expert_used_count": 2,
    }, own=_POST | _BIASED | _JOINED | {
        "attn_qkv": (192, _WIDTH), "attn_qkv.bias": (192,), "1.ffn_up.bias": None,
        "1.ffn_down.bias": None, "1.ffn_up": None, "1.ffn_down": None,
        "1.ffn_gate_inp": (6, _WIDTH), "1.ffn_up_exps": (6, _FEED, _WIDTH),
        "1.ffn_down_exps": (6, _WIDTH, _FEED),
    }),
    "jina-bert-v2": Shape("jina-bert-v2", tied=True, kv_heads=4, metadata=_MEAN, own=_POST | {
        "attn_q.bias": (64,), "attn_k.bias": (64,), "attn_v.bias": (64,), "attn_output.bias": _LINE,
        "ffn_gate": (_FEED, _WIDTH), "ffn_down.bias": _LINE, "attn_norm_2": _LINE,
        "attn_norm_2.bias": _LINE, "attn_q_norm": (64,), "attn_k_norm": (64,),
        "attn_q_norm.bias": (64,), "attn_k_norm.bias": (64,),
    }),
    "jina-bert-v3": Shape("jina-bert-v3", tied=True, metadata=_MEAN, own=_POST | _BIASED | _JOINED
        | {"attn_qkv": (128, _WIDTH), "attn_qkv.bias": (128,)}),
    "modern-bert": Shape("modern-bert", tied=True, kv_heads=4, layers=4, metadata=_FIRST | {
        "attention.sliding_window": 6, "rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0,
    }, own=_PLAIN | _JOINED | {
        "attn_qkv": (192, _WIDTH), "ffn_up": (2 * _FEED, _WIDTH), "token_embd_norm.weight/": _LINE,
        "0.attn_norm": None,
    }),
    "neo-bert": Shape("neo-bert", tied=True, kv_heads=4, metadata=_FIRST, own=_PLAIN | _JOINED | {
        "attn_qkv": (192, _WIDTH), "ffn_up": (2 * _FEED, _WIDTH), "output_norm.weight/": None,
        "enc.output_norm.weight/": _LINE,
    }),
    "eurobert": Shape("eurobert", tied=True, metadata=_MEAN),
    "llama-embed": Shape("llama-embed", metadata=_MEAN),
    "gemma-embedding": Shape("gemma-embedding", tied=True, layers=6, metadata=_MEAN | {
        "attention.sliding_window": 6, "rope.freq_base": 1e6, "dense_2_feat_in": 64,
        "dense_2_feat_out": 128, "dense_3_feat_in": 128, "dense_3_feat_out": 64,
    }, own={
        "attn_q_norm": (16,), "attn_k_norm": (16,), "post_attention_norm": _LINE,
        "post_ffw_norm": _LINE, "dense_2.weight/": (128, _WIDTH), "dense_3.weight/": (_WIDTH, 128),
    }),
    "qwen3": Shape("qwen3", tied=True, metadata={"pooling_type": 3}),
}  # fmt: skip
_RANKED = {"pooling_type": 4, "attention.causal": False}
_HEAD = {"cls.weight/": (_WIDTH, _WIDTH), "cls.bias/": _LINE, "cls.output.weight/": (1, _WIDTH)}
_HEAD |= {"cls.output.bias/": (1,)}
_SHAPES |= {
    "bert ranked": replace(_SHAPES["bert"], metadata=_RANKED, own=_SHAPES["bert"].own | _HEAD),
    "jina-bert-v2 ranked": replace(_SHAPES["jina-bert-v2"], metadata=_RANKED, own={
        **_SHAPES["jina-bert-v2"].own, "cls.weight/": (1, _WIDTH), "cls.bias/": (1,),
    }),
    "modern-bert ranked": replace(
        _SHAPES["modern-bert"], metadata=_SHAPES["modern-bert"].metadata | _RANKED,
        own=_SHAPES["modern-bert"].own | _HEAD | {"cls.norm.weight/": _LINE, "cls.bias/": None},
    ),
    "qwen3 ranked": Shape("qwen3", tied=True, own={"cls.output.weight/": (2, _WIDTH)}, metadata={
        "pooling_type": 4, "classifier.output_labels": ["yes", "no"],
    }),
}  # fmt: skip
ENCODERS = {name: replace(shape, vocabulary=len(TOKENS)) for name, shape in _SHAPES.items()}
"""One of each architecture, and a decoder that makes vectors, too; models that rank texts."""


def vectors_of_llama_cpp(path: Path) -> Any:
    """What it makes of each of `TEXTS`, f32[3, n]: vectors, or the first of scores."""
    import llama_cpp

    found, types = [], {"type_k": 0, "type_v": 0}  # f32
    for end, count in zip(np.cumsum(COUNTS), COUNTS, strict=True):
        model = llama_cpp.Llama(str(path), verbose=False, n_ctx=64, embedding=True, **types)
        batch = model._batch
        batch.reset()
        batch.add_sequence(TEXTS[end - count : end].tolist(), 0, True)
        model._ctx.decode(batch)
        vector = llama_cpp.llama_get_embeddings_seq(model._ctx.ctx, 0)
        is_ranked = llama_cpp.llama_pooling_type(model._ctx.ctx) == 4
        length = 1 if is_ranked else model.n_embd()
        found.append(np.ctypeslib.as_array(vector, (length,)).copy())
    return np.array(found)
