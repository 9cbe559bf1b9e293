"""Linear quantisation: integers that stand for (integer - zero point) * scale."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import DType, dtype

__all__: list[str] = []


def _spread(node: Node, x: Value, value: Value) -> Value:
    """A scale or zero point, one number or one per index of the axis, in the shape of x."""
    unsupported(bool(node.integer("block_size", 0)), "block_size is not supported: use an axis")
    if dims.product(shape_of(value)) == 1:
        return node.broadcast_to(node.reshape(value, ()), shape_of(x))
    unsupported(type_of(value).rank != 1, f"its scale or zero point is {value.type}: use rank 1")
    rank = type_of(x).rank
    axis = node.axis(1, rank)
    column = [1] * axis + list(shape_of(value)) + [1] * (rank - axis - 1)
    return node.broadcast_to(node.reshape(value, column), shape_of(x))


@lowering("DequantizeLinear")
def dequantize(node: Node) -> Value:
    """Computed in f32, given in the dtype of the scale."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    result = dtype_of(node.integer("output_dtype", 0)) or type_of(scale).dtype
    wide = node.convert(x, "f32")
    if zero is not None:
        wide = node.op("sub", wide, node.convert(_spread(node, x, zero), "f32"))
    scales = node.convert(_spread(node, x, scale), "f32")
    return node.convert(node.op("mul", wide, scales), result)


@lowering("QuantizeLinear")
def quantize(node: Node) -> Value:
    """round(x / scale) + zero point, halves to even, saturated to the integer's range."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    target = _target(node, zero)
    wide = node.convert(x, "f32")
    scales = node.convert(_spread(node, x, scale), "f32")
    rounded = node.op("round_even", node.op("div", wide, scales))
    if zero is not None:
        rounded = node.op("add", rounded, node.convert(_spread(node, x, zero), "f32"))
    signed = target.kind == "i"
    low = -(2 ** (target.bits - 1)) if signed else 0
    high = low + 2**target.bits - 1
    limits = [node.fill(limit, like=rounded) for limit in (low, high)]
    return node.convert(node.op("clamp", limits[0], rounded, limits[1]), target)


def _target(node: Node, zero: Value | None) -> DType:
    named = dtype_of(node.integer("output_dtype", 0))
    target = named or (dtype("u8") if zero is None else type_of(zero).dtype)
    if not target.is_integer or target.bits > 16:
        raise UnsupportedNode(f"quantises to {target.name}: use an integer of up to 16 bits")
    return target
