"""Resize and Upsample: each axis is interpolated by itself, from neighbours along it.

For an axis of known size the neighbours and their weights are computed here, in f64, and
become constants; for one whose size or factor only the call knows, `resize_symbolic.py` makes
ops that compute them. Elements that are simply repeated, by a whole factor, need neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.resize_symbolic import SymbolicAxis, resize_symbolic
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, floordiv

__all__: list[str] = []

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Axis:
    """One axis to resize: sizes before and after, the factor between, and its part of roi."""

    axis: int
    size: int
    resized: int
    scale: float
    roi: tuple[float, float]


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
        known = isinstance(size, int) and isinstance(wanted, int) and not isinstance(scale, Value)
        if not known or any(isinstance(each, Value) for each in part):
            if not sizes and _repeats(node, scale, kind, mode, rounding):
                x = node.repeated(x, axis, int(scale))  # type: ignore[arg-type]
                continue
            x, mask = _resize_symbolic(node, x, axis, wanted, scale, part, mode, rounding)
        else:
            one = _Axis(axis, size, wanted, scale, part)  # type: ignore[arg-type]
            at = _coordinates(one, mode)
            mask = node.constant((at < 0) | (at > one.size - 1), "i1")
            x = _interpolate(node, x, one, at, kind, rounding)
        if mode == "tf_crop_and_resize":
            outside.append((axis, mask))
    return _extrapolate(node, x, outside)


def _resize_symbolic(
    node: Node,
    x: Value,
    axis: int,
    resized: Dim,
    scale: Number,
    roi: tuple[Number, Number],
    mode: str,
    rounding: str,
) -> tuple[Value, Value]:
    one = SymbolicAxis(
        axis,
        shape_of(x)[axis],
        resized,
        _as_f64(node, scale),
        None if isinstance(scale, Value) else scale,
        (_as_f64(node, roi[0]), _as_f64(node, roi[1])),
    )
    return resize_symbolic(node, x, one, mode, node.text("mode", "nearest"), rounding)


def _coordinates(one: _Axis, mode: str) -> Array:
    """Where each element of the result lies in the input, f64."""
    x = np.arange(bounded(one.resized, "a resized dim"), dtype=np.float64)
    length = one.scale * one.size
    match mode:
        case "asymmetric":
            return np.asarray(x / one.scale)
        case "align_corners":
            return np.asarray(x * (one.size - 1) / (length - 1) if length != 1 else x * 0)
        case "pytorch_half_pixel" if one.resized == 1:
            return x * 0
        case "half_pixel" | "pytorch_half_pixel":
            return np.asarray((x + 0.5) / one.scale - 0.5)
        case "half_pixel_symmetric":
            offset = one.size / 2 * (1 - one.resized / length)
            return np.asarray(offset + (x + 0.5) / one.scale - 0.5)
        case "tf_crop_and_resize":
            first, last = one.roi
            if length == 1:
                return np.asarray(x * 0 + (first + last) * (one.size - 1) / 2)
            step = (last - first) * (one.size - 1) / (length - 1)
            return np.asarray(first * (one.size - 1) + x * step)
    raise UnsupportedNode(f"coordinate_transformation_mode '{mode}' is not known")


_ROUND: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _interpolate(node: Node, x: Value, one: _Axis, at: Array, kind: str, rounding: str) -> Value:
    """x with one axis resized: a weighted sum of elements taken along it."""
    if kind == "nearest":
        if rounding not in _ROUND:
            raise UnsupportedNode(f"nearest_mode '{rounding}' is not known")
        return _take(node, x, one, _ROUND[rounding](at))
    left = np.floor(at)
    ratio = at - left
    if kind not in ("linear", "cubic"):
        raise UnsupportedNode(f"mode '{kind}' is not known")
    reach = 1 if kind == "linear" else 2
    scale = min(one.scale, 1.0) if node.integer("antialias", 0) else 1.0
    first = math.floor(-reach / scale) + 1
    steps = range(first, 2 - first)
    places = [left + step for step in steps]
    curve = _linear if kind == "linear" else _cubic(node.number("cubic_coeff_a", -0.75))
    weights = [curve(np.abs(step - ratio) * scale) for step in steps]
    if scale < 1.0:
        total = sum(weights)
        weights = [weight / total for weight in weights]
    if node.integer("exclude_outside", 0):
        weights = [
            np.where((place < 0) | (place >= one.size), 0.0, weight)
            for place, weight in zip(places, weights, strict=True)
        ]
        total = sum(weights)
        weights = [weight / total for weight in weights]
    wide = x if type_of(x).dtype.is_float else node.convert(x, "f32")
    result: Value | None = None
    for place, weight in zip(places, weights, strict=True):
        part = _take(node, wide, one, place)
        factor = node.constant(weight, type_of(wide).dtype)
        shape = shape_of(part)
        spread = node.op("broadcast", factor, shape=shape, dimensions=(one.axis,))
        part = node.op("mul", part, spread)
        result = part if result is None else node.op("add", result, part)
    assert result is not None
    return result if wide is x else node.convert(result, type_of(x).dtype)


def _linear(distance: Array) -> Array:
    """The weight of an element so far away."""
    return np.asarray(np.clip(1 - distance, 0, 1))


def _cubic(a: float) -> Callable[[Array], Array]:
    """Keys' cubic convolution: the weight of an element at a distance of up to 2."""

    def weight(t: Array) -> Array:
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0.0)))

    return weight


def _take(node: Node, x: Value, one: _Axis, places: Array) -> Value:
    """Elements at `places` along the axis, the nearest one for a place outside."""
    inside = np.clip(places, 0, max(one.size - 1, 0)).astype(np.int64)
    return node.op("take", x, node.constant(inside, "i64"), axis=one.axis, mode="clamp")


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
