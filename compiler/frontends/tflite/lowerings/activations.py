"""Activations, normalisations and softmax."""

from __future__ import annotations

from ingot.compiler.frontends.activations import elu, gelu, hard_swish, leaky_relu, limited
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import by_neighbours
from ingot.compiler.frontends.normalizing import softmax as normalized_exponentials
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.ir import Value

__all__ = ["activate"]

_RANGES: dict[int, tuple[float, float | None]] = {1: (0, None), 2: (-1, 1), 3: (0, 6)}


def activate(c: Context, x: Value, kind: int) -> Value:
    """What a fused activation makes of x."""
    if kind in _RANGES:
        return limited(c, x, *_RANGES[kind])
    if kind == 4:
        return c.op("tanh", x)
    if kind != 0:
        raise UnsupportedNode(f"its fused activation has the number {kind}, expected 0 to 4")
    return x


def _register(name: str, low: float, high: float | None) -> None:
    lowering(name)(lambda c, x: limited(c, x, low, high))


_register("RELU", 0, None)
_register("RELU6", 0, 6)
_register("RELU_N1_TO_1", -1, 1)
_register("RELU_0_TO_1", 0, 1)
lowering("ELU")(elu)
lowering("HARD_SWISH")(hard_swish)
lowering("LEAKY_RELU")(lambda c, x: leaky_relu(c, x, c.options.alpha))
lowering("GELU")(lambda c, x: gelu(c, x, approximate="tanh" if c.options.approximate else "none"))


@lowering("PRELU")
def prelu(c: Context, x: Value, slope: Value) -> Value:
    x, slope = c.broadcast(x, slope)
    scaled = c.op("mul", x, slope)
    return c.op("select", c.compare("ge", x, 0), x, scaled)


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
    options, last = c.options, type_of(x).rank - 1
    reach = (options.radius, options.radius)
    return by_neighbours(c, x, last, reach, options.alpha, options.bias, options.beta)


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
