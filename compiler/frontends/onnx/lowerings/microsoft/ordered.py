"""The `QOrdered` ops, which the transformer optimiser makes of models that quantise and dequantise
between their layers: computed as those, 8 bits around 0 with one scale per tensor.

Rows lie one behind another; of a weight its columns may, as the optimiser stores them.
"""

from __future__ import annotations

from ingot.compiler.frontends.activations import gelu
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import heads_of, merge_heads
from ingot.compiler.frontends.onnx.lowerings.microsoft.multi_head import masks_of
from ingot.compiler.frontends.onnx.lowerings.microsoft.quantized import dequantized, quantized
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_COLUMNS, _ROWS = 0, 1


def _order(node: Node, *names: str) -> None:
    for name in names:
        order = node.integer(name, _ROWS)
        unsupported(order != _ROWS, f"its {name} is {order}: rows (1) are supported")


def _number(node: Node, place: int) -> Value:
    """A scale; one per tensor may have an axis of 1."""
    x = widen(node, node.input(place))
    return node.reshape(x, ()) if shape_of(x) == (1,) else x


def _rounded(node: Node, x: Value, place: int) -> Value:
    return quantized(node, x, _number(node, place), None, node.input(0))


def _through(node: Node, x: Value, place: int) -> Value:
    """x as it is behind 8 bits with the scale at `place`."""
    return dequantized(node, _rounded(node, x, place), _number(node, place), None)


def _product(node: Node, weight: int, order: str, scale: int, x: Value, bias: int) -> Value:
    """f32: x of 8 bits with the scale at 1, times a weight of 8 bits, plus a bias."""
    given = node.integer(order, _COLUMNS)
    unsupported(given not in (_COLUMNS, _ROWS), f"its {order} is {given}, expected 0 or 1")
    w = node.input(weight)
    if given == _COLUMNS:
        w = node.transpose(node.reshape(w, shape_of(w)[::-1]), (1, 0))
    total = node.convert(matmul(node, x, w, dtype("i32")), "f32")
    scales = node.op("mul", *node.broadcast(_number(node, 1), _number(node, scale)))
    made = node.op("mul", *node.broadcast(total, scales))
    shift = node.optional(bias)
    return made if shift is None else add(node, made, widen(node, shift))


@lowering("QuantizeWithOrder", domain=MICROSOFT)
def quantize_with_order(node: Node) -> Value:
    _order(node, "order_input", "order_output")
    zero = node.constant(0, "i8")
    return quantized(node, widen(node, node.input(0)), _number(node, 1), zero, zero)


@lowering("DequantizeWithOrder", domain=MICROSOFT)
def dequantize_with_order(node: Node) -> Value:
    _order(node, "order_input", "order_output")
    made = dequantized(node, node.input(0), _number(node, 1), None)
    return node.convert(made, "f16" if node.integer("to", 1) == 10 else "f32")


@lowering("QOrderedGelu", domain=MICROSOFT)
def ordered_gelu(node: Node) -> Value:
    _order(node, "order_X", "order_Y")
    x = dequantized(node, node.input(0), _number(node, 1), None)
    return _rounded(node, gelu(node, x), 2)


@lowering("QOrderedLayerNormalization", domain=MICROSOFT)
def ordered_layer_normalization(node: Node) -> Value:
    _order(node, "order_X", "order_Y")
    shift = node.optional(3)
    x = dequantized(node, node.input(0), _number(node, 1), None)
    operands = [x, widen(node, node.input(2)), None if shift is None else widen(node, shift)]
    attributes = {"epsilon": node.number("epsilon", 1e-5), "axis": node.integer("axis", -1)}
    return _rounded(node, lower_as(node, "LayerNormalization", operands, attributes), 4)


@lowering("QOrderedMatMul", domain=MICROSOFT)
def ordered_matmul(node: Node) -> Value:
    """A B + bias + C."""
    _order(node, "order_A", "order_Y")
    made = _product(node, 2, "order_B", 3, node.input(0), 5)
    if (more := node.optional(6)) is not None:
        made = add(node, made, dequantized(node, more, _number(node, 7), None))
    return _rounded(node, made, 4)


@lowering("QOrderedAttention", domain=MICROSOFT)
def ordered_attention(node: Node) -> Value:
    """Scores and their softmax are of 8 bits, too."""
    _order(node, "order_input", "order_output")
    unsupported(
        node.optional(18) is not None or node.optional(19) is not None,
        "it has a cache or a bias of its scores",
    )
    q, k, v = (_projected(node, at) for at in range(3))
    f32 = type_of(q).dtype
    scores = _through(node, matmul(node, q, node.transpose(k, (0, 1, 3, 2)), f32), 14)
    size = known_dim(shape_of(q)[3])
    scores = node.op("mul", scores, size**-0.5)
    scores = add(node, scores, *masks_of(node, q, k, node.optional(17), None, 0))
    weights = _through(node, lower_as(node, "Softmax", [scores], {"axis": -1}), 15)
    return _rounded(node, merge_heads(node, matmul(node, weights, v, f32)), 16)


def _projected(node: Node, at: int) -> Value:
    """Queries, keys or values [batch, heads, sequence, size]."""
    made = _product(node, 5 + at, "order_weight", 8 + at, node.input(0), 11 + at)
    split = heads_of(node, _through(node, made, 2 + at), node.integer("num_heads", 1))
    return node.transpose(split, (0, 2, 1, 3))
