"""Pooling over windows and over all spatial axes."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.places import greatest_with_places
from ingot.compiler.frontends.onnx.lowerings.windows import Window, read_window
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = ["average_windows"]


def _window(node: Node, x: Value) -> tuple[Window, tuple[Dim, ...]]:
    """The pooling window and the padding that ceil_mode adds behind each axis."""
    spatial = shape_of(x)[2:]
    window = read_window(node, spatial, node.integers("kernel_shape") or ())
    if not node.integer("ceil_mode", 0):
        return window, (0,) * len(spatial)
    extra: list[Dim] = []
    columns = zip(
        spatial, window.sizes, window.strides, window.padding, window.dilations, strict=True
    )
    for dim, size, stride, (low, high), dilation in columns:
        reach = (size - 1) * dilation + 1
        count = dims.ceildiv(dim + low + high - reach, stride) + 1
        # a last window that would see nothing but padding is left out
        count = dims.minimum(count, dims.ceildiv(dim + low, stride))
        extra.append(dims.maximum((count - 1) * stride + reach - dim - low - high, 0))
    return window, tuple(extra)


def _reduce_window(
    node: Node, x: Value, kind: str, window: Window, extra: tuple[Dim, ...], padded: bool = False
) -> Value:
    """Pools x; `padded` says that x has the window's padding but not `extra` already."""
    padding = tuple(
        (0, more) if padded else (low, high + more)
        for (low, high), more in zip(window.padding, extra, strict=True)
    )
    return node.op(
        "reduce_window",
        x,
        kind=kind,
        window=(1, 1, *window.sizes),
        strides=(1, 1, *window.strides),
        padding=((0, 0), (0, 0), *padding),
        base_dilation=(1,) * type_of(x).rank,
        window_dilation=(1, 1, *window.dilations),
    )


@lowering("MaxPool")
def max_pool(node: Node) -> Value | tuple[Value, ...]:
    x = node.input(0)
    window, extra = _window(node, x)
    if not node.wants(1):
        return _reduce_window(node, x, "max", window, extra)
    return greatest_with_places(node, x, window, extra)


@lowering("LpPool")
def lp_pool(node: Node) -> Value:
    """The p-norm of each window; padding counts as 0."""
    x = widen(node, node.input(0))
    window, extra = _window(node, x)
    total = _reduce_window(node, _power(node, x), "add", window, extra)
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


def average_windows(node: Node, given: Value, *, whole: bool = False) -> Value:
    """The mean of each window. With count_include_pad, places of the padding count; if `whole`,
    so do those behind it, which a window in ceil_mode reaches."""
    x = widen(node, given)
    window, extra = _window(node, x)
    total = _reduce_window(node, x, "add", window, extra)
    include = bool(node.integer("count_include_pad", 0))
    if _counts_all(window, extra, include, whole):
        count = node.size(dims.product(window.sizes), type_of(x).dtype)
    else:
        count = _count(node, x, window, extra, include)
    mean = node.op("div", total, node.broadcast_to(count, shape_of(total)))
    return narrow(node, mean, given)


def _counts_all(window: Window, extra: tuple[Dim, ...], include: bool, whole: bool) -> bool:
    """Whether all places of every window count."""
    if include and whole:
        return True
    return not any(extra) and (include or all(pair == (0, 0) for pair in window.padding))


def _count(node: Node, x: Value, window: Window, extra: tuple[Dim, ...], include: bool) -> Value:
    """How many places of each window lie in x, or, if `include`, in x and its padding."""
    spatial = shape_of(x)[2:]
    if include:
        pairs = zip(spatial, window.padding, strict=True)
        spatial = tuple(dim + low + high for dim, (low, high) in pairs)
    ones = node.full(1, type_of(x).dtype, (1, 1, *spatial))
    return _reduce_window(node, ones, "add", window, extra, padded=include)


@lowering("GlobalAveragePool")
def global_average_pool(node: Node) -> Value:
    x = widen(node, node.input(0))
    axes = range(2, type_of(x).rank)
    total = node.reduce(x, axes, "add", keep=True)
    count = node.size(dims.product(shape_of(x)[2:]), type_of(x).dtype)
    result = node.op("div", total, node.broadcast_to(count, shape_of(total)))
    return narrow(node, result, node.input(0))


@lowering("GlobalMaxPool")
def global_max_pool(node: Node) -> Value:
    x = node.input(0)
    return node.reduce(x, range(2, type_of(x).rank), "max", keep=True)
