"""DFT, STFT and the matrix of mel weights. Complex numbers are pairs in the last dim."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.fourier import Pair, both_sides, transform
from ingot.compiler.frontends.onnx.choices import axes_of
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("DFT", since=17)
def dft_by_attribute(node: Node) -> Value:
    return _dft(node, node.axis(1, type_of(node.input(0)).rank))


@lowering("DFT", since=20)
def dft(node: Node) -> Value:
    rank = type_of(node.input(0)).rank
    (axis,) = axes_of(node, 2, rank, "axis", among=range(rank - 1)) or (rank - 2,)
    return _dft(node, axis)


def _dft(node: Node, axis: int) -> Value:
    """f32[..., n, ..., 1 or 2] -> f32[..., k, ..., 2], or 1 for an inverse of one side."""
    x = widen(node, node.input(0))
    shape = shape_of(x)
    rank = len(shape)
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    unsupported(rank < 2 or axis == rank - 1, f"axis {axis} of {x.type} holds real and imaginary")
    unsupported(shape[-1] not in (1, 2), f"the last dim of {x.type} must be 1 or 2")
    length = _length(node, shape[axis], inverse and onesided)
    pair = _parts(node, x)
    order = (*(each for each in range(rank - 1) if each != axis), axis)
    moved = tuple(None if part is None else node.transpose(part, order) for part in pair)
    real, imaginary = moved
    assert real is not None
    if inverse and onesided:
        half = length // 2 + 1
        real = _fit(node, real, half)
        imaginary = node.fill(0, like=real) if imaginary is None else _fit(node, imaginary, half)
        real, imaginary = both_sides(node.builder, (real, imaginary), length)
    fitted = (
        _fit(node, real, length),
        None if imaginary is None else _fit(node, imaginary, length),
    )
    a, b = transform(node.builder, fitted, inverse)
    results = [a] if inverse and onesided else [a, b]
    if inverse:
        results = [node.op("div", each, node.fill(length, like=each)) for each in results]
    elif onesided:
        results = [_fit(node, each, length // 2 + 1) for each in results]
    back = [order.index(each) for each in range(rank - 1)]
    columns = [node.transpose(each, back) for each in results]
    columns = [node.reshape(each, (*shape_of(each), 1)) for each in columns]
    whole = columns[0] if len(columns) == 1 else node.op("concatenate", *columns, axis=rank - 1)
    return narrow(node, whole, node.input(0))


def _length(node: Node, dim: Dim, is_one_side: bool) -> int:
    """How many points are transformed."""
    if node.optional(1) is not None:
        given = node.elements(1, "dft_length")[0]
    else:
        given = 2 * (dim - 1) if is_one_side else dim
    if not isinstance(given, int) or given < 1:
        raise UnsupportedNode(f"a transform of length {given}: export it with a fixed one")
    return bounded(given, "the length of a transform")


def _parts(node: Node, x: Value) -> Pair:
    """The real and imaginary parts of [..., 1 or 2]."""
    shape = shape_of(x)
    start = (0,) * (len(shape) - 1)
    parts = [
        node.reshape(
            node.op("slice", x, start=(*start, place), limit=(*shape[:-1], place + 1)), shape[:-1]
        )
        for place in range(int(shape[-1]))  # type: ignore[arg-type]
    ]
    return parts[0], parts[1] if len(parts) > 1 else None


def _fit(node: Node, x: Value, length: int) -> Value:
    """The last axis cut or filled with zeros to `length`."""
    shape = shape_of(x)
    missing = length - shape[-1]
    if missing == 0:
        return x
    zeros = (0,) * len(shape)
    element = node.constant(0, type_of(x).dtype)
    return node.op("pad", x, element, low=zeros, high=(*zeros[1:], missing), interior=zeros)


@lowering("STFT", since=17)
def stft(node: Node) -> Value:
    """f32[b, n, 1 or 2] -> f32[b, frames, k, 2]: transforms of windows that move along."""
    x = widen(node, node.input(0))
    shape = shape_of(x)
    unsupported(len(shape) != 3 or shape[2] not in (1, 2), f"its signal is {x.type}: use [b, n, 1]")
    step = int(node.elements(1, "frame_step")[0])
    window = node.optional(2)
    length = shape_of(window)[0] if window is not None else None
    if node.optional(3) is not None:
        length = node.elements(3, "frame_length")[0]
    if not isinstance(length, int) or length < 1 or step < 1:
        raise UnsupportedNode(f"frames of {length} elements every {step}: both must be positive")
    bounded(length, "the length of a frame")
    frames = (shape[1] - length) // step + 1
    parts: list[Value | None] = []
    for part in _parts(node, x):
        if part is None:
            parts.append(None)
            continue
        starts = node.op("iota", dtype=dtype("i64"), shape=(frames, length), axis=0)
        starts = node.op("mul", starts, node.fill(step, like=starts))
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
        results = tuple(_fit(node, each, length // 2 + 1) for each in results)  # type: ignore[assignment]
    columns = [node.reshape(each, (*shape_of(each), 1)) for each in results]
    return narrow(node, node.op("concatenate", *columns, axis=3), node.input(0))


@lowering("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node) -> Value:
    """[dft_length / 2 + 1, num_mel_bins]: triangles that are equally wide on the mel scale."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    numbers = [node.elements(place, name)[0] for place, name in enumerate(names)]
    bins, length, rate = (int(number) for number in numbers[:3])
    low, high = (2595 * np.log1p(float(each) / 700) / np.log(10) for each in numbers[3:])
    unsupported(bins < 1 or length < 1 or rate < 1, f"{bins} bins of {length} points at {rate} Hz")
    bounded(bins * length, "the count of weights")
    mels = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    hertz = 700 * np.expm1(mels / 2595 * np.log(10))
    edges = ((length + 1) * hertz // rate).astype(int)
    unsupported(bool(edges[-1] > length // 2 + 1), f"the band ends above {rate} / 2 Hz")
    weights = np.zeros((length // 2 + 1, bins))
    for place, (left, center, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = np.arange(left, center + 1)
        falling = np.arange(center, right)
        weights[rising, place] = (rising - left) / (center - left) if center > left else 1.0
        if right > center:
            weights[falling, place] = (right - falling) / (right - center)
    return node.constant(weights, dtype_of(node.integer("output_datatype", 1)) or dtype("f32"))
