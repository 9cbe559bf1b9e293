"""Small models with an encoder: their shapes in GGUF files, and how llama.cpp reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.language import TOKENS
from tests.support.language_shapes import Shape

__all__ = ["HALVES", "SOURCE", "TARGET", "logits_of_llama_cpp"]

_RANDOM = np.random.default_rng(3)
SOURCE = _RANDOM.integers(0, 100, 40).astype(np.int32)
TARGET = _RANDOM.integers(0, 100, 9).astype(np.int32)
"""What the encoder reads, and what follows."""

_PLAIN = Shape(
    "t5", layers=3, kv_heads=4, vocabulary=len(TOKENS),
    metadata={
        "attention.relative_buckets_count": 8, "decoder_start_token_id": 3,
        "attention.layer_norm_epsilon": 1e-6, "decoder_block_count": 2,
    },
)  # fmt: skip
HALVES = {
    "t5": _PLAIN,
    "t5 gated": replace(_PLAIN, normed=True),
    "umt5": replace(_PLAIN, normed=True, ahead=1),
    "t5encoder": replace(_PLAIN, architecture="t5encoder"),
}
"""In `normed` ones networks have gates, in those with something `ahead` each layer its buckets."""


def logits_of_llama_cpp(path: Path) -> Any:
    """The logits behind the fifth and the last of `TARGET`, f32[2, vocabulary], or of an encoder
    alone the vectors of `SOURCE`, f32[40, width]."""
    import llama_cpp

    model = llama_cpp.llama_model_load_from_file(
        str(path).encode(), llama_cpp.llama_model_default_params()
    )
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.type_k, options.type_v, options.flash_attn_type = 64, 0, 0, 0
    options.embeddings = not llama_cpp.llama_model_has_decoder(model)
    context = llama_cpp.llama_init_from_model(model, options)

    def batch(ids: Any, first: int) -> Any:
        made = llama_cpp.llama_batch_init(len(ids), 0, 1)
        made.n_tokens = len(ids)
        for place, id in enumerate(ids.tolist()):
            made.token[place], made.pos[place], made.logits[place] = id, first + place, 1
            made.n_seq_id[place], made.seq_id[place][0] = 1, 0
        return made

    assert llama_cpp.llama_encode(context, batch(SOURCE, 0)) == 0
    if options.embeddings:
        shape = (len(SOURCE), llama_cpp.llama_model_n_embd(model))
        return np.ctypeslib.as_array(llama_cpp.llama_get_embeddings(context), shape).copy()
    found, length = [], llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    for place in range(len(TARGET)):
        assert llama_cpp.llama_decode(context, batch(TARGET[place : place + 1], place)) == 0
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        found.append(np.ctypeslib.as_array(logits, (length,)).copy())
    return np.array(found)[[4, 8]]
