"""Activations of `com.microsoft`, most of them with a bias that is added before."""

from __future__ import annotations

from ingot.compiler.frontends.activations import gelu, limited, swish
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value

__all__ = ["add", "gated_swish", "halves", "swiglu_of"]


def add(node: Node, *values: Value | None) -> Value:
    """The sum of the values that there are, spread to one shape."""
    first, *rest = (value for value in values if value is not None)
    for value in rest:
        first = node.op("add", *node.broadcast(first, value))
    return first


def halves(node: Node, x: Value) -> tuple[Value, Value]:
    """The first and the second half of the last axis."""
    width = shape_of(x)[-1]
    unsupported(not isinstance(width, int) or width % 2 != 0, f"its last dim {width} has no half")
    return node.sliced(x, -1, 0, width // 2), node.sliced(x, -1, width // 2, width)


@lowering("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> Value:
    x = add(node, widen(node, node.input(0)), widen(node, node.input(1)))
    return narrow(node, gelu(node, x), node.input(0))


@lowering("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> Value:
    bias = node.optional(1)
    x = add(node, widen(node, node.input(0)), None if bias is None else widen(node, bias))
    return narrow(node, gelu(node, x, approximate="tanh"), node.input(0))


@lowering("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Value:
    return swish(node, node.input(0), node.number("alpha", 1.702))


@lowering("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: Node) -> Value:
    """The left half of x + bias times the Gelu of the right one."""
    left, right = halves(node, add(node, widen(node, node.input(0)), widen(node, node.input(1))))
    result = node.op("mul", left, gelu(node, right))
    return narrow(node, result, node.input(0))


@lowering("BiasAdd", domain=MICROSOFT)
def bias_add(node: Node) -> Value:
    """x + bias + skip."""
    return narrow(node, add(node, *(widen(node, each) for each in node.present())), node.input(0))


@lowering("BiasDropout", "BitmaskBiasDropout", domain=MICROSOFT)
def bias_dropout(node: Node) -> Value:
    """data + bias + residual: nothing is dropped in inference."""
    unsupported(
        node.optional(4) is not None and node.known_number(4) != 0,
        "its training_mode is not known to be 0: export the model in eval mode",
    )
    return add(node, node.input(0), node.input(1), node.optional(2))


@lowering("BitmaskDropout", domain=MICROSOFT)
def bitmask_dropout(node: Node) -> Value:
    """The data: nothing is dropped in inference."""
    is_training = node.optional(2) is not None and node.known_number(2) != 0
    unsupported(
        is_training, "its training_mode is not known to be 0: export the model in eval mode"
    )
    return node.input(0)


@lowering("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(node: Node) -> Value:
    """The softmax of data + bias over `axis` and all behind it."""
    x = add(node, widen(node, node.input(0)), widen(node, node.input(1)))
    axis = {"axis": node.integer("axis", 1)}
    return narrow(node, lower_as(node, "Softmax", [x], axis, opset=12), node.input(0))


@lowering("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(node: Node) -> Value:
    """silu(scale * x), rounded to the dtype of x behind each step."""
    x, scale = node.input(0), node.optional(1)
    wide = widen(node, x)
    if scale is None:
        factor = node.fill(node.number("alpha", 1.0), like=wide)
    else:
        factor = node.broadcast_to(
            node.convert(node.reshape(scale, ()), type_of(wide).dtype), shape_of(wide)
        )
    scaled = narrow(node, node.op("mul", wide, factor), x)
    gate = narrow(node, node.op("logistic", widen(node, scaled)), x)
    return narrow(node, node.op("mul", widen(node, scaled), widen(node, gate)), x)


@lowering("SwiGLU", domain=MICROSOFT)
def swiglu(node: Node) -> Value:
    """swish(gate) * (up + beta), both sides clamped to `limit` if that is positive; one operand
    alone holds the gate and then the other."""
    unsupported(bool(node.integer("round_activation", 0)), "its round_activation is not 0")
    gate = widen(node, node.input(0))
    if node.optional(1) is None:
        gate, up = halves(node, gate)
    else:
        up = widen(node, node.input(1))
    return narrow(node, swiglu_of(node, gate, up), node.input(0))


def swiglu_of(node: Node, gate: Value, up: Value) -> Value:
    limit = node.number("limit", 0.0)
    return gated_swish(node, gate, up, limit if limit > 0 else None)


def gated_swish(node: Node, gate: Value, up: Value, limit: float | None) -> Value:
    """swish(gate) * (up + beta), both sides clamped to the limit."""
    if limit is not None:
        gate, up = node.op("min", gate, limit), limited(node, up, -limit, limit)
    gate = swish(node, gate, node.number("activation_alpha", 1.0))
    return node.op("mul", gate, node.op("add", up, node.number("activation_beta", 0.0)))
