"""Images read at computed places.

`read_pixels` reads whole pixels, in any number of spatial dims, at integer places that may lie
outside; interpolation is a weighted sum of such reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ingot.compiler.frontends.emitter import (
    Emitter,
    UnsupportedNode,
    shape_of,
    type_of,
    unsupported,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["affine_grid", "deform_conv", "filled", "grid_sample", "linear_weights", "read_pixels"]

_I64 = dtype("i64")
_KEYS = -0.75  # the parameter of cubic convolution


def read_pixels(node: Emitter, x: Value, batch: Value, places: Sequence[Value]) -> Value:
    """x[batch, :, places...]: [b, c, spatial...] at i64[p...] each -> [p..., c], clamped into x."""
    shape = shape_of(x)
    last = node.transpose(x, (0, *range(2, len(shape)), 1))
    rows = node.reshape(last, (dims.product((shape[0], *shape[2:])), shape[1]))
    index = batch
    for place, dim in zip(places, shape[2:], strict=True):
        low, high = node.fill(0, like=place), filled(node, dim - 1, place)
        inside = node.op("clamp", low, place, high)
        index = node.op("add", node.op("mul", index, filled(node, dim, index)), inside)
    return node.op("take", rows, index, axis=0, mode="clamp")


def filled(node: Emitter, number: Dim | float, like: Value) -> Value:
    """A dim or a number in the shape and dtype of `like`."""
    if isinstance(number, (int, float)):
        return node.fill(number, like=like)
    return node.broadcast_to(node.size(number, type_of(like).dtype), shape_of(like))


def _whole(node: Emitter, x: Value) -> Value:
    return node.convert(x, _I64)


def _inside_of(node: Emitter, places: Sequence[Value], spatial: Sequence[Dim]) -> Value:
    """i1[p]: whether a place lies in the image."""
    result: Value | None = None
    for place, dim in zip(places, spatial, strict=True):
        low = node.compare("ge", place, 0)
        high = node.compare("lt", place, filled(node, dim, place))
        both = node.op("and", low, high)
        result = both if result is None else node.op("and", result, both)
    assert result is not None
    return result


Reader = Callable[[Sequence[Value]], Value]
"""Pixels [p, c] at integer places i64[p] per spatial dim."""


def _weighted(
    node: Emitter, read: Reader, columns: Sequence[Sequence[tuple[Value, Value]]]
) -> Value:
    """The sum of pixels at all combinations of (place, weight) per dim, times their weights."""
    total: Value | None = None
    for corner in itertools.product(*columns):
        weight = corner[0][1]
        for _, factor in corner[1:]:
            weight = node.op("mul", weight, factor)
        pixel = read([place for place, _ in corner])
        spread = node.op(
            "broadcast",
            node.convert(weight, type_of(pixel).dtype),
            shape=shape_of(pixel),
            dimensions=(0,),
        )
        term = node.op("mul", pixel, spread)
        total = term if total is None else node.op("add", total, term)
    assert total is not None
    return total


def linear_weights(node: Emitter, at: Value) -> list[tuple[Value, Value]]:
    """The two neighbours of each coordinate and their weights."""
    first = node.op("floor", at)
    ratio = node.op("sub", at, first)
    place = _whole(node, first)
    rest = node.op("sub", 1, ratio)
    return [(place, rest), (node.op("add", place, 1), ratio)]


def _cubic_weights(node: Emitter, at: Value) -> list[tuple[Value, Value]]:
    """The four neighbours of each coordinate and their weights, by cubic convolution."""
    first = node.op("floor", at)
    ratio = node.op("sub", at, first)
    place = _whole(node, first)
    result = []
    coefficients: tuple[float, ...]
    for step in (-1, 0, 1, 2):
        distance = node.op("abs", node.op("sub", ratio, step))
        if step in (0, 1):
            coefficients = (_KEYS + 2, -(_KEYS + 3), 0, 1)
        else:
            coefficients = (_KEYS, -5 * _KEYS, 8 * _KEYS, -4 * _KEYS)
        weight = node.fill(coefficients[0], like=distance)
        for each in coefficients[1:]:
            weight = node.op("mul", weight, distance)
            weight = node.op("add", weight, each)
        result.append((node.op("add", place, step), weight))
    return result


def _reflected(node: Emitter, at: Value, low: Value, high: Value) -> Value:
    """Coordinates outside of [low, high] folded back into it, as often as needed."""
    span = node.op("sub", high, low)
    zero = node.fill(0, like=at)
    span = node.op("select", node.compare("gt", span, zero), span, 1)
    beyond = node.op("sub", at, low)
    beyond = node.op("abs", beyond)
    turns = node.op("floor", node.op("div", beyond, span))
    rest = node.op("sub", beyond, node.op("mul", turns, span))
    odd = node.op("rem", turns, 2)
    forward, backward = node.op("add", low, rest), node.op("sub", high, rest)
    folded = node.op("select", node.compare("eq", odd, zero), forward, backward)
    inside = node.op("and", node.compare("ge", at, low), node.compare("le", at, high))
    return node.op("select", inside, at, folded)


def grid_sample(
    node: Emitter,
    x: Value,
    grid: Value,
    kind: str,
    padding: str,
    aligned: bool,
    is_rounded_first: bool,
) -> Value:
    """[b, c, spatial...] at grid[b, places..., n], in -1 ... 1 and x first: [b, c, places...].

    `kind` is linear, nearest or cubic, `padding` zeros, border or reflection. Coordinates are
    rounded before they are moved into the image where `is_rounded_first` says so, as ONNX does;
    torch rounds what was moved. Of cubic convolution the neighbours are moved, not the middle, as
    torch and onnxruntime do, not ONNX's reference.
    """
    spatial, where = shape_of(x)[2:], shape_of(grid)[1:-1]
    unsupported(len(where) != len(spatial), f"its grid {grid.type} does not fit {x.type}")
    grid = node.agree(grid, (shape_of(x)[0], *where, len(spatial)))
    count = dims.product(shape_of(grid)[:-1])
    flat = node.reshape(grid, (count, len(spatial)))
    at, bounds = [], []
    for axis, dim in enumerate(spatial):
        column = len(spatial) - 1 - axis
        value = node.sliced(flat, 1, column, column + 1)
        value = node.reshape(value, (count,))
        value = node.op("add", value, 1)
        length = filled(node, dim - 1 if aligned else dim, value)
        value = node.op("mul", value, length)
        if not aligned:
            value = node.op("sub", value, 1)
        at.append(node.op("mul", value, 0.5))
        edge = 0.0 if aligned else -0.5
        high = node.op("sub", filled(node, dim, value), 1 + edge)
        bounds.append((node.fill(edge, like=value), high))
    if kind == "nearest" and is_rounded_first:
        at = [node.op("round_even", each) for each in at]
    if kind != "cubic":
        at = _moved_inside(node, at, bounds, spatial, padding)
    read = _grid_reader(node, x, count, bounds, padding)
    if kind == "nearest":
        sampled = read([_whole(node, node.op("round_even", each)) for each in at])
    else:
        weights = linear_weights if kind == "linear" else _cubic_weights
        sampled = _weighted(node, read, [weights(node, each) for each in at])
    result = node.reshape(sampled, (shape_of(x)[0], *where, shape_of(x)[1]))
    return node.transpose(result, (0, len(where) + 1, *range(1, len(where) + 1)))


def _moved_inside(
    node: Emitter,
    at: Sequence[Value],
    bounds: Sequence[tuple[Value, Value]],
    spatial: Sequence[Dim],
    padding: str,
) -> list[Value]:
    """Coordinates beyond the edges of the image moved into it, by the padding mode."""
    if padding == "zeros":
        return list(at)
    result = []
    for each, (low, high), dim in zip(at, bounds, spatial, strict=True):
        if padding == "reflection":
            result.append(_reflected(node, each, low, high))
            continue
        beyond = node.op("or", node.compare("lt", each, low), node.compare("gt", each, high))
        moved = node.op("clamp", node.fill(0, like=each), each, filled(node, dim - 1, each))
        result.append(node.op("select", beyond, moved, each))
    return result


def _grid_reader(
    node: Emitter, x: Value, count: Dim, bounds: Sequence[tuple[Value, Value]], padding: str
) -> Reader:
    batch = node.op(
        "iota", dtype=_I64, shape=(shape_of(x)[0], _over(count, shape_of(x)[0])), axis=0
    )
    batch = node.reshape(batch, (count,))

    def read(places: Sequence[Value]) -> Value:
        if padding == "reflection":
            places = [
                _whole(node, _reflected(node, node.convert(each, type_of(pair[0]).dtype), *pair))
                for each, pair in zip(places, bounds, strict=True)
            ]
        pixels = read_pixels(node, x, batch, places)
        if padding != "zeros":
            return pixels
        return _zero_outside(node, pixels, places, shape_of(x)[2:])

    return read


def _zero_outside(
    node: Emitter, pixels: Value, places: Sequence[Value], spatial: Sequence[Dim]
) -> Value:
    inside = _inside_of(node, places, spatial)
    spread = node.op("broadcast", inside, shape=shape_of(pixels), dimensions=(0,))
    return node.op("select", spread, pixels, 0)


def _over(count: Dim, parts: Dim) -> Dim:
    """How many elements each of `parts` equal parts has."""
    if count == 0 or parts == 0:
        return 0
    return (
        count // parts
        if isinstance(count, int) and isinstance(parts, int)
        else dims.floordiv(count, parts)
    )


def deform_conv(
    node: Emitter,
    x: Value,
    w: Value,
    offset: Value,
    mask: Value | None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    low: Sequence[Dim],
    groups: int,
    parts: int,
) -> Value:
    """A convolution [b, c, h, w] that reads element t of its window moved by offset[b, 2 * (part,
    t) + axis, places...], times mask[b, (part, t), places...]; `low` is the padding in front, and
    `parts` of the channels have offsets of their own."""
    batch, channels = shape_of(x)[:2]
    rows, columns = shape_of(offset)[2:]
    taps = dims.product(shape_of(w)[2:])
    if not isinstance(channels, int) or not isinstance(taps, int) or channels % parts:
        raise UnsupportedNode(
            f"{x.type} with {parts} offset groups: use known channels and windows"
        )
    shape = (batch, parts, taps, rows, columns)
    offsets = node.reshape(offset, (batch, parts, taps, 2, rows, columns))
    images = node.reshape(x, (batch * parts, channels // parts, *shape_of(x)[2:]))
    at = []
    for axis in (0, 1):
        moved = node.reshape(node.sliced(offsets, 3, axis, axis + 1), shape)
        base = _tap_places(node, shape, axis, shape_of(w)[2:], strides, dilations)
        base = node.op("sub", base, filled(node, low[axis], base))
        place = node.op("add", moved, node.convert(base, type_of(offset).dtype))
        at.append(node.reshape(place, (dims.product(shape),)))
    image = node.op("iota", dtype=_I64, shape=(batch * parts, taps * rows * columns), axis=0)
    image = node.reshape(image, (dims.product(shape),))

    def read(places: Sequence[Value]) -> Value:
        pixels = read_pixels(node, images, image, places)
        return _zero_outside(node, pixels, places, shape_of(x)[2:])

    sampled = _weighted(node, read, [linear_weights(node, each) for each in at])
    sampled = node.reshape(sampled, (*shape, channels // parts))
    if mask is not None:
        factor = node.reshape(mask, shape)
        factor = node.op("broadcast", factor, shape=shape_of(sampled), dimensions=tuple(range(5)))
        sampled = node.op("mul", sampled, factor)
    ordered = node.transpose(sampled, (0, 1, 5, 2, 3, 4))  # [b, parts, c / parts, taps, h, w]
    return _grouped_product(
        node, node.reshape(ordered, (batch, channels, taps, rows, columns)), w, groups
    )


def _tap_places(
    node: Emitter,
    shape: Sequence[Dim],
    axis: int,
    sizes: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Value:
    """Where each element of each window lies along an axis, without padding: i64[shape]."""
    tap = node.op("iota", dtype=_I64, shape=tuple(shape), axis=2)
    width = filled(node, sizes[1], tap)
    tap = node.op("div" if axis == 0 else "rem", tap, width)
    place = node.op("iota", dtype=_I64, shape=tuple(shape), axis=3 + axis)
    moved = node.op("mul", place, strides[axis])
    return node.op("add", moved, node.op("mul", tap, dilations[axis]))


def _grouped_product(node: Emitter, columns: Value, w: Value, groups: int) -> Value:
    """[b, c, taps, h, w] times [o, c / groups, taps...] -> [b, o, h, w]."""
    batch, channels, taps, rows, width = shape_of(columns)
    outputs = shape_of(w)[0]
    depth = dims.floordiv(channels * taps, groups)
    split = node.reshape(columns, (batch, groups, depth, rows * width))
    weights = node.reshape(w, (groups, dims.floordiv(outputs, groups), depth))
    product = node.op(
        "dot_general",
        weights,
        split,
        lhs_batch=(0,),
        rhs_batch=(1,),
        lhs_contract=(2,),
        rhs_contract=(2,),
        dtype=type_of(columns).dtype,
    )  # [groups, o / groups, b, h * w]
    moved = node.transpose(product, (2, 0, 1, 3))
    return node.reshape(moved, (batch, outputs, rows, width))


def affine_grid(node: Emitter, theta: Value, spatial: Sequence[Dim], aligned: bool) -> Value:
    """theta[b, n, n + 1] times the coordinates of an image: [b, spatial..., n]. They go from -1 to
    1, which are the middles of the outermost pixels if `aligned`, else their edges. The middle of a
    single pixel is 0."""
    element, shape = type_of(theta).dtype, (dims.product(spatial), 1)
    columns = []
    for axis in reversed(range(len(spatial))):  # x first
        places = node.op("iota", dtype=_I64, shape=tuple(spatial), axis=axis)
        twice = node.op("add", *[node.convert(places, element)] * 2)
        size = filled(node, spatial[axis], twice)
        last = node.op("sub", size, 1)
        half = node.op("max", last, 1) if aligned else size
        columns.append(node.reshape(node.op("div", node.op("sub", twice, last), half), shape))
    points = node.op("concatenate", *columns, node.full(1, element, shape), axis=1)
    product = node.op("dot_general", theta, points, lhs_contract=(2,), rhs_contract=(1,))
    moved = node.transpose(product, (0, 2, 1))
    return node.reshape(moved, (shape_of(theta)[0], *spatial, len(spatial)))
