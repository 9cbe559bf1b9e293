"""Reductions, statistics, cumulative sums and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends import normalizing
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.program.creation import astype
from ingot.compiler.frontends.program.dtypes import default_int, element_type
from ingot.compiler.frontends.program.elementwise import floating
from ingot.compiler.frontends.program.manipulation import axes_of, concat
from ingot.compiler.frontends.program.tensor import Tensor, current, given, public, value_of
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype as dtype_named

__all__: list[str] = []


def _reduced(x: Value, axis: Any, kind: str, keepdims: bool) -> Tensor:
    return given(current().reduce(x, axes_of(axis, type_of(x).rank), kind, keepdims))


def _wide(x: Any, dtype: Any) -> Value:
    """x in the dtype of a sum: integers of less than 64 bits become those of 64."""
    value = value_of(x)
    own = type_of(value).dtype
    element = own
    if dtype is not None:
        element = element_type(dtype)
    elif not own.is_float:
        element = dtype_named("u64") if own.kind == "u" else default_int()
    return current().convert(value, element)


@public
def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over axes; of integers and booleans one of 64 bits."""
    return _reduced(_wide(x, dtype), axis, "add", keepdims)


@public
def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over axes; of integers and booleans one of 64 bits."""
    return _reduced(_wide(x, dtype), axis, "mul", keepdims)


def _extreme(x: Any, axis: Any, keepdims: bool, kind: str, logical: str) -> Tensor:
    value = value_of(x)
    return _reduced(value, axis, logical if type_of(value).dtype.is_boolean else kind, keepdims)


@public
def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The greatest element over axes; NaN if one is NaN, the least of its dtype of no elements."""
    return _extreme(x, axis, keepdims, "max", "or")


@public
def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The least element over axes; NaN if one is NaN, the greatest of its dtype of no elements."""
    return _extreme(x, axis, keepdims, "min", "and")


@public
def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true or not 0, over axes."""
    return _reduced(current().convert(value_of(x), "i1"), axis, "or", keepdims)


@public
def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true or not 0, over axes."""
    return _reduced(current().convert(value_of(x), "i1"), axis, "and", keepdims)


@public
def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are true or not 0, over axes."""
    return sum(astype(x, "bool"), axis=axis, keepdims=keepdims)


def _on_floats(
    x: Any, axis: Any, keepdims: bool, found: Callable[[Value, list[int]], Value]
) -> Tensor:
    """What `found` makes of x without these axes; floats of 16 bits are rounded at the end."""
    trace, value = current(), floating(x)
    axes = axes_of(axis, type_of(value).rank)
    result = found(normalizing.widen(trace, value), axes)
    if keepdims:
        result = trace.keep_axes(result, shape_of(value), axes)
    return given(normalizing.narrow(trace, result, value))


@public
def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean over axes; of integers as the default float."""
    return _on_floats(x, axis, keepdims, lambda value, axes: _mean(value, axes))


def _mean(x: Value, axes: list[int]) -> Value:
    return normalizing.mean(current(), x, axes) if axes else x


@public
def var(x: Any, /, *, axis: Any = None, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The variance over axes: the sum of squares is divided by the count less `correction`."""
    return _on_floats(x, axis, keepdims, lambda value, axes: _variance(value, axes, correction))


@public
def std(x: Any, /, *, axis: Any = None, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The square root of `var`."""
    return _on_floats(
        x,
        axis,
        keepdims,
        lambda value, axes: current().op("sqrt", _variance(value, axes, correction)),
    )


def _variance(x: Value, axes: list[int], correction: float) -> Value:
    trace, element = current(), type_of(x).dtype
    centered = normalizing.center(trace, x, axes)[0] if axes else trace.op("sub", x, x)
    squares = trace.reduce(trace.op("mul", centered, centered), axes, "add")
    count = dims.product(shape_of(x)[axis] for axis in axes)
    left = trace.op("sub", trace.size(count, element), trace.full(correction, element, ()))
    left = trace.op("max", left, 0)
    return trace.op("div", squares, trace.broadcast_to(left, shape_of(squares)))


def _cumulated(x: Value, axis: int | None, kind: str, include_initial: bool) -> Tensor:
    trace = current()
    if axis is None:
        if type_of(x).rank != 1:
            raise UnsupportedNode(f"x is {x.type}, so the axis must be given")
        axis = 0
    place = trace.normalize_axis(axis, type_of(x).rank)
    if include_initial:
        low = tuple(int(at == place) for at in range(type_of(x).rank))
        x = trace.padded(x, low, (0,) * len(low), int(kind == "mul"))
    return given(trace.op("cumulative", x, axis=place, kind=kind))


@public
def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Sums of each element and all before it; `include_initial` puts a 0 in front."""
    return _cumulated(_wide(x, dtype), axis, "add", include_initial)


@public
def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Products of each element and all before it; `include_initial` puts a 1 in front."""
    return _cumulated(_wide(x, dtype), axis, "mul", include_initial)


@public
def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Each element less the one before it, `n` times, of x between two others along the axis."""
    if n and (prepend is not None or append is not None):
        x = concat([each for each in (prepend, x, append) if each is not None], axis=axis)
    trace, value = current(), value_of(x)
    place = trace.normalize_axis(axis, type_of(value).rank)
    name = "xor" if type_of(value).dtype.is_boolean else "sub"
    for _ in range(n):
        size = shape_of(value)[place]
        if size == 0:
            break
        later = trace.sliced(value, place, 1, size)
        value = trace.op(name, later, trace.sliced(value, place, 0, size - 1))
    return given(value)


@public
def softmax(x: Any, /, *, axis: Any = -1) -> Tensor:
    """exp(x) / sum(exp(x)) over axes."""
    value = floating(x)
    axes = axes_of(axis, type_of(value).rank)
    return given(normalizing.softmax(current(), value, axes, logarithm=False))


@public
def log_softmax(x: Any, /, *, axis: Any = -1) -> Tensor:
    """The logarithm of `softmax`."""
    value = floating(x)
    axes = axes_of(axis, type_of(value).rank)
    return given(normalizing.softmax(current(), value, axes, logarithm=True))
