"""Normalisations and softmax, which compute in f32 and round once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import (
    by_statistics,
    inverse_deviation,
    log_sum_exp,
    narrow,
    normalized,
    scale_and_shift,
    softmax,
    vector_norm,
    widen,
)
from ingot.compiler.frontends.torch.lowering import TRAINING, Context, lowering
from ingot.compiler.graph.rewriter import defined_by
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__: list[str] = []


@lowering("aten.softmax.int", "aten.special_softmax.int")
def softmax_of(c: Context, x: Value, dim: int, dtype: DType | None = None) -> Value:
    x = c.convert(x, c.dtype)
    return softmax(c, x, c.axes(dim, x), False) if type_of(x).rank else c.fill(1, like=x)


@lowering("aten._softmax.default")
def softmax_of_same_dtype(c: Context, x: Value, dim: int, _: Any = None, **__: Any) -> Value:
    return softmax_of(c, x, dim)


@lowering("aten._safe_softmax.default")
def safe_softmax(c: Context, x: Value, dim: int, dtype: DType | None = None) -> Value:
    """Rows of -inf, which masks leave, give 0: the guard that attention is recognised with."""
    found = softmax_of(c, x, dim)
    while (view := defined_by(x, "reshape")) is not None:
        x = view.operands[0]
    if defined_by(x, "dot_general") is not None:  # without a mask
        return found
    return c.op("select", c.op("is_nan", found), 0, found)


@lowering("aten.log_softmax.int", "aten.special_log_softmax.int")
def log_softmax_of(c: Context, x: Value, dim: int, dtype: DType | None = None) -> Value:
    x = c.convert(x, c.dtype)
    return softmax(c, x, c.axes(dim, x), True) if type_of(x).rank else c.fill(0, like=x)


@lowering("aten._log_softmax.default")
def log_softmax_of_same_dtype(c: Context, x: Value, dim: int, _: Any = None) -> Value:
    return log_softmax_of(c, x, dim)


@lowering("aten.logsumexp.default")
def log_of_exponentials(c: Context, x: Value, dim: Any, keepdim: bool = False) -> Value:
    wide = widen(c, c.convert(x, c.dtype))
    return log_sum_exp(c, wide, c.axes(dim, x), keepdim)


@lowering("aten.layer_norm.default")
def layer_norm(
    c: Context, x: Value, shape: Sequence[Dim], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, _: Any = None,
) -> Value:  # fmt: skip
    return _layer_norm(c, x, shape, weight, bias, eps)[0]


@lowering("aten.native_layer_norm.default")
def native_layer_norm(
    c: Context, x: Value, shape: Sequence[Dim], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    """Also the mean and the inverse deviation."""
    result, *statistics = _layer_norm(c, x, shape, weight, bias, eps)
    axes = range(type_of(x).rank - len(shape), type_of(x).rank)
    return [result, *(c.keep_axes(each, shape_of(x), axes) for each in statistics)]


def _layer_norm(
    c: Context, x: Value, shape: Sequence[Dim], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    wide = widen(c, x)
    rank = type_of(x).rank
    axes = list(range(rank - len(shape), rank))
    normal, mean, inverse = normalized(c, wide, axes, eps)
    result = scale_and_shift(c, normal, weight, bias, shape_of(x)[axes[0] :])
    return [narrow(c, result, x), mean, inverse]


@lowering("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(
    c: Context, x: Value, shape: Sequence[Dim], weight: Value | None = None,
    eps: float | None = None,
) -> list[Value]:  # fmt: skip
    """Also the inverse deviation, where the op gives it."""
    wide = widen(c, x)
    rank = type_of(x).rank
    axes = list(range(rank - len(shape), rank))
    inverse = inverse_deviation(c, wide, axes, _epsilon(x) if eps is None else eps)
    normal = c.op("mul", wide, c.broadcast_back(inverse, shape_of(x), axes))
    result = scale_and_shift(c, normal, weight, None, shape_of(x)[axes[0] :])
    return [narrow(c, result, x), c.keep_axes(inverse, shape_of(x), axes)]


def _epsilon(x: Value) -> float:
    """Of the dtype in which torch computes: f32 for halves."""
    return 2.0**-52 if type_of(x).dtype.bits == 64 else 2.0**-23


@lowering("aten.group_norm.default")
def group_norm(
    c: Context, x: Value, groups: int, weight: Value | None = None, bias: Value | None = None,
    eps: float = 1e-5, _: Any = None,
) -> Value:  # fmt: skip
    return _grouped(c, x, groups, weight, bias, eps)[0]


@lowering("aten.native_group_norm.default")
def native_group_norm(
    c: Context, x: Value, weight: Value | None, bias: Value | None, _: Dim, __: Dim, ___: Dim,
    groups: int, eps: float,
) -> list[Value]:  # fmt: skip
    return _grouped(c, x, groups, weight, bias, eps)


def _grouped(
    c: Context, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    wide = widen(c, x)
    batch, channels, *spatial = shape_of(x)
    split = c.reshape(wide, (batch, groups, dims.floordiv(channels, groups), *spatial))
    axes = list(range(2, 3 + len(spatial)))
    normal, mean, inverse = normalized(c, split, axes, eps)
    normal = c.reshape(normal, shape_of(x))
    column = (1, channels, *[1] * len(spatial))
    result = scale_and_shift(c, normal, weight, bias, column)
    return [narrow(c, result, x), narrow(c, mean, x), narrow(c, inverse, x)]


@lowering("aten.instance_norm.default")
def instance_norm(
    c: Context, x: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, use_input_stats: bool, momentum: float, eps: float, _: bool,
) -> Value:  # fmt: skip
    if not use_input_stats:
        return _by_statistics(c, x, weight, bias, running_mean, running_var, eps)
    channels = shape_of(x)[1]
    if not isinstance(channels, int):
        raise UnsupportedNode("the count of its channels is symbolic, which is not supported")
    return _grouped(c, x, channels, weight, bias, eps)[0]


@lowering("aten.batch_norm.default")
def batch_norm(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, training: bool, momentum: float, eps: float, _: bool,
) -> Value:  # fmt: skip
    if type_of(x).rank < 2:  # of which torch takes none but those without elements
        return x
    if not training:
        return _by_statistics(c, x, weight, bias, mean, variance, eps)
    if mean is not None:
        raise UnsupportedNode(TRAINING)
    return batch_norm_by_batch(c, x, weight, bias, training, momentum, eps)[0]


@lowering("aten._native_batch_norm_legit_no_training.default")
def native_batch_norm(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value,
    momentum: float, eps: float,
) -> list[Value]:  # fmt: skip
    result = _by_statistics(c, x, weight, bias, mean, variance, eps)
    return [result, c.full(0, "f32", (0,)), c.full(0, "f32", (0,))]


@lowering("aten._native_batch_norm_legit.no_stats")
def batch_norm_by_batch(
    c: Context, x: Value, weight: Value | None, bias: Value | None, training: bool,
    momentum: float, eps: float,
) -> list[Value]:  # fmt: skip
    """By the statistics of the batch: instance_norm, weights that are standardised, and what keeps
    no running ones."""
    wide = widen(c, x)
    axes = [axis for axis in range(type_of(x).rank) if axis != 1]
    normal, mean, inverse = normalized(c, wide, axes, eps)
    column = (1, shape_of(x)[1], *[1] * (type_of(x).rank - 2))
    return [narrow(c, scale_and_shift(c, normal, weight, bias, column), x), mean, inverse]


@lowering("aten._native_batch_norm_legit.default", "aten.native_batch_norm.default")
def native_batch_norm_in_training(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, training: bool, momentum: float, eps: float,
) -> list[Value]:  # fmt: skip
    result = batch_norm(c, x, weight, bias, mean, variance, training, momentum, eps, False)
    return [result, c.full(0, "f32", (0,)), c.full(0, "f32", (0,))]


def _by_statistics(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, eps: float,
) -> Value:  # fmt: skip
    if mean is None or variance is None:
        raise UnsupportedNode("it has no running statistics: build it with track_running_stats")
    return narrow(c, by_statistics(c, widen(c, x), weight, bias, mean, variance, eps), x)


@lowering("aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim", "aten.norm.Scalar",
          "aten.norm.ScalarOpt_dim_dtype")  # fmt: skip
def norm_of_vectors(
    c: Context, x: Value, ord: float | None = 2, dim: Any = None, keepdim: bool = False, **__: Any
) -> Value:
    wide, power = widen(c, c.convert(x, c.dtype)), 2 if ord is None else ord
    return vector_norm(c, wide, c.axes(dim, x), power, keepdim)


@lowering("aten._weight_norm.default")
def weight_norm(c: Context, x: Value, length: Value, dim: int = 0) -> Value:
    """x with vectors of these lengths: those of all axes but `dim`, or of all axes for -1."""
    axes = [axis for axis in range(type_of(x).rank) if dim == -1 or axis != c.axis(dim, x)]
    wide = widen(c, x)
    found = c.op("sqrt", c.reduce(c.op("mul", wide, wide), axes, "add", True))
    by = c.op("div", c.reshape(widen(c, length), shape_of(found)), found)
    return narrow(c, c.op("mul", wide, c.broadcast_to(by, shape_of(x))), x)
