"""What several parts of a language model are made of."""

from __future__ import annotations

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim

__all__ = ["capped", "over_rows", "part", "softmax", "times"]


def times(x: Value, factor: float, b: Builder) -> Value:
    """x times a number."""
    type = tensor_type(x)
    return b.value("mul", x, b.full(factor, type.dtype, type.shape))


def capped(x: Value, cap: float, b: Builder) -> Value:
    """cap * tanh(x / cap), or x without a cap."""
    return x if not cap else times(b.value("tanh", times(x, 1 / cap, b)), cap, b)


def part(x: Value, axis: int, start: Dim, limit: Dim, b: Builder) -> Value:
    """Elements of one axis."""
    shape = tensor_type(x).shape
    starts = tuple(start if place == axis else 0 for place in range(len(shape)))
    limits = tuple(limit if place == axis else dim for place, dim in enumerate(shape))
    return b.value("slice", x, start=starts, limit=limits)


def over_rows(name: str, x: Value, y: Value, b: Builder) -> Value:
    """An op on x[..., n] and y[...], one number for each row."""
    shape = tensor_type(x).shape
    dimensions = tuple(range(len(shape) - 1))
    return b.value(name, x, b.value("broadcast", y, shape=shape, dimensions=dimensions))


def softmax(x: Value, b: Builder) -> Value:
    """exp(x) over its sum along the last axis."""
    axis = tensor_type(x).rank - 1
    x = over_rows("sub", x, b.value("reduce", x, axes=(axis,), kind="max"), b)
    x = b.value("exp", x)
    return over_rows("div", x, b.value("reduce", x, axes=(axis,), kind="add"), b)
