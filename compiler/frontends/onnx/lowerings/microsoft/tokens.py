"""Ops of `com.microsoft` on tokens."""

from __future__ import annotations

import math

from ingot.compiler.frontends.onnx.node import Node, shape_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__ = ["block_repeats"]


@lowering("NGramRepeatBlock", domain=MICROSOFT)
def ngram_repeat_block(node: Node) -> Value:
    return block_repeats(node, node.input(0), node.input(1), node.integer("ngram_size", 0))


def block_repeats(
    node: Node, tokens: Value, scores: Value, size: int, least: float = -math.inf
) -> Value:
    """Scores [batch, vocabulary] with the least one for a token that would end a run of `size`
    that is in tokens [batch, sequence] already."""
    unsupported(size < 1, f"its ngram_size is {size}, expected 1 or more")
    batch, length = shape_of(tokens)
    count = dims.maximum(length - size + 1, 0)
    starts = node.op("iota", dtype=dtype("i64"), shape=(count,), axis=0)
    repeats = node.full(True, "i1", (batch, count))

    def run(place: int) -> Value:
        at = node.op("add", starts, node.fill(place, like=starts))
        return node.op("take", tokens, at, axis=1, mode="clamp")

    for place in range(size - 1):
        last = node.op("take", tokens, node.size(length - size + 1 + place), axis=1, mode="clamp")
        last = node.broadcast_to(node.reshape(last, (batch, 1)), (batch, count))
        repeats = node.op("and", repeats, node.compare("eq", run(place), last))
    blocked, free = (node.full(x, "f32", (batch, count)) for x in (least, math.inf))
    return node.op(
        "scatter", scores, node.reshape(run(size - 1), (batch, count, 1)),
        node.op("select", repeats, blocked, free), update_window_dims=(),
        inserted_window_dims=(1,), input_batching_dims=(0,), scatter_indices_batching_dims=(0,),
        scatter_dims_to_operand_dims=(1,), index_vector_dim=2, kind="min", mode="skip",
    )  # fmt: skip
