"""What stands in front of and behind models of vision: resizing, normalising, boxes.

Written in the functions that users have, so it works for dims that only a call knows as well.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.program.creation import arange, asarray, astype, full
from ingot.compiler.frontends.program.elementwise import abs as absolute
from ingot.compiler.frontends.program.elementwise import clip, floating, relu, where
from ingot.compiler.frontends.program.linear import tensordot
from ingot.compiler.frontends.program.manipulation import axes_of, moveaxis, reshape, stack, unstack
from ingot.compiler.frontends.program.reductions import sum as total
from ingot.compiler.frontends.program.searching import argsort, take
from ingot.compiler.frontends.program.tensor import (
    FUNCTIONS,
    Tensor,
    as_dim,
    as_size,
    current,
    given,
    public,
    value_of,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_GREATEST_SHRINK = 8  # up to which an axis is made of sums, not of a product
_FORMATS = ("xyxy", "xywh", "cxcywh")


def _triangle(distance: Tensor) -> Tensor:
    """The weight of an element at a distance, for linear interpolation."""
    return relu(1 - distance)


def _keys(distance: Tensor) -> Tensor:
    """As `_triangle`, for cubic interpolation by Keys with a = -0.5, which is Catmull-Rom's."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return where(distance < 1, near, where(distance < 2, far, 0.0))


_KERNELS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "linear": (1, _triangle),
    "cubic": (2, _keys),
}
"""How far a weight reaches, in elements, and the weight at a distance."""


@public
def resize(
    x: Any, size: Sequence[Any], /, *, axes: Sequence[int], method: str = "linear",
    antialias: bool = True,
) -> Tensor:  # fmt: skip
    """x with `axes` of other sizes, as images are resized: places are the middles of elements.

    `method`: "nearest", "linear", or "cubic" (Catmull-Rom). `antialias` lets the weights reach
    further where an axis shrinks, as PIL and jax.image.resize do; without it only the nearest
    elements count. Weights at the border are normalised. Integers are computed in f32, rounded
    and saturated.
    """
    if method != "nearest" and method not in _KERNELS:
        raise UnsupportedNode(f'method is {method!r}, expected "nearest", "linear" or "cubic"')
    value = value_of(x)
    places = axes_of(tuple(axes), type_of(value).rank)
    if len(places) != len(size):
        raise UnsupportedNode(f"it takes a size for each of the axes {tuple(axes)}")
    if any(isinstance(length, int) and length < 0 for length in size):
        raise UnsupportedNode(f"a size is negative: {tuple(size)}")
    if method == "nearest":
        result = given(value)
        for axis, length in zip(places, size, strict=True):
            result = _nearest(result, axis, as_dim(length))
        return result
    element = type_of(value).dtype
    wide = "f64" if element.name == "f64" else "f32"
    result = astype(given(value), wide)
    for axis, length in zip(places, size, strict=True):
        result = _interpolated(result, axis, as_dim(length), method, antialias)
    if not element.is_float:
        result = FUNCTIONS["round"](result)
    return astype(result, element)


def _nearest(x: Tensor, axis: int, size: Dim) -> Tensor:
    own = x.shape[axis]
    if as_dim(own) == size:
        return x
    # floor((2 i + 1) own / 2 size), in integers
    places = (2 * arange(as_size(size)) + 1) * own // (2 * asarray(as_size(size)))
    return take(x, places, axis=axis)


def _interpolated(x: Tensor, axis: int, size: Dim, method: str, antialias: bool) -> Tensor:
    """The axis as sums of few elements with weights; where there are many, or only the call knows
    how many, as a product with a matrix of weights."""
    own = x.shape[axis]
    if as_dim(own) == size:
        return x
    reach, weight = _KERNELS[method]
    ratio = asarray(own, dtype="f64") / as_size(size)
    middles = astype((astype(arange(as_size(size)), "f64") + 0.5) * ratio - 0.5, x.dtype)
    if not antialias:
        return _weighted(x, axis, middles, reach, weight, 1.0)
    if isinstance(own, int) and isinstance(size, int) and own <= _GREATEST_SHRINK * size:
        spread = max(own / size, 1.0)
        return _weighted(x, axis, middles, math.ceil(reach * spread), weight, spread)
    distance = absolute(astype(arange(own), x.dtype)[:, None] - middles)
    weights = weight(distance / clip(astype(ratio, x.dtype), min=1.0))
    weights = weights / total(weights, axis=0)
    return moveaxis(tensordot(x, weights, axes=([axis], [0])), -1, axis)


def _weighted(
    x: Tensor, axis: int, middles: Tensor, reach: int, weight: Callable[[Tensor], Tensor],
    spread: float,
) -> Tensor:  # fmt: skip
    """Sums of the elements that are nearer than `reach` to each middle."""
    last = x.shape[axis] - 1
    first = astype(FUNCTIONS["floor"](middles), "i64")
    places = [first + step for step in range(1 - reach, reach + 1)]
    weights = []
    for place in places:
        found = weight(absolute(astype(place, x.dtype) - middles) / spread)
        weights.append(where((place >= 0) & (place <= last), found, 0.0))
    whole = reduce(operator.add, weights)
    column = [-1 if at == axis else 1 for at in range(x.ndim)]
    terms = [
        take(x, clip(place, 0, last), axis=axis) * reshape(each / whole, column)
        for place, each in zip(places, weights, strict=True)
    ]
    return reduce(operator.add, terms)


