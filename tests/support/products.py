"""Types and data for the tests of contraction kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

Array = np.ndarray[Any, Any]


def f32(*shape: Dim) -> TensorType:
    return TensorType(dtype("f32"), shape)


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pack(b: Array) -> Array:
    """[k, n] as panels of 16 columns: [n / 16, k / s, 16, s], s steps to four bytes."""
    k, n = b.shape
    steps = max(1, 4 // b.itemsize)
    lines, panels = -(-k // steps), -(-n // 16)
    padded = np.zeros((lines * steps, panels * 16), b.dtype)
    padded[:k, :n] = b
    return np.ascontiguousarray(padded.reshape(lines, steps, panels, 16).transpose(2, 0, 3, 1))


def error_of(got: Array, wanted: Array) -> float:
    """max |d| / max |wanted|, or max |d| where all of `wanted` is zero."""
    if wanted.size == 0:
        return 0.0
    return float(np.abs(got - wanted).max() / (np.abs(wanted).max() or 1.0))


def extremes(name: str, *shape: int) -> Array:
    """Bytes, many of which are the least and the greatest: where instructions saturate."""
    limits = np.iinfo(dtype(name).numpy)
    numbers = np.random.default_rng(3).integers(limits.min - 90, limits.max + 91, shape)
    return np.clip(numbers, limits.min, limits.max).astype(dtype(name).numpy)


def convolved(x: Array, w: Array) -> Array:
    """Exact sums of a window of 3x3, padded by 1, that moves by 1 row and 2 columns."""
    padded = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = x.shape[1:3]
    parts = [
        padded[:, i : i + height, j : j + width : 2] @ w[i, j].astype(np.int64)
        for i in range(3)
        for j in range(3)
    ]
    return np.sum(parts, axis=0)
