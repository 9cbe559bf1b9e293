"""Ops that pick elements by their values, so that the count of results depends on data:
NonZero, Compress, TopK and Unique."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.ordering import stands_before
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


def _count_name(node: Node) -> str:
    """What the fresh dim of the results is called."""
    return f"{next(filter(None, node.proto.output))}_count"


@lowering("NonZero")
def nonzero(node: Node) -> Value:
    x = node.input(0)
    scalar = not shape_of(x)
    places = node.nonzero(node.reshape(x, (1,)) if scalar else x, _count_name(node))
    if not scalar:
        return places
    count = shape_of(places)[1]  # of rank 0: no rows, one place if it is not 0
    return node.full(0, "i64", (0, count))


@lowering("Compress")
def compress(node: Node) -> Value:
    """Where the condition holds along the axis; a short condition ends early, and of a long one
    nothing beyond the axis is looked at."""
    x, condition = node.input(0), node.input(1)
    if node.has("axis"):
        axis = node.axis(0, type_of(x).rank)
    else:
        x, axis = node.flat(x), 0
    (length,) = shape_of(condition)
    limit = dims.minimum(length, shape_of(x)[axis])
    places = node.nonzero(condition, _count_name(node), None if limit == length else limit)
    indices = node.reshape(places, shape_of(places)[1:])
    return node.op("take", x, indices, axis=axis, mode="check")


@lowering("TopK")
def top_k(node: Node) -> tuple[Value, ...]:
    x = node.input(0)
    axis = node.axis(-1, type_of(x).rank)
    part = node.parts(1)[0] if node.optional(1) is not None else node.integer("k", 1)
    hint = f"{next(filter(None, node.proto.output))}_{axis}"
    k = node.define_size(part, hint, "the count k", 0, shape_of(x)[axis])
    return node.several(
        "top_k", x, k=k, axis=axis, largest=bool(node.integer("largest", 1)), dtype=_I64
    )


@lowering("Unique")
def unique(node: Node) -> tuple[Value, ...]:
    """Values, the first index of each, the index of each element's value, and counts."""
    x = node.input(0)
    if not node.has("axis"):
        x, axis = node.flat(x), 0
    else:
        axis = node.axis(0, type_of(x).rank)
    if type_of(x).rank == 1:
        firsts, inverse, counts = _unique_numbers(node, x)
    else:
        firsts, inverse, counts = _unique_slices(node, x, axis)
    if not node.integer("sorted", 1):
        firsts, order = _sort(node, [firsts, _positions(node, shape_of(firsts)[0])])
        counts = _take(node, counts, order)
        _, places = _sort(node, [order, _positions(node, shape_of(firsts)[0])])
        inverse = _take(node, places, inverse)
    return node.op("take", x, firsts, axis=axis, mode="check"), firsts, inverse, counts


def _unique_numbers(node: Node, x: Value) -> tuple[Value, Value, Value]:
    """Of the distinct elements of x, ascending: first index, and count; and the place of each
    element's value among them. Equal elements are neighbours once sorted, and stay in order."""
    (count,) = shape_of(x)
    ordered, origin = _sort(node, [x, _positions(node, count)])
    places = _positions(node, count)
    before = node.op("max", node.op("sub", places, 1), _zeros(node, places))
    changed = node.op("not", _same(node, ordered, _take(node, ordered, before)))
    starts = node.op("or", changed, node.compare("eq", places, _zeros(node, places)))
    begins = _found(node, starts)
    group = node.op("cumulative", node.convert(starts, "i64"), axis=0, kind="add")
    group = node.op("sub", group, 1)
    _, inverse = _sort(node, [origin, group])
    after = node.op("concatenate", begins, node.reshape(node.size(count), (1,)), axis=0)
    distinct = shape_of(begins)[0]
    ends = node.sliced(after, 0, 1, distinct + 1)
    return _take(node, origin, begins), inverse, node.op("sub", ends, begins)


def _unique_slices(node: Node, x: Value, axis: int) -> tuple[Value, Value, Value]:
    """As `_unique_numbers`, of the slices along an axis: each is compared with each."""
    rank, count = type_of(x).rank, shape_of(x)[axis]
    moved = node.transpose(x, [axis, *(each for each in range(rank) if each != axis)])
    width = dims.product(shape_of(moved)[1:])
    rows = node.reshape(moved, (count, width))
    less, same = _compare_rows(node, rows)
    square = (count, count)
    mine, other = (node.op("iota", dtype=_I64, shape=square, axis=axis) for axis in (0, 1))
    twin = node.op("and", same, node.compare("lt", other, mine))
    is_first = node.op("not", node.reduce(twin, [1], "or"))
    ahead = node.op("and", less, node.op("broadcast", is_first, shape=square, dimensions=(1,)))
    inverse = node.reduce(node.convert(ahead, "i64"), [1], "add")
    firsts = _found(node, is_first)
    counts = node.reduce(node.convert(same, "i64"), [1], "add")
    _, firsts = _sort(node, [_take(node, inverse, firsts), firsts])
    return firsts, inverse, _take(node, counts, firsts)


def _compare_rows(node: Node, rows: Value) -> tuple[Value, Value]:
    """i1[count, count]: is row j less than row i, in lexicographic order; are they the same."""
    count, width = shape_of(rows)
    shape = (count, count, width)
    mine = node.op("broadcast", rows, shape=shape, dimensions=(0, 2))
    other = node.op("broadcast", rows, shape=shape, dimensions=(1, 2))

    def first_column(a: Value, b: Value) -> tuple[Value, Value]:
        """Whether a < b in some column, and the first such column."""
        below = stands_before(node.builder, a, b)
        number = node.convert(below, "i32")
        column = node.op("arg_max", number, axis=2, dtype=_I64)
        return node.reduce(below, [2], "or"), column

    less, less_column = first_column(other, mine)
    greater, greater_column = first_column(mine, other)
    sooner = node.compare("lt", less_column, greater_column)
    is_less = node.op("and", less, node.op("or", sooner, node.op("not", greater)))
    return is_less, node.op("not", node.op("or", less, greater))


def _same(node: Node, a: Value, b: Value) -> Value:
    return node.op(
        "not", node.op("or", stands_before(node.builder, a, b), stands_before(node.builder, b, a))
    )


def _sort(node: Node, values: Sequence[Value]) -> tuple[Value, ...]:
    """Rank-1 values sorted together by the first of them, ascending and stable."""
    block = Block([ScalarType(type_of(value).dtype) for value in values for _ in range(2)])
    inner = Builder(block)
    inner.yield_(stands_before(inner, *block.arguments[:2]))
    return node.several("sort", *values, axis=0, regions=[Region([block])])


def _found(node: Node, flags: Value) -> Value:
    """The indices of the true elements of a rank-1 value."""
    places = node.nonzero(flags, _count_name(node))
    return node.reshape(places, shape_of(places)[1:])


def _positions(node: Node, count: Dim) -> Value:
    return node.op("iota", dtype=_I64, shape=(count,), axis=0)


def _zeros(node: Node, like: Value) -> Value:
    return node.fill(0, like=like)


def _take(node: Node, x: Value, indices: Value) -> Value:
    return node.op("take", x, indices, axis=0, mode="check")
