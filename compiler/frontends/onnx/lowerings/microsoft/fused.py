"""Products and convolutions of `com.microsoft`: transposed, channels last, and with activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.activations import gelu
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import (
    add,
    halves,
    swiglu_of,
)
from ingot.compiler.frontends.onnx.lowerings.microsoft.normalizations import (
    channels_first,
    channels_last,
)
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["activate"]

_ACTIVATIONS = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "Gelu": (),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""The activations that onnxruntime joins with an op, and what their parameters are."""


def activate(node: Node, x: Value, parameters: Sequence[float] | None = None) -> Value:
    """x through the node's activation, whose parameters are these or else attributes that begin
    with `activation_`."""
    name = node.text("activation", "")
    if not name:
        return x
    unsupported(name not in _ACTIVATIONS, f"its activation is '{name}'")
    attributes: dict[str, Any] = dict(zip(_ACTIVATIONS[name], parameters or (), strict=False))
    for each in _ACTIVATIONS[name]:
        if node.has(f"activation_{each}"):
            attributes[each] = node.number(f"activation_{each}", 0)
    return lower_as(node, name, [x], attributes)


@lowering(
    *("FusedMatMul", "FusedMatMulActivation", "SparseToDenseMatMul", "TransposeMatMul"),
    domain=MICROSOFT,
)
def fused_matmul(node: Node) -> Value:
    """alpha A' B', where the last two axes may be exchanged, and the first may stand behind the
    other batch axes."""
    a, b = (_turned(node, node.input(place), side) for place, side in enumerate("AB"))
    product = matmul(node, a, b, type_of(a).dtype)
    alpha = node.number("alpha", 1.0)
    if alpha != 1:
        product = node.op("mul", product, alpha)
    return activate(node, product)


def _turned(node: Node, x: Value, side: str) -> Value:
    order = list(range(type_of(x).rank))
    if len(order) < 2:
        return x
    if node.integer(f"transBatch{side}", 0):
        order = [*order[1:-1], 0, order[-1]]
    if node.integer(f"trans{side}", 0):
        order[-2:] = order[:-3:-1]
    return node.transpose(x, order)


@lowering("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Value:
    return activate(node, lower_as(node, "Gemm", [node.input(0), node.input(1), node.optional(2)]))


@lowering("GemmFloat8", domain=MICROSOFT)
def gemm_of_8_bits(node: Node) -> Value:
    """alpha scaleA A scaleB B + beta C, where either may be of f8; then the activation."""
    unsupported(node.optional(5) is not None, "its result has a scale: quantise it by a layer")
    a, b = (node.convert(node.input(place), "f32") for place in range(2))
    bias = node.optional(2)
    bias = None if bias is None else node.convert(bias, "f32")
    alpha = {"alpha": node.number("alpha", 1.0), "beta": 0.0}
    sides = {name: node.integer(name, 0) for name in ("transA", "transB")}
    result = lower_as(node, "Gemm", [a, b, None], alpha | sides)
    for scale in (node.optional(3), node.optional(4)):
        if scale is not None:
            result = node.op("mul", *node.broadcast(result, node.reshape(scale, ())))
    beta = node.number("beta", 0.0)
    if bias is not None and beta:
        result = add(node, result, node.op("mul", bias, beta))
    kind = node.text("activation", "NONE")
    unsupported(kind not in ("NONE", "RELU", "GELU"), f"its activation is '{kind}'")
    if kind != "NONE":
        result = lower_as(node, kind.capitalize(), [result], {})
    return node.convert(result, dtype_of(node.integer("dtype", 1)) or dtype("f32"))


@lowering("RouterGateUpProj", domain=MICROSOFT)
def router_and_gate(node: Node) -> tuple[Value, Value]:
    """Of one product the logits of a router, and SwiGLU of the gate and the other half behind."""
    kind, size = node.text("activation", "swiglu"), node.integer("router_size", 0)
    unsupported(kind != "swiglu", f"its activation is '{kind}': 'swiglu' is supported")
    x = node.input(0)
    product = matmul(node, x, node.input(1), type_of(x).dtype)
    width = shape_of(product)[-1]
    gate, up = halves(node, widen(node, node.sliced(product, -1, size, width)))
    return node.sliced(product, -1, 0, size), narrow(node, swiglu_of(node, gate, up), x)


@lowering("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(node: Node) -> Value:
    x = node.input(0)
    product = matmul(node, x, node.input(1), type_of(x).dtype)
    return gelu(node, add(node, product, node.optional(2)), approximate="tanh")


@lowering("FusedConv", domain=MICROSOFT)
def fused_convolution(node: Node) -> Value:
    """The activation of convolution + bias + Z."""
    result = lower_as(node, "Conv", [node.input(0), node.input(1), node.optional(2)])
    return activate(node, add(node, result, node.optional(3)), node.numbers("activation_params"))


@lowering("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def channels_last_convolution(node: Node) -> Value:
    """As FusedConv, of [batch, spatial..., channels]; the weight is as ever."""
    x = channels_first(node, node.input(0))
    result = channels_last(node, lower_as(node, "Conv", [x, node.input(1), node.optional(2)]))
    return activate(node, add(node, result, node.optional(3)), node.numbers("activation_params"))


@lowering("NhwcMaxPool", domain=MICROSOFT)
def channels_last_max_pool(node: Node) -> Value:
    return channels_last(node, lower_as(node, "MaxPool", [channels_first(node, node.input(0))]))


_BLOCKED = ("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")


@lowering(*_BLOCKED, "ReorderInput", "ReorderOutput", "Upsample", domain=f"{MICROSOFT}.nchwc")
def blocked_channels(node: Node) -> Value:
    """Weights lie in blocks as long as the vectors of the machine that wrote the file, which it
    does not tell."""
    raise UnsupportedNode(
        "its weights lie as one machine needs them: have onnxruntime write the file with "
        "ORT_ENABLE_EXTENDED, not ORT_ENABLE_ALL"
    )
