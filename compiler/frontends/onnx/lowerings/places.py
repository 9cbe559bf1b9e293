"""The second result of MaxPool: which element of the input each window chose."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.windows import Window
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.windows import Windows, select_elements
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["greatest_with_places"]


def greatest_with_places(
    node: Node, x: Value, window: Window, extra: Sequence[Dim]
) -> tuple[Value, ...]:
    """The greatest element of each window, and its number in x, counted by rows (or columns)."""
    type = type_of(x)
    order = tuple(range(type.rank))
    if node.integer("storage_order", 0):
        order = (0, 1, *reversed(range(2, type.rank)))
    shape = tuple(type.shape[axis] for axis in order)
    count = dims.product(shape)
    numbers = node.reshape(node.op("iota", dtype=dtype("i64"), shape=(count,), axis=0), shape)
    numbers = node.transpose(numbers, order)  # its own inverse
    low = (0, 0, *(pair[0] for pair in window.padding))
    high = (0, 0, *(pair[1] + more for pair, more in zip(window.padding, extra, strict=True)))

    def padded(value: Value, fill: int) -> Value:
        element = node.constant(fill, type_of(value).dtype)
        return node.op("pad", value, element, low=low, high=high, interior=(0,) * type.rank)

    numbers, x = padded(numbers, -1), padded(x, 0)
    windows = Windows(
        (1, 1, *window.sizes), (1, 1, *window.strides), (1, 1, *window.dilations), shape_of(x)
    )
    best, chosen = select_elements(
        node.builder,
        [x],
        numbers,
        windows,
        lambda builder, best, value: builder.value("compare", *best, *value, direction="ge"),
    )
    return best, chosen
