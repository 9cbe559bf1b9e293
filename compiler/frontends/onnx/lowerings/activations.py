"""Activation functions as the ONNX specification defines them, by plain element-wise ops.

f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

import math

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


def _is_positive(node: Node, x: Value) -> Value:
    return node.compare("gt", x, 0)


def _scale(node: Node, x: Value, factor: float) -> Value:
    return x if factor == 1 else node.op("mul", x, factor)


@lowering("Relu")
def relu(node: Node) -> Value:
    x = node.input(0)
    return node.op("max", x, 0)


@lowering("LeakyRelu")
def leaky_relu(node: Node) -> Value:
    x = widen(node, node.input(0))
    negative = _scale(node, x, node.number("alpha", 0.01))
    return narrow(node, node.op("select", _is_below_zero(node, x), negative, x), node.input(0))


def _is_below_zero(node: Node, x: Value) -> Value:
    return node.compare("lt", x, 0)


@lowering("PRelu")
def parametric_relu(node: Node) -> Value:
    """The slope broadcasts to x, as the standard has it; one that is larger makes x larger, as in
    onnxruntime."""
    x, slope = node.input(0), node.input(1)
    shape, own = shape_of(x), shape_of(slope)
    aligned = shape[-len(own) :] if own else ()
    if len(own) > len(shape) or any(a == 1 != b for a, b in zip(aligned, own, strict=True)):
        x, slope = node.broadcast(x, slope)
    else:
        slope = node.broadcast_to(slope, shape)
    return node.op("select", _is_below_zero(node, x), node.op("mul", x, slope), x)


@lowering("ThresholdedRelu")
def thresholded_relu(node: Node) -> Value:
    x = node.input(0)
    passes = node.compare("gt", x, node.number("alpha", 1.0))
    return node.op("select", passes, x, 0)


@lowering("Elu")
def elu(node: Node) -> Value:
    x = widen(node, node.input(0))
    negative = _scale(node, node.op("expm1", x), node.number("alpha", 1.0))
    return narrow(node, node.op("select", _is_below_zero(node, x), negative, x), node.input(0))


@lowering("Celu")
def celu(node: Node) -> Value:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    x = widen(node, node.input(0))
    alpha = node.number("alpha", 1.0)
    inner = node.op("div", x, alpha)
    negative = _scale(node, node.op("expm1", inner), alpha)
    return narrow(node, node.op("select", _is_below_zero(node, x), negative, x), node.input(0))


@lowering("Selu")
def selu(node: Node) -> Value:
    x = widen(node, node.input(0))
    alpha = node.number("alpha", 1.67326319217681884765625)
    gamma = node.number("gamma", 1.05070102214813232421875)
    negative = _scale(node, node.op("expm1", x), alpha)
    result = node.op("select", _is_positive(node, x), x, negative)
    return narrow(node, _scale(node, result, gamma), node.input(0))


@lowering("HardSigmoid")
def hard_sigmoid(node: Node) -> Value:
    return _hard_sigmoid(node, node.number("alpha", 0.2), node.number("beta", 0.5), False)


@lowering("HardSwish")
def hard_swish(node: Node) -> Value:
    return _hard_sigmoid(node, 1 / 6, 0.5, True)


def _hard_sigmoid(node: Node, alpha: float, beta: float, times_x: bool) -> Value:
    """clamp(alpha x + beta, 0, 1), times x for the swish."""
    x = widen(node, node.input(0))
    line = node.op("add", _scale(node, x, alpha), beta)
    result = node.op("clamp", 0, line, 1)
    return narrow(node, node.op("mul", x, result) if times_x else result, node.input(0))


@lowering("Gelu")
def gelu(node: Node) -> Value:
    """x/2 (1 + erf(x / sqrt 2)), or its tanh approximation."""
    x = widen(node, node.input(0))
    if node.text("approximate", "none") == "tanh":
        cube = node.op("mul", node.op("mul", x, x), x)
        inner = node.op("add", x, _scale(node, cube, 0.044715))
        bump = node.op("tanh", _scale(node, inner, math.sqrt(2 / math.pi)))
    else:
        bump = node.op("erf", _scale(node, x, math.sqrt(0.5)))
    half = _scale(node, x, 0.5)
    result = node.op("mul", half, node.op("add", bump, 1))
    return narrow(node, result, node.input(0))


@lowering("Softplus")
def softplus(node: Node) -> Value:
    x = widen(node, node.input(0))
    return narrow(node, _softplus(node, x), node.input(0))


def _softplus(node: Node, x: Value) -> Value:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    tail = node.op("log1p", node.op("exp", node.op("neg", node.op("abs", x))))
    return node.op("add", node.op("max", x, 0), tail)


@lowering("Mish")
def mish(node: Node) -> Value:
    x = widen(node, node.input(0))
    return narrow(node, node.op("mul", x, node.op("tanh", _softplus(node, x))), node.input(0))


@lowering("Softsign")
def softsign(node: Node) -> Value:
    x = widen(node, node.input(0))
    scale = node.op("add", node.op("abs", x), 1)
    return narrow(node, node.op("div", x, scale), node.input(0))


@lowering("Swish")
def swish(node: Node) -> Value:
    x = widen(node, node.input(0))
    gate = node.op("logistic", _scale(node, x, node.number("alpha", 1.0)))
    return narrow(node, node.op("mul", x, gate), node.input(0))


@lowering("Shrink")
def shrink(node: Node) -> Value:
    """x + bias below -lambd, x - bias above lambd, 0 between. Integers lose their fractions at the
    end."""
    given = node.input(0)
    x = widen(node, given) if type_of(given).dtype.is_float else node.convert(given, "f64")
    threshold, bias = node.number("lambd", 0.5), node.number("bias", 0.0)
    if threshold < 0:
        raise UnsupportedNode(f"lambd is {threshold}, expected 0 or more")
    shift = node.fill(bias, like=x)
    below = node.compare("lt", x, -threshold)
    above = node.compare("gt", x, threshold)
    middle = node.op("select", above, node.op("sub", x, shift), 0)
    return narrow(node, node.op("select", below, node.op("add", x, shift), middle), given)
