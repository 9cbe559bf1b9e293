"""References of ops that move elements and compute none; they work on carriers too."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ingot.compiler.graph.references.numbers import Array, dtype_of
from ingot.compiler.ir import MemoryType
from ingot.hal.spec import DType

__all__ = ["REFERENCES", "unpack"]


def _broadcast(x: Array, *, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Array:
    spread = [1] * len(shape)
    for axis, place in enumerate(dimensions):
        spread[place] = x.shape[axis]
    order = np.argsort(dimensions) if dimensions else ()
    spread_x: Array = np.transpose(x, tuple(order)).reshape(spread)
    return np.asarray(np.broadcast_to(spread_x, shape))


def _reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    return np.reshape(x, shape)


def _transpose(x: Array, *, permutation: tuple[int, ...]) -> Array:
    return np.transpose(x, permutation)


def _slice(
    x: Array, *, start: tuple[int, ...], limit: tuple[int, ...], stride: tuple[int, ...]
) -> Array:
    return np.asarray(x[tuple(map(slice, start, limit, stride))])


def unpack(x: Array, *, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The elements of bytes in which they lie packed."""
    bits, count = dtype.bits, prod(shape)
    high = x[:, None] << np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    numbers = high.astype(np.uint8).view(MemoryType(dtype).element.numpy) >> (8 - bits)
    return np.asarray(numbers.reshape(-1)[:count].reshape(shape))


def _pad(
    x: Array,
    value: Array,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...],
) -> Array:
    inside = tuple(
        0 if dim == 0 else dim + (dim - 1) * step
        for dim, step in zip(x.shape, interior, strict=True)
    )
    room = [(max(0, a), max(0, b)) for a, b in zip(low, high, strict=True)]
    grown = np.full([a + dim + b for (a, b), dim in zip(room, inside, strict=True)], value, x.dtype)
    places = zip(room, inside, interior, strict=True)
    grown[tuple(slice(a, a + dim, step + 1) for (a, _), dim, step in places)] = x
    cut = (
        slice(max(0, -a), size - max(0, -b))
        for a, b, size in zip(low, high, grown.shape, strict=True)
    )
    return grown[tuple(cut)]


def _concatenate(*xs: Array, axis: int) -> Array:
    return np.concatenate(xs, axis)


def _reverse(x: Array, *, axes: tuple[int, ...]) -> Array:
    return np.flip(x, axes)


def _reinterpret(x: Array, *, dtype: DType) -> Array:
    own, wanted = dtype_of(x), dtype
    bytes = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    shape = x.shape
    if own.bytes > wanted.bytes:
        shape = (*shape, own.bytes // wanted.bytes)
    elif own.bytes < wanted.bytes:
        shape = shape[:-1]
    return np.asarray(bytes.view(wanted.numpy).reshape(shape))


REFERENCES: dict[str, Callable[..., Any]] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "unpack": unpack,
    "pad": _pad,
    "concatenate": _concatenate,
    "reinterpret": _reinterpret,
    "reverse": _reverse,
}
