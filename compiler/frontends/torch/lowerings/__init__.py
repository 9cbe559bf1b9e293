"""Lowerings by theme. Importing them fills the table."""

from __future__ import annotations

from ingot.compiler.frontends.torch.lowerings import (
    activations,
    arithmetic,
    attention,
    complex,
    contractions,
    control,
    creation,
    images,
    indexing,
    normalizations,
    pooling,
    quantization,
    random,
    reductions,
    refused,
    resizing,
    selections,
    shapes,
    sizes,
    sorting,
)

__all__ = [
    "activations",
    "arithmetic",
    "attention",
    "complex",
    "contractions",
    "control",
    "creation",
    "images",
    "indexing",
    "normalizations",
    "pooling",
    "quantization",
    "random",
    "reductions",
    "refused",
    "resizing",
    "selections",
    "shapes",
    "sizes",
    "sorting",
]
