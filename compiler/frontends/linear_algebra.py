"""Determinants, Cholesky factors and triangular systems, as loops over rows and columns.

Matrices stand in the last two axes; all others are batches, which each step of a loop works
on at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["cholesky", "determinant", "inverse", "solve_triangular"]

_I64 = dtype("i64")


def determinant(builder: Builder, x: Value) -> Value:
    """[..., n, n] -> [...], by elimination with the greatest pivot of each column."""
    batched, size = _batched(builder, x)
    type = tensor_type(batched)
    rows = builder.value("iota", dtype=_I64, shape=type.shape[:2], axis=1)

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        matrix, product = before
        here = inner.broadcast_to(index, type.shape[:2])
        column = _take(inner, matrix, index, 2)
        below = inner.value("compare", rows, here, direction="ge")
        magnitude = inner.value("abs", column)
        magnitude = inner.value(
            "select", below, magnitude, inner.full(-1, type.dtype, type.shape[:2])
        )
        best = inner.value("arg_max", magnitude, axis=1, dtype=_I64)
        matrix = _swap_rows(inner, matrix, rows, index, best)
        row = _take(inner, matrix, index, 1)
        pivot = _take(inner, row, index, 1)
        stays = inner.value(
            "compare", best, inner.broadcast_to(index, type.shape[:1]), direction="eq"
        )
        signed = inner.value("select", stays, pivot, inner.value("neg", pivot))
        after = inner.value("compare", rows, here, direction="gt")
        zero = inner.full(0, type.dtype, type.shape[:2])
        divisor = inner.value("broadcast", pivot, shape=type.shape[:2], dimensions=(0,))
        singular = inner.value("compare", divisor, zero, direction="eq")
        factors = inner.value("div", _take(inner, matrix, index, 2), divisor)
        used = inner.value("and", after, inner.value("not", singular))
        factors = inner.value("select", used, factors, zero)
        outer = _outer(inner, factors, row)
        return [inner.value("sub", matrix, outer), inner.value("mul", product, signed)]

    start = builder.full(1, type.dtype, type.shape[:1])
    _, result = counted_loop(builder, builder.number(size, "i64"), [batched, start], step)
    return builder.value("reshape", result, shape=tensor_type(x).shape[:-2])


def inverse(builder: Builder, x: Value) -> Value:
    """[..., n, n] -> [..., n, n], by elimination with the greatest pivot of each column; inf or
    NaN where there is none."""
    batched, size = _batched(builder, x)
    type = tensor_type(batched)
    rows = builder.value("iota", dtype=_I64, shape=type.shape[:2], axis=1)
    index_of = [builder.value("iota", dtype=_I64, shape=type.shape, axis=axis) for axis in (1, 2)]
    unit = builder.value("compare", *index_of, direction="eq")
    both = [batched, builder.value("convert", unit, dtype=type.dtype)]

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        here = inner.broadcast_to(index, type.shape[:2])
        below = inner.value("compare", rows, here, direction="ge")
        magnitude = inner.value("abs", _take(inner, before[0], index, 2))
        none = inner.full(-1, type.dtype, type.shape[:2])
        magnitude = inner.value("select", below, magnitude, none)
        best = inner.value("arg_max", magnitude, axis=1, dtype=_I64)
        sides = [_swap_rows(inner, each, rows, index, best) for each in before]
        column = _take(inner, sides[0], index, 2)
        pivot = _take(inner, column, index, 1)
        pivot = inner.value("broadcast", pivot, shape=type.shape[:2], dimensions=(0,))
        is_pivot = inner.value("compare", rows, here, direction="eq")
        # row i less column[i] / pivot times the pivot's row, which itself becomes row / pivot
        one = inner.full(1, type.dtype, type.shape[:2])
        less = inner.value("select", is_pivot, inner.value("sub", column, one), column)
        factors = inner.value("div", less, pivot)
        return [
            inner.value("sub", each, _outer(inner, factors, _take(inner, each, index, 1)))
            for each in sides
        ]

    _, result = counted_loop(builder, builder.number(size, "i64"), both, step)
    return builder.value("reshape", result, shape=tensor_type(x).shape)


def _swap_rows(builder: Builder, matrix: Value, rows: Value, index: Value, best: Value) -> Value:
    """Row `index` and row `best[b]` of each matrix change places."""
    shape = tensor_type(rows).shape
    size = tensor_type(matrix).shape[2]
    here = builder.broadcast_to(index, shape)
    there = builder.value("broadcast", best, shape=shape, dimensions=(0,))
    is_here = builder.value("compare", rows, here, direction="eq")
    is_there = builder.value("compare", rows, there, direction="eq")
    order = builder.value("select", is_there, here, rows)
    order = builder.value("select", is_here, there, order)
    return builder.value(
        "gather",
        matrix,
        order,
        offset_dims=(2,),
        collapsed_slice_dims=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
        start_index_map=(1,),
        index_vector_dim=2,
        slice_sizes=(1, 1, size),
    )


def cholesky(builder: Builder, x: Value, lower: bool = True) -> Value:
    """The triangular factor L with L L^T = x (or U with U^T U = x); only that half is read."""
    batched, size = _batched(builder, x)
    if not lower:
        batched = _transposed(builder, batched)
    type = tensor_type(batched)
    rows = builder.value("iota", dtype=_I64, shape=type.shape[:2], axis=1)
    columns = builder.value("iota", dtype=_I64, shape=type.shape, axis=2)

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        rest, factor = before
        column = _take(inner, rest, index, 2)
        pivot = inner.value("sqrt", _take(inner, column, index, 1))
        divisor = inner.value("broadcast", pivot, shape=type.shape[:2], dimensions=(0,))
        here = inner.broadcast_to(index, type.shape[:2])
        below = inner.value("compare", rows, here, direction="ge")
        zero = inner.full(0, type.dtype, type.shape[:2])
        column = inner.value("select", below, inner.value("div", column, divisor), zero)
        wide = inner.value("broadcast", column, shape=type.shape, dimensions=(0, 1))
        at = inner.value("compare", columns, inner.broadcast_to(index, type.shape), direction="eq")
        return [
            inner.value("sub", rest, _outer(inner, column, column)),
            inner.value("select", at, wide, factor),
        ]

    start = builder.full(0, type.dtype, type.shape)
    _, result = counted_loop(builder, builder.number(size, "i64"), [batched, start], step)
    if not lower:
        result = _transposed(builder, result)
    return builder.value("reshape", result, shape=tensor_type(x).shape)


def solve_triangular(
    builder: Builder,
    a: Value,
    b: Value,
    *,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    transposed: bool,
) -> Value:
    """x with op(a) x = b, or x op(a) = b; op transposes a or not. Only one half of a is read."""
    shape = tensor_type(b).shape
    matrix, size = _batched(builder, a)
    right, _ = _batched(builder, b, square=False)
    if transposed == left_side:
        matrix, lower = _transposed(builder, matrix), not lower
    if not left_side:
        right = _transposed(builder, right)
    if not lower:
        matrix = builder.value("reverse", matrix, axes=(1, 2))
        right = builder.value("reverse", right, axes=(1,))
    result = _substitute(builder, matrix, right, size, unit_diagonal)
    if not lower:
        result = builder.value("reverse", result, axes=(1,))
    if not left_side:
        result = _transposed(builder, result)
    return builder.value("reshape", result, shape=shape)


def _substitute(
    builder: Builder, matrix: Value, right: Value, size: Dim, unit_diagonal: bool
) -> Value:
    """Forward substitution: the lower half of [b, n, n] and [b, n, m] -> [b, n, m]."""
    type = tensor_type(right)
    rows = builder.value("iota", dtype=_I64, shape=type.shape, axis=1)

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        (rest,) = before
        column = _take(inner, matrix, index, 2)
        row = _take(inner, rest, index, 1)
        if not unit_diagonal:
            pivot = _take(inner, column, index, 1)
            divisor = inner.value("broadcast", pivot, shape=tensor_type(row).shape, dimensions=(0,))
            row = inner.value("div", row, divisor)
        here = inner.broadcast_to(index, type.shape)
        at = inner.value("compare", rows, here, direction="eq")
        below = inner.value("compare", rows, here, direction="gt")
        wide = inner.value("broadcast", row, shape=type.shape, dimensions=(0, 2))
        less = inner.value("sub", rest, _outer(inner, column, row))
        rest = inner.value("select", below, less, rest)
        return [inner.value("select", at, wide, rest)]

    (result,) = counted_loop(builder, builder.number(size, "i64"), [right], step)
    return result


def _batched(builder: Builder, x: Value, *, square: bool = True) -> tuple[Value, Dim]:
    """x as [b, n, m], and n. CompileError: its matrices are not square."""
    shape = tensor_type(x).shape
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        raise CompileError(f"expected square matrices [..., n, n], got {x.type}")
    flat = (dims.product(shape[:-2]), *shape[-2:])
    return builder.value("reshape", x, shape=flat), shape[-2]


def _take(builder: Builder, x: Value, index: Value, axis: int) -> Value:
    return builder.value("take", x, index, axis=axis, mode="clamp")


def _transposed(builder: Builder, x: Value) -> Value:
    return builder.value("transpose", x, permutation=(0, 2, 1))


def _outer(builder: Builder, column: Value, row: Value) -> Value:
    """[b, n] and [b, m] -> [b, n, m], each product."""
    shape = (*tensor_type(column).shape, tensor_type(row).shape[1])
    a = builder.value("broadcast", column, shape=shape, dimensions=(0, 1))
    return builder.value("mul", a, builder.value("broadcast", row, shape=shape, dimensions=(0, 2)))
