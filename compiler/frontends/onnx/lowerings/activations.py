"""Activation functions as the ONNX specification defines them."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.activations import (
    celu,
    elu,
    gelu,
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
from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value

__all__ = ["sloped_sigmoid"]


def _register(name: str, function: Callable[..., Value], **attributes: float) -> None:
    """The op is the function of its input and of these attributes, or their defaults."""

    def lower(node: Node) -> Value:
        given = (node.number(key, default) for key, default in attributes.items())
        return function(node, node.input(0), *given)

    lowering(name)(lower)


_register("Relu", lambda node, x: node.op("max", x, 0))
_register("LeakyRelu", leaky_relu, alpha=0.01)
_register(
    "ThresholdedRelu",
    lambda node, x, alpha: node.op("select", node.compare("gt", x, alpha), x, 0),
    alpha=1.0,
)
_register("Elu", elu, alpha=1.0)
_register("Celu", celu, alpha=1.0)
_register("Selu", selu, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875)
_register("HardSwish", hard_swish)
_register("Softplus", softplus)
_register("Mish", mish)
_register("Softsign", softsign)
_register("Swish", swish, alpha=1.0)


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
    return node.op("select", node.compare("lt", x, 0), node.op("mul", x, slope), x)


def sloped_sigmoid(c: Emitter, x: Value, alpha: float, beta: float) -> Value:
    """alpha x + beta between 0 and 1."""
    return limited(c, c.op("add", c.op("mul", x, alpha), beta), 0, 1)


_register("HardSigmoid", rounded_once(sloped_sigmoid), alpha=0.2, beta=0.5)


@lowering("Gelu")
def gelu_of_kind(node: Node) -> Value:
    return gelu(node, node.input(0), approximate=node.text("approximate", "none"))


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
