"""Activation functions, by plain element-wise ops, for all front ends. f16 and bf16 are computed in
f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.ir import Value

__all__ = [
    "celu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "limited",
    "mish",
    "rounded_once",
    "selu",
    "softplus",
    "softsign",
    "swish",
]

_Function = TypeVar("_Function", bound=Callable[..., Value])


def rounded_once(function: _Function) -> _Function:
    """The function, computed in f32 at least."""

    @wraps(function)
    def lower(c: Emitter, x: Value, *given: Any, **named: Any) -> Value:
        return narrow(c, function(c, widen(c, x), *given, **named), x)

    return cast("_Function", lower)


def _times(c: Emitter, x: Value, factor: float) -> Value:
    return x if factor == 1 else c.op("mul", x, factor)


def limited(c: Emitter, x: Value, low: float = -1, high: float | None = 1) -> Value:
    """x between two numbers; without `high` only not below `low`."""
    return c.op("max", x, low) if high is None else c.op("clamp", low, x, high)


@rounded_once
def leaky_relu(c: Emitter, x: Value, slope: float = 0.01) -> Value:
    return c.op("select", c.compare("gt", x, 0), x, _times(c, x, slope))


@rounded_once
def elu(c: Emitter, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    negative = _times(c, c.op("expm1", _times(c, x, input_scale)), alpha * scale)
    return c.op("select", c.compare("lt", x, 0), negative, _times(c, x, scale))


def selu(
    c: Emitter,
    x: Value,
    alpha: float = 1.6732632423543772848170429916717,
    gamma: float = 1.0507009873554804934193349852946,
) -> Value:
    return elu(c, x, alpha, gamma)


def celu(c: Emitter, x: Value, alpha: float = 1) -> Value:
    return elu(c, x, alpha, 1, 1 / alpha if alpha else math.inf)


@rounded_once
def gelu(c: Emitter, x: Value, *, approximate: str = "none") -> Value:
    """x/2 (1 + erf(x / sqrt 2)), or its tanh approximation."""
    if approximate == "tanh":
        cube = c.op("mul", c.op("mul", x, x), x)
        inner = c.op("add", x, c.op("mul", cube, 0.044715))
        bump = c.op("tanh", c.op("mul", inner, math.sqrt(2 / math.pi)))
    else:
        bump = c.op("erf", c.op("mul", x, math.sqrt(0.5)))
    return c.op("mul", c.op("mul", x, 0.5), c.op("add", bump, 1))


@rounded_once
def swish(c: Emitter, x: Value, alpha: float = 1) -> Value:
    """x times the logistic function of alpha x."""
    return c.op("mul", x, c.op("logistic", _times(c, x, alpha)))


@rounded_once
def softplus(c: Emitter, x: Value) -> Value:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    tail = c.op("log1p", c.op("exp", c.op("neg", c.op("abs", x))))
    return c.op("add", c.op("max", x, 0), tail)


@rounded_once
def mish(c: Emitter, x: Value) -> Value:
    return c.op("mul", x, c.op("tanh", softplus(c, x)))


@rounded_once
def softsign(c: Emitter, x: Value) -> Value:
    return c.op("div", x, c.op("add", c.op("abs", x), 1))


@rounded_once
def hard_sigmoid(c: Emitter, x: Value) -> Value:
    return c.op("mul", limited(c, c.op("add", x, 3), 0, 6), 1 / 6)


@rounded_once
def hard_swish(c: Emitter, x: Value) -> Value:
    return c.op("mul", x, hard_sigmoid(c, x))
