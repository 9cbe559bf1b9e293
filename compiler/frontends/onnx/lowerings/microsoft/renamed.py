"""Ops of `com.microsoft` that the standard has, too, perhaps in another form."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lower_whole, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("GatherND", "Gelu", "GridSample", "Trilu", domain=MICROSOFT)
def same(node: Node) -> Value:
    return lower_as(node, node.proto.op_type, list(node.present()))


@lowering("Pad", domain=MICROSOFT)
def pad(node: Node) -> Value:
    """The amounts and the value may have one axis more."""
    amounts, value = node.input(1), node.optional(2)
    amounts = node.reshape(amounts, (2 * type_of(node.input(0)).rank,))
    return lower_as(
        node, "Pad", [node.input(0), amounts, None if value is None else node.reshape(value, ())]
    )


@lowering("Range", domain=MICROSOFT)
def range_(node: Node) -> Value:
    """Numbers may be tensors of one element; the delta may be left out."""
    start, limit = (node.reshape(node.input(place), ()) for place in range(2))
    delta = node.optional(2)
    delta = node.fill(1, like=start) if delta is None else node.reshape(delta, ())
    return lower_as(node, "Range", [start, limit, delta])


@lowering("Unique", domain=MICROSOFT)
def unique_in_order(node: Node) -> tuple[Value | None, ...]:
    """Values in the order in which they come, the place of each element's value, and counts."""
    values, _, places, counts = lower_whole(node, "Unique", [node.input(0)], {"sorted": 0})
    return values, places, counts


@lowering("ExpandDims", domain=MICROSOFT)
def expand_dims(node: Node) -> Value:
    """A dim of 1 before the axis, which counts from the back where it is negative."""
    rank = type_of(node.input(0)).rank
    axis = node.known_element(node.input(1))
    if axis is None:
        return lower_as(node, "Unsqueeze", [node.input(0), node.reshape(node.input(1), (1,))])
    axis = node.normalize_axis(axis, rank + 1)
    shape = list(shape_of(node.input(0)))
    return node.reshape(node.input(0), (*shape[:axis], 1, *shape[axis:]))
