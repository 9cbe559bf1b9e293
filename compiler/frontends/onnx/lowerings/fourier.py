"""DFT, STFT and the matrix of mel weights. Complex numbers are pairs in the last dim."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.fourier import Pair, both_sides, fitted, transform
from ingot.compiler.frontends.onnx.choices import axes_of
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.frontends.sampling import filled
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("DFT", since=17)
def dft_by_attribute(node: Node) -> Value:
    return _dft(node, node.axis(1, type_of(node.input(0)).rank))


@lowering("DFT", since=20)
def dft(node: Node) -> Value:
    rank = type_of(node.input(0)).rank
    short = _is_one_sided_inverse(node) and node.optional(1) is None
    lengths = enumerate(shape_of(node.input(0))[:-1])
    among = [axis for axis, dim in lengths if not (short and dim == 1)]  # a length of 2 * (1 - 1)
    (axis,) = axes_of(node, 2, rank, "axis", among=among) or (rank - 2,)
    return _dft(node, axis)


def _is_one_sided_inverse(node: Node) -> bool:
    return bool(node.integer("inverse", 0) and node.integer("onesided", 0))


def _dft(node: Node, axis: int) -> Value:
    """f32[..., n, ..., 1 or 2] -> f32[..., k, ..., 2], or 1 for an inverse of one side."""
    x = widen(node, node.input(0))
    shape = shape_of(x)
    rank = len(shape)
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    unsupported(rank < 2 or axis == rank - 1, f"axis {axis} of {x.type} holds real and imaginary")
    length = _length(node, shape[axis], inverse and onesided)
    pair = _parts(node, x)
    order = (*(each for each in range(rank - 1) if each != axis), axis)
    moved = tuple(None if part is None else node.transpose(part, order) for part in pair)
    real, imaginary = moved
    assert real is not None
    if inverse and onesided:
        half = length // 2 + 1
        real = fitted(node, real, -1, half)
        imaginary = (
            node.fill(0, like=real) if imaginary is None else fitted(node, imaginary, -1, half)
        )
        real, imaginary = both_sides(node.builder, (real, imaginary), length)
    sized = (
        fitted(node, real, -1, length),
        None if imaginary is None else fitted(node, imaginary, -1, length),
    )
    a, b = transform(node.builder, sized, inverse)
    results = [a] if inverse and onesided else [a, b]
    if inverse:
        results = [node.op("div", each, filled(node, length, each)) for each in results]
    elif onesided:
        results = [fitted(node, each, -1, length // 2 + 1) for each in results]
    back = [order.index(each) for each in range(rank - 1)]
    columns = [node.transpose(each, back) for each in results]
    columns = [node.reshape(each, (*shape_of(each), 1)) for each in columns]
    whole = columns[0] if len(columns) == 1 else node.op("concatenate", *columns, axis=rank - 1)
    return narrow(node, whole, node.input(0))


def _length(node: Node, dim: Dim, is_one_side: bool) -> Dim:
    """How many points are transformed."""
    given = 2 * (dim - 1) if is_one_side else dim
    if node.optional(1) is not None:
        given = _positive(node, 1, "the length of a transform")
    unsupported(isinstance(given, int) and given < 1, f"a transform of length {given}")
    return bounded(given, "the length of a transform") if isinstance(given, int) else given


def _positive(node: Node, index: int, what: str) -> Dim:
    """The only element of an input as a dim, which is at least 1."""
    part = node.parts(index)[0]
    hint = f"{node.proto.output[0]}_{index}"
    return node.define_size(part, hint, what, low=1)


def _parts(node: Node, x: Value) -> Pair:
    """The real and imaginary parts of [..., 1 or 2]."""
    shape = shape_of(x)
    count = shape[-1]
    low, high = dims.bounds(count)
    unsupported(low > 2 or high < 1, f"the last dim of {x.type} must be 1 or 2")
    for a, b in ((1, count), (count, 2)):
        if not dims.prove_le(a, b):
            node.builder.append("assert", (), (), {"kind": "le", "a": a, "b": b})

    def part(first: Dim) -> Value:
        return node.reshape(node.sliced(x, -1, first, first + 1), shape[:-1])

    real = part(0)
    if count == 1:
        return real, None
    last = part(count - 1)
    if count == 2:
        return real, last
    is_pair = node.compare("eq", node.size(count), node.size(2))
    spread = node.broadcast_to(is_pair, shape_of(last))
    return real, node.op("select", spread, last, 0)


@lowering("STFT", since=17)
def stft(node: Node) -> Value:
    """f32[b, n, 1 or 2] -> f32[b, frames, k, 2]: transforms of windows that move along."""
    x = widen(node, node.input(0))
    shape = shape_of(x)
    unsupported(len(shape) != 3, f"its signal is {x.type}: use [b, n, 1]")
    step = _positive(node, 1, "the step between frames")
    window = node.optional(2)
    length: Dim = shape_of(window)[0] if window is not None else 0
    if node.optional(3) is not None:
        length = _positive(node, 3, "the length of a frame")
        window = None if window is None else node.agree(window, (length,))
    small = any(isinstance(each, int) and each < 1 for each in (length, step))
    unsupported(small, f"frames of {length} elements every {step}: both must be positive")
    if isinstance(length, int):
        bounded(length, "the length of a frame")
    frames = (shape[1] - length) // step + 1
    parts: list[Value | None] = []
    for part in _parts(node, x):
        if part is None:
            parts.append(None)
            continue
        starts = node.op("iota", dtype=dtype("i64"), shape=(frames, length), axis=0)
        starts = node.op("mul", starts, filled(node, step, starts))
        offsets = node.op("iota", dtype=dtype("i64"), shape=(frames, length), axis=1)
        cut = node.op("take", part, node.op("add", starts, offsets), axis=1, mode="clamp")
        if window is not None:
            weights = node.convert(window, type_of(cut).dtype)
            cut = node.op("mul", cut, node.broadcast_to(weights, shape_of(cut)))
        parts.append(cut)
    real, imaginary = parts
    assert real is not None
    results = transform(node.builder, (real, imaginary))
    if node.integer("onesided", 1):
        results = tuple(fitted(node, each, -1, length // 2 + 1) for each in results)  # type: ignore[assignment]
    columns = [node.reshape(each, (*shape_of(each), 1)) for each in results]
    return narrow(node, node.op("concatenate", *columns, axis=3), node.input(0))


@lowering("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node) -> Value:
    """[dft_length / 2 + 1, num_mel_bins]: triangles that are equally wide on the mel scale."""
    bins, length, rate = (
        _positive(node, place, what)
        for place, what in enumerate(("the count of bins", "the length", "the sample rate"))
    )
    least = min(each for each in (bins, length, rate, 1) if isinstance(each, int))
    unsupported(least < 1, f"{bins} bins of {length} points at {rate} Hz")
    low, high = (
        _mels(node, node.convert(node.reshape(node.input(place), ()), "f64")) for place in (3, 4)
    )
    count = bins + 2
    places = node.op("iota", dtype=dtype("f64"), shape=(count,), axis=0)
    width = node.op("div", node.op("sub", high, low), node.size(count, "f64"))
    mels = node.op("mul", places, node.broadcast_to(width, (count,)))
    mels = node.op("add", mels, node.broadcast_to(low, (count,)))
    edges = node.op("mul", _hertz(node, mels), filled(node, length + 1, mels))
    edges = node.op("floor", node.op("div", edges, filled(node, rate, edges)))
    half = length // 2 + 1
    last = node.sliced(edges, 0, bins + 1, count)
    last = node.op("max", node.convert(node.reshape(last, ()), "i64"), node.size(half))
    node.require(last, half, "the greatest bin, that of upper_edge_hertz,")
    shape = (half, bins)
    left, center, right = (
        node.op(
            "broadcast",
            node.sliced(edges, 0, place, place + bins),
            shape=shape,
            dimensions=(1,),
        )
        for place in range(3)
    )
    at = node.op("iota", dtype=dtype("f64"), shape=shape, axis=0)
    zero, one = (node.fill(number, like=at) for number in (0, 1))
    rise, fall = node.op("sub", center, left), node.op("sub", right, center)
    rising = node.op("div", node.op("sub", at, left), node.op("max", rise, one))
    rising = node.op("select", node.compare("eq", rise, zero), one, rising)
    falling = node.op("div", node.op("sub", right, at), node.op("max", fall, one))
    rises = node.op("and", node.compare("ge", at, left), node.compare("le", at, center))
    falls = node.op("and", node.compare("ge", at, center), node.compare("lt", at, right))
    weights = node.op("select", falls, falling, node.op("select", rises, rising, zero))
    return node.convert(weights, dtype_of(node.integer("output_datatype", 1)) or dtype("f32"))


def _mels(node: Node, hertz: Value) -> Value:
    """2595 * log10(1 + hertz / 700)"""
    ratio = node.op("div", hertz, 700)
    return node.op("mul", node.op("log1p", ratio), 2595 / np.log(10))


def _hertz(node: Node, mels: Value) -> Value:
    """700 * (10 ** (mels / 2595) - 1)"""
    power = node.op("mul", mels, np.log(10) / 2595)
    return node.op("mul", node.op("expm1", power), 700)
