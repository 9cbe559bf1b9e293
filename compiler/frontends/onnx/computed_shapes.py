"""Shapes that a model computes from data: what the lowerings of shape ops do with them.

The rules of ONNX (0 and -1 in Reshape, negative bounds in Slice) are then followed by ops on
numbers of rank 0, whose results become sizes. Where all is known at import, `shapes.py` does
the same with dims.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__ = ["computed_range", "expanded_dims", "resolve_shape", "slice_bounds"]


def resolve_shape(node: Node, x: Value, wanted: Sequence[Dim | Value], keeps: bool) -> list[Dim]:
    """The shape of a Reshape of x where some entries are known only when the model runs."""
    rank = type_of(x).rank
    entries = list(wanted)
    for axis, entry in enumerate(entries):
        if isinstance(entry, Value):
            entry = node.convert(entry, "i64")
            if keeps and axis < rank:
                entry = _where(node, entry, 0, node.size(shape_of(x)[axis]))
            entries[axis] = entry
    total = dims.product(shape_of(x))
    if -1 in entries:  # then no other entry can mean that
        result = [_size(node, entry, axis) for axis, entry in enumerate(entries)]
        at = entries.index(-1)
        rest = dims.product(dim for axis, dim in enumerate(result) if axis != at)
        result[at] = dims.floordiv(total, rest)
        return result
    one = node.size(1)
    product = one
    for entry in entries:
        factor = node.as_value(entry)
        product = node.op("mul", product, _where(node, factor, -1, one))
    left = node.op("div", node.size(total), node.op("max", product, one))
    for axis, entry in enumerate(entries):
        if isinstance(entry, Value):
            entries[axis] = _where(node, entry, -1, left)
    return [_size(node, entry, axis) for axis, entry in enumerate(entries)]


def _size(node: Node, entry: Dim | Value, axis: int) -> Dim:
    hint = f"{node.proto.output[0]}_{axis}"
    return node.define_size(entry, hint, f"element {axis} of the shape")


def _where(node: Node, value: Value, number: int, other: Value) -> Value:
    """`other` where the value is the number, else the value."""
    same = node.compare("eq", value, node.fill(number, like=value))
    return node.op("select", same, other, value)


def expanded_dims(node: Node, x: Value) -> list[Dim]:
    """The shape that x is to be expanded to together with its own; entries from data are
    checked against dims of x that are known not to be 1."""
    parts = node.parts(1)
    first = len(parts) - type_of(x).rank
    result: list[Dim] = []
    for axis, part in enumerate(parts):
        own = shape_of(x)[axis - first] if axis >= first else 1
        what = f"element {axis} of the shape"
        hint = f"{node.proto.output[0]}_{axis}"
        if isinstance(part, Value) and isinstance(own, int) and own != 1:
            whole = _where(node, node.convert(part, "i64"), 1, node.size(own))
            node.define_size(whole, hint, what, own, own)
            result.append(own)
        else:
            result.append(node.define_size(part, hint, what))
    return result


def slice_bounds(
    node: Node, first: Dim | Value, last: Dim | Value, axis: int, backward: bool
) -> tuple[Dim, Dim]:
    """Start and limit of a Slice within [0, dim], of the reversed axis if `backward`."""
    dim = shape_of(node.input(0))[axis]
    size, zero, one = node.size(dim), node.size(0), node.size(1)
    ends = [_wrapped(node, node.as_value(end), size) for end in (first, last)]
    if backward:
        # index i of the axis is dim - 1 - i of the reversed one; -1 stands before the first
        top = node.op("sub", size, one)
        low, high = (node.op("sub", top, end) for end in ends)
    else:
        low, high = ends
    low = node.op("min", node.op("max", low, zero), size)
    high = node.op("min", node.op("max", high, low), size)
    name = node.proto.output[0]
    start = 0 if first == 0 and not backward else low
    return (
        node.define_size(start, f"{name}_start_{axis}", f"the start on axis {axis}", 0, dim),
        node.define_size(high, f"{name}_end_{axis}", f"the end on axis {axis}", 0, dim),
    )


def _wrapped(node: Node, index: Value, size: Value) -> Value:
    """A negative index counted from the end."""
    negative = node.compare("lt", index, node.size(0))
    return node.op("select", negative, node.op("add", index, size), index)


def computed_range(node: Node) -> Value:
    """start, start + delta, ... below limit, of numbers that depend on data."""
    start, limit, delta = (node.reshape(node.input(index), ()) for index in range(3))
    element = type_of(start).dtype
    count = _range_count(node, start, limit, delta, element)
    name = node.proto.output[0]
    shape = (node.define_size(count, f"{name}_0", "the count of elements"),)
    steps = node.op("iota", dtype=element, shape=shape, axis=0)
    spread = node.op("mul", steps, node.broadcast_to(delta, shape))
    return node.op("add", spread, node.broadcast_to(start, shape))


def _range_count(node: Node, start: Value, limit: Value, delta: Value, element: DType) -> Value:
    """max(ceil((limit - start) / delta), 0); a delta of 0 gives -1, which is no size."""
    if not element.is_float:
        start, limit, delta = (node.convert(each, "i64") for each in (start, limit, delta))
    way = node.op("sub", limit, start)
    quotient = node.op("div", way, delta)
    if element.is_float:
        quotient = node.op("ceil", quotient)
    else:
        rest = node.op("rem", way, delta)
        positive = node.compare("gt", node.op("mul", rest, delta), node.fill(0, like=rest))
        quotient = node.op("add", quotient, node.convert(positive, "i64"))
    count = node.convert(node.op("max", quotient, node.fill(0, like=quotient)), "i64")
    still = node.compare("eq", delta, node.fill(0, like=delta))
    return node.op("select", still, node.size(-1), count)
