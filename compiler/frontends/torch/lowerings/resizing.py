"""Images in another size: each axis is interpolated by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []

_KEYS = -0.75  # the parameter of cubic convolution


def _nearest(c: Context, x: Value, axis: int, ratio: float, size: int, exact: bool) -> Value:
    own = _known(shape_of(x)[axis])
    places = (np.arange(size) + (0.5 if exact else 0)).astype(np.float32) * np.float32(ratio)
    index = np.minimum(np.floor(places).astype(np.int64), own - 1)
    return c.op("take", x, c.builder.constant(index), axis=axis, mode="check")


def _known(size: Any) -> int:
    if not isinstance(size, int):
        raise UnsupportedNode("it resizes a symbolic dim, which is not supported: fix its size")
    return size


def _ratio(own: int, size: int, scale: float | None, align: bool) -> float:
    if align:
        return (own - 1) / (size - 1) if size > 1 else 0.0
    return 1 / scale if scale else own / size


def _linear(own: int, size: int, ratio: float, align: bool) -> list[tuple[Any, Any]]:
    at = np.arange(size) * ratio if align else np.maximum((np.arange(size) + 0.5) * ratio - 0.5, 0)
    first = np.minimum(np.floor(at).astype(np.int64), own - 1)
    rest = at - first
    return [(first, 1 - rest), (np.minimum(first + 1, own - 1), rest)]


def _cubic(own: int, size: int, ratio: float, align: bool) -> list[tuple[Any, Any]]:
    at = np.arange(size) * ratio if align else (np.arange(size) + 0.5) * ratio - 0.5
    first = np.floor(at).astype(np.int64)
    taps = []
    for step in (-1, 0, 1, 2):
        d = np.abs(at - first - step)
        if step in (0, 1):
            weight = ((_KEYS + 2) * d - (_KEYS + 3)) * d * d + 1
        else:
            weight = ((_KEYS * d - 5 * _KEYS) * d + 8 * _KEYS) * d - 4 * _KEYS
        taps.append((np.clip(first + step, 0, own - 1), weight))
    return taps


def _interpolated(c: Context, x: Value, axis: int, taps: Sequence[tuple[Any, Any]]) -> Value:
    """The sum of elements at places, times their weights."""
    result: Value | None = None
    for places, weights in taps:
        taken = c.op("take", x, c.builder.constant(places), axis=axis, mode="check")
        weight = c.constant(weights, type_of(x).dtype)
        spread = c.op("broadcast", weight, shape=shape_of(taken), dimensions=(axis,))
        term = c.op("mul", taken, spread)
        result = term if result is None else c.op("add", result, term)
    assert result is not None
    return result


def _resized(
    c: Context, x: Value, count: int, align: bool, scales: Sequence[float | None],
    taps: Callable[..., list[tuple[Any, Any]]],
) -> Value:  # fmt: skip
    wide = widen(c, x)
    first = type_of(x).rank - count
    for place in range(count):
        axis = first + place
        own, size = _known(shape_of(x)[axis]), _known(c.shape[axis])
        if own != size or scales[place] not in (None, 1.0):
            ratio = _ratio(own, size, scales[place], align)
            wide = _interpolated(c, wide, axis, taps(own, size, ratio, align))
    return narrow(c, wide, x)


def _scales(given: Sequence[Any], count: int) -> list[float | None]:
    """The factors at the end of the arguments: one for each axis, or a list."""
    found: list[Any] = []
    for each in given:
        found += each if isinstance(each, (list, tuple)) else [each]
    return [None if each is None else float(each) for each in [*found, *[None] * count][:count]]


def _register(name: str, count: int, taps: Callable[..., list[tuple[Any, Any]]]) -> None:
    def of_size(c: Context, x: Value, _: Any, align: bool = False, *scales: Any,
                **named: Any) -> Value:  # fmt: skip
        return _resized(c, x, count, align, _scales([*scales, *named.values()], count), taps)

    lowering(f"aten.upsample_{name}{count}d.default", f"aten.upsample_{name}{count}d.vec")(of_size)


_register("linear", 1, _linear)
_register("bilinear", 2, _linear)
_register("trilinear", 3, _linear)
_register("bicubic", 2, _cubic)


def _register_nearest(count: int, exact: bool) -> None:
    def lower(c: Context, x: Value, _: Any, *scales: Any, **named: Any) -> Value:
        factors = _scales([*scales, *named.values()], count)
        first = type_of(x).rank - count
        for place in range(count):
            axis = first + place
            own, size = _known(shape_of(x)[axis]), _known(c.shape[axis])
            if own != size:
                ratio = _ratio(own, size, factors[place], False)
                x = _nearest(c, x, axis, ratio, size, exact)
        return x

    kind = "_upsample_nearest_exact" if exact else "upsample_nearest"
    lowering(f"aten.{kind}{count}d.default", f"aten.{kind}{count}d.vec")(lower)


for _count in (1, 2, 3):
    for _exact in (False, True):
        _register_nearest(_count, _exact)
