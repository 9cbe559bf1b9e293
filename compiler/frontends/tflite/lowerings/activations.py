"""Activations, normalisations and softmax."""

from __future__ import annotations

import math

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import softmax as normalized_exponentials
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.ir import Value

__all__ = ["activate"]

_RANGES = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


def activate(c: Context, x: Value, kind: int) -> Value:
    """What a fused activation makes of x."""
    if kind in _RANGES:
        return _limited(c, x, *_RANGES[kind])
    if kind == 4:
        return c.op("tanh", x)
    if kind != 0:
        raise UnsupportedNode(f"its fused activation has the number {kind}, expected 0 to 4")
    return x


def _limited(c: Context, x: Value, low: float, high: float | None) -> Value:
    if high is None:
        return c.op("max", x, low)
    return c.op("clamp", low, x, high)


def _register(name: str, low: float, high: float | None) -> None:
    lowering(name)(lambda c, x: _limited(c, x, low, high))


_register("RELU", 0.0, None)
_register("RELU6", 0.0, 6.0)
_register("RELU_N1_TO_1", -1.0, 1.0)
_register("RELU_0_TO_1", 0.0, 1.0)


@lowering("LEAKY_RELU")
def leaky_relu(c: Context, x: Value) -> Value:
    scaled = c.op("mul", x, c.options.alpha)
    return c.op("select", c.compare("gt", x, 0), x, scaled)


@lowering("PRELU")
def prelu(c: Context, x: Value, slope: Value) -> Value:
    x, slope = c.broadcast(x, slope)
    scaled = c.op("mul", x, slope)
    return c.op("select", c.compare("ge", x, 0), x, scaled)


@lowering("ELU")
def elu(c: Context, x: Value) -> Value:
    return c.op("select", c.compare("lt", x, 0), c.op("expm1", x), x)


@lowering("HARD_SWISH")
def hard_swish(c: Context, x: Value) -> Value:
    ramp = _limited(c, c.op("add", x, 3), 0.0, 6.0)
    return c.op("mul", x, c.op("mul", ramp, 1 / 6))


@lowering("GELU")
def gelu(c: Context, x: Value) -> Value:
    if c.options.approximate:
        cube = c.op("mul", c.op("mul", x, x), c.op("mul", x, 0.044715))
        inner = c.op("mul", c.op("add", x, cube), math.sqrt(2 / math.pi))
        bell = c.op("tanh", inner)
    else:
        bell = c.op("erf", c.op("mul", x, math.sqrt(0.5)))
    half = c.op("mul", x, 0.5)
    return c.op("mul", half, c.op("add", bell, 1))


@lowering("SOFTMAX")
def softmax(c: Context, x: Value) -> Value:
    if c.options.beta != 1:
        x = c.op("mul", x, c.options.beta)
    return normalized_exponentials(c, x, [type_of(x).rank - 1], False)


@lowering("LOG_SOFTMAX")
def log_softmax(c: Context, x: Value) -> Value:
    return normalized_exponentials(c, x, [type_of(x).rank - 1], True)


@lowering("L2_NORMALIZATION")
def l2_normalization(c: Context, x: Value) -> Value:
    axis = type_of(x).rank - 1
    total = c.reduce(c.op("mul", x, x), [axis], "add")
    total = c.op("max", total, 1e-12)
    return c.op("mul", x, c.broadcast_back(c.op("rsqrt", total), shape_of(x), [axis]))


@lowering("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(c: Context, x: Value) -> Value:
    """x / (bias + alpha * the sum of squares of the neighbours in the last axis) ** beta."""
    options, rank = c.options, type_of(x).rank
    ones, reach = (1,) * (rank - 1), options.radius
    total = c.op(
        "reduce_window", c.op("mul", x, x), kind="add", window=(*ones, 2 * reach + 1),
        strides=(1,) * rank, padding=(*[(0, 0)] * (rank - 1), (reach, reach)),
        base_dilation=(1,) * rank, window_dilation=(1,) * rank,
    )  # fmt: skip
    total = c.op("add", c.op("mul", total, options.alpha), options.bias)
    return c.op("mul", x, c.op("pow", total, -options.beta))


@lowering("FAKE_QUANT")
def fake_quant(c: Context, x: Value) -> Value:
    """Rounded to the numbers between min and max that codes of `num_bits` stand for."""
    options = c.options
    if not 2 <= options.num_bits <= 16:
        raise UnsupportedNode(f"its num_bits is {options.num_bits}, expected 2 to 16: fix it")
    low, high = (1 if options.narrow_range else 0), 2**options.num_bits - 1
    scale = (options.max - options.min) / (high - low)
    zero = min(max(round(low - options.min / scale), low), high)
    least, greatest = (low - zero) * scale, (high - zero) * scale
    inside = c.op("clamp", least, x, greatest)
    steps = c.op("mul", c.op("sub", inside, least), 1 / scale)
    whole = c.op("floor", c.op("add", steps, 0.5))
    return c.op("add", c.op("mul", whole, scale), least)
