"""Products of `com.microsoft` with weights in blocks: of floats of 8 and 4 bits, and several of one
norm."""

from __future__ import annotations

from ingot.compiler.frontends.activations import swish
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.block_quantized import (
    times_blocks,
    unpacked,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim, product
from ingot.hal.spec import dtype

__all__: list[str] = []

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _by_bits(node: Node, x: Value, place: int, n: int) -> Value:
    """MatMulNBits with the weight, scales and bias from a place on."""
    attributes = {name: node.integer(name, 0) for name in ("K", "block_size")}
    attributes |= {"N": n, "bits": node.integer("bits", 4)}
    given = [x, node.input(place), node.input(place + 1), None, None, node.optional(place + 2)]
    return times_blocks(node.replaced(node.opset, given, attributes))


def _normalized(node: Node, epsilon: float) -> tuple[Value, Value]:
    """The norm of inputs 0 and, if it is there, 1, or without a scale their sum; and that sum."""
    x, skip, scale = node.input(0), node.optional(1), node.optional(2)
    total = widen(node, x) if skip is None else add(node, widen(node, x), widen(node, skip))
    normal = total
    if scale is not None:
        attributes = {"epsilon": node.number("epsilon", epsilon)}
        normal = lower_as(node, "RMSNormalization", [total, widen(node, scale)], attributes)
    return narrow(node, normal, x), narrow(node, total, x)


@lowering("MatMulNBitsQkv", domain=MICROSOFT)
def matmul_qkv(node: Node) -> tuple[Value, ...]:
    """Three products of one norm, and what it is a norm of."""
    normal, total = _normalized(node, 1e-6)
    places = ((3, "Nq"), (6, "Nkv"), (9, "Nkv"))
    return *(_by_bits(node, normal, at, node.integer(n, 0)) for at, n in places), total


@lowering("MatMulNBitsMlp", domain=MICROSOFT)
def matmul_mlp(node: Node) -> tuple[Value, Value]:
    """swish(gate) * up, products of one norm, and what it is a norm of."""
    kind = node.text("activation", "silu")
    unsupported(kind != "silu", f"its activation is '{kind}': 'silu' is supported")
    normal, total = _normalized(node, 1e-5)
    gate, up = (_by_bits(node, normal, at, node.integer("N", 0)) for at in (3, 6))
    return node.op("mul", swish(node, gate), up), total


@lowering("MatMulNBitsQLoRA", domain=MICROSOFT)
def matmul_with_adapter(node: Node) -> Value:
    """x times a weight of few bits, and x times the two of an adapter, which may have no rows."""
    x, n, k = node.input(0), node.integer("N", 0), node.integer("K", 0)

    def times(x: Value, place: int, kind: str, n: int, k: int) -> Value:
        bits, block = (node.integer(f"{kind}{name}", 4) for name in ("bits", "block_size"))
        attributes = {"N": n, "K": k, "bits": bits, "block_size": block}
        given = [x, node.input(place), node.input(place + 1)]
        return times_blocks(node.replaced(node.opset, given, attributes))

    base = times(x, 1, "", n, k)
    if product(shape_of(node.input(5))) == 0:
        return base
    rank = known_dim(shape_of(node.input(3))[0])
    unsupported(rank == 0, "its lora_A is empty, and its lora_B is not: fix the model")
    return add(node, base, times(times(x, 3, "lora_", rank, k), 5, "lora_", n, rank))


def _times_rows(node: Node, x: Value, weight: Value, bias: Value | None) -> Value:
    """x times rows of f32, rounded to its dtype."""
    weight = node.transpose(narrow(node, weight, x), (1, 0))
    return add(node, matmul(node, x, weight, type_of(x).dtype), bias)


def _scaled(node: Node, wide: Value, scales: Value, block: int) -> Value:
    """Rows times scales f32[n, blocks] of runs of `block_size`; the last may be cut short."""
    size, length = node.integer("block_size", block), shape_of(wide)[1]
    size = min(size, length) if isinstance(length, int) else size
    spread = node.sliced(node.repeated(scales, 1, size), -1, 0, length)
    return node.op("mul", wide, spread)


@lowering("MatMulBlockQuantizedFp8Weight", domain=MICROSOFT)
def matmul_fp8(node: Node) -> Value:
    """Of a weight f8e4m3fn[n, k]; with a scale of its own the other operand is rounded to 8 bits,
    too."""
    x, scale = node.input(0), node.optional(3)
    weight = _scaled(node, node.convert(node.input(1), "f32"), node.input(2), 128)
    if scale is not None:
        factor = node.broadcast_to(node.reshape(scale, ()), shape_of(x))
        codes = node.op("div", widen(node, x), factor)
        greatest = node.fill(448, like=codes)
        codes = node.op("clamp", node.op("neg", greatest), codes, greatest)
        codes = node.convert(node.convert(codes, "f8e4m3fn"), "f32")
        x = narrow(node, node.op("mul", codes, factor), x)
    return _times_rows(node, x, weight, node.optional(4))


@lowering("MatMulBlockQuantizedFp4Weight", domain=MICROSOFT)
def matmul_fp4(node: Node) -> Value:
    """Of a weight [n, k] of 4 bits, two in a byte, whose scales are bytes of f8e4m3fn."""
    codes = unpacked(node, node.input(1), 4)
    table = node.constant((*_E2M1, *(-each for each in _E2M1)), "f32")
    numbers = node.op("take", table, node.convert(codes, "u8"), axis=0, mode="clamp")
    scales = node.convert(node.op("bitcast", node.input(2), dtype=dtype("f8e4m3fn")), "f32")
    whole = node.broadcast_to(node.reshape(node.input(3), ()), shape_of(scales))
    weight = _scaled(node, numbers, node.op("mul", scales, whole), 16)
    return _times_rows(node, node.input(0), weight, node.optional(5))
