"""Resize and Upsample: each axis is interpolated by itself, from neighbours along it.

Neighbours and their weights are computed in f64: here, where sizes and factors are known, else by
ops (`interpolation.py`). Elements that are simply repeated, by a whole factor, need neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

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
from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, floordiv
from ingot.hal.spec import dtype

__all__: list[str] = []


@dataclass(frozen=True)
class _Axis:
    """One axis to resize: sizes before and after, the factor between, and its part of roi. Factor
    and roi are lines of rank 0 where only the call knows them."""

    axis: int
    size: Dim
    resized: Dim
    scale: Any
    roi: tuple[Any, Any]


Number = float | Value
"""A factor or a part of roi: a value of rank 0 where only the call knows it."""


@lowering("Resize")
def resize(node: Node) -> Value:
    x = node.input(0)
    if node.opset < 11:
        return _resize(node, x, _factors(node, 1), {}, "asymmetric", "floor")
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    axes = node.integers("axes") or tuple(range(type_of(x).rank))
    axes = tuple(node.normalize_axis(axis, type_of(x).rank) for axis in axes)
    scales = node.optional(2)
    if scales is not None and shape_of(scales) != (0,):
        return _resize(node, x, dict(zip(axes, _numbers(node, 2), strict=True)), {}, mode, rounding)
    given = node.define_dims(3, "the sizes")
    sizes = {axis: _integer(size) for axis, size in zip(axes, given, strict=True)}
    return _resize(node, x, _scales_of(node, x, sizes), sizes, mode, rounding)


@lowering("Upsample")
def upsample(node: Node) -> Value:
    return _resize(node, node.input(0), _factors(node, 1), {}, "asymmetric", "floor")


def _factors(node: Node, index: int) -> dict[int, Number]:
    given = node.numbers("scales")
    return dict(enumerate(given if given is not None else _numbers(node, index)))


def _numbers(node: Node, index: int) -> list[Number]:
    """The elements of a small floating-point input."""
    return [part if isinstance(part, Value) else float(part) for part in node.parts(index)]  # type: ignore[arg-type]


def _integer(size: Dim) -> Dim:
    return size if isinstance(size, Expr) else int(size)


def _as_f64(node: Node, number: Number) -> Value:
    if isinstance(number, Value):
        return node.convert(number, "f64")
    return node.constant(number, "f64")


def _scales_of(node: Node, x: Value, sizes: dict[int, Dim]) -> dict[int, Number]:
    """Factors that give these sizes; `keep_aspect_ratio_policy` changes the sizes."""
    shape = shape_of(x)
    scales: dict[int, Number] = {}
    for axis, size in sizes.items():
        before = shape[axis]
        if size == before:
            scales[axis] = 1.0
        elif isinstance(size, int) and isinstance(before, int):
            scales[axis] = size / before if before else 1.0
        else:
            scales[axis] = node.op("div", node.size(size, "f64"), node.size(before, "f64"))
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales
    one = _least(node, list(scales.values()), "min" if policy == "not_larger" else "max")
    for axis in sizes:
        sizes[axis] = _scaled(node, shape[axis], one, axis, 0.5)
    return dict.fromkeys(scales, one)


def _least(node: Node, scales: list[Number], kind: str) -> Number:
    numbers = [each for each in scales if not isinstance(each, Value)]
    if len(numbers) == len(scales):
        return min(numbers) if kind == "min" else max(numbers)
    one, *rest = (_as_f64(node, each) for each in scales)
    for each in rest:
        one = node.op(kind, one, each)
    return one


def _scaled(node: Node, before: Dim, scale: Number, axis: int, more: float = 0.0) -> Dim:
    """floor(before * scale + more) of a dim."""
    if isinstance(scale, Value):
        exact = node.op("mul", node.size(before, "f64"), _as_f64(node, scale))
        whole = node.op("floor", node.op("add", exact, node.constant(more, "f64")))
        name = f"{node.proto.output[0]}_{axis}"
        return node.define_size(node.convert(whole, "i64"), name, f"the size of axis {axis}")
    if isinstance(before, int):
        return math.floor(before * scale + more)
    ratio, rest = Fraction(scale), Fraction(more)
    unit = ratio.denominator * rest.denominator
    return floordiv(before * int(ratio * unit) + int(rest * unit), unit)


def _resize(
    node: Node,
    x: Value,
    scales: dict[int, Number],
    sizes: dict[int, Dim],
    mode: str,
    rounding: str,
) -> Value:
    kind = node.text("mode", "nearest")
    outside: list[tuple[int, Value]] = []
    region = node.optional(1) if mode == "tf_crop_and_resize" else None
    roi = _numbers(node, 1) if region is not None else []
    for place, (axis, scale) in enumerate(scales.items()):
        size = shape_of(x)[axis]
        if not isinstance(scale, Value) and scale == 1.0 and mode != "tf_crop_and_resize":
            continue
        wanted = sizes[axis] if sizes else _scaled(node, size, scale, axis)
        part = (roi[place], roi[place + len(scales)]) if roi else (0.0, 1.0)
        numbers = (size, wanted, scale, *part)
        known = not any(isinstance(each, (Value, Expr)) for each in numbers)
        if not known and not sizes and _repeats(node, scale, kind, mode, rounding):
            x = node.repeated(x, axis, int(scale))  # type: ignore[arg-type]
            continue
        factor, begin, end = (_in_formulas(node, each) for each in (scale, *part))
        one = _Axis(axis, size, wanted, factor, (begin, end))
        at = _coordinates(node, one, mode)
        if mode == "tf_crop_and_resize":
            beyond = (at < 0) | (at > length_of(node, size) - 1)  # NaN, of no elements, is not
            outside.append((axis, value_of(node, beyond, "i1")))
        x = _interpolate(node, x, one, at, kind, rounding)
    return _extrapolate(node, x, outside)


def _in_formulas(node: Node, number: Number) -> Any:
    """Numbers that are divided as NumPy has it, by 0, too."""
    return Line(node, _as_f64(node, number)) if isinstance(number, Value) else np.float64(number)


def _coordinates(node: Node, one: _Axis, mode: str) -> Any:
    """Where each element of the result lies in the input, f64[resized]."""
    if isinstance(one.resized, int):
        bounded(one.resized, "a resized dim")
    x = positions(node, one.resized, (one.resized,))
    size, resized = length_of(node, one.size), length_of(node, one.resized)
    scale, last, length = one.scale, size - 1, one.scale * size
    begin, end = one.roi
    with np.errstate(all="ignore"):  # of what is not chosen
        match mode:
            case "asymmetric":
                return x / scale
            case "align_corners":
                return np.where(length == 1, 0.0, x * last / (length - 1))
            case "half_pixel":
                return (x + 0.5) / scale - 0.5
            case "pytorch_half_pixel":
                return np.where(resized == 1, 0.0, (x + 0.5) / scale - 0.5)
            case "half_pixel_symmetric":
                return size / 2 * (1 - resized / length) + (x + 0.5) / scale - 0.5
            case "tf_crop_and_resize":
                line = begin * last + x * ((end - begin) * last / (length - 1))
                return np.where(length == 1, (begin + end) * last / 2, line)
    raise UnsupportedNode(f"coordinate_transformation_mode '{mode}' is not known")


_ROUND: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _interpolate(node: Node, x: Value, one: _Axis, at: Any, kind: str, rounding: str) -> Value:
    """x with one axis resized: a weighted sum of elements taken along it."""
    if kind == "nearest":
        if rounding not in _ROUND:
            raise UnsupportedNode(f"nearest_mode '{rounding}' is not known")
        return taken(node, x, one.axis, _ROUND[rounding](at))
    if kind not in ("linear", "cubic"):
        raise UnsupportedNode(f"mode '{kind}' is not known")
    reach = 1 if kind == "linear" else 2
    curve = triangle if kind == "linear" else cubic(node.number("cubic_coeff_a", -0.75))
    wide = x if type_of(x).dtype.is_float else node.convert(x, "f32")
    if node.integer("antialias", 0) and isinstance(one.scale, Line):
        result = _fanned(node, wide, one, at, curve, reach)
    else:
        result = weighted(node, wide, one.axis, _taps(node, one, at, curve, reach))
    return result if wide is x else node.convert(result, type_of(x).dtype)


def _taps(
    node: Node, one: _Axis, at: Any, curve: Callable[[Any], Any], reach: int
) -> Iterable[tuple[Any, Any]]:
    """The places around each one, and their weights."""
    left = np.floor(at)
    ratio = at - left
    scale = min(one.scale, 1.0) if node.integer("antialias", 0) else 1.0
    first = math.floor(-reach / scale) + 1
    steps = [float(step) for step in range(first, 2 - first)]
    places = [left + step for step in steps]
    weights = [curve(np.abs(step - ratio) * scale) for step in steps]
    if scale < 1.0:
        weights = _normalised(weights)
    if node.integer("exclude_outside", 0):
        inside = zip(places, weights, strict=True)
        weights = _normalised([_excluded(node, one, place, weight) for place, weight in inside])
    return zip(places, weights, strict=True)


def _normalised(weights: Sequence[Any]) -> list[Any]:
    total = reduce(add, weights)
    return [weight / total for weight in weights]


def _excluded(node: Node, one: _Axis, place: Any, weight: Any) -> Any:
    """The weight, of a place outside 0."""
    return np.where((place < 0) | (place >= length_of(node, one.size)), 0.0, weight)


def _fanned(
    node: Node, x: Value, one: _Axis, at: Any, curve: Callable[[Any], Any], reach: int
) -> Value:
    """x with one axis resized by a filter that widens as it shrinks, by a factor from data: so
    many neighbours as then count are taken side by side."""
    scale = np.minimum(one.scale, 1.0)
    name = f"{node.proto.output[0]}_reach_{one.axis}"
    ceiling = value_of(node, np.ceil(reach / scale), "i64")
    side = node.define_size(ceiling, name, f"the reach of the filter on axis {one.axis}", low=1)
    shape = (one.resized, side * 2)

    def spread(each: Any) -> Line:
        return Line(node, node.op("broadcast", each.value, shape=shape, dimensions=(0,)))

    steps = Line(node, node.op("iota", dtype=dtype("f64"), shape=shape, axis=1))
    places = spread(np.floor(at)) + steps + (1.0 - length_of(node, side))
    weights = curve(np.abs(places - spread(at)) * scale)
    if node.integer("exclude_outside", 0):
        weights = _excluded(node, one, places, weights)
    weights = weights / spread(weights.sum(1))
    parts = taken(node, x, one.axis, places)
    factor, axes = value_of(node, weights, type_of(x).dtype), (one.axis, one.axis + 1)
    factor = node.op("broadcast", factor, shape=shape_of(parts), dimensions=axes)
    return node.reduce(node.op("mul", parts, factor), [one.axis + 1], "add")


def _repeats(node: Node, scale: Number, kind: str, mode: str, rounding: str) -> bool:
    """Whether each element is simply repeated."""
    half = mode in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round")
    plain = half or (mode == "asymmetric" and rounding == "floor")
    whole = not isinstance(scale, Value) and scale >= 1 and scale == int(scale)
    return kind == "nearest" and plain and whole


def _extrapolate(node: Node, x: Value, outside: list[tuple[int, Value]]) -> Value:
    """Elements that lie outside of the input along some axis get a fixed value."""
    if not outside:
        return x
    shape = shape_of(x)
    fill = node.constant(node.number("extrapolation_value", 0.0), type_of(x).dtype)
    fill = node.op("broadcast", fill, shape=shape, dimensions=())
    for axis, places in outside:
        mask = node.op("broadcast", places, shape=shape, dimensions=(axis,))
        x = node.op("select", mask, fill, x)
    return x
