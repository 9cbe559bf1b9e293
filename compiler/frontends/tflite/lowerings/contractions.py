"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.pooling import same_padding
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.frontends.tflite.quantized import as_codes_of_rows
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = ["add_bias"]

_LETTERS = {2: "hw", 3: "dhw"}


def add_bias(c: Context, x: Value, bias: Value | None, place: int) -> Value:
    """x plus input `place`, one number per index of the last axis; its codes have 32 bits or
    more."""
    if bias is None:
        return x
    spread = c.broadcast_to(c.convert(c.number(place, bias), type_of(x).dtype), shape_of(x))
    return c.op("add", x, spread)


def _coded(c: Context, x: Value, axes: Sequence[int], is_symmetric: bool) -> Value:
    """Numbers as rows of codes, which lie along `axes`, if the weight is signed bytes."""
    given, weight = c.inputs[:2]
    assert given is not None
    assert weight is not None
    q, element = weight.quantization, weight.dtype
    is_coded = q is not None and weight.data is not None and not any(q.zeros)
    fits = is_coded and element.kind == "i" and element.bits <= 8
    if not fits or given.dtype is not type_of(x).dtype:
        return x
    return as_codes_of_rows(c, x, axes, is_symmetric)


@lowering("FULLY_CONNECTED")
def fully_connected(c: Context, x: Value, w: Value, bias: Value | None = None) -> Value:
    """[..., k] by [n, k]; without `keep_num_dims` the result has rank 2."""
    if c.options.weights_format:
        raise UnsupportedNode("its weights are shuffled: convert the model without that")
    depth = shape_of(w)[1]
    shape = shape_of(x)
    if not c.options.keep_num_dims or (shape and shape[-1] != depth):
        count = dims.product(shape)
        rows = dims.product(shape[:-1])
        rows = rows if shape and shape[-1] == depth else dims.floordiv(count, depth)
        x = c.reshaped(x, (rows, depth))
    rank = type_of(x).rank
    x = _coded(c, x, [rank - 1], not c.options.asymmetric_quantize_inputs)
    return add_bias(c, c.dot(x, w, (rank - 1, 1)), bias, 2)


@lowering("BATCH_MATMUL")
def batch_matmul(c: Context, a: Value, b: Value) -> Value:
    rank = max(type_of(a).rank, type_of(b).rank)
    batch = c.common_shape(shape_of(a)[:-2], shape_of(b)[:-2])
    a, b = (c.broadcast_to(each, (*batch, *shape_of(each)[-2:])) for each in (a, b))
    if c.options.adj_x:
        a = c.transpose(a, (*range(rank - 2), rank - 1, rank - 2))
    axis = rank - 1 if c.options.adj_y else rank - 2
    a = _coded(c, a, [rank - 1], not c.options.asymmetric_quantize_inputs)
    return c.dot(a, b, (rank - 1, axis), rank - 2)


def _convolve(
    c: Context,
    x: Value,
    w: Value,
    weights: str,
    strides: Sequence[int],
    pairs: Sequence[tuple[Dim, Dim]],
    dilations: Sequence[int],
    groups: int,
    spread: Sequence[int] | None = None,
) -> Value:
    letters = _LETTERS[len(strides)]
    return c.op(
        "convolution",
        x,
        w,
        layout=f"n{letters}c,{weights}->n{letters}c",
        strides=tuple(strides),
        padding=tuple(pairs),
        lhs_dilation=tuple(spread or (1,) * len(strides)),
        rhs_dilation=tuple(dilations),
        groups=groups,
        dtype=type_of(x).dtype,
    )


def _steps(c: Context) -> tuple[list[int], list[int]]:
    """Strides and dilations."""
    options = c.options
    names = [name for name in "dhw" if hasattr(options, f"stride_{name}")]
    strides = [getattr(options, f"stride_{name}") for name in names]
    dilations = [getattr(options, f"dilation_{name}", 1) for name in names]
    if min(*strides, *dilations) < 1:
        raise UnsupportedNode(f"its strides are {strides}, its dilations {dilations}: fix them")
    return strides, dilations


