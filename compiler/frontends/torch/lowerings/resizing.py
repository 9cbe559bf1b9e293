"""Images in another size: each axis is interpolated by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.einsum import contract_letters
from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.lines import Line
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__: list[str] = []

_CUBIC = -0.75  # the parameters of cubic convolution
_SMOOTH_CUBIC = -0.5


def _number(c: Context, size: Dim, element: str = "f64") -> Any:
    """A size in formulas: a number, or one that the call knows."""
    return size if isinstance(size, int) else Line(c, c.size(size, element))


def _positions(c: Context, size: Dim, shape: Sequence[Dim], element: str = "f64") -> Any:
    """0, 1, ... in a shape whose one axis that is longer than 1 may be the first."""
    if isinstance(size, int):
        return np.arange(size, dtype=np.dtype(f"f{int(element[1:]) // 8}")).reshape(shape)
    return Line(c, c.op("iota", dtype=dtype(element), shape=tuple(shape), axis=0))


def _value(c: Context, x: Any, element: DType | str) -> Value:
    return c.convert(x.value, element) if isinstance(x, Line) else c.constant(x, element)


def _taken(c: Context, x: Value, axis: int, places: Any) -> Value:
    """Elements at places along an axis, at its ends for places outside."""
    last = _number(c, shape_of(x)[axis]) - 1
    if isinstance(places, Line):
        places = Line(c, c.convert(places.value, "f64"))
    inside = np.maximum(np.minimum(places, last), 0)
    return c.op("take", x, _value(c, inside, "i64"), axis=axis, mode="check")


def _nearest(c: Context, x: Value, axis: int, size: Dim, scale: float | None, exact: bool) -> Value:
    own = _number(c, shape_of(x)[axis], "f32")  # as torch computes
    ratio = _ratio(own, _number(c, size, "f32"), scale, False)
    ratio = ratio if isinstance(ratio, Line) else np.float32(ratio)
    places = np.floor((_positions(c, size, (size,), "f32") + (0.5 if exact else 0)) * ratio)
    return _taken(c, x, axis, places)


def _ratio(own: Any, size: Any, scale: float | None, align: bool) -> Any:
    if align:
        return (own - 1) / np.maximum(size - 1, 1)
    return 1 / scale if scale else own / size


def _triangle(distance: Any) -> Any:
    return np.maximum(1 - distance, 0)


def _keys(a: float) -> Callable[[Any], Any]:
    def weight(distance: Any) -> Any:
        near = np.minimum(distance, 1)
        far = np.minimum(np.maximum(distance, 1), 2)  # each part is 0 where the other one counts
        near = ((a + 2) * near - (a + 3)) * near * near + 1
        return near + ((a * far - 5 * a) * far + 8 * a) * far - 4 * a

    return weight


def _interpolated(
    c: Context, x: Value, axis: int, at: Any, steps: Sequence[int], weight: Callable[[Any], Any]
) -> Value:
    """Sums of the elements around places, by their weights."""
    first = np.floor(at)
    result: Value | None = None
    for step in steps:
        taken = _taken(c, x, axis, first + step)
        factor = _value(c, weight(np.abs(at - first - step)), type_of(x).dtype)
        spread = c.op("broadcast", factor, shape=shape_of(taken), dimensions=(axis,))
        term = c.op("mul", taken, spread)
        result = term if result is None else c.op("add", result, term)
    assert result is not None
    return result


def _smoothed(
    c: Context, x: Value, axis: int, size: Dim, ratio: Any, weight: Callable[[Any], Any]
) -> Value:
    """The axis times a matrix of weights, which reach further where it shrinks."""
    own = shape_of(x)[axis]
    middles = (_positions(c, size, (size,)) + 0.5) * ratio - 0.5
    weights = weight(np.abs(_positions(c, own, (own, 1)) - middles) / np.maximum(ratio, 1.0))
    matrix = _value(c, weights / weights.sum(0), type_of(x).dtype)
    letters = "abcdefg"[: type_of(x).rank]
    equation = f"{letters},{letters[axis]}z->{letters.replace(letters[axis], 'z')}"
    return contract_letters(c, equation, (x, matrix))


def _resized(
    c: Context, x: Value, count: int, align: bool, scales: Sequence[float | None],
    kernel: Callable[[Any], Any], smooths: bool,
) -> Value:  # fmt: skip
    element = type_of(x).dtype
    wide = widen(c, x) if element.is_float else c.convert(x, "f32")
    first = type_of(x).rank - count
    for place in reversed(range(count)):
        axis = first + place
        own, size = shape_of(x)[axis], c.shape[axis]
        if own == size and scales[place] in (None, 1.0):
            continue
        ratio = _ratio(_number(c, own), _number(c, size), scales[place], align)
        if smooths:
            wide = _smoothed(c, wide, axis, size, ratio, kernel)
        else:
            middle = 0.0 if align else 0.5
            at = (_positions(c, size, (size,)) + middle) * ratio - middle
            if kernel is _triangle:
                at = np.maximum(at, 0)
            steps = (0, 1) if kernel is _triangle else (-1, 0, 1, 2)
            wide = _interpolated(c, wide, axis, at, steps, kernel)
        if not element.is_float:  # torch takes bytes alone, and rounds behind each axis, halves up
            wide = c.op("floor", c.op("add", wide, c.fill(0.5, wide)))
            wide = c.op("max", wide, c.fill(0, wide))
            wide = c.op("min", wide, c.fill(255, wide))
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


_register("upsample_linear1d", 1, _triangle)
_register("upsample_bilinear2d", 2, _triangle)
_register("upsample_trilinear3d", 3, _triangle)
_register("upsample_bicubic2d", 2, _keys(_CUBIC))
_register("_upsample_bilinear2d_aa", 2, _triangle, True)
_register("_upsample_bicubic2d_aa", 2, _keys(_SMOOTH_CUBIC), True)


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
