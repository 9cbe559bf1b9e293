"""The lowerings of `ai.onnx.ml`: what scikit-learn pipelines and other classic models are made of.

Where the standard is silent or its text and onnxruntime differ, models do as onnxruntime does,
which the tools that write them are tested with.
"""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.classic import (
    features,
    forest,
    labels,
    linear,
    scores,
    svm,
    trees,
)

__all__ = ["features", "forest", "labels", "linear", "scores", "svm", "trees"]
