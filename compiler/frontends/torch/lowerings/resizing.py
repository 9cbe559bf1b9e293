"""Images in another size: each axis is interpolated by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ingot.compiler.frontends.einsum import contract_letters
from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.interpolation import (
    cubic,
    length_of,
    positions,
    taken,
    triangle,
    value_of,
    weighted,
)
from ingot.compiler.frontends.lines import Line
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []

_CUBIC = -0.75  # the parameters of cubic convolution
_SMOOTH_CUBIC = -0.5
_GREATEST_RATIO = 10.0  # up to which an axis that shrinks is summed place by place


def _nearest(c: Context, x: Value, axis: int, size: Dim, scale: float | None, exact: bool) -> Value:
    own = length_of(c, shape_of(x)[axis], "f32")  # as torch computes
    ratio = _ratio(own, length_of(c, size, "f32"), scale, False)
    ratio = ratio if isinstance(ratio, Line) else np.float32(ratio)
    places = np.floor((positions(c, size, (size,), "f32") + (0.5 if exact else 0)) * ratio)
    return taken(c, x, axis, places)


def _ratio(own: Any, size: Any, scale: float | None, align: bool) -> Any:
    if align:  # one element is the first
        return (own - 1) / np.maximum(size - 1, 1) * np.minimum(size - 1, 1)
    return 1 / scale if scale else own / size


def _taps(
    c: Context, own: Dim, size: Dim, ratio: Any, align: bool, weight: Callable[[Any], Any],
    smooths: bool,
) -> list[tuple[Any, Any]]:  # fmt: skip
    """The places around each one, and their weights."""
    if smooths:
        assert isinstance(own, int)
        assert isinstance(size, int)
        return _smooth_taps(own, size, ratio, weight)
    middle = 0.0 if align else 0.5
    at = (positions(c, size, (size,)) + middle) * ratio - middle
    if weight is triangle:
        at = np.maximum(at, 0)
    first = np.floor(at)
    steps = (0, 1) if weight is triangle else (-1, 0, 1, 2)
    return [(first + step, weight(np.abs(at - first - step))) for step in steps]


def _smooth_taps(
    own: int, size: int, ratio: float, weight: Callable[[Any], Any]
) -> list[tuple[Any, Any]]:
    """The places around each one, which reach further where an axis shrinks, and their weights."""
    wide = max(ratio, 1.0)
    reach = wide * (1 if weight is triangle else 2)
    middles = (np.arange(size) + 0.5) * ratio - 0.5
    steps = np.arange(math.floor(2 * reach) + 1)[:, None]
    places = np.floor(middles - reach) + 1 + steps
    weights = weight(np.abs(places - middles) / wide)
    weights = np.where((places >= 0) & (places < own), weights, 0)
    return [*zip(places, weights / weights.sum(0), strict=True)]


def _smooth_weights(
    c: Context, own: Dim, size: Dim, ratio: Any, weight: Callable[[Any], Any]
) -> Any:
    """[own, size]: weights that reach further where an axis shrinks."""
    middles = (positions(c, size, (size,)) + 0.5) * ratio - 0.5
    weights = weight(np.abs(positions(c, own, (own, 1)) - middles) / np.maximum(ratio, 1.0))
    return weights / weights.sum(0)


def _smoothed(c: Context, x: Value, axis: int, weights: Any) -> Value:
    """The axis times a matrix."""
    letters = "abcdefg"[: type_of(x).rank]
    equation = f"{letters},{letters[axis]}z->{letters.replace(letters[axis], 'z')}"
    return contract_letters(c, equation, (x, value_of(c, weights, type_of(x).dtype)))


def _merged(c: Context, size: Dim, taps: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Taps whose places outside are those of the ends: of equal ones the first has all weight."""
    last = length_of(c, size) - 1
    places = [np.maximum(np.minimum(place, last), 0) for place, _ in taps]
    merged: list[tuple[Any, Any]] = []
    for at, place in enumerate(places):
        same = [1 - np.minimum(np.abs(place - other), 1) for other in places]
        total = sum(each * weight for each, (_, weight) in zip(same, taps, strict=True))
        for each in same[:at]:
            total = total * (1 - each)
        merged.append((place, total))
    return merged


