"""The model and the data of this sample: a made-up classifier of 512 measurements."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from ingot import ops

FEATURES, HIDDEN, CLASSES = 512, 2048, 16


def write_model(path: Path) -> None:
    """A perceptron of 13 million weights, 53 MB, which a loaded model maps from the file."""
    random = np.random.default_rng(0)
    sizes = (FEATURES, HIDDEN, HIDDEN, HIDDEN, HIDDEN, CLASSES)
    weights = [
        random.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)
        for rows, columns in pairwise(sizes)
    ]

    @ingot.program(ingot.spec("f32[batch,512]"))
    def classify(features: Any) -> Any:
        for weight in weights[:-1]:
            features = ops.maximum(features @ weight, 0)
        return {"probabilities": ops.softmax(features @ weights[-1], axis=-1)}

    ingot.compile(classify).save(path)


def rows(start: int, count: int) -> np.ndarray[Any, Any]:
    """f32[count,512]: rows number `start` and those behind it, always the same."""
    numbers = np.arange(start, start + count, dtype=np.float32)[:, None]
    return np.sin(numbers * np.linspace(0.1, 1, FEATURES, dtype=np.float32))
