"""Constants that are stored sparse: what their dense elements are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ingot.compiler.frontends.tflite.flatbuffer import Table
from ingot.hal.spec import DType

__all__ = ["dense"]

_VECTORS = {1: "i", 2: "H", 3: "B"}  # how lists of segments and indices are stored


def dense(
    sparsity: Table, data: memoryview, shape: tuple[int, ...], element: DType
) -> np.ndarray[Any, Any]:
    """The elements as an array. ValueError: the description is not one of that shape.

    The dims of blocks stand behind those of the tensor; `order` says in which order levels go
    through them, each dense or as a list of the places that have elements (CSR).
    """
    order = sparsity.listed(0, "i")
    blocked = sparsity.listed(1, "i")
    levels = sparsity.tables(2)
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order):
        raise ValueError(f"its sparsity is of the levels {order}, of a tensor of rank {rank}")
    sizes = dict(zip(order, (level.number(1, "i") for level in levels), strict=True))
    places = np.zeros((1, 0), np.int64)  # per element the index of each level so far
    most = min(math.prod(shape), sparsity.file_length)  # each has a segment or an element there
    for level, dim in zip(levels, order, strict=True):
        places = _expand(level, places, sizes[dim], most)
    values = np.frombuffer(data, element.numpy)
    if len(values) != len(places):
        raise ValueError(f"it has {len(values)} elements for {len(places)} places")
    index = [places[:, order.index(dim)] for dim in range(rank)]
    for place, dim in enumerate(blocked):
        inner = order.index(rank + place)
        index[dim] = index[dim] * sizes[rank + place] + places[:, inner]
    result = np.zeros(math.prod(shape), element.numpy)
    result[np.ravel_multi_index(tuple(index), shape)] = values
    return result.reshape(shape)


def _expand(
    level: Table, places: np.ndarray[Any, Any], size: int, most: int
) -> np.ndarray[Any, Any]:
    """The places of one more level."""
    if level.number(0, "b") == 0:
        if not 0 <= size * len(places) <= most:
            raise ValueError(f"a level of its sparsity has {size} places")
        index = np.tile(np.arange(size), len(places))
        return np.column_stack([np.repeat(places, size, axis=0), index])
    segments, indices = (_vector(level, kind, field) for kind, field in ((2, 3), (4, 5)))
    if len(segments) != len(places) + 1 or segments[-1:].tolist() != [len(indices)]:
        raise ValueError("the segments of its sparsity do not fit")
    counts = np.diff(segments)
    if (counts < 0).any():
        raise ValueError("the segments of its sparsity go back")
    return np.column_stack([np.repeat(places, counts, axis=0), indices])


def _vector(level: Table, kind: int, field: int) -> np.ndarray[Any, Any]:
    table, format = level.table(field), _VECTORS.get(level.number(kind, "B"))
    if table is None or format is None:
        raise ValueError("a level of its sparsity has no places")
    return table.numbers(0, format).astype(np.int64)
