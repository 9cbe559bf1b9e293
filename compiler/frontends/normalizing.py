"""Normalisations and softmax, as plain reductions and element-wise ops.

The compiler finds the row pattern again in these, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = [
    "center",
    "inverse_deviation",
    "mean",
    "narrow",
    "scale_and_shift",
    "softmax",
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
    count = node.size(dims.product(shape_of(x)[axis] for axis in axes), type_of(x).dtype)
    return node.op("div", total, node.broadcast_to(count, shape_of(total)))


def center(node: Emitter, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """x less its mean over `axes`, and that mean."""
    middle = mean(node, x, axes)
    return node.op("sub", x, node.broadcast_back(middle, shape_of(x), axes)), middle


def inverse_deviation(node: Emitter, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """1 / sqrt(mean(x * x) + epsilon)."""
    variance = mean(node, node.op("mul", x, x), axes)
    return node.op("rsqrt", node.op("add", variance, epsilon))


def scale_and_shift(
    node: Emitter, x: Value, scale: Value | None, shift: Value | None, shape: Sequence[Dim]
) -> Value:
    """x * scale + shift, where both are reshaped to `shape` and broadcast."""
    for name, operand in (("mul", scale), ("add", shift)):
        if operand is not None:
            spread = node.reshape(node.convert(operand, type_of(x).dtype), shape)
            x = node.op(name, x, node.broadcast_to(spread, shape_of(x)))
    return x


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
