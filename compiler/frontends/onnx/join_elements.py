"""Joins the tensors of a list of unknown length along an axis: a loop that makes one longer.

The axis comes first while it grows, so that each element is copied once behind the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import while_loop
from ingot.compiler.ir import ListType, TensorType, Value, tensor_type
from ingot.compiler.ir.dims import Dim, symbol

__all__ = ["element_at", "join_elements", "length_of", "require_rank"]


def length_of(node: Node, list: Value) -> Dim:
    """The count of elements of a list, as a symbol."""
    name = next(node.fresh_symbols("length"))
    node.builder.append("list.length", (list,), (), {"symbols": (name,)})
    return symbol(name)


def require_rank(list: Value) -> None:
    """UnsupportedNode: it is not known of which rank the elements are."""
    if isinstance(list.type, ListType) and list.type.any_rank:
        raise UnsupportedNode(
            "it is not known of which rank the elements of a graph input are: declare their shape, "
            "dims may be symbolic"
        )


def element_at(node: Node, list: Value, index: Dim) -> Value:
    """An element of a list, whose dims are fresh symbols where they may differ."""
    require_rank(list)
    names = node.fresh_symbols("element")
    shape = [next(names) if dim is None else dim for dim in list.typed(ListType).shape]
    symbols = [each for each in shape if isinstance(each, str)]
    dims = [symbol(each) if isinstance(each, str) else each for each in shape]
    return node.op("list.get", list, index=index, shape=dims, symbols=symbols)


def join_elements(node: Node, list: Value, axis: int, new_axis: bool) -> Value:
    """All elements one behind the other along `axis`, which they have already unless it is a
    `new_axis`. The call fails if there is none, or if they differ in another dim."""
    first = _front(node, element_at(node, list, 0), axis, new_axis)
    type = tensor_type(first)
    rest = type.shape[1:]
    length, one = node.size(length_of(node, list)), node.constant(1, "i64")
    name = next(node.fresh_symbols("joined"))
    joined = TensorType(type.dtype, (symbol(name), *rest))

    def condition(inner: Builder, values: Sequence[Value]) -> Value:
        return inner.value("compare", values[0], length, direction="lt")

    def body(builder: Builder, values: Sequence[Value]) -> Sequence[Value]:
        inner = node.within(builder)
        at = inner.define_size(values[0], "position", "the position")
        element = _front(inner, element_at(inner, list, at), axis, new_axis)
        for own, wanted in zip(shape_of(element)[1:], rest, strict=True):
            if own != wanted:
                builder.append("assert", (), (), {"kind": "equal", "a": own, "b": wanted})
        element = inner.reshape(element, (shape_of(element)[0], *rest))
        longer = inner.op("concatenate", values[1], element, axis=0)
        return [inner.op("add", values[0], one), longer]

    types = [one.type, joined]
    result = while_loop(node.builder, [one, first], condition, body, types, [name])[1]
    order = [*range(1, axis + 1), 0, *range(axis + 1, type.rank)]
    return node.transpose(result, order)


def _front(node: Node, element: Value, axis: int, new_axis: bool) -> Value:
    """The element with the axis in front."""
    shape = shape_of(element)
    if new_axis:
        return node.reshape(element, (1, *shape))
    order = [axis, *(each for each in range(len(shape)) if each != axis)]
    return node.transpose(element, order)
