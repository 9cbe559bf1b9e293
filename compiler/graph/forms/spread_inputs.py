"""Convolutions whose input is spread by strides (transposed ones), without zeros in between.

Of the elements of a spread input all but one in `step` are zeros, so results whose places are
equal modulo `step` meet the same part of the window. Each such *phase* is a convolution of the
input as it is; phases of one window size are one, side by side in the features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Convolution, parse_layout
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dims import ceildiv, known_dim

__all__ = ["as_channels_last", "divide_phases", "has_phases"]

_MOST_PHASES = 64  # a wider window of zeros, or more results side by side, gain nothing

_T = TypeVar("_T")

Convolve = Callable[[Value, Value, Convolution], Value]
"""The convolution of an input and a weight."""


def as_channels_last(op: Op, builder: Builder, convolve: Convolve | None = None) -> Value:
    """The convolution of an input and a weight that are transposed, in the place of its result."""
    places = parse_layout(Convolution.of(op).layout)
    x_order = (places.batch, *places.spatial, places.feature)
    w_order = (*places.weight_spatial, places.weight_input, places.weight_output)
    x = builder.transpose(op.operands[0], x_order)
    w = builder.transpose(op.operands[1], w_order)
    spatial = "dehwfgjklm"[: len(places.spatial)]
    last, kernel = f"n{spatial}c", f"{spatial}io"
    changed = replace(Convolution.of(op), layout=f"{last},{kernel}->{last}")
    y = (convolve or _like(op, builder))(x, w, changed)
    made = [places.result_batch, *places.result_spatial, places.result_feature]
    return builder.transpose(y, [made.index(axis) for axis in range(len(made))])


def has_phases(op: Op, axis: int) -> bool:
    """Whether `divide_phases` takes a channels-last convolution along this spatial axis."""
    convolution, weight = Convolution.of(op), tensor_type(op.operands[1])
    low = convolution.padding[axis][0]
    known = (weight.shape[axis], *weight.shape[-2:], low, convolution.lhs_dilation[axis])
    is_depthwise = convolution.groups > 1 and weight.shape[-2] == 1
    moves_by_one = (convolution.strides[axis], convolution.rhs_dilation[axis]) == (1, 1)
    is_known = all(isinstance(dim, int) for dim in known)
    is_few = is_known and known_dim(convolution.lhs_dilation[axis]) <= _MOST_PHASES
    return is_few and moves_by_one and not is_depthwise


def divide_phases(op: Op, builder: Builder, axis: int, convolve: Convolve | None = None) -> Value:
    """The convolution with its input spread along all spatial axes but this one. `convolve` makes
    those of the phases, which are otherwise ops like this one."""
    convolve = convolve or _like(op, builder)
    x, w = op.operands
    convolution, shape = Convolution.of(op), tensor_type(op.result).shape
    step, size = known_dim(convolution.lhs_dilation[axis]), known_dim(tensor_type(w).shape[axis])
    low = known_dim(convolution.padding[axis][0])
    # Result i is result i + ahead of the phases in turn. Phase r of them meets the elements
    # step - 1 - r + step * t of the window, beginning with input -before for the first ones.
    ahead = (step - 1 - low) % step
    before = (low + ahead - step + 1) // step
    count = ceildiv(shape[1 + axis] + ahead, step)
    least, more = divmod(size, step)
    parts: list[Value] = []
    for first, last, taps in ((0, step - more, least), (step - more, step, least + 1)):
        if first == last:
            continue
        if not taps:
            made = (*shape[: 1 + axis], count, *shape[2 + axis : -1], convolution.groups)
            each = known_dim(shape[-1]) // convolution.groups
            parts.append(builder.full(0, convolution.dtype, (*made, last, each)))
            continue
        after = count + taps - 1 - tensor_type(x).shape[1 + axis] - before
        changed = replace(
            convolution,
            padding=_with(convolution.padding, axis, (before, after)),
            lhs_dilation=_with(convolution.lhs_dilation, axis, 1),
        )
        weight = _weight_of(op, builder, axis, (first, last), taps)
        y = convolve(x, weight, changed)
        *pixels, features = tensor_type(y).shape
        groups, phases = convolution.groups, last - first
        split = (*pixels, groups, phases, known_dim(features) // (groups * phases))
        parts.append(builder.value("reshape", y, shape=split))
    rank = len(shape)
    y = parts[0] if len(parts) == 1 else builder.value("concatenate", *parts, axis=rank)
    # [n, ..., places, ..., groups, phases, features]: phases go behind their places.
    y = builder.value("transpose", y, permutation=_moved(rank + 2, rank, 2 + axis))
    whole = _with(shape, 1 + axis, count * step)
    y = builder.value("reshape", y, shape=whole)
    if whole == shape:
        return y
    start = _with((0,) * rank, 1 + axis, ahead)
    limit = _with(shape, 1 + axis, shape[1 + axis] + ahead)
    return builder.value("slice", y, start=start, limit=limit, stride=(1,) * rank)


def _like(op: Op, builder: Builder) -> Convolve:
    return lambda x, w, changed: builder.like(op, x, w, attributes=changed)


def _weight_of(op: Op, builder: Builder, axis: int, phases: tuple[int, int], taps: int) -> Value:
    """The window that these phases meet: as the weight, with `taps` elements along the axis, and
    the phases in front of the features of each group."""
    w, groups = op.operands[1], Convolution.of(op).groups
    step = known_dim(Convolution.of(op).lhs_dilation[axis])
    shape = tensor_type(w).shape
    rank, length = len(shape), taps * step
    if missing := max(length - known_dim(shape[axis]), 0):
        zero, none = builder.constant(0, tensor_type(w).dtype), (0,) * rank
        w = builder.value("pad", w, zero, low=none, high=_with(none, axis, missing))
    each = known_dim(shape[-1]) // groups
    first, last = step - phases[1], step - phases[0]  # phase r has the elements step - 1 - r
    limit = (*shape[:axis], length, *shape[axis + 1 :])
    w = builder.value("slice", w, start=(0,) * rank, limit=limit, stride=(1,) * rank)
    split = (*shape[:axis], taps, step, *shape[axis + 1 : -1], groups, each)
    w = builder.value("reshape", w, shape=split)
    limit = _with(split, axis + 1, last)
    start = _with((0,) * (rank + 2), axis + 1, first)
    w = builder.value("slice", w, start=start, limit=limit, stride=(1,) * (rank + 2))
    w = builder.value("reverse", w, axes=(axis + 1,))
    w = builder.value("transpose", w, permutation=_moved(rank + 2, axis + 1, rank))
    merged = (*shape[:axis], taps, *shape[axis + 1 : -1], (last - first) * known_dim(shape[-1]))
    return builder.value("reshape", w, shape=merged)


def _moved(rank: int, source: int, target: int) -> tuple[int, ...]:
    """The permutation that moves one axis to another place."""
    order = [axis for axis in range(rank) if axis != source]
    return (*order[:target], source, *order[target:])


def _with(items: Sequence[_T], place: int, item: _T) -> tuple[_T, ...]:
    return (*items[:place], item, *items[place + 1 :])
