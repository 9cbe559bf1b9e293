"""Pooling over windows and over all spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.normalizing import mean
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.windows import read_window
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.pooling import Window, averaged, chosen, pooled
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__ = ["average_windows"]


def _window(node: Node, x: Value) -> Window:
    spatial = shape_of(x)[2:]
    window = read_window(node, spatial, node.integers("kernel_shape") or ())
    return window.ceiled(spatial) if node.integer("ceil_mode", 0) else window


@lowering("MaxPool")
def max_pool(node: Node) -> Value | tuple[Value, ...]:
    """Also, if wanted, the number of each element in x, counted by rows (or columns)."""
    x = node.input(0)
    window = _window(node, x)
    if not node.wants(1):
        return pooled(node, x, "max", window)
    order = tuple(range(type_of(x).rank))
    if node.integer("storage_order", 0):
        order = (0, 1, *reversed(order[2:]))
    shape = tuple(shape_of(x)[axis] for axis in order)
    numbers = node.op("iota", dtype=dtype("i64"), shape=(dims.product(shape),), axis=0)
    numbers = node.transpose(node.reshape(numbers, shape), order)  # its own inverse

    def keeps(inner: Builder, best: Sequence[Value], other: Sequence[Value]) -> Value:
        return inner.value("compare", *best, *other, direction="ge")

    return tuple(chosen(node, x, numbers, window, keeps))


@lowering("LpPool")
def lp_pool(node: Node) -> Value:
    """The p-norm of each window; padding counts as 0."""
    x = widen(node, node.input(0))
    total = pooled(node, _power(node, x), "add", _window(node, x))
    return narrow(node, _root(node, total), node.input(0))


@lowering("GlobalLpPool")
def global_lp_pool(node: Node) -> Value:
    x = widen(node, node.input(0))
    total = node.reduce(_power(node, x), range(2, type_of(x).rank), "add", keep=True)
    return narrow(node, _root(node, total), node.input(0))


def _power(node: Node, x: Value) -> Value:
    """|x| to the power p."""
    power = node.integer("p", 2)
    magnitude = node.op("abs", x)
    if power == 2:
        return node.op("mul", x, x)
    return node.op("pow", magnitude, power) if power != 1 else magnitude


def _root(node: Node, total: Value) -> Value:
    """The root of a sum of powers p."""
    power = node.integer("p", 2)
    if power == 2:
        return node.op("sqrt", total)
    return node.op("pow", total, 1 / power) if power != 1 else total


@lowering("AveragePool")
def average_pool(node: Node) -> Value:
    return average_windows(node, node.input(0))


def average_windows(node: Node, x: Value, *, whole: bool = False) -> Value:
    """The mean of each window, as the node's attributes say, and `averaged` has it."""
    include = bool(node.integer("count_include_pad", 0))
    return averaged(node, x, _window(node, x), include=include, whole=whole)


@lowering("GlobalAveragePool")
def global_average_pool(node: Node) -> Value:
    x = widen(node, node.input(0))
    axes = range(2, type_of(x).rank)
    return narrow(node, node.keep_axes(mean(node, x, axes), shape_of(x), axes), node.input(0))


@lowering("GlobalMaxPool")
def global_max_pool(node: Node) -> Value:
    x = node.input(0)
    return node.reduce(x, range(2, type_of(x).rank), "max", keep=True)
