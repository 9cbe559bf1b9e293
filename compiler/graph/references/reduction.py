"""References of reductions: wide sums rounded once, identities for what is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.graph.references.numbers import Array, dtype_of, narrow, quiet, widen
from ingot.hal.spec import DType

__all__ = ["REFERENCES", "identity", "spread_and_pad"]

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _combine(wide: Array, axes: tuple[int, ...], kind: str, dtype: DType) -> Array:
    start = wide.dtype.type(identity(kind, dtype))
    return np.asarray(_UFUNCS[kind].reduce(wide, axis=axes, initial=start, dtype=wide.dtype))


@quiet
def _reduce(x: Array, *, axes: tuple[int, ...], kind: str) -> Array:
    dtype = dtype_of(x)
    return narrow(_combine(widen(x), axes, kind, dtype), dtype)


def _arg(choose: Callable[..., Any]) -> Callable[..., Array]:
    def reference(x: Array, *, axis: int, dtype: DType, last: bool) -> Array:
        wide = widen(x)
        if last:
            place = x.shape[axis] - 1 - choose(np.flip(wide, axis), axis)
        else:
            place = choose(wide, axis)
        return np.asarray(place).astype(dtype.numpy)

    return reference


@quiet
def _cumulative(x: Array, *, axis: int, kind: str, exclusive: bool, reverse: bool) -> Array:
    dtype = dtype_of(x)
    wide = widen(x)
    if reverse:
        wide = np.flip(wide, axis)
    result = _UFUNCS[kind].accumulate(wide, axis, dtype=wide.dtype)
    if exclusive and result.size:
        first = np.full_like(np.take(wide, [0], axis), identity(kind, dtype))
        rest = np.take(result, range(result.shape[axis] - 1), axis)
        result = np.concatenate([first, rest], axis)
    if reverse:
        result = np.flip(result, axis)
    return narrow(result, dtype)


def spread_and_pad(
    x: Array, padding: tuple[tuple[int, int], ...], dilation: tuple[int, ...], value: Any
) -> Array:
    """x with its elements `dilation` apart and padded (or cut) per axis, filled with `value`."""
    from ingot.compiler.graph.references.shape import REFERENCES as SHAPE

    low, high = (tuple(pair[side] for pair in padding) for side in (0, 1))
    interior = tuple(step - 1 for step in dilation)
    fill = np.asarray(value, x.dtype)
    return np.asarray(SHAPE["pad"](x, fill, low=low, high=high, interior=interior))


def windows_of(
    x: Array, window: tuple[int, ...], strides: tuple[int, ...], dilation: tuple[int, ...]
) -> Array:
    """A view of every window's elements: [places..., window...]; all axes of x have a window."""
    span = tuple((size - 1) * step + 1 for size, step in zip(window, dilation, strict=True))
    if any(size > dim for size, dim in zip(span, x.shape, strict=True)):
        places = (
            0 if size > dim else (dim - size) // stride + 1
            for size, dim, stride in zip(span, x.shape, strides, strict=True)
        )
        return np.empty((*places, *window), x.dtype)
    view = np.lib.stride_tricks.sliding_window_view(x, span)
    index = [slice(None, None, step) for step in (*strides, *dilation)]
    return view[tuple(index)]


@quiet
def _reduce_window(
    x: Array,
    *,
    kind: str,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    base_dilation: tuple[int, ...],
    window_dilation: tuple[int, ...],
) -> Array:
    dtype = dtype_of(x)
    padded = spread_and_pad(widen(x), padding, base_dilation, identity(kind, dtype))
    view = windows_of(padded, window, strides, window_dilation)
    return narrow(_combine(view, tuple(range(x.ndim, 2 * x.ndim)), kind, dtype), dtype)


REFERENCES: dict[str, Callable[..., Any]] = {
    "reduce": _reduce,
    "arg_max": _arg(np.argmax),
    "arg_min": _arg(np.argmin),
    "cumulative": _cumulative,
    "reduce_window": _reduce_window,
}
