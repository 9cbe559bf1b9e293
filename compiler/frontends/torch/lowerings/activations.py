"""Activation functions: those that others have, too, and what torch alone has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends.activations import (
    celu,
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    limited,
    mish,
    rounded_once,
    selu,
    softplus,
    softsign,
    swish,
)
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.torch.lowering import LOWERINGS, TRAINING, Context, Scalar, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


def _converted(name: str, function: Callable[..., Value]) -> None:
    def lower(c: Context, x: Value, *given: Any, **named: Any) -> Value:
        return function(c, c.convert(x, c.dtype), *given, **named)

    lowering(f"aten.{name}.default")(lower)


def _activation(name: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """A lowering that computes in f32 at least and rounds once."""

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        _converted(name, rounded_once(function))
        return function

    return register


_SHARED: dict[str, Callable[..., Value]] = {
    "celu": celu, "elu": elu, "gelu": gelu, "hardsigmoid": hard_sigmoid, "hardswish": hard_swish,
    "leaky_relu": leaky_relu, "mish": mish, "selu": selu, "silu": swish, "softsign": softsign,
}  # fmt: skip
for _name, _function in _SHARED.items():
    _converted(_name, _function)
lowering("aten.hardtanh.default")(limited)


@lowering("aten.relu.default")
def relu(c: Context, x: Value) -> Value:
    return c.op("max", x, 0)


@lowering("aten.relu6.default")
def relu6(c: Context, x: Value) -> Value:
    return limited(c, x, 0, 6)


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


@_activation("softplus")
def sharp_softplus(c: Context, x: Value, beta: float = 1, bound: float = 20) -> Value:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the bound."""
    inner = x if beta == 1 else c.op("mul", x, beta)
    whole = softplus(c, inner)
    whole = whole if beta == 1 else c.op("mul", whole, 1 / beta)
    return c.op("select", c.compare("gt", inner, bound), x, whole)


@_activation("log_sigmoid")
def log_sigmoid(c: Context, x: Value) -> Value:
    tail = c.op("log1p", c.op("exp", c.op("neg", c.op("abs", x))))
    return c.op("sub", c.op("min", x, 0), tail)


@_activation("tanhshrink")
def tanh_shrink(c: Context, x: Value) -> Value:
    return c.op("sub", x, c.op("tanh", x))


@_activation("softshrink")
def soft_shrink(c: Context, x: Value, bound: float = 0.5) -> Value:
    return c.op("sub", x, limited(c, x, -bound, bound))


@_activation("hardshrink")
def hard_shrink(c: Context, x: Value, bound: float = 0.5) -> Value:
    return c.op("select", c.compare("le", c.op("abs", x), bound), 0, x)


@_activation("threshold")
def threshold(c: Context, x: Value, bound: float, value: float) -> Value:
    """The value where x is not above the bound; NaN stays."""
    return c.op("select", c.compare("le", x, bound), value, x)


@lowering("aten.prelu.default", "aten._prelu_kernel.default")
def parametric_relu(c: Context, x: Value, slope: Value) -> Value:
    if type_of(slope).rank == 1 and type_of(x).rank > 1:
        slope = c.reshape(slope, (*shape_of(slope), *[1] * (type_of(x).rank - 2)))
    scaled = c.op("mul", x, c.broadcast_to(slope, shape_of(x)))
    return c.op("select", c.compare("gt", x, 0), x, scaled)


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
        least = float(eps)  # type: ignore[arg-type]
        x = c.op("select", c.compare("lt", x, least), least, c.op("min", x, 1 - least))
    rest = c.op("sub", 1, x)
    return c.op("log", c.op("div", x, rest))
