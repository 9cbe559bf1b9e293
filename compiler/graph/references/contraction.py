"""References of contractions: products summed in float64 or int64, rounded or wrapped once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ingot.compiler.graph.forms.winograd import BY_PLACES, WINDOW
from ingot.compiler.graph.ops.coded import code_planes
from ingot.compiler.graph.ops.contraction import parse_layout
from ingot.compiler.graph.references.numbers import Array, dtype_of, narrow, quiet, widen
from ingot.compiler.graph.references.reduction import spread_and_pad, windows_of
from ingot.hal.spec import DType
from ingot.hal.spec import dtype as dtype_named

__all__ = ["REFERENCES", "coded_minima", "coded_weight", "scaled_rows"]


def _factor(x: Array) -> Array:
    """x in the dtype that products are summed in: float64 also for i8, where sums are exact."""
    dtype = dtype_of(x)
    return widen(x).astype(np.float64) if dtype.is_integer and dtype.bits <= 8 else widen(x)


def _factors(a: Array, b: Array) -> tuple[Array, Array]:
    a, b = _factor(a), _factor(b)
    if a.dtype != b.dtype:
        a, b = (x.astype(np.int64) for x in (a, b))
    return a, b


def _sum_to(value: Array, dtype: DType) -> Array:
    if dtype.is_integer and value.dtype.kind == "f":
        value = value.astype(np.int64)
    return narrow(value, dtype)


@quiet
def _dot_general(
    a: Array,
    b: Array,
    *,
    lhs_batch: tuple[int, ...],
    rhs_batch: tuple[int, ...],
    lhs_contract: tuple[int, ...],
    rhs_contract: tuple[int, ...],
    dtype: DType,
    exact: bool = False,
    bf16_parts: int = 0,
) -> Array:
    a_free = [axis for axis in range(a.ndim) if axis not in (*lhs_batch, *lhs_contract)]
    b_free = [axis for axis in range(b.ndim) if axis not in (*rhs_batch, *rhs_contract)]
    batch = [a.shape[axis] for axis in lhs_batch]
    m, n = [a.shape[axis] for axis in a_free], [b.shape[axis] for axis in b_free]
    k = int(np.prod([a.shape[axis] for axis in lhs_contract], dtype=np.int64))
    left, right = _factors(
        a.transpose((*lhs_batch, *a_free, *lhs_contract)),
        b.transpose((*rhs_batch, *rhs_contract, *b_free)),
    )
    left = left.reshape((*batch, int(np.prod(m, dtype=np.int64)), k))
    right = right.reshape((*batch, k, int(np.prod(n, dtype=np.int64))))
    return _sum_to(np.matmul(left, right), dtype).reshape((*batch, *m, *n))


def _convolve(
    x: Array,
    w: Array,
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """[batch, spatial..., c] with [window..., c / groups, n] to [batch, spatial..., n], wide."""
    none, one = ((0, 0),), (1,)
    padded = spread_and_pad(x, none + padding + none, one + lhs_dilation + one, 0)
    window = (1, *w.shape[:-2], 1)
    view = windows_of(padded, window, one + strides + one, one + rhs_dilation + one)
    places, count = view.shape[:-1][: x.ndim], x.ndim - 2
    view = view.reshape((*places, *w.shape[:-2]))
    view = np.moveaxis(view, x.ndim - 1, -1)  # [batch, spatial..., window..., c]
    features, outputs = w.shape[-2], w.shape[-1] // groups
    parts = []
    for group in range(groups):
        part = view[..., group * features : (group + 1) * features]
        rows = part.reshape((*places[:-1], -1) if part.size else (*places[:-1], 0))
        flat = w[..., group * outputs : (group + 1) * outputs].reshape((-1, outputs))
        if not part.size:
            parts.append(np.zeros((*places[:-1], outputs), x.dtype))
        else:
            parts.append(np.matmul(rows, flat))
    assert count == len(window) - 2
    return np.concatenate(parts, -1)


@quiet
def _convolution(
    x: Array,
    w: Array,
    *,
    layout: str,
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    groups: int,
    dtype: DType,
    exact: bool = False,
    bf16_parts: int = 0,
) -> Array:
    axes = parse_layout(layout)
    x = x.transpose((axes.batch, *axes.spatial, axes.feature))
    w = w.transpose((*axes.weight_spatial, axes.weight_input, axes.weight_output))
    left, right = _factors(x, w)
    result = _convolve(left, right, strides, padding, lhs_dilation, rhs_dilation, groups)
    order = (axes.result_batch, *axes.result_spatial, axes.result_feature)
    return np.transpose(_sum_to(result, dtype), tuple(np.argsort(order)))


def _unpack(b: Array, k: int, n: int) -> Array:
    """[ceil(n/16), ceil(k/s), 16, s] panels back to [k, n]."""
    panels, lines, columns, depth = b.shape
    flat = np.transpose(b, (1, 3, 0, 2)).reshape((lines * depth, panels * columns))
    return np.asarray(flat[:k, :n])


@quiet
def _dot_packed(
    a: Array, b: Array, parts: Array | None = None, *, n: int, dtype: DType, bf16_parts: int = 0
) -> Array:
    left, right = _factors(a, _unpack(b, a.shape[-1], n))
    return _sum_to(np.matmul(left, right), dtype)


@quiet
def coded_weight(
    k: int, codes: Array, scales: Array, *others: Array,
    n: int, coding: DType, group: int, bits: int = 0, block: int = 0,
    table: tuple[int, ...] = (),
) -> Array:  # fmt: skip
    """The numbers [k, n] of a weight of `dot_coded`, in f64."""
    planes = code_planes(bits or coding.bits)
    panels, columns = codes.shape[0], codes.shape[2]
    low = planes[0] // planes[-1]  # words that share one of upper bits
    lines = codes.reshape((panels, -1, low + len(planes) - 1, columns, 4))
    numbers: Array = np.zeros((), np.uint8)
    at = 0
    for place, width in enumerate(planes):
        words = lines[:, :, -low:] if place == 0 else lines[:, :, :-low]
        fields = [(words >> up) & ((1 << width) - 1) for up in range(0, 8, width)]
        part = np.stack(fields, axis=3)
        numbers = numbers | (part.reshape((panels, -1, columns, 4)) << at)
        at += width
    if coding.kind == "i":
        numbers = numbers.astype(np.int16) - (1 << (at - 1))
    if table:
        numbers = np.array(table, np.int8)[numbers & 15]
    if coding.is_float:
        raw, numbers = numbers, numbers.view(coding.numpy).astype(np.float64)
        numbers = np.where(np.isnan(numbers), np.where(raw >> 7, -480.0, 480.0), numbers)
    numbers = _unpack(numbers, k, n)

    def per_step(x: Array, length: int) -> Array:
        small = _unpack(x[..., None], x.shape[1], n).astype(np.float64)
        return np.repeat(small, length, axis=0)[:k]

    factor = per_step(scales, group)
    if block:
        factors, others = others[0], others[1:]
        factor = factor * per_step(factors, block)
    return np.asarray((numbers - (per_step(others[0], group) if others else 0.0)) * factor)


@quiet
def _dot_coded(a: Array, *weight: Array, dtype: DType, **attributes: Any) -> Array:
    factor = coded_weight(a.shape[-1], *weight, **attributes)
    return narrow(np.matmul(a.astype(np.float64), factor), dtype)


@quiet
def scaled_rows(a: Array, scales: Array) -> Array:
    """The numbers [..., k] of codes with scales of groups, in f64."""
    group = a.shape[-1] // max(scales.shape[-1], 1)
    return a.astype(np.float64) * np.repeat(scales.astype(np.float64), group, axis=-1)


@quiet
def _dot_scaled(
    a: Array, codes: Array, scales: Array, a_scales: Array, a_sums: Array, *others: Array,
    dtype: DType, minima: tuple[int, ...] = (), **attributes: Any,
) -> Array:  # fmt: skip
    k, least = a.shape[-1], np.zeros(())
    if minima:
        others, last = others[:-2], others[-2:]
        least = coded_minima(k, a_scales.shape[-1], *last, minima=minima, n=attributes["n"])
    factor = coded_weight(k, codes, scales, *others, **attributes) - least
    return narrow(np.matmul(scaled_rows(a, a_scales), factor), dtype)


@quiet
def coded_minima(
    k: int, groups: int, codes: Array, scales: Array, *, minima: tuple[int, ...], n: int
) -> Array:
    """The minima of the weight [k, n] of a `dot_scaled`, in f64."""
    bits, group = minima
    coding = dtype_named(f"u{bits}")
    each = coded_weight(groups, codes, scales, n=n, coding=coding, group=group)
    return np.repeat(each, k // groups, axis=0)


@quiet
def _conv_packed(
    x: Array,
    w: Array,
    parts: Array | None = None,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    n: int,
    dtype: DType,
    bf16_parts: int = 0,
) -> Array:
    features = x.shape[-1]
    k = int(np.prod(window, dtype=np.int64)) * features
    flat = _unpack(w, k, n).reshape((*window, features, n))
    left, right = _factors(x, flat)
    ones = (1,) * len(window)
    return _sum_to(_convolve(left, right, strides, padding, ones, rhs_dilation, 1), dtype)


def _conv_planar(x: Array, w: Array, *, window: tuple[int, ...], n: int, **moves: Any) -> Array:
    last = np.moveaxis(x, 1, -1)
    if w.ndim < x.ndim:
        return np.moveaxis(_depthwise(last, w, **moves), -1, 1)
    return np.moveaxis(_conv_packed(last, w, window=window, n=n, **moves), -1, 1)


@quiet
def _conv_winograd(x: Array, u: Array, *, padding: tuple[tuple[int, int], ...], n: int) -> Array:
    """Tiles of 6x6 or 4x4 inputs, transformed, multiplied per place, transformed back, in f64."""
    if x.ndim == 5:  # frames under a window, side by side as features
        front, taps = padding[0], u.shape[2] // x.shape[-1]
        frames = sliding_window_view(np.pad(x, ((0, 0), front, *[(0, 0)] * 3)), taps, axis=1)
        images = np.moveaxis(frames, -1, -2).reshape(
            (math.prod(frames.shape[:2]), *x.shape[2:4], u.shape[2])
        )
        result = _conv_winograd(images, u, padding=padding[1:], n=n)
        return result.reshape((*frames.shape[:2], *result.shape[1:]))
    form = BY_PLACES[u.shape[0]]
    size, step = form.input, form.output
    wide = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    height, width = wide.shape[1] - WINDOW + 1, wide.shape[2] - WINDOW + 1
    tall, across = -(-height // step), -(-width // step)
    more = [(0, tall * step - height), (0, across * step - width)]
    wide = np.pad(wide, ((0, 0), *more, (0, 0)))
    windows = sliding_window_view(wide, (size, size), axis=(1, 2))
    tiles = windows[:, ::step, ::step]  # [batch, tall, across, features, size, size]
    ahead = form.input_matrix @ tiles @ form.input_matrix.T
    weight = np.transpose(u.astype(np.float64), (0, 2, 1, 3)).reshape(size, size, x.shape[-1], -1)
    products = np.einsum("btacij,ijcn->btanij", ahead, weight[..., :n])
    back = form.output_matrix @ products @ form.output_matrix.T
    image = np.transpose(back, (0, 1, 4, 2, 5, 3)).reshape(
        (x.shape[0], tall * step, across * step, n)
    )
    return narrow(image[:, :height, :width], dtype_of(x))


@quiet
def _depthwise(
    x: Array,
    w: Array,
    *,
    strides: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dtype: DType,
) -> Array:
    left, right = _factors(x, w)
    if w.ndim == x.ndim:
        groups = x.shape[-1] // w.shape[-2]
        ones = (1,) * len(strides)
        sums = _convolve(left, right, strides, padding, ones, rhs_dilation, groups)
        return _sum_to(sums, dtype)
    none, one = ((0, 0),), (1,)
    ones = (1,) * x.ndim
    padded = spread_and_pad(left, none + padding + none, ones, 0)
    window = one + w.shape[:-1] + one
    view = windows_of(padded, window, one + strides + one, one + rhs_dilation + one)
    count = int(np.prod(w.shape[:-1], dtype=np.int64))
    view = view.reshape((*view.shape[: x.ndim], count))
    taps = np.moveaxis(right.reshape((count, right.shape[-1])), 0, -1)
    return _sum_to((view * taps).sum(-1), dtype)


@quiet
def _attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: float, empty: bool = False
) -> Array:
    for axis, (size, count) in enumerate(zip(q.shape[:-2], k.shape[:-2], strict=True)):
        if size != count:
            k, v = (np.repeat(each, size // count, axis) for each in (k, v))
    scores = np.matmul(widen(q), np.swapaxes(widen(k), -1, -2)) * scale
    if mask is not None:
        scores = scores + widen(mask)
    greatest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - greatest)
    weights = weights / weights.sum(-1, keepdims=True)
    if empty:
        weights = np.where(greatest == -np.inf, np.zeros_like(weights), weights)
    return narrow(np.matmul(weights, widen(v)), dtype_of(q))


@quiet
def _attention_paged(
    q: Array, k: Array, v: Array, table: Array, ends: Array, sinks: Array | None = None,
    *, scale: float, window: int, cap: float, ring: bool = False,
) -> Array:  # fmt: skip
    count, heads, length, _ = v.shape
    table = np.clip(table, 0, count - 1)
    k, v = (np.moveaxis(widen(each)[table], 1, 2) for each in (k, v))  # [b, h, t, p, d]
    k, v = (each.reshape((len(table), heads, -1, each.shape[-1])) for each in (k, v))
    scores = np.matmul(widen(q), np.swapaxes(k, -1, -2)) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    places = np.arange(table.shape[1] * length)
    ends = np.clip(ends, 0, 2**31 - 1 if ring else len(places))[:, None, :, None]
    if ring:  # a row holds the newest key in front of the end that belongs there
        places = ends - 1 - (ends - 1 - places) % len(places)
    seen = (places >= 0) & (places < ends)
    if window:
        seen &= places >= ends - window
    scores = np.where(seen, scores, -np.inf)
    sink = np.array(-np.inf) if sinks is None else widen(sinks)[..., None]
    greatest = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), sink)
    greatest = np.where(greatest == -np.inf, 0, greatest)
    weights = np.exp(scores - greatest)
    sums = weights.sum(-1, keepdims=True) + np.exp(sink - greatest)
    return narrow(np.matmul(weights / np.where(sums == 0, 1, sums), v), dtype_of(q))


REFERENCES: dict[str, Callable[..., Any]] = {
    "dot_general": _dot_general,
    "convolution": _convolution,
    "dot_packed": _dot_packed,
    "dot_coded": _dot_coded,
    "dot_scaled": _dot_scaled,
    "conv_packed": _conv_packed,
    "conv_planar": _conv_planar,
    "conv_winograd": _conv_winograd,
    "depthwise": _depthwise,
    "attention": _attention,
    "attention_paged": _attention_paged,
}
