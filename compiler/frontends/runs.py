"""Rows that are sorted by the group they belong to: a loop over the groups that have some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import while_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, symbol

__all__ = ["each_run", "known_number"]

Body = Callable[[Builder, Value, Value, Dim], Value]


def each_run(
    b: Builder, ends: Value, made: Value, body: Body, fresh: Callable[[str], str]
) -> Value:
    """`made` [n, width] with the rows of each group replaced by `body(builder, group, first,
    count)`, [count, width]: the number of the group, its first row and how many it has. Its rows
    end at `ends`, i64[groups]. `fresh` gives names for the symbols of a step."""
    (groups,), (rows, _) = tensor_type(ends).shape, tensor_type(made).shape
    last = b.value("take", ends, b.number(groups - 1, "i64"), axis=0)
    group_symbol, count_symbol = fresh("group"), fresh("rows")

    def goes_on(inner: Builder, values: Sequence[Value]) -> Value:
        return inner.value("compare", values[0], last, direction="lt")

    def step(inner: Builder, values: Sequence[Value]) -> Sequence[Value]:
        first, made = values
        before = inner.value("compare", ends, inner.broadcast_to(first, (groups,)), direction="le")
        passed = inner.value("convert", before, dtype=ends.dtype)
        group = inner.value("reduce", passed, axes=(0,), kind="add")
        group = known_number(inner, group, group_symbol, 0, groups - 1)
        count = inner.value("sub", inner.value("take", ends, group, axis=0), first)
        count_dim = _size(inner, count, count_symbol, 1, rows)
        own = body(inner, group, first, count_dim)
        made = inner.value("dynamic_update_slice", made, own, first, inner.constant(0, "i64"))
        return [inner.value("add", first, inner.number(count_dim, "i64")), made]

    return while_loop(b, [b.constant(0, "i64"), made], goes_on, step)[1]


def known_number(b: Builder, value: Value, name: str, low: Dim, high: Dim) -> Value:
    """An element as the symbol `name`, so that what it numbers is a place in memory."""
    return b.number(_size(b, value, name, low, high), "i64")


def _size(b: Builder, value: Value, name: str, low: Dim, high: Dim) -> Dim:
    limits = {"low": low, "high": high, "what": "a number of groups or of their rows"}
    b.append("size", (value,), (), {"symbols": (name,), **limits})
    return symbol(name)
