"""Windows that no kernel walks, written with other ops.

A window whose sizes or steps only the call knows, and a convolution with a weight of such
sizes, take the elements of each window to a tensor of their own: a convolution then is a
product. Holes in the operand of a window are filled with what changes no result. Windows of
known sizes, whatever the image, stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Convolution, ReduceWindow
from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.graph.rewriter import is_static
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dims import Dim, floordiv
from ingot.hal.spec import dtype

__all__ = ["fill_holes", "has_unknown_window", "multiply_windows"]

_I64 = dtype("i64")


def has_unknown_window(op: Op) -> bool:
    """Whether only the call knows the weight's shape or the steps of a convolution."""
    steps = (*Convolution.of(op).strides, *Convolution.of(op).rhs_dilation)
    return not is_static((*tensor_type(op.operands[1]).shape, *steps))


def multiply_windows(op: Op, builder: Builder) -> Value:
    """A channels-last convolution without dilation of its input as one product."""
    x, w = op.operands
    convolution, count = Convolution.of(op), tensor_type(x).rank - 2
    groups = convolution.groups
    x = _padded(op, x, builder)
    outer = tensor_type(op.result).shape[1:-1]
    steps = (convolution.strides, convolution.rhs_dilation)
    columns = zip(outer, tensor_type(w).shape, *steps, strict=False)
    for axis, (places, size, stride, dilation) in enumerate(columns):
        index = _indices(builder, places, size, stride, dilation)
        x = builder.value("take", x, index, axis=1 + 2 * axis, mode="check")
    # x is [n, places, taps, places, taps ..., groups * inputs], w [taps ..., inputs, outputs]
    *window, inputs, outputs = tensor_type(w).shape
    each = floordiv(outputs, groups)
    x = builder.value("reshape", x, shape=(*tensor_type(x).shape[:-1], groups, inputs))
    w = builder.value("reshape", w, shape=(*window, inputs, groups, each))
    product = builder.value(
        "dot_general",
        x,
        w,
        lhs_batch=(1 + 2 * count,),
        rhs_batch=(count + 1,),
        lhs_contract=(*(2 + 2 * axis for axis in range(count)), 2 + 2 * count),
        rhs_contract=tuple(range(count + 1)),
        dtype=convolution.dtype,
    )
    last = builder.value("transpose", product, permutation=(*range(1, count + 2), 0, count + 2))
    return builder.value("reshape", last, shape=tensor_type(op.result).shape)


def _padded(op: Op, x: Value, builder: Builder) -> Value:
    padding = Convolution.of(op).padding
    if all(pair == (0, 0) for pair in padding):
        return x
    low, high = ((0, *(pair[side] for pair in padding), 0) for side in (0, 1))
    zero = builder.constant(0, tensor_type(x).dtype)
    return builder.value("pad", x, zero, low=low, high=high)


def _indices(builder: Builder, places: Dim, size: Dim, stride: Dim, dilation: Dim) -> Value:
    """i64[places, size]: where tap j of the window at place i lies."""
    total: Value | None = None
    for axis, step in enumerate((stride, dilation)):
        index = builder.value("iota", dtype=_I64, shape=(places, size), axis=axis)
        if step != 1:
            factor = builder.value("dim", value=step, dtype=_I64)
            spread = builder.value("broadcast", factor, shape=(places, size), dimensions=())
            index = builder.value("mul", index, spread)
        total = index if total is None else builder.value("add", total, index)
    assert total is not None
    return total


def fill_holes(op: Op, builder: Builder) -> Value | None:
    """A `reduce_window` with the holes and the padding of its operand filled; None without."""
    x, window = op.operands[0], ReduceWindow.of(op)
    base = window.base_dilation
    if all(step == 1 for step in base):
        return None
    type = tensor_type(x)
    low, high = (tuple(pair[side] for pair in window.padding) for side in (0, 1))
    fill = builder.constant(identity(window.kind, type.dtype), type.dtype)
    interior = tuple(step - 1 for step in base)
    x = builder.value("pad", x, fill, low=low, high=high, interior=interior)
    none, ones = ((0, 0),) * type.rank, (1,) * type.rank
    return builder.like(op, x, attributes=replace(window, padding=none, base_dilation=ones))
