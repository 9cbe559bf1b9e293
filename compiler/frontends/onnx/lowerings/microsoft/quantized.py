"""Ops of `com.microsoft` on tensors of 8 bits: what they stand for between a dequantisation and
a quantisation, and products in integers."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.multi_head import attend_projected
from ingot.compiler.frontends.onnx.lowerings.microsoft.normalizations import (
    channels_first,
    channels_last,
    count_words,
    look_up,
)
from ingot.compiler.frontends.onnx.lowerings.pooling import average_windows
from ingot.compiler.frontends.onnx.lowerings.quantization import (
    check_scales,
    quantize_by_range,
    subtract_point,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lower_whole, lowering
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__ = ["dequantized", "quantized"]


def dequantized(node: Node, x: Value, scale: Value, zero: Value | None) -> Value:
    return lower_as(node, "DequantizeLinear", [x, scale, zero], {})


def quantized(node: Node, x: Value, scale: Value, zero: Value | None, like: Value) -> Value:
    """x in the dtype of `like`, around 0 without a zero point."""
    zero = node.constant(0, type_of(like).dtype) if zero is None else zero
    return lower_as(node, "QuantizeLinear", [x, scale, zero], {})


@lowering("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
def linear(node: Node) -> Value:
    operands = [node.input(0), node.input(1), node.optional(2)]
    return lower_as(node, node.proto.op_type, operands)


@lowering("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def quantized_binary(node: Node) -> Value:
    a, b = (
        dequantized(node, node.input(at), node.input(at + 1), node.optional(at + 2))
        for at in (0, 3)
    )
    result = lower_as(node, node.proto.op_type.removeprefix("QLinear"), [a, b], {})
    return quantized(node, result, node.input(6), node.optional(7), node.input(0))


def _unary(node: Node, lower: Callable[[Value], Value]) -> Value:
    """What `lower` makes of the first input, whose scale and zero point follow, and then those
    of the result; channels are last if `channels_last` is 1."""
    x = dequantized(node, node.input(0), node.input(1), node.optional(2))
    is_last = bool(node.integer("channels_last", 0))
    x = lower(channels_first(node, x) if is_last else x)
    x = channels_last(node, x) if is_last else x
    return quantized(node, x, node.input(3), node.optional(4), node.input(0))


@lowering("QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", domain=MICROSOFT)
def quantized_unary(node: Node) -> Value:
    op_type = node.proto.op_type.removeprefix("QLinear")
    return _unary(node, lambda x: lower_as(node, op_type, [x]))


@lowering("QLinearAveragePool", domain=MICROSOFT)
def quantized_average_pool(node: Node) -> Value:
    return _unary(node, lambda x: average_windows(node, x, whole=True))


@lowering("QLinearSoftmax", domain=MICROSOFT)
def quantized_softmax(node: Node) -> Value:
    axis, opset = {"axis": node.integer("axis", -1)}, node.integer("opset", 13)
    return _unary(node, lambda x: lower_as(node, "Softmax", [x], axis, opset))


@lowering("QLinearReduceMean", domain=MICROSOFT)
def quantized_mean(node: Node) -> Value:
    return _unary(node, lambda x: lower_as(node, "ReduceMean", [x], opset=13))


@lowering("QLinearConcat", domain=MICROSOFT)
def quantized_concat(node: Node) -> Value:
    """Behind scale and zero point of the result: tensor, scale and zero point of each part."""
    given = list(node.present())
    parts = [dequantized(node, *given[at : at + 3]) for at in range(2, len(given), 3)]
    joined = lower_as(node, "Concat", parts)
    return quantized(node, joined, given[0], given[1], given[2])


@lowering("QLinearWhere", domain=MICROSOFT)
def quantized_where(node: Node) -> Value:
    x, y = (dequantized(node, *(node.input(at + i) for i in range(3))) for at in (1, 4))
    chosen = lower_as(node, "Where", [node.input(0), x, y], {})
    return quantized(node, chosen, node.input(7), node.input(8), node.input(1))


@lowering("QLinearConv", domain=MICROSOFT)
def quantized_convolution(node: Node) -> Value:
    """As the standard's, perhaps with channels last; the weight is as ever."""
    given: list[Value | None] = [node.optional(place) for place in range(9)]
    if not node.integer("channels_last", 0):
        return lower_as(node, "QLinearConv", given)
    given[0] = channels_first(node, node.input(0))
    return channels_last(node, lower_as(node, "QLinearConv", given))


@lowering("QGemm", domain=MICROSOFT)
def quantized_gemm(node: Node) -> Value:
    """alpha a_scale b_scale (A' B' + C): f32, or quantised if it has a scale."""
    turned = [bool(node.integer(name, 0)) for name in ("transA", "transB")]
    a = subtract_point(node, node.input(0), node.optional(2), None)
    b = subtract_point(node, node.input(3), node.optional(5), 0 if turned[1] else 1)
    a, b = (
        node.transpose(each, (1, 0)) if is_turned else each
        for each, is_turned in zip((a, b), turned, strict=True)
    )
    total = add(node, matmul(node, a, b, dtype("i32")), node.optional(6))
    result = _scaled(node, total, node.input(1), node.input(4), node.number("alpha", 1.0))
    scale = node.optional(7)
    if scale is None:
        return result
    return quantized(node, result, scale, node.optional(8), node.input(0))


