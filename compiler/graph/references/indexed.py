"""References of ops that read or write at computed indices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.graph.references.elementwise import REFERENCES as ELEMENTWISE
from ingot.compiler.graph.references.numbers import Array, widen
from ingot.hal.errors import OutOfRange
from ingot.hal.spec import DType

__all__ = ["REFERENCES"]


def _check_range(index: Array, least: int, greatest: int) -> None:
    """Raise OutOfRange for the first index that is not in least ... greatest."""
    bad = (index < least) | (index > greatest)
    if bad.any():
        first = index[bad].reshape(-1)[0]
        raise OutOfRange(f"index {first} is out of range: expected {least} ... {greatest}")


def _index_vectors(indices: Array, index_vector_dim: int) -> Array:
    """Indices as int64 with the index vector on the last axis."""
    whole = widen(indices).astype(np.int64)
    if index_vector_dim == whole.ndim:
        return whole[..., np.newaxis]
    return np.moveaxis(whole, index_vector_dim, -1)


def _starts(
    vectors: Array,
    rank: int,
    index_map: tuple[int, ...],
    batching: tuple[int, ...],
    indices_batching: tuple[int, ...],
    index_vector_dim: int,
) -> Array:
    """Per batch position the start index in each axis of the operand."""
    starts = np.zeros((*vectors.shape[:-1], rank), np.int64)
    for place, axis in enumerate(index_map):
        starts[..., axis] = vectors[..., place]
    for axis, batch_axis in zip(batching, indices_batching, strict=True):
        place = batch_axis - (batch_axis > index_vector_dim)
        line = np.arange(starts.shape[place])
        shape = [-1 if p == place else 1 for p in range(starts.ndim - 1)]
        starts[..., axis] = line.reshape(shape)
    return starts


def _wrap(vectors: Array, dims: tuple[int, ...]) -> Array:
    """Index vectors into dims of these sizes, negative ones counted from the end, checked."""
    wrapped = np.array(vectors)
    for place, dim in enumerate(dims):
        _check_range(vectors[..., place], -dim, dim - 1)
        wrapped[..., place] += np.where(vectors[..., place] < 0, dim, 0)
    return wrapped


def _gather(
    operand: Array,
    indices: Array,
    *,
    offset_dims: tuple[int, ...],
    collapsed_slice_dims: tuple[int, ...],
    operand_batching_dims: tuple[int, ...],
    start_indices_batching_dims: tuple[int, ...],
    start_index_map: tuple[int, ...],
    index_vector_dim: int,
    slice_sizes: tuple[int, ...],
    mode: str,
) -> Array:
    vectors = _index_vectors(indices, index_vector_dim)
    if mode == "wrap_check":
        vectors = _wrap(vectors, tuple(operand.shape[axis] for axis in start_index_map))
    starts = _starts(
        vectors,
        operand.ndim,
        start_index_map,
        operand_batching_dims,
        start_indices_batching_dims,
        index_vector_dim,
    )
    batch_rank = starts.ndim - 1
    kept = [
        axis
        for axis in range(operand.ndim)
        if axis not in collapsed_slice_dims and axis not in operand_batching_dims
    ]
    index: list[Array] = []
    for axis, size in enumerate(slice_sizes):
        start = starts[..., axis]
        greatest = operand.shape[axis] - size
        if mode == "check":
            _check_range(start, 0, greatest)
        start = np.clip(start, 0, max(greatest, 0)).reshape((*start.shape, *(1 for _ in kept)))
        if axis in kept:
            shape = [-1 if axis == other else 1 for other in kept]
            start = start + np.arange(size).reshape(shape)
        index.append(start)
    result = operand[tuple(index)] if index else np.broadcast_to(operand, starts.shape[:-1])
    offsets = range(batch_rank, batch_rank + len(kept))
    return np.moveaxis(result, tuple(offsets), offset_dims)


def _take(operand: Array, indices: Array, *, axis: int, mode: str) -> Array:
    bound = operand.shape[axis]
    index = widen(indices).astype(np.int64)
    if mode == "wrap_check":
        _check_range(index, -bound, bound - 1)
        index = np.where(index < 0, index + bound, index)
    elif mode == "check":
        _check_range(index, 0, bound - 1)
    elif bound > 0:
        index = np.clip(index, 0, bound - 1)
    elif index.size:
        raise OutOfRange(f"axis {axis} is empty: there is nothing to take")
    return np.take(operand, index, axis)


def _clamped_starts(
    starts: tuple[Array, ...], dims: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[slice, ...]:
    block: list[slice] = []
    for start, dim, size in zip(starts, dims, sizes, strict=True):
        first = min(max(int(start), 0), dim - size)
        block.append(slice(first, first + size))
    return tuple(block)


def _dynamic_slice(x: Array, *starts: Array, sizes: tuple[int, ...]) -> Array:
    return x[_clamped_starts(starts, x.shape, sizes)]


def _dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    result = np.array(x)
    result[_clamped_starts(starts, x.shape, update.shape)] = update
    return result


def _scatter(
    operand: Array,
    indices: Array,
    updates: Array,
    *,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    input_batching_dims: tuple[int, ...],
    scatter_indices_batching_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    index_vector_dim: int,
    kind: str,
    mode: str,
) -> Array:
    vectors = _index_vectors(indices, index_vector_dim)
    if mode == "wrap_check":
        vectors = _wrap(vectors, tuple(operand.shape[a] for a in scatter_dims_to_operand_dims))
    starts = _starts(
        vectors,
        operand.ndim,
        scatter_dims_to_operand_dims,
        input_batching_dims,
        scatter_indices_batching_dims,
        index_vector_dim,
    )
    batch_dims = tuple(axis for axis in range(updates.ndim) if axis not in update_window_dims)
    windows = updates.transpose((*batch_dims, *update_window_dims))
    removed = (*inserted_window_dims, *input_batching_dims)
    window_sizes = iter(windows.shape[len(batch_dims) :])
    sizes = [1 if axis in removed else next(window_sizes) for axis in range(operand.ndim)]
    result = np.array(operand)
    for place in np.ndindex(*starts.shape[:-1]):
        start = starts[place]
        if any(s < 0 or s > d - n for s, n, d in zip(start, sizes, result.shape, strict=True)):
            continue
        block = tuple(slice(s, s + n) for s, n in zip(start, sizes, strict=True))
        update = windows[place].reshape(sizes)
        result[block] = update if kind == "set" else ELEMENTWISE[kind](result[block], update)
    return result


def _sort(*xs: Array, axis: int, regions: tuple[Callable[..., Any], ...]) -> tuple[Array, ...]:
    (before,) = regions
    lines = [np.moveaxis(x, axis, -1) for x in xs]
    results = [np.array(line) for line in lines]

    for place in np.ndindex(*lines[0].shape[:-1]):
        rows = [line[place] for line in lines]

        def order(i: int, j: int, rows: list[Array] = rows) -> int:
            def precedes(i: int, j: int) -> bool:
                pairs = [np.asarray(row[at]) for row in rows for at in (i, j)]
                return bool(before(*pairs)[0])

            return -1 if precedes(i, j) else int(precedes(j, i))

        positions = sorted(range(len(rows[0])), key=functools.cmp_to_key(order))
        for result, row in zip(results, rows, strict=True):
            result[place] = row[positions]
    return tuple(np.moveaxis(result, -1, axis) for result in results)


def _top_k(x: Array, *, k: int, axis: int, largest: bool, dtype: DType) -> tuple[Array, Array]:
    wide = np.moveaxis(widen(x), axis, -1)
    if largest:  # stable and descending: ascending from the back, turned around
        order = wide.shape[-1] - 1 - np.argsort(wide[..., ::-1], -1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(wide, -1, kind="stable")
    places = np.moveaxis(order[..., :k], -1, axis)
    return np.take_along_axis(x, places, axis), places.astype(dtype.numpy)


REFERENCES: dict[str, Callable[..., Any]] = {
    "gather": _gather,
    "take": _take,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "scatter": _scatter,
    "sort": _sort,
    "top_k": _top_k,
}
