"""Reductions over axes, arg max and arg min, cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends.binary_functions import log_of_sum
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import center, mean, narrow, widen
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import DType, dtype

__all__: list[str] = []

_I64 = dtype("i64")


def _reduced(c: Context, x: Value, dim: Any, keepdim: bool, kind: str) -> Value:
    return c.reduce(x, c.axes(dim, x), kind, keepdim)


@lowering("aten.sum.default", "aten.sum.dim_IntList", "aten.nansum.default")
def total(c: Context, x: Value, dim: Any = None, keepdim: bool = False, **__: Any) -> Value:
    wide = widen(c, c.convert(x, c.dtype))
    return c.convert(_reduced(c, wide, dim, keepdim, "add"), c.dtype)


@lowering("aten.prod.default", "aten.prod.dim_int")
def product(c: Context, x: Value, dim: Any = None, keepdim: bool = False, **__: Any) -> Value:
    wide = widen(c, c.convert(x, c.dtype))
    return c.convert(_reduced(c, wide, dim, keepdim, "mul"), c.dtype)


@lowering("aten.mean.default", "aten.mean.dim")
def mean_of(c: Context, x: Value, dim: Any = None, keepdim: bool = False, **__: Any) -> Value:
    wide, axes = widen(c, c.convert(x, c.dtype)), c.axes(dim, x)
    result = mean(c, wide, axes)
    result = c.keep_axes(result, shape_of(x), axes) if keepdim else result
    return c.convert(result, c.dtype)


def _extreme(kind: str) -> Callable[..., Value]:
    def lower(c: Context, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        logical = {"max": "or", "min": "and"}[kind]
        return _reduced(c, x, dim, keepdim, logical if type_of(x).dtype.is_boolean else kind)

    return lower


lowering("aten.amax.default", "aten.max.default")(_extreme("max"))
lowering("aten.amin.default", "aten.min.default")(_extreme("min"))


def _with_place(kind: str) -> Callable[..., list[Value]]:
    def lower(c: Context, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
        value = _extreme(kind)(c, x, dim, keepdim)
        return [value, _place(c, x, dim, keepdim, f"arg_{kind}")]

    return lower


lowering("aten.max.dim")(_with_place("max"))
lowering("aten.min.dim")(_with_place("min"))


def _place(c: Context, x: Value, dim: int | None, keepdim: bool, name: str) -> Value:
    if type_of(x).dtype.is_boolean:
        x = c.convert(x, "i32")
    shape, rank = shape_of(x), type_of(x).rank
    if not rank:
        return c.full(0, _I64, ())
    if dim is None:
        flat = c.reshape(x, (dims.product(shape),))
        place = c.op(name, flat, axis=0, dtype=_I64)
        return c.reshape(place, (1,) * rank) if keepdim else place
    axis = c.axis(dim, x)
    place = c.op(name, x, axis=axis, dtype=_I64)
    return c.keep_axes(place, shape, [axis]) if keepdim else place


@lowering("aten.argmax.default")
def arg_max(c: Context, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _place(c, x, dim, keepdim, "arg_max")


@lowering("aten.argmin.default")
def arg_min(c: Context, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _place(c, x, dim, keepdim, "arg_min")


@lowering("aten.any.default", "aten.any.dim", "aten.any.dims", "aten._is_any_true.default")
def any_of(c: Context, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _reduced(c, c.convert(x, "i1"), dim, keepdim, "or")


@lowering("aten.all.default", "aten.all.dim", "aten.all.dims", "aten._is_all_true.default")
def all_of(c: Context, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _reduced(c, c.convert(x, "i1"), dim, keepdim, "and")


def _variance(
    c: Context, x: Value, dim: Any, correction: Any, keepdim: bool
) -> tuple[Value, Value]:
    """The variance, and the mean."""
    wide, axes = widen(c, x), c.axes(dim, x)
    centered, middle = center(c, wide, axes)
    squares = c.reduce(c.op("mul", centered, centered), axes, "add")
    count = dims.product(shape_of(x)[axis] for axis in axes)
    element = type_of(wide).dtype
    if isinstance(correction, int):
        divisor = c.size(dims.maximum(count - correction, 0), element)
    elif isinstance(correction, float):
        left = c.op("sub", c.size(count, element), c.scalar(correction, element))
        divisor = c.op("max", left, 0)
    else:
        raise UnsupportedNode("its correction depends on data, which is not supported")
    result = c.op("div", squares, c.broadcast_to(divisor, shape_of(squares)))
    if keepdim:
        result, middle = (c.keep_axes(each, shape_of(x), axes) for each in (result, middle))
    return result, middle


@lowering("aten.var.correction", "aten.var.dim")
def variance(
    c: Context, x: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: Any = 1,
) -> Value:  # fmt: skip
    return narrow(c, _variance(c, x, dim, _correction(unbiased, correction), keepdim)[0], x)


@lowering("aten.var.default")
def variance_of_all(c: Context, x: Value, unbiased: bool = True) -> Value:
    return narrow(c, _variance(c, x, None, int(unbiased), False)[0], x)


@lowering("aten.std.correction", "aten.std.dim")
def deviation(
    c: Context, x: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: Any = 1,
) -> Value:  # fmt: skip
    found = _variance(c, x, dim, _correction(unbiased, correction), keepdim)[0]
    return narrow(c, c.op("sqrt", found), x)


@lowering("aten.std.default")
def deviation_of_all(c: Context, x: Value, unbiased: bool = True) -> Value:
    return narrow(c, c.op("sqrt", _variance(c, x, None, int(unbiased), False)[0]), x)


@lowering("aten.var_mean.correction")
def variance_and_mean(
    c: Context, x: Value, dim: Any = None, *, correction: Any = 1, keepdim: bool = False
) -> list[Value]:
    return [narrow(c, each, x) for each in _variance(c, x, dim, _correction(True, correction),
                                                    keepdim)]  # fmt: skip


def _correction(unbiased: bool, correction: Any) -> Any:
    if not unbiased:
        return 0
    if correction is None:
        return 1
    whole = isinstance(correction, float) and correction.is_integer()
    return int(correction) if whole else correction


@lowering("aten.cumsum.default")
def cumulative_sum(c: Context, x: Value, dim: int, *, dtype: DType | None = None) -> Value:
    return _cumulative(c, x, dim, "add")


@lowering("aten.cumprod.default")
def cumulative_product(c: Context, x: Value, dim: int, *, dtype: DType | None = None) -> Value:
    return _cumulative(c, x, dim, "mul")


@lowering("aten.logcumsumexp.default")
def log_of_cumulative_sum(c: Context, x: Value, dim: int) -> Value:
    """log(sum exp) of each element and all before it: after step k each has those of 2^k."""
    if not type_of(x).rank:
        return x
    axis, found = c.axis(dim, x), widen(c, x)
    size, shift = shape_of(x)[axis], 1
    if not isinstance(size, int):
        raise UnsupportedNode("the length of its lines is symbolic, which is not supported: fix it")
    while shift < size:
        none = c.full(-math.inf, type_of(found).dtype, ())
        pads = [[sign * shift * (at == axis) for at in range(type_of(x).rank)] for sign in (1, -1)]
        before = c.op("pad", found, none, low=tuple(pads[0]), high=tuple(pads[1]))
        found = log_of_sum(c, found, before)
        shift *= 2
    return narrow(c, found, x)


def _cumulative(c: Context, x: Value, dim: int, kind: str) -> Value:
    x = c.convert(x, c.dtype)
    if not type_of(x).rank:
        return x
    return c.op("cumulative", x, axis=c.axis(dim, x), kind=kind)


@lowering("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(c: Context, x: Value, dim: Any = None) -> Value:
    return _reduced(c, c.convert(c.convert(x, "i1"), "i64"), dim, False, "add")


@lowering("aten.diff.default")
def difference(
    c: Context, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None,
    append: Value | None = None,
) -> Value:  # fmt: skip
    if n == 0:
        return x
    axis = c.axis(dim, x)
    parts = [each for each in (prepend, x, append) if each is not None]
    x = c.op("concatenate", *parts, axis=axis) if len(parts) > 1 else x
    for _ in range(n):
        size = shape_of(x)[axis]
        pair = c.sliced(x, axis, 1, size), c.sliced(x, axis, 0, size - 1)
        x = c.op("xor" if type_of(x).dtype.is_boolean else "sub", *pair)
    return x


@lowering("aten.mse_loss.default")
def squared_error(c: Context, a: Value, b: Value, reduction: int = 1) -> Value:
    wide = c.op("sub", *c.broadcast(widen(c, a), widen(c, b)))
    squares = c.op("mul", wide, wide)
    if reduction == 0:
        return narrow(c, squares, a)
    axes = list(range(type_of(squares).rank))
    result = mean(c, squares, axes) if reduction == 1 else c.reduce(squares, axes, "add")
    return narrow(c, result, a)


@lowering("aten.cosine_similarity.default")
def cosine_similarity(c: Context, a: Value, b: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    left, right = c.broadcast(widen(c, a), widen(c, b))
    axes = c.axes(dim, left)

    def length(x: Value) -> Value:
        found = c.op("sqrt", c.reduce(c.op("mul", x, x), axes, "add"))
        return c.op("max", found, eps)

    dot = c.reduce(c.op("mul", left, right), axes, "add")
    return narrow(c, c.op("div", dot, c.op("mul", length(left), length(right))), a)
