"""Lowerings by theme. Importing them fills the table."""

from __future__ import annotations

from ingot.compiler.frontends.torch.lowerings import (
    activations,
    arithmetic,
    attention,
    contractions,
    control,
    creation,
    indexing,
    normalizations,
    pooling,
    reductions,
    resizing,
    shapes,
    sizes,
    sorting,
)

__all__ = [
    "activations",
    "arithmetic",
    "attention",
    "contractions",
    "control",
    "creation",
    "indexing",
    "normalizations",
    "pooling",
    "reductions",
    "resizing",
    "shapes",
    "sizes",
    "sorting",
]
