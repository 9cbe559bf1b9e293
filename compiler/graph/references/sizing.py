"""References of ops whose result dims depend on data, and of `assert`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.graph.ops.sizing import COUNT_BLOCKS
from ingot.compiler.graph.references.numbers import Array
from ingot.hal.errors import InvalidArgument, OutOfRange

__all__ = ["REFERENCES"]


def _size(
    x: Array, *, symbols: tuple[str, ...], low: int, high: int, what: str, status: str
) -> tuple[()]:
    if not low <= int(x) <= high:
        error = OutOfRange if status == "OutOfRange" else InvalidArgument
        raise error(f"{what} is {int(x)}, expected {low} to {high}")
    return ()


def _nonzero(x: Array, *, symbols: tuple[str, ...]) -> Array:
    return np.stack(np.nonzero(x)).astype(np.int64)


def _assert(*, kind: str, a: int, b: int) -> tuple[()]:
    if not (a == b if kind == "equal" else a <= b):
        raise InvalidArgument(f"{a} is not {'equal to' if kind == 'equal' else 'at most'} {b}")
    return ()


def _count_true(x: Array) -> Array:
    run = max(-(-x.size // COUNT_BLOCKS), 1)
    flat = x.reshape(-1)
    blocks = [flat[place * run : (place + 1) * run] for place in range(COUNT_BLOCKS)]
    return np.array([np.count_nonzero(block) for block in blocks], np.int64)


def _locate_true(x: Array, counts: Array, *, size: int) -> Array:
    return np.stack(np.nonzero(x)).astype(np.int64)[:, :size]


REFERENCES: dict[str, Callable[..., Any]] = {
    "size": _size,
    "assert": _assert,
    "nonzero": _nonzero,
    "count_true": _count_true,
    "locate_true": _locate_true,
}