def _pairs(
    c: Context, x: Value, window: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[Dim, Dim], ...]:
    if c.options.padding:  # VALID
        return ((0, 0),) * len(strides)
    return same_padding(shape_of(x)[1:-1], window, strides, dilations)


@lowering("CONV_2D")
def convolution(c: Context, x: Value, w: Value, bias: Value | None = None) -> Value:
    """Weights [o, h, w, i]; channels that are more than i are in groups."""
    strides, dilations = _steps(c)
    pairs = _pairs(c, x, shape_of(w)[1:-1], strides, dilations)
    groups = _quotient(shape_of(x)[3], shape_of(w)[3])
    q = None if c.inputs[1] is None else c.inputs[1].quantization
    x = _coded(c, x, (1, 2, 3), q is not None and len(q.scales) == 1)
    result = _convolve(c, x, w, "ohwi", strides, pairs, dilations, groups)
    return add_bias(c, result, bias, 2)


def _quotient(channels: Dim, inner: Dim) -> int:
    if not isinstance(channels, int) or not isinstance(inner, int) or channels % inner:
        raise UnsupportedNode(f"x has {channels} channels, the weights are for {inner}")
    return channels // inner


@lowering("DEPTHWISE_CONV_2D")
def depthwise_convolution(c: Context, x: Value, w: Value, bias: Value | None = None) -> Value:
    """Weights [1, h, w, channels * multiplier]."""
    strides, dilations = _steps(c)
    pairs = _pairs(c, x, shape_of(w)[1:-1], strides, dilations)
    groups = _quotient(shape_of(x)[3], 1)
    x = _coded(c, x, (1, 2, 3), is_symmetric=False)
    result = _convolve(c, x, w, "ihwo", strides, pairs, dilations, groups)
    return add_bias(c, result, bias, 2)


@lowering("CONV_3D")
def convolution_3d(c: Context, x: Value, w: Value, bias: Value | None = None) -> Value:
    """Weights [d, h, w, i, o]."""
    strides, dilations = _steps(c)
    pairs = _pairs(c, x, shape_of(w)[:3], strides, dilations)
    groups = _quotient(shape_of(x)[4], shape_of(w)[3])
    result = _convolve(c, x, w, "dhwio", strides, pairs, dilations, groups)
    return add_bias(c, result, bias, 2)


@lowering("TRANSPOSE_CONV")
def transposed_convolution(
    c: Context, shape: Value, w: Value, x: Value, bias: Value | None = None
) -> Value:
    """Weights [o, h, w, i]."""
    return _transposed(c, shape, w, x, bias, "ohwi", shape_of(w)[1:3])


@lowering("CONV_3D_TRANSPOSE")
def transposed_convolution_3d(
    c: Context, shape: Value, w: Value, x: Value, bias: Value | None = None
) -> Value:
    """Weights [d, h, w, o, i]."""
    return _transposed(c, shape, w, x, bias, "dhwoi", shape_of(w)[:3])


def _transposed(
    c: Context,
    shape: Value,
    w: Value,
    x: Value,
    bias: Value | None,
    weights: str,
    window: Sequence[Dim],
) -> Value:
    """A convolution over x with zeros between its elements, the window turned around."""
    strides, dilations = _steps(c)
    sizes = c.dims(shape)[1:-1]
    forward: tuple[tuple[Dim, Dim], ...] = ((0, 0),) * len(sizes)
    if not c.options.padding:
        forward = same_padding(sizes, window, strides, dilations)
    pairs: list[tuple[Dim, Dim]] = []
    columns = zip(shape_of(x)[1:-1], sizes, window, strides, dilations, forward, strict=True)
    for own, size, n, stride, dilation, (before, _) in columns:
        low = (n - 1) * dilation - before
        spread = (own - 1) * stride + 1
        pairs.append((low, size + (n - 1) * dilation - spread - low))
    axes = tuple(at for at, letter in enumerate(weights) if letter in "dhw")
    turned = c.op("reverse", w, axes=axes)
    ones = [1] * len(sizes)
    result = _convolve(c, x, turned, weights, ones, pairs, dilations, 1, strides)
    return add_bias(c, result, bias, 3)
