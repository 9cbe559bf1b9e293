"""References of ops without operands that need nothing but their attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.graph.references.numbers import Array, convert
from ingot.compiler.ir import Literal
from ingot.hal.errors import Unsupported
from ingot.hal.spec import DType

__all__ = ["REFERENCES", "array_of", "literal_of"]


def array_of(literal: Literal) -> Array:
    """The literal's array in its NumPy dtype; the carrier array if ml_dtypes is missing."""
    array = literal.array  # a large one is read each time
    if DType.from_numpy(array.dtype) is literal.dtype:
        return array
    try:
        target = literal.dtype.numpy
    except Unsupported:
        return array
    return array.view(target) if literal.dtype.bits >= 8 else array.astype(target)


def literal_of(array: Array, dtype: DType) -> Literal:
    """An array (or its carrier) as a literal of `dtype`."""
    return Literal(np.asarray(array), dtype)


def _constant(*, value: Literal) -> Array:
    return array_of(value)


def _dim(*, value: int, dtype: DType) -> Array:
    return convert(np.asarray(value, np.int64), dtype)


def _iota(*, dtype: DType, shape: tuple[int, ...], axis: int) -> Array:
    line = convert(np.arange(shape[axis], dtype=np.int64), dtype)
    column = line.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    return np.broadcast_to(column, shape)


REFERENCES: dict[str, Callable[..., Any]] = {
    "constant": _constant,
    "dim": _dim,
    "iota": _iota,
}
