"""Writes through views: what the base is when a part of it has a new value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import slice_range
from ingot.compiler.frontends.torch.complex_values import ComplexValue
from ingot.compiler.frontends.torch.lowering import Context
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, Expr

__all__ = ["put_back"]

_RESHAPES = (
    "view", "unsqueeze", "squeeze", "_unsafe_view", "detach", "alias", "dropout", "feature_dropout",
    "alpha_dropout", "positive", "to", "type_as", "reshape", "ravel", "reshape_as", "flatten",
    "contiguous", "_reshape_alias",
)  # fmt: skip


def put_back(
    c: Context,
    name: str,
    base: Any,
    value: Any,
    place: int,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Any:
    """`base` after `value` was written into result `place` of the view that `name` makes of it."""
    if isinstance(base, ComplexValue):
        parts = zip(base.parts, value.parts, strict=True)
        return ComplexValue(
            *(put_back(c, name, own, part, place, arguments, keywords) for own, part in parts)
        )
    op = name.split(".")[1]
    value = c.convert(value, type_of(base).dtype)
    if op in _RESHAPES:
        return c.reshaped(value, shape_of(base))
    rank = type_of(base).rank
    if op in ("permute", "transpose", "t"):
        order = _permutation(c, op, base, arguments)
        return c.transpose(value, [order.index(axis) for axis in range(rank)])
    if keywords or op not in ("select", "slice"):
        raise UnsupportedNode(f"it writes into the result of {op}, which is not supported")
    axis = c.axis(arguments[0] if arguments else 0, base)
    size = shape_of(base)[axis]
    start: Dim | Value
    if op == "select":
        start, step = _index(arguments[1], size), 1
        shape = list(shape_of(base))
        shape[axis] = 1
        value = c.reshape(value, shape)
    else:
        start, _, step = slice_range(size, *arguments[1:])
    if step != 1:
        raise UnsupportedNode("it writes into a slice with a step, which is not supported")
    zero = c.size(0)
    starts = [c.size(start) if each == axis else zero for each in range(rank)]
    return c.op("dynamic_update_slice", base, value, *starts)


def _permutation(c: Context, op: str, x: Value, arguments: Sequence[Any]) -> list[int]:
    rank = type_of(x).rank
    if op == "permute":
        return [c.axis(axis, x) for axis in arguments[0]]
    order = list(range(rank))
    a, b = (c.axis(axis, x) for axis in (arguments if op == "transpose" else (0, max(rank - 1, 0))))
    order[a], order[b] = order[b], order[a]
    return order


def _index(index: Any, size: Dim) -> Dim:
    if not isinstance(index, (int, Expr)):
        raise UnsupportedNode("it writes at an index that depends on data, which is not supported")
    return index + size if isinstance(index, int) and index < 0 else index
