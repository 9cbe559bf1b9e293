"""Activation functions, by plain element-wise ops. f16 and bf16 are computed in f32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.torch.lowering import LOWERINGS, TRAINING, Context, Scalar, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


def _activation(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """A lowering that computes in f32 at least and rounds once."""

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        def lower(c: Context, x: Value, *given: Any, **named: Any) -> Value:
            x = c.convert(x, c.dtype)
            return narrow(c, function(c, widen(c, x), *given, **named), x)

        lowering(*(f"aten.{name}.default" for name in names))(lower)
        return function

    return register


def _times(c: Context, x: Value, factor: float) -> Value:
    return x if factor == 1 else c.op("mul", x, factor)


def _plus(c: Context, x: Value, number: float) -> Value:
    return c.op("add", x, number)


def _above(c: Context, x: Value, bound: float) -> Value:
    return c.compare("gt", x, bound)


@lowering("aten.relu.default")
def relu(c: Context, x: Value) -> Value:
    return c.op("max", x, 0)


@lowering("aten.relu6.default")
def relu6(c: Context, x: Value) -> Value:
    return hard_tanh(c, x, 0, 6)


@lowering("aten.hardtanh.default")
def hard_tanh(c: Context, x: Value, low: float = -1, high: float = 1) -> Value:
    return c.op("clamp", low, x, high)


@_activation("leaky_relu")
def leaky_relu(c: Context, x: Value, slope: float = 0.01) -> Value:
    return c.op("select", _above(c, x, 0), x, _times(c, x, slope))


@_activation("rrelu")
def random_leaky_relu(
    c: Context, x: Value, low: float = 1 / 8, high: float = 1 / 3, training: bool = False, *_: Any
) -> Value:
    """In inference the slope is the mean of what training draws from."""
    if training:
        raise UnsupportedNode(TRAINING)
    return leaky_relu(c, x, (low + high) / 2)


@lowering("aten.rrelu_with_noise_functional.default")
def random_leaky_relu_and_noise(c: Context, x: Value, noise: Value, *given: Any) -> list[Value]:
    return [LOWERINGS["aten.rrelu.default"](c, x, *given), noise]


@_activation("elu")
def elu(c: Context, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    negative = _times(c, c.op("expm1", _times(c, x, input_scale)), alpha * scale)
    return c.op("select", _above(c, x, 0), _times(c, x, scale), negative)


@_activation("selu")
def selu(c: Context, x: Value) -> Value:
    return elu(c, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@_activation("celu")
def celu(c: Context, x: Value, alpha: float = 1) -> Value:
    return elu(c, x, alpha, 1, 1 / alpha)


@_activation("gelu")
def gelu(c: Context, x: Value, *, approximate: str = "none") -> Value:
    """x/2 (1 + erf(x / sqrt 2)), or its tanh approximation."""
    if approximate == "tanh":
        cube = c.op("mul", c.op("mul", x, x), x)
        inner = c.op("add", x, _times(c, cube, 0.044715))
        bump = c.op("tanh", _times(c, inner, math.sqrt(2 / math.pi)))
    else:
        bump = c.op("erf", _times(c, x, math.sqrt(0.5)))
    return c.op("mul", _times(c, x, 0.5), _plus(c, bump, 1))


@_activation("silu")
def silu(c: Context, x: Value) -> Value:
    return c.op("mul", x, c.op("logistic", x))


@_activation("mish")
def mish(c: Context, x: Value) -> Value:
    return c.op("mul", x, c.op("tanh", softplus(c, x)))


@_activation("softplus")
def softplus(c: Context, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    """log(1 + exp(beta x)) / beta without overflow; x itself above the threshold."""
    inner = _times(c, x, beta)
    tail = c.op("log1p", c.op("exp", c.op("neg", c.op("abs", inner))))
    whole = c.op("add", c.op("max", inner, 0), tail)
    return c.op("select", _above(c, inner, threshold), x, _times(c, whole, 1 / beta))


@_activation("log_sigmoid")
def log_sigmoid(c: Context, x: Value) -> Value:
    tail = c.op("log1p", c.op("exp", c.op("neg", c.op("abs", x))))
    return c.op("sub", c.op("min", x, 0), tail)


@_activation("hardsigmoid")
def hard_sigmoid(c: Context, x: Value) -> Value:
    return _times(c, hard_tanh(c, _plus(c, x, 3), 0, 6), 1 / 6)


@_activation("hardswish")
def hard_swish(c: Context, x: Value) -> Value:
    return c.op("mul", x, hard_sigmoid(c, x))


@_activation("softsign")
def softsign(c: Context, x: Value) -> Value:
    return c.op("div", x, _plus(c, c.op("abs", x), 1))


@_activation("tanhshrink")
def tanh_shrink(c: Context, x: Value) -> Value:
    return c.op("sub", x, c.op("tanh", x))


@_activation("softshrink")
def soft_shrink(c: Context, x: Value, bound: float = 0.5) -> Value:
    return c.op("sub", x, hard_tanh(c, x, -bound, bound))


@_activation("hardshrink")
def hard_shrink(c: Context, x: Value, bound: float = 0.5) -> Value:
    return c.op("select", _above(c, c.op("abs", x), bound), x, 0)


@_activation("threshold")
def threshold(c: Context, x: Value, bound: float, value: float) -> Value:
    return c.op("select", _above(c, x, bound), x, value)


@lowering("aten.prelu.default", "aten._prelu_kernel.default")
def parametric_relu(c: Context, x: Value, slope: Value) -> Value:
    if type_of(slope).rank == 1 and type_of(x).rank > 1:
        slope = c.reshape(slope, (*shape_of(slope), *[1] * (type_of(x).rank - 2)))
    scaled = c.op("mul", x, c.broadcast_to(slope, shape_of(x)))
    return c.op("select", _above(c, x, 0), x, scaled)


@_activation("glu")
def gated(c: Context, x: Value, dim: int = -1) -> Value:
    axis = c.axis(dim, x)
    half = c.shape[axis]
    value, gate = c.sliced(x, axis, 0, half), c.sliced(x, axis, half, half + half)
    return c.op("mul", value, c.op("logistic", gate))


@_activation("logit")
def logit(c: Context, x: Value, eps: Scalar | None = None) -> Value:
    if isinstance(eps, Value):
        raise UnsupportedNode("its eps depends on data, which is not supported")
    if eps is not None:
        x = hard_tanh(c, x, float(eps), 1 - float(eps))  # type: ignore[arg-type]
    rest = c.op("sub", 1, x)
    return c.op("log", c.op("div", x, rest))
