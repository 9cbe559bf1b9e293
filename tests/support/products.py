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
