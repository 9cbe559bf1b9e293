"""Brings contractions into the forms that kernels have; what is in one already stays.

A product needs each group of dims (rows, columns, depth) of an operand to be one run of
memory, and its columns to be one dim; an operand that is not gets a transpose or a reshape
in front; one with a vector is a sum (`multiply_vector.py`). A convolution becomes channels
last, without dilation of its input (`spread_inputs.py`), without groups
(one convolution per group, of integers one for as many as a panel has columns for, or `depthwise`
where groups are narrow, or a product per group where windows are one pixel), and its right side is
packed even if it is known only at the call. Windows that no kernel has become other ops
(`expand_windows.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.expand_windows import (
    fill_holes,
    has_unknown_window,
    multiply_windows,
)
from ingot.compiler.graph.forms.multiply_vector import multiply_vector
from ingot.compiler.graph.forms.pack_weights import (
    depthwise_of,
    is_channels_last,
    is_pointwise,
    pack_convolution,
)
from ingot.compiler.graph.forms.spread_inputs import as_channels_last, divide_phases, has_phases
from ingot.compiler.graph.ops import PANEL, Convolution, DotGeneral, lanes_of_groups
from ingot.compiler.graph.rewriter import rewrite
from ingot.compiler.ir import Module, Op, TensorType, Value
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, product, row_major_strides

__all__ = ["arrange_contractions", "run_stride"]

MOST_STEPS = 64
"""Inputs under a row of a window, times channels, that a kernel adds without a loop."""


def arrange_contractions(module: Module) -> Module:
    """Rewrite the contractions of every function; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _arrange)
    return module


def run_stride(type: TensorType, axes: Sequence[int]) -> Dim:
    """The stride of the dims `axes` taken as one dim, in their order.

    Raises ValueError where they are not one run of memory.
    """
    strides = row_major_strides(type.shape)
    kept = [axis for axis in axes if type.shape[axis] != 1]
    for outer, inner in itertools.pairwise(kept):
        if strides[outer] != strides[inner] * type.shape[inner]:
            raise ValueError(f"dims {list(axes)} of {type} are not one run of memory")
    return strides[kept[-1]] if kept else 1


def _arrange(op: Op, builder: Builder) -> Sequence[Value] | None:
    if op.name == "dot_general":
        return _arrange_dot(op, builder)
    if op.name == "convolution":
        return _arrange_convolution(op, builder)
    filled = fill_holes(op, builder) if op.name == "reduce_window" else None
    return None if filled is None else [filled]


# Products.


def _arrange_dot(op: Op, builder: Builder) -> Sequence[Value] | None:
    if (y := multiply_vector(op, builder)) is not None:
        return [y]
    a, b = op.operands
    dot = DotGeneral.of(op)
    lhs_order = _order(tensor_type(a), dot.lhs_batch, dot.lhs_contract)
    rhs_order = _order(tensor_type(b), dot.rhs_batch, dot.rhs_contract)
    if lhs_order is None and rhs_order is None:
        return _merge_columns(op, builder)
    batch = tuple(range(len(dot.lhs_batch)))
    if lhs_order is not None:
        rank = len(lhs_order)
        last = tuple(range(rank - len(dot.lhs_contract), rank))
        dot = replace(dot, lhs_batch=batch, lhs_contract=last)
        a = builder.value("transpose", a, permutation=lhs_order)
    if rhs_order is not None:
        rank = len(rhs_order)
        last = tuple(range(rank - len(dot.rhs_contract), rank))
        dot = replace(dot, rhs_batch=batch, rhs_contract=last)
        b = builder.value("transpose", b, permutation=rhs_order)
    return [builder.like(op, a, b, attributes=dot)]


def _order(
    type: TensorType, batch: Sequence[int], contract: Sequence[int]
) -> tuple[int, ...] | None:
    """The transpose to [batch, free, contracted], or None if the operand is fine as it is."""
    free = [axis for axis in range(type.rank) if axis not in (*batch, *contract)]
    try:
        run_stride(type, free)
        run_stride(type, contract)
    except ValueError:
        return (*batch, *free, *contract)
    return None


