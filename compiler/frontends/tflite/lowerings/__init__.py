"""Lowerings by theme. Importing them fills the table."""

from __future__ import annotations

from ingot.compiler.frontends.tflite.lowerings import (
    activations,
    boxes,
    complex,
    contractions,
    control,
    dimension_numbers,
    elementwise,
    indexing,
    pooling,
    recurrent,
    reductions,
    resizing,
    selections,
    shapes,
    signals,
    strings,
)

__all__ = [
    "activations",
    "boxes",
    "complex",
    "contractions",
    "control",
    "dimension_numbers",
    "elementwise",
    "indexing",
    "pooling",
    "recurrent",
    "reductions",
    "resizing",
    "selections",
    "shapes",
    "signals",
    "strings",
]
