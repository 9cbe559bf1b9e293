"""Normalisations and softmax, as plain reductions and element-wise ops.

The compiler finds the row pattern again in these, whoever wrote them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.graph.rewriter import literal_of_value
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = [
    "by_neighbours",
    "by_statistics",
    "center",
    "inverse_deviation",
    "log_sum_exp",
    "mean",
    "narrow",
    "normalized",
    "scale_and_shift",
    "softmax",
    "vector_norm",
    "widen",
]


def widen(node: Emitter, value: Value) -> Value:
    """f16 and bf16 as f32, so that a chain of ops rounds once, at its end."""
    dtype = type_of(value).dtype
    return node.convert(value, "f32") if dtype.is_float and dtype.bits < 32 else value


def narrow(node: Emitter, value: Value, like: Value) -> Value:
    """`value` in the dtype of `like`: the end of what `widen` began."""
    return node.convert(value, type_of(like).dtype)


def mean(node: Emitter, x: Value, axes: Sequence[int]) -> Value:
    """The mean over `axes`, without these dims."""
    total = node.reduce(x, axes, "add")
    count = dims.product(shape_of(x)[axis] for axis in axes)
    if isinstance(count, int):
        return node.op("div", total, count)
    spread = node.broadcast_to(node.size(count, type_of(x).dtype), shape_of(total))
    return node.op("div", total, spread)


def center(node: Emitter, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """x less its mean over `axes`, and that mean."""
    middle = mean(node, x, axes)
    return node.op("sub", x, node.broadcast_back(middle, shape_of(x), axes)), middle


def inverse_deviation(node: Emitter, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """1 / sqrt(mean(x * x) + epsilon)."""
    variance = mean(node, node.op("mul", x, x), axes)
    return node.op("rsqrt", node.op("add", variance, epsilon))


def normalized(
    node: Emitter, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value, Value, Value]:
    """x around 0 with a deviation of 1 over `axes`, its mean, and the inverse deviation."""
    centered, middle = center(node, x, axes)
    inverse = inverse_deviation(node, centered, axes, epsilon)
    spread = node.broadcast_back(inverse, shape_of(x), axes)
    return node.op("mul", centered, spread), middle, inverse


def scale_and_shift(
    node: Emitter, x: Value, scale: Value | None, shift: Value | None, shape: Sequence[Dim]
) -> Value:
    """x * scale + shift, where both are reshaped to `shape` and broadcast."""
    for name, operand in (("mul", scale), ("add", shift)):
        if operand is not None:
            spread = node.reshape(node.convert(operand, type_of(x).dtype), shape)
            x = node.op(name, x, node.broadcast_to(spread, shape_of(x)))
    return x


def by_statistics(
    node: Emitter,
    x: Value,
    scale: Value | None,
    shift: Value | None,
    mean: Value,
    variance: Value,
    epsilon: float,
) -> Value:
    """Batch normalisation of inference, whose vectors begin at axis 1 of x: one factor and one
    summand per channel, which fold into a convolution. Those of constants are computed here: the
    ops that would are many."""
    element, shape = type_of(x).dtype, shape_of(x)
    given = [None if each is None else node.convert(each, element) for each in (scale, shift)]
    given += [node.convert(each, element) for each in (mean, variance)]
    vectors = _vectors_of_constants(node, given, epsilon) or _vectors(node, given, epsilon)
    axes = tuple(range(1, 1 + type_of(mean).rank))
    for name, vector in zip(("mul", "add"), vectors, strict=True):
        x = node.op(name, x, node.op("broadcast", vector, shape=shape, dimensions=axes))
    return x


def _vectors(node: Emitter, given: Sequence[Any], epsilon: float) -> tuple[Value, Value]:
    """The factors and the summands."""
    scale, shift, mean, variance = given
    deviation = node.op("sqrt", node.op("add", variance, epsilon))
    factor = node.op("div", 1 if scale is None else scale, deviation)
    moved = node.op("mul", mean, factor)
    return factor, node.op("neg", moved) if shift is None else node.op("sub", shift, moved)


def _vectors_of_constants(
    node: Emitter, given: Sequence[Value | None], epsilon: float
) -> tuple[Value, Value] | None:
    """The same bits; None if not all are constants."""
    literals = [None if each is None else literal_of_value(each) for each in given]
    if literals.count(None) != given.count(None):
        return None
    arrays: list[Any] = [None if each is None else each.array for each in literals]
    scale, shift, mean, variance = arrays
    with np.errstate(all="ignore"):
        deviation = np.sqrt(variance + variance.dtype.type(epsilon))
        factor = (1 if scale is None else scale) / deviation
        summand = -mean * factor if shift is None else shift - mean * factor
    return node.builder.constant(factor), node.builder.constant(summand)


def log_sum_exp(node: Emitter, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """log(sum(exp(x))) around the greatest element, so that exp does not overflow."""
    greatest = node.reduce(x, axes, "max")
    middle = node.op("select", node.op("is_finite", greatest), greatest, 0)
    shifted = node.op("sub", x, node.broadcast_back(middle, shape_of(x), axes))
    total = node.reduce(node.op("exp", shifted), axes, "add")
    result = node.op("add", node.op("log", total), middle)
    return node.keep_axes(result, shape_of(x), axes) if keep else result


def vector_norm(node: Emitter, x: Value, axes: Sequence[int], power: float, keep: bool) -> Value:
    """The p-norm over `axes`; for 0 how many elements are not 0, for infinities the greatest or
    the least."""
    size = node.op("abs", x)
    if math.isinf(power):
        return node.reduce(size, axes, "max" if power > 0 else "min", keep)
    if power == 0:
        counted = node.convert(node.compare("ne", size, 0), type_of(size).dtype)
        return node.reduce(counted, axes, "add", keep)
    if power == 1:
        return node.reduce(size, axes, "add", keep)
    if power == 2:
        return node.op("sqrt", node.reduce(node.op("mul", size, size), axes, "add", keep))
    total = node.reduce(node.op("pow", size, power), axes, "add", keep)
    return node.op("pow", total, 1 / power)


def by_neighbours(
    node: Emitter,
    x: Value,
    axis: int,
    reach: tuple[int, int],
    alpha: float,
    bias: float,
    beta: float,
) -> Value:
    """x / (bias + alpha * the sum of squares of the neighbours along an axis) ** beta."""
    rank, (low, high) = type_of(x).rank, reach
    window = tuple(1 + low + high if at == axis else 1 for at in range(rank))
    padding = tuple(reach if at == axis else (0, 0) for at in range(rank))
    squares = node.op("mul", x, x)
    total = node.op("reduce_window", squares, kind="add", window=window, padding=padding)
    base = node.op("add", node.op("mul", total, alpha), bias)
    return node.op("div", x, node.op("pow", base, beta))


def softmax(node: Emitter, given: Value, axes: Sequence[int], logarithm: bool) -> Value:
    """exp(x) / sum(exp(x)), or its logarithm, around the greatest element."""
    x = widen(node, given)
    greatest = node.broadcast_back(node.reduce(x, axes, "max"), shape_of(x), axes)
    shifted = node.op("sub", x, greatest)
    powers = node.op("exp", shifted)
    total = node.reduce(powers, axes, "add")
    if logarithm:
        spread = node.broadcast_back(node.op("log", total), shape_of(x), axes)
        return narrow(node, node.op("sub", shifted, spread), given)
    return narrow(
        node, node.op("div", powers, node.broadcast_back(total, shape_of(x), axes)), given
    )
