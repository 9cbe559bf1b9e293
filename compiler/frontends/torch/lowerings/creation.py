"""Tensors of constants, of counted numbers, and triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.frontends.triangles import rows_and_columns, triangle
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("aten.full.default", "aten.new_full.default", "aten.full_like.default")
def full(c: Context, *given: Any, **__: Any) -> Value:
    value = given[-1] if len(given) == 2 else given[2]
    return c.filled(value, c.dtype, c.shape)


@lowering("aten.fill.Scalar", "aten.fill.Tensor")
def fill(c: Context, x: Value, value: Scalar) -> Value:
    return c.filled(value, type_of(x).dtype, shape_of(x))


@lowering("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default",
          "aten.zero.default", "aten.empty.memory_format", "aten.empty_like.default",
          "aten.new_empty.default", "aten.empty_permuted.default", "aten.empty_strided.default",
          "aten.new_empty_strided.default")  # fmt: skip
def zeros(c: Context, *_: Any, **__: Any) -> Value:
    """What torch leaves empty is zero here."""
    return c.filled(0, c.dtype, c.shape)


@lowering("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(c: Context, *_: Any, **__: Any) -> Value:
    return c.filled(1, c.dtype, c.shape)


@lowering("aten.scalar_tensor.default")
def scalar_tensor(c: Context, value: Scalar, **__: Any) -> Value:
    return c.scalar(value, c.dtype)


@lowering("aten.arange.default")
def count_to(c: Context, end: Scalar, **__: Any) -> Value:
    return count(c, 0, end)


@lowering("aten.arange.start", "aten.arange.start_step")
def count(c: Context, start: Scalar, end: Scalar, step: Scalar = 1, **__: Any) -> Value:
    """start, start + step, ...: as many as the program notes."""
    wide = c.dtype if not c.dtype.is_float or c.dtype.bits >= 32 else dtype("f32")
    places = c.op("iota", dtype=wide if wide.is_integer else _I64, shape=c.shape, axis=0)
    result = c.convert(places, wide)
    if not isinstance(step, (int, float)) or step != 1:
        result = c.op("mul", result, c.filled(step, wide, c.shape))
    if not isinstance(start, (int, float)) or start != 0:
        result = c.op("add", result, c.filled(start, wide, c.shape))
    return result


@lowering("aten.linspace.default")
def linspace(c: Context, start: Scalar, end: Scalar, steps: Dim, **__: Any) -> Value:
    """From both ends to the middle, as torch rounds it."""
    wide = dtype("f64" if c.dtype.bits == 64 else "f32")
    shape = (steps,)
    first, last = (c.filled(each, wide, shape) for each in (start, end))
    if steps == 1:
        return first
    span = c.op("sub", last, first)
    step = c.op("div", span, c.filled(steps - 1, wide, shape))
    places = c.op("iota", dtype=_I64, shape=shape, axis=0)
    behind = c.op("sub", c.filled(steps - 1, _I64, shape), places)
    up = c.op("add", first, c.op("mul", step, c.convert(places, wide)))
    down = c.op("sub", last, c.op("mul", step, c.convert(behind, wide)))
    return c.op("select", c.compare("lt", places, behind), up, down)


@lowering("aten.eye.default", "aten.eye.m")
def eye(c: Context, *_: Any, **__: Any) -> Value:
    rows, columns = rows_and_columns(c, c.shape)
    return c.convert(c.compare("eq", rows, columns), c.dtype)


@lowering("aten.tril.default")
def lower_triangle(c: Context, x: Value, diagonal: int = 0) -> Value:
    return triangle(c, x, diagonal, "le")


@lowering("aten.triu.default")
def upper_triangle(c: Context, x: Value, diagonal: int = 0) -> Value:
    return triangle(c, x, diagonal, "ge")


_MOST_PLACES = 1 << 26  # of a matrix whose triangle is a constant


@lowering("aten.tril_indices.default")
def lower_indices(c: Context, rows: Dim, columns: Dim, offset: Dim = 0, **__: Any) -> Value:
    return _places(c, "tril_indices", rows, columns, offset)


@lowering("aten.triu_indices.default")
def upper_indices(c: Context, rows: Dim, columns: Dim, offset: Dim = 0, **__: Any) -> Value:
    return _places(c, "triu_indices", rows, columns, offset)


def _places(c: Context, name: str, *given: Dim) -> Value:
    """Rows and columns of a triangle, row by row."""
    numbers = [each for each in given if isinstance(each, int)]
    if len(numbers) < len(given):
        raise UnsupportedNode("its size is symbolic: give the triangle a fixed one")
    rows, columns, offset = numbers
    if rows * columns > _MOST_PLACES:
        raise UnsupportedNode(
            f"its triangle is of {rows} x {columns}, expected at most {_MOST_PLACES} places: make "
            "it of torch.arange"
        )
    places = getattr(np, name)(rows, offset, columns)
    return c.convert(c.builder.constant(np.stack(places).astype(np.int64)), c.dtype)
