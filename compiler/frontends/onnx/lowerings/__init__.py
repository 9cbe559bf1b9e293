"""The lowerings of ONNX ops by family; importing this package fills the table of `registry.py`."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings import (
    activations,
    boxes,
    contractions,
    control,
    elementwise,
    indexing,
    normalizations,
    pooling,
    quantization,
    recurrent,
    reductions,
    resize,
    selections,
    sequences,
    shapes,
)

__all__ = [
    "activations",
    "boxes",
    "contractions",
    "control",
    "elementwise",
    "indexing",
    "normalizations",
    "pooling",
    "quantization",
    "recurrent",
    "reductions",
    "resize",
    "selections",
    "sequences",
    "shapes",
]
