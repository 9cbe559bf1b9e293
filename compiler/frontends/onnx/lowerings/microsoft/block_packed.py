"""Weights of `com.microsoft` in the blocks of ggml: rows of bytes, as a GGUF file has them, whose
type is ggml's number of it."""

from __future__ import annotations

from ingot.compiler.frontends.activations import swish
from ingot.compiler.frontends.gguf.blocks import decode
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.ir import Value
from ingot.hal.gguf import BLOCK_TYPES
from ingot.hal.spec import dtype

__all__ = ["numbers_of_rows"]

_NUMBERS = (2, 6, 8, 13, 14, 16, 17, 18, 20, 22, 23, 30)  # that onnxruntime's kernels take
_TAKEN = {number: BLOCK_TYPES[number] for number in _NUMBERS}


def _numbers(node: Node, rows: Value) -> Value:
    return numbers_of_rows(node, rows, "packed_type", node.integer("K", 0))


def numbers_of_rows(node: Node, rows: Value, name: str, k: int) -> Value:
    """f32[..., k] of rows u8[..., bytes], whose type is the attribute `name`."""
    number = node.integer(name, -1)
    kind = _TAKEN.get(number)
    if kind is None:
        names = ", ".join(f"{at} ({row.name})" for at, row in _TAKEN.items())
        raise UnsupportedNode(f"its {name} is {number}: {names} are taken")
    unsupported(k < 1 or k % kind.count != 0, f"its K is {k}, of blocks of {kind.count}")
    rows = node.agree_on(rows, type_of(rows).rank - 1, k // kind.count * kind.length)
    if kind.name == "BF16":
        rows = node.reshape(rows, (*shape_of(rows)[:-1], k, 2))
        return node.convert(node.op("reinterpret", rows, dtype=dtype("bf16")), "f32")
    return decode(kind.name, rows, node.builder)


@lowering("GatherPacked", domain=MICROSOFT)
def gather_packed(node: Node) -> Value:
    """Rows of a table, as numbers; row 0 for an index that is out of range."""
    table, indices = node.input(0), node.input(1)
    zero, count = node.fill(0, like=indices), node.size(shape_of(table)[0], type_of(indices).dtype)
    is_there = node.op(
        "and", node.compare("ge", indices, zero),
        node.compare("lt", indices, node.broadcast_to(count, shape_of(indices))),
    )  # fmt: skip
    indices = node.op("select", is_there, indices, zero)
    rows = node.op("take", table, indices, axis=0, mode="clamp")
    result = dtype_of(node.integer("output_dtype", 16)) or dtype("bf16")
    return node.convert(_numbers(node, rows), result)


@lowering("MatMulPacked", domain=MICROSOFT)
def matmul_packed(node: Node) -> Value:
    """x [..., K] times rows of a weight, rounded to the dtype of x."""
    unsupported(node.optional(2) is not None, "it has a global_scale, which NVFP4 alone has")
    x = node.input(0)
    weight = node.transpose(narrow(node, _numbers(node, node.input(1)), x), (1, 0))
    product = matmul(node, x, weight, type_of(x).dtype)
    kind = node.text("activation_type", "none")
    if kind == "none":
        return product
    if kind == "silu":
        return narrow(node, swish(node, widen(node, product)), x)
    unsupported(kind not in ("relu2", "relu_squared"), f"its activation_type is '{kind}'")
    positive = node.op("max", widen(node, product), 0)
    return narrow(node, node.op("mul", positive, positive), x)
