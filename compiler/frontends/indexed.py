"""NumPy's indexing: ranges of an axis, and tensors of places on several axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode, shape_of, type_of
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, Expr, known_dims
from ingot.hal.spec import dtype

__all__ = [
    "blocks_along",
    "from_front",
    "gather_slices",
    "index_tensors",
    "join_places",
    "rolled",
    "scatter_elements",
    "scatter_rows",
    "scatter_slices",
    "slice_range",
]

_I64 = dtype("i64")


def slice_range(
    size: Dim, start: Any = None, end: Any = None, step: int = 1
) -> tuple[Dim, Dim, int]:
    """Where a slice of an axis begins and ends, within the axis."""
    first = _clamped(0 if start is None else start, size)
    last = size if end is None else _clamped(end, size)
    return first, dims.maximum(last, first), step


def _clamped(index: Any, size: Dim) -> Dim:
    if isinstance(index, int):
        if index >= 1 << 31:
            return size
        if index < 0:
            return dims.maximum(size + index, 0)
    if not isinstance(index, (int, Expr)):
        raise UnsupportedNode("a bound of the slice depends on data, which is not supported")
    below = dims.minimum(dims.maximum(index * -1, 0), 1)
    return dims.minimum(dims.maximum(index + size * below, 0), size)


def rolled(c: Emitter, x: Value, axis: int, shift: Dim) -> Value:
    """x with its elements moved on by `shift` places along an axis; those at the end come back in
    front."""
    size = shape_of(x)[axis]
    if size == 0 or shift == 0:
        return x
    at = dims.modulo(shift * -1, dims.maximum(size, 1))  # so many from the front go to the end
    if at == 0:
        return x
    parts = (c.sliced(x, axis, at, size), c.sliced(x, axis, 0, at))
    return c.agree(c.op("concatenate", *parts, axis=axis), shape_of(x))


def index_tensors(c: Emitter, x: Value, given: Sequence[Value | None]) -> Value:
    """Elements of x at integers for each of its first axes, None for all of an axis: NumPy's
    advanced indexing. Negative ones count from the end, one outside ends the call."""
    axes = [axis for axis, each in enumerate(given) if each is not None]
    found = [each for each in given if each is not None]
    if not found:
        return x
    if len(found) == 1:
        return c.op("take", x, found[0], axis=axes[0], mode="wrap_check")
    flat, moved, rest = join_places(c, x, axes, found)
    taken = c.op("take", moved, flat, axis=0, mode="check")
    count = type_of(flat).rank
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return taken
    front = axes[0]  # axes that are next to each other leave the result in their place
    order = [*range(count, count + front), *range(count), *range(count + front, count + len(rest))]
    return c.transpose(taken, order)


def join_places(
    c: Emitter, x: Value, axes: Sequence[int], found: Sequence[Value]
) -> tuple[Value, Value, list[int]]:
    """Places on several axes as places on one, in front of the others."""
    shape = shape_of(x)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    moved = c.transpose(x, [*axes, *rest])
    whole = dims.product(shape[axis] for axis in axes)
    moved = c.reshape(moved, (whole, *(shape[axis] for axis in rest)))
    spread = c.broadcast(*(c.convert(each, _I64) for each in found))
    flat: Value | None = None
    for axis, each in zip(axes, spread, strict=True):
        size = c.builder.number(shape[axis], _I64, shape_of(each))
        wrapped = _wrapped(c, each, size)
        flat = wrapped if flat is None else c.op("add", c.op("mul", flat, size), wrapped)
    assert flat is not None
    return flat, moved, rest


def _wrapped(c: Emitter, places: Value, size: Value) -> Value:
    """Places counted from the front; those outside become so small that no check passes."""
    counted, inside = from_front(c, places, size)
    return c.op("select", inside, counted, -(1 << 40))


def from_front(c: Emitter, places: Value, size: Value) -> tuple[Value, Value]:
    """Places of which negative ones count from the end, counted from the front; and whether they
    are inside."""
    zero = c.fill(0, like=places)
    counted = c.op("select", c.compare("lt", places, zero), c.op("add", places, size), places)
    inside = c.op("and", c.compare("ge", counted, zero), c.compare("lt", counted, size))
    return counted, inside


def blocks_along(c: Emitter, x: Value, axis: int, size: int, step: int, apart: int = 1) -> Value:
    """An axis as two: blocks that begin `step` elements apart, and their elements, which are
    `apart` themselves."""
    shape = shape_of(x)
    count = dims.floordiv(shape[axis] - (size - 1) * apart - 1, step) + 1
    if size == step and apart == 1:
        parts = (*shape[:axis], count, size, *shape[axis + 1 :])
        return c.reshape(c.sliced(x, axis, 0, count * size), parts)
    starts, inner = (c.op("iota", dtype=_I64, shape=(count, size), axis=at) for at in (0, 1))
    places = c.op("add", c.op("mul", starts, step), c.op("mul", inner, apart))
    return c.op("take", x, places, axis=axis, mode="check")


def scatter_elements(
    c: Emitter,
    x: Value,
    axis: int,
    indices: Value,
    updates: Value,
    kind: str,
    mode: str = "wrap_check",
) -> Value:
    """x with the updates, of the shape of `indices`, at these places of one axis. Negative ones
    count from the end, one outside ends the call, unless `mode` says otherwise. Along other axes
    they may end before x does."""
    rank, shape = type_of(x).rank, shape_of(x)
    others = tuple(each for each in range(rank) if each != axis)
    limit = tuple(shape[each] if each == axis else shape_of(indices)[each] for each in range(rank))
    corner = x
    if limit != shape:
        corner = c.op("slice", x, start=(0,) * rank, limit=limit, stride=(1,) * rank)
    updated = c.op(
        "scatter",
        corner,
        indices,
        updates,
        update_window_dims=(),
        inserted_window_dims=(axis,),
        input_batching_dims=others,
        scatter_indices_batching_dims=others,
        scatter_dims_to_operand_dims=(axis,),
        index_vector_dim=rank,
        kind=kind,
        mode=mode,
    )
    if limit == shape:
        return updated
    starts = [c.constant(0, _I64) for _ in range(rank)]
    return c.op("dynamic_update_slice", x, updated, *starts)


def scatter_slices(
    c: Emitter, x: Value, indices: Value, updates: Value, kind: str, mode: str = "wrap_check"
) -> Value:
    """x with slices at places of its first axes, as many as the last axis of `indices` has."""
    (depth,), leading = known_dims(shape_of(indices)[-1:]), type_of(indices).rank - 1
    return c.op(
        "scatter",
        x,
        indices,
        updates,
        update_window_dims=tuple(range(leading, leading + type_of(x).rank - depth)),
        inserted_window_dims=tuple(range(depth)),
        scatter_dims_to_operand_dims=tuple(range(depth)),
        index_vector_dim=leading,
        kind=kind,
        mode=mode,
    )


def scatter_rows(
    c: Emitter, x: Value, places: Value, rows: Value, kind: str, mode: str = "skip"
) -> Value:
    """x with rows at places [n] of its first axis; those outside are left out."""
    return scatter_slices(c, x, c.reshape(places, (*shape_of(places), 1)), rows, kind, mode)


def gather_slices(c: Emitter, x: Value, indices: Value, mode: str, batch: int = 0) -> Value:
    """Slices of x at places of axes behind the first `batch`, which the indices have, too; as many
    as the last axis of `indices` has."""
    (depth,), leading = known_dims(shape_of(indices)[-1:]), type_of(indices).rank - 1
    shape, lead = shape_of(x), tuple(range(batch))
    indexed = tuple(range(batch, batch + depth))
    return c.op(
        "gather",
        x,
        indices,
        offset_dims=tuple(range(leading, leading + len(shape) - batch - depth)),
        collapsed_slice_dims=indexed,
        operand_batching_dims=lead,
        start_indices_batching_dims=lead,
        start_index_map=indexed,
        index_vector_dim=leading,
        slice_sizes=(*[1] * (batch + depth), *shape[batch + depth :]),
        mode=mode,
    )
