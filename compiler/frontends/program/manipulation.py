"""Functions that move elements and make none."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import rolled
from ingot.compiler.frontends.program.creation import arange, shape_dims
from ingot.compiler.frontends.program.elementwise import common_dtype
from ingot.compiler.frontends.program.searching import searchsorted, take
from ingot.compiler.frontends.program.tensor import (
    Size,
    Tensor,
    as_dim,
    as_size,
    current,
    given,
    public,
    value_of,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = ["axes_of"]


def axes_of(axis: Any, rank: int) -> list[int]:
    """An axis, several, or all of them for None, counted from the front, each once."""
    if axis is None:
        return list(range(rank))
    given_axes = axis if isinstance(axis, (list, tuple)) else [axis]
    found = [current().normalize_axis(operator.index(each), rank) for each in given_axes]
    if len(set(found)) < len(found):
        raise UnsupportedNode(f"axis {axis} names one axis twice")
    return found


@public
def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """The same elements in row-major order; one dim may be -1."""
    trace = current()
    value = value_of(x)
    wanted = list(shape_dims(shape))
    count = dims.product(shape_of(value))
    open_axes = [axis for axis, dim in enumerate(wanted) if dim == -1]
    if len(open_axes) > 1:
        raise UnsupportedNode(f"the shape {shape} has several dims that are -1")
    if open_axes:
        rest = dims.product(dim for dim in wanted if dim != -1)
        if rest == 0:
            raise UnsupportedNode("a dim of -1 beside a dim of 0 could be any number")
        wanted[open_axes[0]] = dims.floordiv(count, rest)
    if dims.product(wanted) != count:
        trace.equate(count, dims.product(wanted))
    return given(trace.reshape(value, wanted))


@public
def broadcast_to(x: Any, /, shape: Any) -> Tensor:
    """x repeated to a shape by NumPy's rules."""
    value, wanted = value_of(x), shape_dims(shape)
    if current().common_shape(shape_of(value), wanted) != wanted:
        raise UnsupportedNode(f"{value.type} cannot be broadcast to the shape {shape}")
    return given(current().broadcast_to(value, wanted))


@public
def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """The tensors in their common shape."""
    return [given(each) for each in current().broadcast(*map(value_of, arrays))]


@public
def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """The tensors one after another along an axis; flattened for None."""
    trace = current()
    if not arrays:
        raise UnsupportedNode("it takes one tensor or more, but got none")
    element = common_dtype(*arrays)
    values = [trace.convert(value_of(each, element), element) for each in arrays]
    if axis is None:
        values = [trace.flat(each) for each in values]
        axis = 0
    first = shape_of(values[0])
    place = trace.normalize_axis(axis, len(first))
    for number, each in enumerate(values):
        if type_of(each).rank != len(first) or not first:
            raise UnsupportedNode(f"{each.type} and {values[0].type} cannot be joined: see stack")
        shape = [shape_of(each)[at] if at == place else dim for at, dim in enumerate(first)]
        values[number] = trace.agree(each, shape)
    return given(values[0] if len(values) == 1 else trace.op("concatenate", *values, axis=place))


@public
def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Tensor:
    """The tensors one after another along a new axis."""
    return concat([expand_dims(each, axis=axis) for each in arrays], axis=axis)


