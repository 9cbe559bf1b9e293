"""Tensors of constants, of counted numbers, and triangles; conversions of dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.program.dtypes import default_float, default_int, element_type
from ingot.compiler.frontends.program.tensor import (
    Size,
    Tensor,
    as_dim,
    current,
    given,
    public,
    value_of,
)
from ingot.compiler.frontends.triangles import rows_and_columns, triangle
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType
from ingot.hal.spec import dtype as dtype_named

__all__ = ["arange", "shape_dims"]

_I64 = dtype_named("i64")


def shape_dims(shape: Any) -> tuple[Dim, ...]:
    """A shape of the user's: a sequence of sizes, or one size."""
    if isinstance(shape, (list, tuple)):
        return tuple(as_dim(each) for each in shape)
    return (as_dim(shape),)


def _element(dtype: Any, default: DType) -> DType:
    return default if dtype is None else element_type(dtype)


@public
def asarray(obj: Any, /, *, dtype: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of a NumPy array, of numbers, nested lists or sizes: a constant of the program."""
    element = None if dtype is None else element_type(dtype)
    value = value_of(obj, element)
    return given(value if element is None else current().convert(value, element))


@public
def from_dlpack(x: Any, /) -> Tensor:
    """A constant of an array of the host's memory in any library that speaks DLPack."""
    return given(value_of(np.from_dlpack(x)))


@public
def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Tensor:
    """x in another dtype: floats to integers drop the fraction and saturate."""
    return given(current().convert(value_of(x), element_type(dtype)))


@public
def full(shape: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A tensor whose elements are all `fill_value`."""
    value = value_of(fill_value, None if dtype is None else element_type(dtype))
    if dtype is not None:
        value = current().convert(value, element_type(dtype))
    return given(current().broadcast_to(value, shape_dims(shape)))


@public
def zeros(shape: Any, *, dtype: Any = None) -> Tensor:
    """A tensor of zeros."""
    return given(current().full(0, _element(dtype, default_float()), shape_dims(shape)))


@public
def ones(shape: Any, *, dtype: Any = None) -> Tensor:
    """A tensor of ones."""
    return given(current().full(1, _element(dtype, default_float()), shape_dims(shape)))


@public
def empty(shape: Any, *, dtype: Any = None) -> Tensor:
    """A tensor of zeros: a program has no memory that nobody wrote."""
    return zeros(shape, dtype=dtype)


@public
def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """`full` of the shape and dtype of x."""
    value = value_of(x)
    element = _element(dtype, type_of(value).dtype)
    filling = current().convert(value_of(fill_value, element), element)
    return given(current().broadcast_to(filling, shape_of(value)))


@public
def zeros_like(x: Any, /, *, dtype: Any = None) -> Tensor:
    """`zeros` of the shape and dtype of x."""
    return full_like(x, 0, dtype=dtype)


@public
def ones_like(x: Any, /, *, dtype: Any = None) -> Tensor:
    """`ones` of the shape and dtype of x."""
    return full_like(x, 1, dtype=dtype)


@public
def empty_like(x: Any, /, *, dtype: Any = None) -> Tensor:
    """`zeros_like`."""
    return full_like(x, 0, dtype=dtype)


@public
def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """start, start + step, ... below stop: numbers, or sizes with a step that is a number."""
    if stop is None:
        start, stop = 0, start
    if isinstance(step, Size) or step == 0:
        raise UnsupportedNode(f"its step is {step}, expected a number other than 0")
    floats = any(isinstance(each, float) for each in (start, stop, step))
    element = _element(dtype, default_float() if floats else default_int())
    count: Dim
    if floats:
        if isinstance(start, Size) or isinstance(stop, Size):
            raise UnsupportedNode("it counts floats up to a dim: count integers and scale them")
        count = max(math.ceil((stop - start) / step), 0)
    else:
        length = as_dim(stop) - as_dim(start)
        if step < 0:
            length, magnitude = length * -1, -step
        else:
            magnitude = step
        count = dims.maximum(dims.ceildiv(length, magnitude), 0)
    return given(_counted(count, start, step, element))


def _counted(count: Dim, start: Any, step: Any, element: DType) -> Value:
    trace = current()
    wide = dtype_named("f32") if element.is_half else element
    if element.kind == "u":
        step %= 1 << element.bits
    places = trace.op("iota", dtype=_I64, shape=(count,), axis=0)
    result = trace.convert(places, wide)
    if step != 1:
        result = trace.op("mul", result, step)
    if start != 0:
        first = trace.convert(value_of(start, wide), wide)
        result = trace.op("add", result, trace.broadcast_to(first, (count,)))
    return trace.convert(result, element)


@public
def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, endpoint: bool = True
) -> Tensor:
    """`num` numbers in equal steps from `start` to `stop`, which is the last one if `endpoint`."""
    trace = current()
    element = _element(dtype, default_float())
    wide = dtype_named("f64")
    count = num - 1 if endpoint else num
    places = trace.constant([place / max(count, 1) for place in range(num)], wide)
    first, last = (trace.convert(value_of(each, wide), wide) for each in (start, stop))
    up, down = places, trace.op("sub", 1, places)
    ends = [trace.broadcast_to(each, (num,)) for each in (first, last)]
    found = trace.op("add", trace.op("mul", ends[0], down), trace.op("mul", ends[1], up))
    return given(trace.convert(found, element))


@public
def eye(n_rows: Any, n_cols: Any = None, /, *, k: int = 0, dtype: Any = None) -> Tensor:
    """Ones on a diagonal, `k` to the right of the main one, else zeros."""
    trace = current()
    shape = (as_dim(n_rows), as_dim(n_rows if n_cols is None else n_cols))
    rows, columns = rows_and_columns(trace, shape)
    shifted = trace.op("add", rows, k)
    return given(
        trace.convert(trace.compare("eq", shifted, columns), _element(dtype, default_float()))
    )


@public
def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """x with zeros above a diagonal, `k` to the right of the main one."""
    return given(triangle(current(), value_of(x), k, "le"))


@public
def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """x with zeros below a diagonal, `k` to the right of the main one."""
    return given(triangle(current(), value_of(x), k, "ge"))


@public
def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Tensors of rank 1 repeated along the axes of all others; "xy" swaps the first two axes."""
    values = [value_of(each) for each in arrays]
    if indexing not in ("xy", "ij") or any(type_of(each).rank != 1 for each in values):
        raise UnsupportedNode('it takes tensors of rank 1, and indexing "xy" or "ij"')
    order = list(range(len(values)))
    if indexing == "xy" and len(values) > 1:
        order[:2] = [1, 0]
    shape: list[Dim] = [1] * len(values)
    for axis, value in zip(order, values, strict=True):
        (shape[axis],) = shape_of(value)
    return [
        given(current().op("broadcast", value, shape=tuple(shape), dimensions=(axis,)))
        for axis, value in zip(order, values, strict=True)
    ]
