"""Ops of `com.microsoft` that the standard has, too, perhaps in another form."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.elementwise import widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lower_whole, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("GatherND", "Gelu", "GridSample", "Trilu", domain=MICROSOFT)
def same(node: Node) -> Value:
    return lower_as(node, node.proto.op_type, list(node.present()))


@lowering("SampleOp", domain=MICROSOFT)
def echo(node: Node) -> Value:
    return node.input(0)


@lowering("IsAllFinite", domain=MICROSOFT)
def is_all_finite(node: Node) -> Value:
    """Whether no element of any input is NaN or infinite, or one of both."""
    only = [name for name in ("isnan", "isinf") if node.integer(f"{name}_only", 0)]
    unsupported(len(only) > 1, "it has both isnan_only and isinf_only: fix the model")
    result: Value | None = None
    for x in node.present():
        wide = widen(node, x)
        if only:
            op_type = "IsNaN" if only == ["isnan"] else "IsInf"
            good = node.op("not", lower_as(node, op_type, [wide], {}))
        else:
            good = node.op("is_finite", wide)
        good = node.reduce(good, list(range(type_of(x).rank)), "and")
        result = good if result is None else node.op("and", result, good)
    assert result is not None
    return result


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
