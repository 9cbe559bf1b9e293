"""The network of this sample in NumPy, without a cache: slow, short, and what it must equal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["continuation", "logits"]

FOLDER = Path(__file__).resolve().parent
HEADS, LAYERS = 4, 2

Array = np.ndarray[Any, Any]


def continuation(ids: Sequence[int], count: int) -> list[int]:
    """The `count` characters that follow, each the most likely one after all before it."""
    weights = _weights()
    known = list(ids)
    for _ in range(count):
        known.append(int(logits(weights, np.array(known)).argmax()))
    return known[len(ids) :]


def logits(weights: dict[str, Array], ids: Array) -> Array:
    """The scores of the next character: f64[characters]"""
    count = len(ids)
    x = weights["embedding"][ids] + weights["position"][:count]
    for layer in range(LAYERS):

        def dense(value: Array, name: str, number: int = layer) -> Array:
            result: Array = value @ weights[f"{name}{number}"] + weights[f"{name}{number}.bias"]
            return result

        qkv = dense(_normalize(x, weights[f"before_attention{layer}"]), "qkv")
        q, k, v = qkv.reshape(count, 3, HEADS, -1).transpose(1, 2, 0, 3)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
        exponential = np.exp(scores - scores.max(-1, keepdims=True))
        heads = exponential / exponential.sum(-1, keepdims=True) @ v
        x = x + dense(heads.transpose(1, 0, 2).reshape(x.shape), "project")
        up = dense(_normalize(x, weights[f"before_dense{layer}"]), "up")
        up *= 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = x + dense(up, "down")
    scores_of: Array = _normalize(x[-1], weights["last"]) @ weights["embedding"].T
    return scores_of


def _normalize(x: Array, scale_and_shift: Array) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered * centered).mean(-1, keepdims=True)
    result: Array = centered / np.sqrt(variance + 1e-5) * scale_and_shift[0] + scale_and_shift[1]
    return result


def _weights() -> dict[str, Array]:
    """f64, from i8 and one scale per column."""
    with np.load(FOLDER / "weights.npz") as packed:
        return {
            name: packed[name].astype(np.float64) * packed.get(f"{name}.scale", 1.0)
            for name in packed
            if not name.endswith(".scale")
        }
