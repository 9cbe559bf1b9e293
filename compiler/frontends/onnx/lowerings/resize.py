"""Resize and Upsample: each axis is interpolated by itself, from neighbours along it.

For an axis of known size the neighbours and their weights are computed here, in f64, and
become constants. Axes whose size is a symbol are resized by whole factors (nearest, with
plain coordinates), which is what exporters of dynamic models write.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim

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


@lowering("Resize")
def resize(node: Node) -> Value:
    x = node.input(0)
    if node.opset < 11:
        return _resize(node, x, _factors(node, 1), "asymmetric", "floor")
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    axes = node.integers("axes") or tuple(range(type_of(x).rank))
    axes = tuple(node.normalize_axis(axis, type_of(x).rank) for axis in axes)
    scales = node.optional(2)
    if scales is not None and shape_of(scales) != (0,):
        given = dict(zip(axes, (float(each) for each in node.elements(2, "scales")), strict=True))
        return _resize(node, x, given, mode, rounding)
    sizes = dict(zip(axes, node.elements(3, "sizes"), strict=True))
    return _resize(node, x, _scales_of(node, x, sizes), mode, rounding, sizes)


@lowering("Upsample")
def upsample(node: Node) -> Value:
    return _resize(node, node.input(0), _factors(node, 1), "asymmetric", "floor")


def _factors(node: Node, index: int) -> dict[int, float]:
    given = node.numbers("scales")
    values = given if given is not None else node.elements(index, "scales")
    return {axis: float(each) for axis, each in enumerate(values)}


def _scales_of(node: Node, x: Value, sizes: dict[int, Dim]) -> dict[int, float]:
    """Factors that give these sizes; `keep_aspect_ratio_policy` changes the sizes."""
    shape = shape_of(x)
    if any(not isinstance(sizes[axis], int) or not isinstance(shape[axis], int) for axis in sizes):
        same = {axis: 1.0 for axis, size in sizes.items() if size == shape[axis]}
        rest = [axis for axis in sizes if axis not in same]
        if any(not isinstance(dim, int) for axis in rest for dim in (sizes[axis], shape[axis])):
            raise UnsupportedNode(
                "sizes of an axis whose size is symbolic are not supported: give scales"
            )
    scales: dict[int, float] = {}
    for axis, size in sizes.items():
        before = shape[axis]
        if size == before:
            scales[axis] = 1.0
        elif isinstance(size, int) and isinstance(before, int):
            scales[axis] = size / before if before else 1.0
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales
    one = min(scales.values()) if policy == "not_larger" else max(scales.values())
    for axis in sizes:
        before = shape[axis]
        if not isinstance(before, int):
            raise UnsupportedNode("keep_aspect_ratio_policy needs axes of known size")
        sizes[axis] = math.floor(before * one + 0.5)
    return dict.fromkeys(scales, one)


def _resize(
    node: Node,
    x: Value,
    scales: dict[int, float],
    mode: str,
    rounding: str,
    sizes: dict[int, Dim] | None = None,
) -> Value:
    kind = node.text("mode", "nearest")
    outside: list[tuple[int, Array]] = []
    region = node.optional(1) if mode == "tf_crop_and_resize" else None
    roi = [float(each) for each in node.elements(1, "roi")] if region is not None else []
    for place, (axis, scale) in enumerate(scales.items()):
        size = shape_of(x)[axis]
        if scale == 1.0 and mode != "tf_crop_and_resize":
            continue
        if not isinstance(size, int):
            x = _repeat(node, x, axis, scale, kind)
            continue
        wanted = sizes[axis] if sizes is not None else math.floor(size * scale)
        assert isinstance(wanted, int)
        part = (roi[place], roi[place + len(scales)]) if roi else (0.0, 1.0)
        one = _Axis(axis, size, wanted, scale, part)
        at = _coordinates(one, mode)
        if mode == "tf_crop_and_resize":
            outside.append((axis, (at < 0) | (at > size - 1)))
        x = _interpolate(node, x, one, at, kind, rounding)
    return _extrapolate(node, x, outside)


def _coordinates(one: _Axis, mode: str) -> Array:
    """Where each element of the result lies in the input, f64."""
    x = np.arange(one.resized, dtype=np.float64)
    length = one.scale * one.size
    match mode:
        case "asymmetric":
            return np.asarray(x / one.scale)
        case "align_corners":
            return np.asarray(x * (one.size - 1) / (length - 1) if length != 1 else x * 0)
        case "pytorch_half_pixel" if length == 1:
            return np.asarray(x * 0 - 0.5)
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


def _repeat(node: Node, x: Value, axis: int, scale: float, kind: str) -> Value:
    """An axis of symbolic size, each element `scale` times."""
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    if node.opset < 11:
        mode, rounding = "asymmetric", "floor"
    half = mode in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round")
    plain = half or (mode == "asymmetric" and rounding == "floor")
    if kind != "nearest" or not plain or scale != int(scale) or scale < 1:
        raise UnsupportedNode(
            f"mode '{kind}' by {scale:g} along an axis whose size is symbolic is not supported: "
            "fix the size, or use mode 'nearest' with a whole factor"
        )
    shape, times = shape_of(x), int(scale)
    wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
    kept = tuple(place for place in range(len(wide)) if place != axis + 1)
    x = node.op("broadcast", x, shape=wide, dimensions=kept)
    return node.op("reshape", x, shape=(*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))


def _extrapolate(node: Node, x: Value, outside: list[tuple[int, Array]]) -> Value:
    """Elements that lie outside of the input along some axis get a fixed value."""
    if not any(places.any() for _, places in outside):
        return x
    shape = shape_of(x)
    fill = node.constant(node.number("extrapolation_value", 0.0), type_of(x).dtype)
    fill = node.op("broadcast", fill, shape=shape, dimensions=())
    for axis, places in outside:
        mask = node.constant(places, "i1")
        mask = node.op("broadcast", mask, shape=shape, dimensions=(axis,))
        x = node.op("select", mask, fill, x)
    return x
