"""Linear quantisation: integers that stand for (integer - zero point) * scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ml_dtypes import finfo  # onnx depends on it

from ingot.compiler.frontends.onnx.lowerings.contractions import add_bias, convolve, matmul
from ingot.compiler.frontends.onnx.lowerings.windows import read_window
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lower_as, lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.graph.rewriter import literal_of_value
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import DType, dtype

__all__ = ["check_scales", "quantize_by_range", "subtract_point"]


def check_scales(*scales: Value | None, divides: bool = False) -> None:
    """UnsupportedNode: of the scales that the model holds one is not finite; or, where something
    is divided by it, not positive. Converters write 0 for a channel of zeros, and signs into
    scales of weights."""
    for scale in scales:
        literal = None if scale is None else literal_of_value(scale)
        if literal is None:
            continue
        numbers = literal.array.astype(np.float32).reshape(-1)
        good = np.isfinite(numbers) & ((numbers > 0) | (not divides))
        if not good.all():
            place = int(np.argmin(good))
            which = f"scale {place} of {numbers.size}" if numbers.size > 1 else "its scale"
            raise UnsupportedNode(
                f"{which} is {numbers[place]}, expected finite{' and positive' * divides}: "
                "quantise the model again"
            )


def check_point(codes: DType, zero: Value | None) -> None:
    """UnsupportedNode: a zero point is not of the dtype of the codes, or, of floats, not 0."""
    if zero is None:
        return
    unsupported(
        type_of(zero).dtype is not codes,
        f"its zero point is {zero.type}, but codes are {codes.name}: fix the model",
    )
    literal = literal_of_value(zero) if codes.is_float else None
    unsupported(
        literal is not None and bool(literal.array.any()),
        f"its zero point is not 0, but codes are {codes.name}: fix the model",
    )


def _along(node: Node, x: Value, value: Value, axis: int) -> Value:
    """A scale or zero point that broadcasts to x: of one number, or of one per index of the
    axis. UnsupportedNode: it has another length."""
    if dims.product(shape_of(value)) == 1:
        return node.reshape(value, ())
    shape = shape_of(x)
    unsupported(type_of(value).rank != 1, f"its scale or zero point is {value.type}: use rank 1")
    (own,) = shape_of(value)
    unsupported(
        isinstance(own, int) and isinstance(shape[axis], int) and own != shape[axis],
        f"its scale or zero point is {value.type}, expected 1 number or {shape[axis]}, one per "
        f"index of axis {axis} of {x.type}: fix the model",
    )
    return node.reshape(value, [1] * axis + [own] + [1] * (len(shape) - axis - 1))


def _spread(node: Node, x: Value, value: Value) -> Value:
    """A scale or zero point in the shape of x: one number, one per index of the axis, or one per
    block of `block_size` indices."""
    block = node.integer("block_size", 0)
    if block:
        return _spread_blocks(node, x, value, block)
    is_one = dims.product(shape_of(value)) == 1
    axis = 0 if is_one else node.axis(1, type_of(x).rank)
    return node.broadcast_to(_along(node, x, value, axis), shape_of(x))


def _spread_blocks(node: Node, x: Value, value: Value, block: int) -> Value:
    """One number per block along the axis; the last block may be cut short."""
    shape, own = shape_of(x), shape_of(value)
    axis = node.axis(1, type_of(x).rank)
    unsupported(
        block < 1 or len(own) != len(shape),
        f"block_size is {block} and its scale or zero point {value.type}: expected a positive "
        f"size and rank {len(shape)}",
    )
    if isinstance(shape[axis], int):
        blocks = -(-shape[axis] // block)
        unsupported(
            isinstance(own[axis], int) and own[axis] != blocks,
            f"its scale or zero point is {value.type}, but axis {axis} of {x.type} has {blocks} "
            f"blocks of {block}: fix the model",
        )
    whole = node.repeated(value, axis, block)
    return node.broadcast_to(node.sliced(whole, axis, 0, shape[axis]), shape)


@lowering("DequantizeLinear")
def dequantize(node: Node) -> Value:
    """Computed in f32, given in the dtype of the scale."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    check_scales(scale)
    check_point(type_of(x).dtype, zero)
    result = dtype_of(node.integer("output_dtype", 0)) or type_of(scale).dtype
    wide = node.convert(x, "f32")
    if zero is not None:
        wide = node.op("sub", wide, node.convert(_spread(node, x, zero), "f32"))
    scales = node.convert(_spread(node, x, scale), "f32")
    return node.convert(node.op("mul", wide, scales), result)


