"""MurmurHash3 of `com.microsoft`, of numbers and strings."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.strings import Strings, longest, padded_bytes
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import floordiv
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("MurmurHash3", domain=MICROSOFT)
def murmur_hash(node: Node) -> Value:
    """MurmurHash3_x86_32 of the bytes of each element."""
    strings = node.strings(0)
    words, lengths = _words(node, node.input(0)) if strings is None else _texts(node, strings)
    shape, count = shape_of(lengths), shape_of(words)[-1]
    seed = node.integer("seed", 0) & 0xFFFFFFFF

    def step(builder: Builder, index: Value, carried: list[Value]) -> list[Value]:
        inner = node.within(builder)
        word = inner.op("take", words, index, axis=len(shape), mode="clamp")
        start = inner.op("mul", index, 4)
        left = inner.op("sub", lengths, inner.broadcast_to(start, shape))
        return [_mixed(inner, carried[0], word, left)]

    start = [node.full(seed, "u32", shape)]
    (made,) = counted_loop(node.builder, node.size(count), start, step)  # type: ignore[arg-type]
    made = node.op("xor", made, node.convert(lengths, "u32"))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        moved = node.op("shift_right_logical", made, shift)
        made = node.op("mul", node.op("xor", made, moved), factor)
    return made if node.integer("positive", 1) else node.op("bitcast", made, dtype=dtype("i32"))


def _words(node: Node, x: Value) -> tuple[Value, Value]:
    """u32[..., words] of numbers, and how many bytes each has."""
    bits = type_of(x).dtype.bits
    unsupported(bits not in (32, 64), f"its input is {x.type}, expected 32 or 64 bits")
    word = dtype("u32")
    if bits == 64:
        words = node.op("reinterpret", x, dtype=word)
    else:
        words = node.reshape(node.op("bitcast", x, dtype=word), (*shape_of(x), 1))
    return words, node.full(bits // 8, "i64", shape_of(x))


def _texts(node: Node, x: Strings) -> tuple[Value, Value]:
    """As `_words`, of strings; zeros behind the end."""
    width = node.count(longest(node, node.flat(x.lengths)), "the length of the longest string")
    count = floordiv(width + 3, 4)
    data = padded_bytes(node, x, count * 4)
    data = node.reshape(data, (*shape_of(x.starts), count, 4))
    return node.op("reinterpret", data, dtype=dtype("u32")), x.lengths


def _rotated(node: Node, x: Value, bits: int) -> Value:
    left = node.op("shift_left", x, bits)
    return node.op("or", left, node.op("shift_right_logical", x, 32 - bits))


def _mixed(node: Node, made: Value, word: Value, left: Value) -> Value:
    """The hash with one word more, which is whole if 4 bytes are left; 0 changes nothing."""
    word = _rotated(node, node.op("mul", word, 0xCC9E2D51), 15)
    made = node.op("xor", made, node.op("mul", word, 0x1B873593))
    whole = node.op("mul", _rotated(node, made, 13), 5)
    whole = node.op("add", whole, 0xE6546B64)
    return node.op("select", node.compare("ge", left, 4), whole, made)
