"""Sorting along one axis, and searching what is sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import dtype

__all__ = ["count_before", "sort_by", "sort_with_places", "stands_before"]

_I64 = dtype("i64")


def sort_with_places(c: Emitter, x: Value, axis: int, descending: bool) -> tuple[Value, Value]:
    """x sorted along an axis, stable, with NaN behind all other numbers (in front of them, if
    `descending`), and where each element was."""
    values, order = sort_by(c, [x], axis, descending)
    return values, order


def sort_by(c: Emitter, keys: Sequence[Value], axis: int, descending: bool) -> tuple[Value, ...]:
    """As `sort_with_places`, by several keys, of which one decides where those before are equal."""
    places = c.op("iota", dtype=_I64, shape=shape_of(keys[0]), axis=axis)
    block = Block([ScalarType(type_of(each).dtype) for each in (*keys, places) for _ in range(2)])
    inner, given = Builder(block), block.arguments
    pairs = [(given[at], given[at + 1]) for at in range(0, 2 * len(keys), 2)]
    if descending:
        pairs = [(b, a) for a, b in pairs]
    before = stands_before(inner, *pairs[-1])
    for a, b in reversed(pairs[:-1]):
        before = inner.value("and", inner.value("not", stands_before(inner, b, a)), before)
        before = inner.value("or", stands_before(inner, a, b), before)
    inner.yield_(before)
    return tuple(c.several("sort", *keys, places, axis=axis, regions=[Region([block])]))


def stands_before(inner: Builder, a: Value, b: Value) -> Value:
    """a < b, with NaN behind all other numbers and equal to itself; of scalars, or tensors."""
    element = a.dtype
    if element.is_boolean:
        return inner.value("and", inner.value("not", a), b)
    less = inner.value("compare", a, b, direction="lt")
    if not element.is_float:
        return less
    only_b = inner.value("and", inner.value("not", inner.value("is_nan", a)),
                         inner.value("is_nan", b))  # fmt: skip
    return inner.value("or", less, only_b)


def count_before(
    c: Emitter, lines: Value, wanted: Value, before: Callable[[Value, Value], Value]
) -> Value:
    """i64[..., m]: of each sorted line [..., n], or of one line [n] for all, how many elements
    stand before each one of `wanted`, [..., m], by `before(element, one)`. By halves, with the
    middle where torch has it; where n is known only at the call, every pair is compared."""
    shape, count = shape_of(wanted), shape_of(lines)[-1]
    if not isinstance(count, int):
        wide = c.reshape(lines, (*shape_of(lines)[:-1], 1, count))
        pairs = before(*c.broadcast(wide, c.reshape(wanted, (*shape, 1))))
        return c.reduce(c.convert(pairs, _I64), [len(shape)], "add")
    first, end = (c.full(each, _I64, shape) for each in (0, count))
    for _ in range(count.bit_length()):
        middle = c.op("shift_right_logical", c.op("add", first, end), c.full(1, _I64, shape))
        if type_of(lines).rank == 1:
            element = c.op("take", lines, middle, axis=0, mode="clamp")
        else:
            element = c.gather_along(lines, middle, len(shape) - 1, "clamp")
        is_before = before(element, wanted)
        is_open = c.op("and", is_before, c.compare("lt", first, end))
        first = c.op("select", is_open, c.op("add", middle, c.full(1, _I64, shape)), first)
        end = c.op("select", is_before, end, middle)
    return first