@public
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, whose size must be a number."""
    value = value_of(x)
    place = current().normalize_axis(axis, type_of(value).rank)
    shape = shape_of(value)
    count = shape[place] if shape else None
    if not isinstance(count, int):
        raise UnsupportedNode(f"{value.type} has no known number of slices along axis {axis}")
    rest = [dim for at, dim in enumerate(shape) if at != place]
    parts = (current().sliced(value, place, at, at + 1) for at in range(count))
    return tuple(given(current().reshape(part, rest)) for part in parts)


@public
def expand_dims(x: Any, /, *, axis: Any = 0) -> Tensor:
    """x with new dims of 1 at these axes of the result."""
    value = value_of(x)
    added = axis if isinstance(axis, (list, tuple)) else (axis,)
    shape = list(shape_of(value))
    for at in sorted(axes_of(added, len(shape) + len(added))):
        shape.insert(at, 1)
    return given(current().reshape(value, shape))


@public
def squeeze(x: Any, /, axis: Any) -> Tensor:
    """x without dims of 1."""
    trace, value = current(), value_of(x)
    shape = shape_of(value)
    gone = axes_of(axis, len(shape))
    for at in gone:
        trace.equate(shape[at], 1)
    return given(trace.reshape(value, [dim for at, dim in enumerate(shape) if at not in gone]))


@public
def permute_dims(x: Any, /, axes: Sequence[int]) -> Tensor:
    """Axis i of the result is axis axes[i] of x."""
    value = value_of(x)
    order = axes_of(tuple(axes), type_of(value).rank)
    if len(order) != type_of(value).rank:
        raise UnsupportedNode(f"axes {tuple(axes)} do not name all axes of {value.type}")
    return given(current().transpose(value, order))


@public
def matrix_transpose(x: Any, /) -> Tensor:
    """x with its last two axes exchanged."""
    value = value_of(x)
    rank = type_of(value).rank
    if rank < 2:
        raise UnsupportedNode(f"it works on the last two axes, but x is {value.type}")
    return given(current().transpose(value, [*range(rank - 2), rank - 1, rank - 2]))


@public
def _transposed(x: Any, /) -> Tensor:
    raise UnsupportedNode(f"x.T is of matrices, but x is {x}: use ops.permute_dims or x.mT")


@public
def moveaxis(x: Any, source: Any, destination: Any, /) -> Tensor:
    """x with axes moved to other places; the others keep their order."""
    value = value_of(x)
    rank = type_of(value).rank
    sources, targets = axes_of(source, rank), axes_of(destination, rank)
    if len(sources) != len(targets):
        raise UnsupportedNode(f"{source} and {destination} are not equally many axes")
    placed = dict(zip(targets, sources, strict=True))
    rest = iter([axis for axis in range(rank) if axis not in sources])
    order = [placed[at] if at in placed else next(rest) for at in range(rank)]
    return given(current().transpose(value, order))


@public
def flip(x: Any, /, *, axis: Any = None) -> Tensor:
    """x with its elements in opposite order along axes; along all for None."""
    value = value_of(x)
    found = tuple(sorted(axes_of(axis, type_of(value).rank)))
    return given(current().op("reverse", value, axes=found) if found else value)


@public
def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Tensor:
    """x with its elements moved on by `shift` places; those at the end come back in front."""
    trace, value = current(), value_of(x)
    if axis is None:
        flat = trace.flat(value)
        return given(trace.reshape(rolled(trace, flat, 0, as_dim(shift)), shape_of(value)))
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    shifts = shift if isinstance(shift, (list, tuple)) else [shift] * len(axes)
    for each, number in zip(axes, shifts, strict=True):
        value = rolled(
            trace, value, trace.normalize_axis(each, type_of(value).rank), as_dim(number)
        )
    return given(value)


@public
def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """x with each element `repeats` times, a number for all or a tensor with one for each;
    flattened for the axis None."""
    trace, value = current(), value_of(x)
    if axis is None:
        value, axis = trace.flat(value), 0
    place = trace.normalize_axis(axis, type_of(value).rank)
    if not isinstance(repeats, (int, np.integer, Size)):
        return take(given(value), _repeated(value_of(repeats), shape_of(value)[place]), axis=place)
    return given(trace.repeated(value, place, as_dim(repeats)))


def _repeated(counts: Value, size: Dim) -> Tensor:
    """Each place below the size as often as the counts, i64[size] or i64[1], say."""
    trace = current()
    counts = trace.broadcast_to(trace.convert(counts, "i64"), (size,))
    ends = trace.op("cumulative", counts, axis=0, kind="add")
    name = trace.fresh("repeated")
    total = trace.reduce(counts, [0], "add")
    trace.builder.append("size", (total,), (), {"symbols": (name,), "what": "the sum of repeats"})
    return searchsorted(given(ends), arange(as_size(dims.symbol(name))), side="right")


@public
def tile(x: Any, repetitions: Any, /) -> Tensor:
    """x again and again along each axis."""
    trace, value = current(), value_of(x)
    times = list(shape_dims(repetitions))
    own: list[Dim] = [*[1] * (len(times) - type_of(value).rank), *shape_of(value)]
    times = [*[1] * (len(own) - len(times)), *times]
    column = trace.reshape(value, [each for dim in own for each in (1, dim)])
    wide = [each for pair in zip(times, own, strict=True) for each in pair]
    spread = trace.broadcast_to(column, wide)
    return given(trace.reshape(spread, [n * dim for n, dim in zip(times, own, strict=True)]))


@public
def pad(x: Any, /, pad_width: Any, *, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """x with elements added in front and behind: a pair of sizes for each axis, or one for all.
    `mode`: "constant", or "edge", which repeats the outermost elements."""
    trace, value = current(), value_of(x)
    rank = type_of(value).rank
    pairs = _pairs(pad_width, rank)
    if mode == "constant":
        element = type_of(value).dtype
        filling = trace.reshape(trace.convert(value_of(constant_values, element), element), ())
        low, high = (tuple(pair[side] for pair in pairs) for side in (0, 1))
        return given(trace.padded(value, low, high, filling))
    if mode != "edge":
        raise UnsupportedNode(f'mode is {mode!r}, expected "constant" or "edge"')
    for axis, (low_count, high_count) in enumerate(pairs):
        if (low_count, high_count) != (0, 0):
            size = shape_of(value)[axis]
            places = value_of(arange(as_size(low_count * -1), as_size(size + high_count)))
            zero, last = trace.size(0), trace.size(size - 1)
            bounds = [trace.broadcast_to(each, shape_of(places)) for each in (zero, last)]
            places = trace.op("clamp", bounds[0], places, bounds[1])
            value = trace.op("take", value, places, axis=axis, mode="check")
    return given(value)


def _pairs(pad_width: Any, rank: int) -> list[tuple[Dim, Dim]]:
    if not isinstance(pad_width, (list, tuple)):
        pad_width = (pad_width, pad_width)
    if len(pad_width) == 2 and not isinstance(pad_width[0], (list, tuple)):
        pad_width = [pad_width] * rank
    if len(pad_width) != rank:
        raise UnsupportedNode(f"it pads {len(pad_width)} axes of a tensor of rank {rank}")
    return [(as_dim(low), as_dim(high)) for low, high in pad_width]