def _merge_columns(op: Op, builder: Builder) -> Sequence[Value] | None:
    """The product with the free dims of its right side as one dim; None if they are one."""
    b = op.operands[1]
    shape = tensor_type(b).shape
    batch, contract = DotGeneral.of(op).rhs_batch, DotGeneral.of(op).rhs_contract
    free = [axis for axis in range(len(shape)) if axis not in (*batch, *contract)]
    if len(free) == 1:
        return None
    columns = product(shape[axis] for axis in free)
    # Dims between those of the run have the size 1, so the run may stand at its innermost.
    kept = [axis for axis in free if shape[axis] != 1] or free
    order = [axis for axis in range(len(shape)) if axis not in free or axis in kept[-1:]]
    merged = tuple(columns if axis in free else shape[axis] for axis in order)
    if not free:
        merged = (*merged, 1)
    places = {axis: place for place, axis in enumerate(order)}
    changed = replace(
        DotGeneral.of(op),
        rhs_batch=tuple(places[axis] for axis in batch),
        rhs_contract=tuple(places[axis] for axis in contract),
    )
    b = builder.value("reshape", b, shape=merged)
    y = builder.like(op, op.operands[0], b, attributes=changed)
    return [builder.value("reshape", y, shape=tensor_type(op.result).shape)]


# Convolutions.


def _arrange_convolution(op: Op, builder: Builder) -> Sequence[Value] | None:
    if not is_channels_last(op):
        return [as_channels_last(op, builder)]
    if any(step != 1 for step in Convolution.of(op).lhs_dilation):
        return _dilate_input(op, builder)
    if has_unknown_window(op):
        return [multiply_windows(op, builder)]
    groups = Convolution.of(op).groups
    if groups == 1:
        return pack_convolution(op, builder)
    inputs, outputs = known_dims(tensor_type(op.operands[1]).shape[-2:])
    if inputs == 1:
        return _depthwise(op, builder, groups)
    each, is_integer = outputs // groups, tensor_type(op.result).dtype.is_integer
    wide = 1 << max(each - 1, 0).bit_length()
    are_points = is_pointwise(op) and not is_integer
    if _are_narrow(op, groups, inputs, wide) and (wide == each or not are_points):
        return [_convolve_narrow(op, builder, groups, wide)]
    if are_points:
        return [_multiply_groups(op, builder, groups, inputs, each)]
    return _split_groups(op, builder, groups, inputs, each)


def _dilate_input(op: Op, builder: Builder) -> Sequence[Value]:
    x, w = op.operands
    for axis, step in enumerate(Convolution.of(op).lhs_dilation):
        if step != 1 and has_phases(op, axis):
            return [divide_phases(op, builder, axis)]
    rank = tensor_type(x).rank
    none = (0,) * rank
    interior = (0, *(step - 1 for step in Convolution.of(op).lhs_dilation), 0)
    zero = builder.constant(0, tensor_type(x).dtype)
    x = builder.op("pad", x, zero, low=none, high=none, interior=interior)
    changed = replace(Convolution.of(op), lhs_dilation=(1,) * (rank - 2))
    return [builder.like(op, x, w, attributes=changed)]


def _depthwise(op: Op, builder: Builder, groups: int) -> Sequence[Value]:
    """A channel a group; with several outputs each, the inputs are repeated."""
    x, w = op.operands
    type, weight = tensor_type(x), tensor_type(w)
    outputs = known_dim(weight.shape[-1])
    times = outputs // groups
    if times != 1:
        repeated = (*type.shape, times)
        x = builder.op("broadcast", x, shape=repeated, dimensions=tuple(range(type.rank)))
        x = builder.op("reshape", x, shape=(*type.shape[:-1], outputs))
    w = builder.op("reshape", w, shape=(*weight.shape[:-2], outputs))
    return [builder.append("depthwise", (x, w), (), depthwise_of(Convolution.of(op))).result]


def _are_narrow(op: Op, groups: int, inputs: int, outputs: int) -> bool:
    """Whether groups of floats, with so many outputs each, are best taken by lanes of `depthwise`;
    many are if they fill a panel that would be theirs but in part."""
    *window, _, all_outputs = known_dims(tensor_type(op.operands[1]).shape)
    if tensor_type(op.result).dtype.is_integer or not window:
        return False
    if window[-1] * inputs > MOST_STEPS or lanes_of_groups(PANEL, inputs, outputs) < outputs:
        return False
    return outputs < PANEL or (all_outputs < groups * outputs and groups >= PANEL)


