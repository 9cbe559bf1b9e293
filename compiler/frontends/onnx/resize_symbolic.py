"""Resizing an axis whose size, or whose factor, only the call knows.

What `lowerings/resize.py` computes in NumPy for an axis of known size, ops on a line of f64
compute here: where each element of the result lies in the input, its neighbours there, and
their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.lines import Line
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["SymbolicAxis", "resize_symbolic"]


_Line = Any  # a Line, which the types of NumPy's functions do not know


@dataclass(frozen=True)
class SymbolicAxis:
    """One axis to resize: sizes before and after, the factor between as an f64 of rank 0 and,
    where it is known, as a number, and its part of roi as two such values."""

    axis: int
    size: Dim
    resized: Dim
    scale: Value
    factor: float | None
    roi: tuple[Value, Value] | None


def resize_symbolic(
    node: Node, x: Value, one: SymbolicAxis, mode: str, kind: str, rounding: str
) -> tuple[Value, Value]:
    """x with one axis resized, and i1[resized]: which places lie outside of the input.

    UnsupportedNode: a mode is not known.
    """
    at = _coordinates(node, one, mode)
    outside = node.op(
        "or", at.compare("lt", 0.0), at.compare("gt", _size(node, one) - 1.0)
    )  # of NaN neither holds, as where the input is empty
    if kind == "nearest":
        return _take(node, x, one, _rounded(at, rounding)), outside
    left = np.floor(at)
    curve, reach = _curve(node, kind)
    scale = 1.0
    if node.integer("antialias", 0):
        if one.factor is None:
            return _fanned(node, x, one, at, curve, reach), outside
        scale = min(one.factor, 1.0)
    first = math.floor(-reach / scale) + 1
    ratio = at - left
    places = [left + float(step) for step in range(first, 2 - first)]
    weights = [curve(np.abs(float(step) - ratio) * scale) for step in range(first, 2 - first)]
    if scale < 1.0:
        weights = _normalised(weights)
    if node.integer("exclude_outside", 0):
        end = _size(node, one)
        for each, place in enumerate(places):
            for condition in (place.compare("lt", 0.0), place.compare("ge", end)):
                weights[each] = weights[each].where(condition, 0.0)
        weights = _normalised(weights)
    return _weighted(node, x, one, places, weights), outside


def _fanned(
    node: Node,
    x: Value,
    one: SymbolicAxis,
    at: _Line,
    curve: Callable[[_Line], _Line],
    reach: int,
) -> Value:
    """x with one axis resized by a filter that widens as it shrinks, by a factor from data: so
    many neighbours as then count are taken side by side."""
    given: _Line = Line(node, one.scale)
    scale = np.minimum(given, 1.0)
    half = (scale * 0.0 + reach) / scale
    name = f"{node.proto.output[0]}_reach_{one.axis}"
    ceiling = node.convert(np.ceil(half).value, "i64")
    side = node.define_size(ceiling, name, f"the reach of the filter on axis {one.axis}", low=1)
    shape = (one.resized, side * 2)
    center, left = (
        Line(node, node.op("broadcast", each.value, shape=shape, dimensions=(0,)))
        for each in (at, np.floor(at))
    )
    steps = Line(node, node.op("iota", dtype=dtype("f64"), shape=shape, axis=1))
    places = left + steps + (Line(node, node.size(side, "f64")) * -1.0 + 1.0)
    weights = curve(np.abs(places - center) * scale)
    if node.integer("exclude_outside", 0):
        for condition in (places.compare("lt", 0.0), places.compare("ge", _size(node, one))):
            weights = weights.where(condition, 0.0)
    total = node.reduce(weights.value, [1], "add")
    weights = weights / Line(node, node.op("broadcast", total, shape=shape, dimensions=(0,)))
    wide = x if type_of(x).dtype.is_float else node.convert(x, "f32")
    taken = _take(node, wide, one, places)
    factor = node.convert(weights.value, type_of(wide).dtype)
    axes = (one.axis, one.axis + 1)
    spread = node.op("broadcast", factor, shape=shape_of(taken), dimensions=axes)
    result = node.reduce(node.op("mul", taken, spread), [one.axis + 1], "add")
    return result if wide is x else node.convert(result, type_of(x).dtype)


def _size(node: Node, one: SymbolicAxis) -> _Line:
    return Line(node, node.size(one.size, "f64"))


def _coordinates(node: Node, one: SymbolicAxis, mode: str) -> _Line:
    """Where each element of the result lies in the input."""
    x = Line(node, node.op("iota", dtype=dtype("f64"), shape=(one.resized,), axis=0))
    scale, size, resized = (
        Line(node, each)
        for each in (one.scale, node.size(one.size, "f64"), node.size(one.resized, "f64"))
    )
    length = scale * size
    single = length.compare("eq", 1.0)
    last = size - 1.0
    half = (x + 0.5) / scale - 0.5
    match mode:
        case "asymmetric":
            return x / scale
        case "align_corners":
            return (x * last / (length - 1.0)).where(single, 0.0)
        case "pytorch_half_pixel":
            return half.where(resized.compare("eq", 1.0), 0.0)
        case "half_pixel":
            return half
        case "half_pixel_symmetric":
            offset = size / 2.0 * (resized / length * -1.0 + 1.0)
            return (x + 0.5) / scale + offset - 0.5
        case "tf_crop_and_resize":
            zero, whole = node.constant(0, "f64"), node.constant(1, "f64")
            begin, end = (Line(node, each) for each in one.roi or (zero, whole))
            step = (end - begin) * last / (length - 1.0)
            middle = (begin + end) * last / 2.0
            return (begin * last + x * step).where(single, middle)
    raise UnsupportedNode(f"coordinate_transformation_mode '{mode}' is not known")


def _rounded(at: _Line, rounding: str) -> _Line:
    match rounding:
        case "round_prefer_floor":
            return np.ceil(at - 0.5)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case "floor" | "ceil":
            return np.floor(at) if rounding == "floor" else np.ceil(at)
    raise UnsupportedNode(f"nearest_mode '{rounding}' is not known")


def _curve(node: Node, kind: str) -> tuple[Callable[[_Line], _Line], int]:
    """The weight of an element by its distance, and up to which distance it counts."""
    if kind == "linear":
        return lambda t: np.maximum(1.0 - t, 0.0), 1
    if kind != "cubic":
        raise UnsupportedNode(f"mode '{kind}' is not known")
    a = node.number("cubic_coeff_a", -0.75)

    def weight(t: _Line) -> _Line:
        near = (t * (a + 2) - (a + 3)) * t * t + 1.0
        far = ((t * a - 5 * a) * t + 8 * a) * t - 4 * a
        return far.where(t.compare("le", 1.0), near).where(t.compare("ge", 2.0), 0.0)

    return weight, 2


def _normalised(weights: Sequence[_Line]) -> list[_Line]:
    total = weights[0]
    for each in weights[1:]:
        total = total + each
    return [each / total for each in weights]


def _take(node: Node, x: Value, one: SymbolicAxis, places: _Line) -> Value:
    """Elements at `places` along the axis, the nearest one for a place outside."""
    last = _size(node, one) - 1.0
    inside = np.maximum(np.minimum(places, last), 0.0)
    index = node.convert(inside.value, "i64")
    return node.op("take", x, index, axis=one.axis, mode="check")


def _weighted(
    node: Node, x: Value, one: SymbolicAxis, places: Sequence[_Line], weights: Sequence[_Line]
) -> Value:
    """The sum of the elements at `places` by their weights."""
    wide = x if type_of(x).dtype.is_float else node.convert(x, "f32")
    result: Value | None = None
    for place, weight in zip(places, weights, strict=True):
        part = _take(node, wide, one, place)
        factor = node.convert(weight.value, type_of(wide).dtype)
        spread = node.op("broadcast", factor, shape=shape_of(part), dimensions=(one.axis,))
        part = node.op("mul", part, spread)
        result = part if result is None else node.op("add", result, part)
    assert result is not None
    return result if wide is x else node.convert(result, type_of(x).dtype)