@public
def center_crop(x: Any, size: Sequence[Any], /, *, axes: Sequence[int]) -> Tensor:
    """The middle of x, of `size` along `axes`."""
    value = value_of(x)
    places = axes_of(tuple(axes), type_of(value).rank)
    for axis, length in zip(places, map(as_dim, size), strict=True):
        own = shape_of(value)[axis]
        if isinstance(own, int) and isinstance(length, int) and length > own:
            raise UnsupportedNode(f"it crops {length} elements of axis {axis}, which has {own}")
        start = dims.floordiv(own - length, 2)
        value = current().sliced(value, axis, start, start + length)
    return given(value)


@public
def normalize(x: Any, /, mean: Any, std: Any, *, axis: int = -1) -> Tensor:
    """(x - mean) / std, where both are numbers, or have one for each place of `axis`: the channels.
    Integers become f32; they are not scaled: divide by 255 first, or give mean and std so."""
    trace, value = current(), floating(x)
    at = trace.normalize_axis(axis, type_of(value).rank)
    shape = [1] * type_of(value).rank
    shape[at] = -1
    for op, each in (("sub", mean), ("div", std)):
        element = type_of(value).dtype
        number = trace.convert(value_of(each, element), element)
        if type_of(number).rank:
            number = value_of(reshape(given(number), shape))
        value = trace.op(op, *trace.broadcast(value, number))
    return given(value)


# ---- boxes


def _columns(boxes: Any) -> list[Tensor]:
    value = value_of(boxes)
    if not type_of(value).rank or shape_of(value)[-1] != 4:
        raise UnsupportedNode(f"boxes are {value.type}, expected [..., 4]")
    return list(unstack(given(value), axis=-1))


@public
def box_convert(boxes: Any, in_fmt: str, out_fmt: str, /) -> Tensor:
    """Boxes [..., 4] in another form: "xyxy" (two corners), "xywh" (a corner and the size), or
    "cxcywh" (the middle and the size)."""
    if in_fmt not in _FORMATS or out_fmt not in _FORMATS:
        raise UnsupportedNode(f"the forms of boxes are {', '.join(_FORMATS)}")
    a, b, c, d = _columns(boxes)
    if in_fmt == "xyxy":
        x, y, w, h = a, b, c - a, d - b
    elif in_fmt == "xywh":
        x, y, w, h = a, b, c, d
    else:
        x, y, w, h = a - c / 2, b - d / 2, c, d
    if out_fmt == "xyxy":
        return stack([x, y, x + w, y + h], axis=-1)
    if out_fmt == "xywh":
        return stack([x, y, w, h], axis=-1)
    return stack([x + w / 2, y + h / 2, w, h], axis=-1)


@public
def decode_boxes(
    deltas: Any, anchors: Any, /, *, weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0)
) -> Tensor:
    """Corners (xyxy) from what a detector gives for each anchor: shifts of the middle in sizes of
    the anchor, and logarithms of the growth, each times a weight. Anchors are corners, too."""
    dx, dy, dw, dh = (each / weight for each, weight in zip(_columns(deltas), weights, strict=True))
    x, y, w, h = _columns(box_convert(anchors, "xyxy", "cxcywh"))
    exp = FUNCTIONS["exp"]
    return box_convert(
        stack([x + dx * w, y + dy * h, exp(dw) * w, exp(dh) * h], axis=-1), "cxcywh", "xyxy"
    )


@public
def non_max_suppression(
    boxes: Any, scores: Any, /, iou_threshold: Any, *, score_threshold: Any = None,
    max_count: Any = None,
) -> Tensor:  # fmt: skip
    """The places of the boxes that are kept, by falling score: i64[n], with n a dim that the call
    finds. `boxes` are corners [m, 4], `scores` [m]. A box that overlaps one kept before by more
    than `iou_threshold` (intersection over union) is left out, and one whose score is not above
    `score_threshold`. For boxes of several classes add an offset for each class."""
    trace = current()
    value, score = value_of(boxes), value_of(scores)
    if type_of(value).rank != 2 or type_of(score).rank != 1:
        raise UnsupportedNode(f"it takes f32[m,4] and f32[m], but got {value.type}, {score.type}")
    count = shape_of(score)[0]
    value = trace.agree(value, (count, 4))
    order = argsort(given(score), descending=True)
    candidates = full(as_size(count), True)
    if score_threshold is not None:
        candidates = take(given(score), order) > score_threshold
    lines: list[Value] = [
        trace.reshape(trace.op("transpose", value, permutation=(1, 0)), (1, 4, count)),
        trace.reshape(value_of(order), (1, 1, count)),
        trace.reshape(value_of(candidates), (1, 1, count)),
    ]
    limit = value_of(as_size(count) if max_count is None else max_count)
    overlap = trace.convert(value_of(iou_threshold, dtype("f32")), "f32")
    kept = trace.op("suppress", *lines, trace.convert(limit, "i64"), overlap)
    return order[given(trace.reshape(kept, (count,)))]