def _scaled(node: Node, total: Value, a: Value, b: Value, alpha: float = 1.0) -> Value:
    """A sum of products times alpha, the scale of a, and that of b, perhaps one per column."""
    check_scales(a, b)
    a, b = (node.reshape(x, ()) if dims.product(shape_of(x)) == 1 else x for x in (a, b))
    factor = node.op("mul", *node.broadcast(node.convert(a, "f32"), node.convert(b, "f32")))
    if alpha != 1:
        factor = node.op("mul", factor, alpha)
    return node.op("mul", node.convert(total, "f32"), node.broadcast_to(factor, shape_of(total)))


def _integer_product(
    node: Node,
    a: Value,
    b: Value,
    scales: tuple[Value, Value],
    zeros: tuple[Value | None, Value | None],
    bias: Value | None,
) -> Value:
    """(a - zero)(b - zero) in integers, times both scales, plus the bias, in f32."""
    total = lower_as(node, "MatMulInteger", [a, b, *zeros], {})
    bias = None if bias is None else node.convert(bias, "f32")
    return add(node, _scaled(node, total, *scales), bias)


@lowering("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: Node) -> Value:
    a, b, a_scale, b_scale = (node.input(place) for place in range(4))
    zeros = node.optional(4), node.optional(5)
    result = _integer_product(node, a, b, (a_scale, b_scale), zeros, node.optional(6))
    return node.convert(result, type_of(b_scale).dtype)


@lowering("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: Node) -> Value:
    """x as DynamicQuantizeLinear has it."""
    codes, scale, zero = quantize_by_range(node, node.input(0))
    scales = scale, node.input(2)
    zeros = zero, node.optional(3)
    return _integer_product(node, codes, node.input(1), scales, zeros, node.optional(4))


@lowering("QAttention", domain=MICROSOFT)
def quantized_attention(node: Node) -> tuple[Value | None, ...]:
    """Attention whose projection is a product in integers."""
    unsupported(bool(node.integer("do_rotary", 0)), "its do_rotary is 1: use GroupQueryAttention")
    scales = node.input(3), node.input(4)
    zeros = node.optional(6), node.optional(7)
    projected = _integer_product(
        node, node.input(0), node.input(1), scales, zeros, node.optional(2)
    )
    projected = node.convert(projected, type_of(node.input(3)).dtype)
    return attend_projected(node, projected, node.optional(5), node.optional(8))


@lowering("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: Node) -> tuple[Value | None, ...]:
    """An LSTM by dequantised weights [directions, inputs, 4 hidden]; what goes into its products
    is not rounded."""
    weights = []
    for at, scale in ((1, 8), (2, 10)):
        codes, factor, zero = node.input(at), node.input(scale), node.optional(scale + 1)
        check_scales(factor)
        turned = node.transpose(codes, (0, 2, 1))
        wide = node.convert(turned, "f32")
        if zero is not None:
            wide = node.op("sub", wide, _per_row(node, node.convert(zero, "f32"), turned))
        weights.append(node.op("mul", wide, _per_row(node, factor, turned)))
    rest = [node.optional(place) for place in range(3, 8)]
    return tuple(lower_whole(node, "LSTM", [node.input(0), *weights, *rest]))


def _per_row(node: Node, value: Value, weight: Value) -> Value:
    """A number per direction, or per direction and row, spread over [directions, rows, columns]."""
    own = shape_of(value)
    return node.broadcast_to(
        node.reshape(value, (own[0], own[1] if own[1:] else 1, 1)), shape_of(weight)
    )


@lowering("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_normalization(node: Node) -> tuple[Value, Value]:
    """As EmbedLayerNormalization, with every table quantised; its rows are looked up first."""
    words, segments = node.input(0), node.optional(1)
    rows = [
        _numbers(node, 8, look_up(node, node.input(2), words)),
        _numbers(node, 9, look_up(node, node.input(3), None, words)),
    ]
    if segments is not None:
        rows.append(_numbers(node, 10, look_up(node, node.input(4), segments)))
    scale, shift = (_numbers(node, at + 6, node.input(at)) for at in (5, 6))
    normal = lower_as(
        node, "LayerNormalization", [add(node, *rows), scale, shift],
        {"epsilon": node.number("epsilon", 1e-12)},
    )  # fmt: skip
    return normal, count_words(node, words, node.optional(7))


def _numbers(node: Node, scale: int, codes: Value) -> Value:
    """What codes stand for; the zero point comes five inputs behind the scale."""
    return dequantized(node, codes, node.input(scale), node.input(scale + 5))


@lowering("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_16(node: Node) -> Value:
    a, b = node.input(0), node.input(1)
    kinds = {type_of(each).dtype.kind for each in (a, b)}
    element = dtype("u32" if kinds == {"u"} else "i32")
    return matmul(node, node.convert(a, element), node.convert(b, element), element)


@lowering("MulInteger", domain=MICROSOFT)
def mul_integer(node: Node) -> Value:
    a, b = (subtract_point(node, node.input(at), node.optional(at + 1), None) for at in (0, 2))
    return node.op("mul", *node.broadcast(a, b))


@lowering("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(node: Node) -> Value:
    x = node.input(0)
    wide = node.convert(x, "u32" if type_of(x).dtype.kind == "u" else "i32")
    return lower_as(node, "ReduceSum", [wide], opset=11)
