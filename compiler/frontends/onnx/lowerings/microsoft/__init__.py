"""The lowerings of `com.microsoft`: what onnxruntime and its tools write beside the standard's ops.

Most of them are ops of the standard that were joined; those are lowered as what they stand for
(`lower_as`), and passes find the patterns again.
"""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.microsoft import (
    activations,
    block_products,
    block_quantized,
    experts,
    fused,
    generation,
    grouped_query,
    hashes,
    hyper_connections,
    images,
    linear_attention,
    matrices,
    multi_head,
    normalizations,
    ordered,
    packed,
    position_bias,
    quantized,
    ragged,
    renamed,
    rotary,
    sparse_attention,
    time_warping,
    tokenizer,
    tokens,
    windows,
)

__all__ = [
    "activations",
    "block_products",
    "block_quantized",
    "experts",
    "fused",
    "generation",
    "grouped_query",
    "hashes",
    "hyper_connections",
    "images",
    "linear_attention",
    "matrices",
    "multi_head",
    "normalizations",
    "ordered",
    "packed",
    "position_bias",
    "quantized",
    "ragged",
    "renamed",
    "rotary",
    "sparse_attention",
    "time_warping",
    "tokenizer",
    "tokens",
    "windows",
]
