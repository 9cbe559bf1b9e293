"""Ops that read the bytes of strings one by one: RegexFullMatch."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.automata import compile_pattern
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of
from ingot.compiler.frontends.onnx.registry import STRINGS, lowering
from ingot.compiler.frontends.onnx.strings import flat, not_empty
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("RegexFullMatch", domain=STRINGS)
def regex_full_match(node: Node) -> Value:
    """An automaton takes a byte of each string per step. What is no UTF-8 does not match."""
    x = node.strings(0)
    if x is None or not node.has("pattern"):
        raise UnsupportedNode("its pattern is missing: fix the model")
    automaton = compile_pattern(node.text("pattern", ""))
    width = automaton.following.shape[1]
    following = node.constant(automaton.following.reshape(-1), "u16")
    classes = node.constant(automaton.classes, "u16")
    starts, lengths, data = flat(node, x.starts), flat(node, x.lengths), not_empty(node, x.data)
    longest = node.op("max", node.reduce(lengths, [0], "max"), node.size(0))

    def step(builder: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
        inner, state = node.within(builder), carried[0]
        place = inner.broadcast_to(index, shape_of(starts))
        byte = inner.op("take", data, inner.op("add", starts, place), axis=0, mode="clamp")
        kind = inner.op("take", classes, inner.convert(byte, "i32"), axis=0, mode="clamp")
        row = inner.op("mul", state, inner.fill(width, like=state))
        entry = inner.op("add", row, inner.convert(kind, "i32"))
        reached = inner.op("take", following, entry, axis=0, mode="clamp")
        goes_on = inner.compare("lt", place, lengths)
        return [inner.op("select", goes_on, inner.convert(reached, "i32"), state)]

    first = node.full(1, "i32", shape_of(starts))
    (state,) = counted_loop(node.builder, longest, [first], step)
    accepts = node.constant(automaton.accepts != 0, "i1")
    return node.reshape(node.op("take", accepts, state, axis=0, mode="clamp"), shape_of(x.starts))