def _codes(weights: Sequence[Any], greatest: Any) -> tuple[list[Any], Any]:
    """Weights as whole numbers of 15 bits, as torch has them for bytes, and how many bits of them
    are behind the point."""
    bits: Any = 0.0
    scale: Any = 1.0
    for power in range(1, 23):
        fits = np.minimum(np.maximum(32768 - np.floor(greatest * 2.0**power + 0.5), 0), 1)
        bits, scale = bits + fits, scale * (fits + 1)
    scaled = [each * scale for each in weights]
    return [
        np.floor(np.maximum(each, 0) + 0.5) - np.floor(np.maximum(each * -1, 0) + 0.5)
        for each in scaled
    ], bits


def _rounded(c: Context, total: Value, bits: Any) -> Value:
    """A sum of bytes by codes as a byte, in i32."""
    shift = c.broadcast_to(c.reshape(value_of(c, bits, "i32"), ()), shape_of(total))
    one = c.fill(1, like=total)
    half = c.op("shift_left", one, c.op("sub", shift, one))
    whole = c.op("shift_right_arithmetic", c.op("add", total, half), shift)
    return c.op("clamp", 0, whole, 255)


def _resized(
    c: Context, x: Value, count: int, align: bool, scales: Sequence[float | None],
    kernel: Callable[[Any], Any], smooths: bool,
) -> Value:  # fmt: skip
    element = type_of(x).dtype
    wide = widen(c, x) if element.is_float else c.convert(x, "i32")  # of integers only bytes
    first = type_of(x).rank - count
    for place in reversed(range(count)):
        axis = first + place
        own, size = shape_of(x)[axis], c.shape[axis]
        if own == size and scales[place] in (None, 1.0):
            continue
        ratio = _ratio(length_of(c, own), length_of(c, size), scales[place], align)
        bits: Any = None
        is_known = isinstance(own, int) and isinstance(size, int) and ratio <= _GREATEST_RATIO
        if smooths and not is_known:
            weights = _smooth_weights(c, own, size, ratio, kernel)
            if not element.is_float:
                (weights,), bits = _codes([weights], weights.max(0).max(0))
            wide = _smoothed(c, wide, axis, weights)
        else:
            taps = _taps(c, own, size, ratio, align, kernel, smooths)
            if not element.is_float:
                taps = taps if smooths else _merged(c, own, taps)
                factors = [factor for _, factor in taps]
                codes, bits = _codes(factors, reduce(np.maximum, factors).max(0))
                taps = [(at, code) for (at, _), code in zip(taps, codes, strict=True)]
            wide = weighted(c, wide, axis, taps)
        if not element.is_float:
            wide = _rounded(c, wide, bits)
    return narrow(c, wide, x)


def _scales(given: Sequence[Any], count: int) -> list[float | None]:
    """The factors at the end of the arguments: one for each axis, or a list."""
    found: list[Any] = []
    for each in given:
        found += each if isinstance(each, (list, tuple)) else [each]
    return [None if each is None else float(each) for each in [*found, *[None] * count][:count]]


def _register(name: str, count: int, kernel: Callable[[Any], Any], smooths: bool = False) -> None:
    def of_size(c: Context, x: Value, _: Any, align: bool = False, *scales: Any,
                **named: Any) -> Value:  # fmt: skip
        factors = _scales([*scales, *named.values()], count)
        return _resized(c, x, count, align, factors, kernel, smooths)

    lowering(f"aten.{name}.default", f"aten.{name}.vec")(of_size)


_register("upsample_linear1d", 1, triangle)
_register("upsample_bilinear2d", 2, triangle)
_register("upsample_trilinear3d", 3, triangle)
_register("upsample_bicubic2d", 2, cubic(_CUBIC))
_register("_upsample_bilinear2d_aa", 2, triangle, True)
_register("_upsample_bicubic2d_aa", 2, cubic(_SMOOTH_CUBIC), True)


def _register_nearest(count: int, exact: bool) -> None:
    def lower(c: Context, x: Value, _: Any, *scales: Any, **named: Any) -> Value:
        factors = _scales([*scales, *named.values()], count)
        first = type_of(x).rank - count
        for place in range(count):
            axis = first + place
            if shape_of(x)[axis] != c.shape[axis]:
                x = _nearest(c, x, axis, c.shape[axis], factors[place], exact)
        return x

    kind = "_upsample_nearest_exact" if exact else "upsample_nearest"
    lowering(f"aten.{kind}{count}d.default", f"aten.{kind}{count}d.vec")(lower)


for _count in (1, 2, 3):
    for _exact in (False, True):
        _register_nearest(_count, _exact)
