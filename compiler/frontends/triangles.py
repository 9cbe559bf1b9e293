"""Rows and columns of matrices as tensors, and the triangles that they tell."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, unsupported
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["rows_and_columns", "triangle"]


def rows_and_columns(c: Emitter, shape: Sequence[Dim]) -> tuple[Value, Value]:
    """i64 tensors of this shape: each element is its index along the last axis but one, and along
    the last."""
    rank = len(shape)
    unsupported(rank < 2, f"it works on the last two axes, but the rank is {rank}")
    rows, columns = (
        c.op("iota", dtype=dtype("i64"), shape=tuple(shape), axis=axis)
        for axis in (rank - 2, rank - 1)
    )
    return rows, columns


def triangle(c: Emitter, x: Value, diagonal: int, direction: str) -> Value:
    """x where the column stands in `direction` ("le", "ge") to the row plus `diagonal`, else 0."""
    rows, columns = rows_and_columns(c, shape_of(x))
    shifted = c.op("add", rows, diagonal)
    return c.op("select", c.compare(direction, columns, shifted), x, 0)