@lowering("QuantizeLinear")
def quantize(node: Node) -> Value:
    """x / scale, to integers round(that) + zero point, halves to even, saturated."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    target = _target(node, zero)
    check_scales(scale, divides=True)
    check_point(target, zero)
    compute = dtype_of(node.integer("precision", 0)) or dtype("f32")
    wide = node.convert(x, compute)
    scales = node.convert(_spread(node, x, scale), compute)
    quotient = node.convert(node.op("div", wide, scales), "f32")
    if target.is_float:
        return _to_float(node, quotient, target)
    points = None if zero is None else _spread(node, x, zero)
    return _to_integer(node, quotient, points, target)


@lowering("DynamicQuantizeLinear")
def dynamic_quantize(node: Node) -> tuple[Value, Value, Value]:
    return quantize_by_range(node, node.input(0))


def quantize_by_range(node: Node, x: Value) -> tuple[Value, Value, Value]:
    """x as u8 over its range and 0; scale and zero point. The scale of zeros is 1, so that they
    stay numbers."""
    axes, zero = list(range(type_of(x).rank)), node.constant(0.0, "f32")
    low = node.op("min", node.reduce(x, axes, "min"), zero)
    high = node.op("max", node.reduce(x, axes, "max"), zero)
    scale = node.op("div", node.op("sub", high, low), 255)
    scale = node.op("select", node.compare("eq", scale, zero), 1, scale)
    place = node.op("round_even", node.op("div", node.op("neg", low), scale))
    point = node.convert(node.op("clamp", zero, place, 255), "u8")
    return lower_as(node, "QuantizeLinear", [x, scale, point], {}), scale, point


def _to_float(node: Node, x: Value, target: DType) -> Value:
    """x in a narrow float dtype; beyond its range the greatest number, unless `saturate` is 0."""
    if node.integer("saturate", 1):
        greatest = float(finfo(target.numpy).max)
        limits = [node.fill(limit, like=x) for limit in (-greatest, greatest)]
        x = node.op("clamp", limits[0], x, limits[1])
    return node.convert(x, target)


def _to_integer(node: Node, x: Value, zero: Value | None, target: DType) -> Value:
    """round(x) + zero point in an integer dtype, halves to even, saturated."""
    rounded = node.op("round_even", x)
    if zero is not None:
        rounded = node.op("add", rounded, node.convert(zero, "f32"))
    limits = [node.fill(limit, like=rounded) for limit in target.limits]
    return node.convert(node.op("clamp", limits[0], rounded, limits[1]), target)


def _target(node: Node, zero: Value | None) -> DType:
    named = dtype_of(node.integer("output_dtype", 0))
    target = named or (dtype("u8") if zero is None else type_of(zero).dtype)
    fits = target.bits <= 16 if target.is_integer else target.is_float and target.bits <= 8
    if not fits:
        raise UnsupportedNode(f"quantises to {target.name}: use an integer of up to 16 bits")
    return target


def subtract_point(node: Node, value: Value, point: Value | None, axis: int | None) -> Value:
    """`value` as i32, less its zero point: one number, one per index of `axis`, or a tensor that
    broadcasts to it."""
    wide = node.convert(value, "i32")
    if point is None:
        return wide
    check_point(type_of(value).dtype, point)
    if axis is not None and type_of(point).rank == 1:
        point = _along(node, value, point, axis % type_of(value).rank)
    elif dims.product(shape_of(point)) == 1:
        point = node.reshape(point, ())
    point = node.convert(point, "i32")
    return node.op("sub", wide, node.broadcast_to(point, shape_of(value)))


@lowering("QLinearMatMul")
def quantized_matmul(node: Node) -> Value:
    """The product of quantised matrices, quantised again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.input(i) for i in range(8))
    product = matmul(
        node,
        subtract_point(node, a, a_zero, -2),
        subtract_point(node, b, b_zero, -1),
        dtype("i32"),
    )
    rows = type_of(product).rank - (type_of(b).rank > 1) - 1
    columns = type_of(product).rank - 1
    scales = [(a_scale, max(rows, 0)), (b_scale, columns), (y_scale, columns)]
    return _requantize(node, product, scales, y_zero, columns)


@lowering("QLinearConv")
def quantized_convolution(node: Node) -> Value:
    """The convolution of quantised tensors, quantised again; the bias counts products."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.input(i) for i in range(8))
    bias = node.optional(8)
    window = read_window(node, shape_of(x)[2:], shape_of(w)[2:])
    wide = subtract_point(node, x, x_zero, 1)
    total = convolve(
        node, wide, subtract_point(node, w, w_zero, 0), window, node.integer("group", 1)
    )
    if bias is not None:
        total = add_bias(node, total, bias)
    return _requantize(node, total, [(x_scale, 1), (w_scale, 1), (y_scale, 1)], y_zero, 1)


def _requantize(
    node: Node,
    total: Value,
    scales: Sequence[tuple[Value, int]],
    zero: Value,
    axis: int,
) -> Value:
    """An i32 sum of products times a's and b's scales over the result's, each a number or one
    per index of an axis, as a quantised tensor."""
    check_scales(*(scale for scale, _ in scales[:2]))
    check_scales(scales[2][0], divides=True)

    def column(value: Value, place: int) -> Value:
        one = dims.product(shape_of(value)) == 1
        return _along(node, total, value, place) if one or type_of(value).rank == 1 else value

    a, b, y = (column(node.convert(scale, "f32"), place) for scale, place in scales)
    factor = node.op("mul", *node.broadcast(a, b))
    factor = node.broadcast_to(node.op("div", *node.broadcast(factor, y)), shape_of(total))
    points = node.broadcast_to(column(zero, axis), shape_of(total))
    product = node.op("mul", node.convert(total, "f32"), factor)
    return _to_integer(node, product, points, type_of(zero).dtype)


@lowering("MatMulInteger")
def matmul_integer(node: Node) -> Value:
    """i8 or u8 operands less their zero points, products summed in i32."""
    operands: list[Value] = []
    for index, axis in ((0, -2), (1, -1)):
        value, point = node.input(index), node.optional(index + 2)
        plain = point is None or node.known_number(index + 2) == 0
        operands.append(value if plain else subtract_point(node, value, point, axis))
    if len({type_of(operand).dtype for operand in operands}) > 1:
        operands = [node.convert(operand, "i32") for operand in operands]
    return matmul(node, operands[0], operands[1], dtype("i32"))


@lowering("ConvInteger")
def convolution_integer(node: Node) -> Value:
    """i8 or u8 operands less their zero points, products summed in i32."""
    x = subtract_point(node, node.input(0), node.optional(2), 1)
    w = subtract_point(node, node.input(1), node.optional(3), 0)
    window = read_window(node, shape_of(x)[2:], shape_of(w)[2:])
    return convolve(node, x, w, window, node.integer("group", 1))