def _convolve_narrow(op: Op, builder: Builder, groups: int, wide: int) -> Value:
    """Narrow groups as `depthwise`, each with `wide` outputs, of which what was not there goes."""
    x, w = op.operands
    moves, made = depthwise_of(Convolution.of(op)), tensor_type(op.result).shape
    *window, inputs, outputs = known_dims(tensor_type(w).shape)
    each = outputs // groups
    if each != wide:
        w = builder.value("reshape", w, shape=(*window, inputs, groups, each))
        zero, none = builder.constant(0, tensor_type(w).dtype), (0,) * (len(window) + 2)
        w = builder.value("pad", w, zero, low=(*none, 0), high=(*none, wide - each))
        w = builder.value("reshape", w, shape=(*window, inputs, groups * wide))
    y = builder.append("depthwise", (x, w), (), moves).result
    if each == wide:
        return y
    y = builder.value("reshape", y, shape=(*made[:-1], groups, wide))
    return builder.value("reshape", _slice_last(y, 0, each, builder), shape=made)


def _multiply_groups(op: Op, builder: Builder, groups: int, inputs: int, outputs: int) -> Value:
    """A convolution of windows of one pixel as a product per group."""
    x, w = op.operands
    pixels = tensor_type(x).shape[:-1]
    last = len(pixels)
    x = builder.value("reshape", x, shape=(*pixels, groups, inputs))
    w = builder.value("reshape", w, shape=(inputs, groups, outputs))
    dot = DotGeneral(
        lhs_batch=(last,), rhs_batch=(1,), lhs_contract=(last + 1,), rhs_contract=(0,),
        dtype=Convolution.of(op).dtype,
    )  # fmt: skip
    y = builder.append("dot_general", (x, w), (), dot).result
    y = builder.value("transpose", y, permutation=(*range(1, last + 1), 0, last + 1))
    return builder.value("reshape", y, shape=(*pixels, groups * outputs))


def _split_groups(
    op: Op, builder: Builder, groups: int, inputs: int, outputs: int
) -> Sequence[Value]:
    """One convolution per group, side by side."""
    x, w = op.operands
    if tensor_type(op.result).dtype.is_integer:
        w, times = _join_groups(w, groups, outputs, builder)
        groups, inputs, outputs = groups // times, inputs * times, outputs * times
    parts, alone = [], replace(Convolution.of(op), groups=1)
    for group in range(groups):
        x_part = _slice_last(x, group * inputs, inputs, builder)
        w_part = _slice_last(w, group * outputs, outputs, builder)
        parts.append(builder.like(op, x_part, w_part, attributes=alone))
    return [builder.op("concatenate", *parts, axis=tensor_type(x).rank - 1)]


def _join_groups(w: Value, groups: int, outputs: int, builder: Builder) -> tuple[Value, int]:
    """A weight in fewer groups, with zeros for the inputs of other ones, and how many of these are
    one now: a panel has columns for as many. Of floats, zeros times infinity would be NaN."""
    most = max(PANEL // outputs, 1)
    times = max(each for each in range(1, most + 1) if groups % each == 0)
    if times == 1:
        return w, 1
    *window, inputs, _ = known_dims(tensor_type(w).shape)
    rank = len(window)
    w = builder.value("reshape", w, shape=(*window, inputs, groups // times, times, outputs))
    shape = (*window, times, inputs, groups // times, times, outputs)
    places = (*range(rank), *range(rank + 1, rank + 5))
    w = builder.value("broadcast", w, shape=shape, dimensions=places)
    own = builder.constant(np.eye(times, dtype=bool))
    own = builder.value("broadcast", own, shape=shape, dimensions=(rank, rank + 3))
    w = builder.value("select", own, w, builder.full(0, tensor_type(w).dtype, shape))
    return builder.value("reshape", w, shape=(*window, times * inputs, groups * outputs)), times


def _slice_last(x: Value, first: int, count: int, builder: Builder) -> Value:
    shape = tensor_type(x).shape
    start = (*(0 for _ in shape[:-1]), first)
    limit = (*shape[:-1], first + count)
    return builder.op(  # type: ignore[no-any-return]
        "slice", x, start=start, limit=limit, stride=(1,) * len(shape)
    )
