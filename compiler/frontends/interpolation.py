"""One axis in another size: places along it and their weights.

Where the sizes are numbers all of it is NumPy's and becomes constants; what only the call knows is
a `Line`, of which the same formulas make ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.lines import Line
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__ = ["cubic", "length_of", "positions", "taken", "triangle", "value_of", "weighted"]


def length_of(c: Emitter, size: Dim, element: str = "f64") -> Any:
    """A size in formulas: a number, or one that the call knows."""
    return size if isinstance(size, int) else Line(c, c.size(size, element))


def positions(c: Emitter, size: Dim, shape: Sequence[Dim], element: str = "f64") -> Any:
    """0, 1, ... in a shape whose one axis that is longer than 1 may be the first."""
    if isinstance(size, int):
        return np.arange(size, dtype=dtype(element).numpy).reshape(shape)
    return Line(c, c.op("iota", dtype=dtype(element), shape=tuple(shape), axis=0))


def value_of(c: Emitter, x: Any, element: DType | str) -> Value:
    return c.convert(x.value, element) if isinstance(x, Line) else c.constant(x, element)


def taken(c: Emitter, x: Value, axis: int, places: Any) -> Value:
    """Elements at places along an axis, at its ends for places outside."""
    last = length_of(c, shape_of(x)[axis]) - 1
    if isinstance(places, Line):
        places = Line(c, c.convert(places.value, "f64"))
    inside = np.maximum(np.minimum(places, last), 0)
    mode = "check" if isinstance(inside, Line) else "clamp"  # an axis may turn out to be empty
    return c.op("take", x, value_of(c, inside, "i64"), axis=axis, mode=mode)


def triangle(distance: Any) -> Any:
    """The weight of an element so far away, between two neighbours."""
    return np.maximum(1 - distance, 0)


def cubic(a: float) -> Callable[[Any], Any]:
    """Keys' cubic convolution: the weight of an element at a distance of up to 2."""

    def weight(distance: Any) -> Any:
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return np.where(distance <= 1, near, np.where(distance < 2, far, 0))

    return weight


def weighted(c: Emitter, x: Value, axis: int, taps: Iterable[tuple[Any, Any]]) -> Value:
    """The sum of the elements at places along an axis, by their weights."""
    result: Value | None = None
    for place, weight in taps:
        part = taken(c, x, axis, place)
        factor = value_of(c, weight, type_of(x).dtype)
        part = c.op(
            "mul", part, c.op("broadcast", factor, shape=shape_of(part), dimensions=(axis,))
        )
        result = part if result is None else c.op("add", result, part)
    assert result is not None
    return result
