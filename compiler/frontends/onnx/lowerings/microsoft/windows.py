"""Ops of `com.microsoft` on windows: convolutions that keep what they need of the past, runs of
elements, padding that is an input, and windows over the characters of words."""

from __future__ import annotations

import math

from ingot.compiler.frontends.activations import swish
from ingot.compiler.frontends.indexed import blocks_along
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import product
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("CausalConvWithState", domain=MICROSOFT)
def causal_convolution(node: Node) -> tuple[Value, Value]:
    """Each channel of [batch, channels, sequence] by its own window, which sees no later place;
    and the places that the next call needs."""
    x, weight, past = node.input(0), node.input(1), node.optional(3)
    for name, plain in (("ndim", 1), ("channels_last", 0), ("state_window", 0)):
        unsupported(node.integer(name, plain) != plain, f"its {name} is not {plain}")
    kind = node.text("activation", "none")
    unsupported(kind not in ("none", "silu", "swish"), f"its activation is '{kind}'")
    batch, channels, length = shape_of(x)
    step = node.integer("dilation", 1)
    kept = (shape_of(weight)[2] - 1) * step
    if past is None:
        past = node.full(0, type_of(x).dtype, (batch, channels, kept))
    joined = node.op("concatenate", node.agree(past, (batch, channels, kept)), x, axis=2)
    attributes = {"group": channels, "dilations": [step]}
    result = lower_as(node, "Conv", [joined, weight, node.optional(2)], attributes)
    past = node.sliced(joined, -1, length, length + kept)
    return result if kind == "none" else swish(node, result), past


@lowering("UnfoldTensor", domain=MICROSOFT)
def unfold(node: Node) -> Value:
    """All runs of `size` elements along an axis, `step` apart, each along a new last axis."""
    x = node.input(0)
    rank = type_of(x).rank
    axis, size = node.axis(-1, rank, "dim"), node.integer("size", 1)
    runs = blocks_along(node, x, axis, size, node.integer("step", 1))
    order = [place for place in range(rank + 1) if place != axis + 1]
    return node.transpose(runs, (*order, axis + 1))


@lowering("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def convolution_transpose_with_pads(node: Node) -> Value:
    """The standard's, whose padding must be known."""
    inner = node
    pads = node.optional(2)
    if pads is not None:
        known = node.known(pads)
        unsupported(known is None, "its pads depend on data: make them a constant")
        assert known is not None
        inner = node.revised(node.opset)
        inner.set_attribute("pads", [int(each) for each in known.reshape(-1)])
    return lower_as(inner, "ConvTranspose", [node.input(0), node.input(1), node.optional(3)])


@lowering("WordConvEmbedding", domain=MICROSOFT)
def word_embedding(node: Node) -> Value:
    """[..., filters]: of the characters of each word, the greatest of what windows over them
    give. Characters that are 0 end a word; one that begins so is 0."""
    words, weight, bias, table = (node.input(place) for place in range(4))
    *outer, length = shape_of(words)
    filters, _, window, size = shape_of(weight)
    rows = lower_as(node, "Gather", [table, words], {"axis": 0})
    rows = node.reshape(rows, (product(outer), 1, length, size))
    made = lower_as(node, "Conv", [rows, weight, bias], {})
    made = node.op("tanh", node.reshape(made, (*outer, filters, length - window + 1)))
    is_used = node.compare("gt", words, 0)
    count = node.reduce(node.convert(is_used, "i64"), [len(outer)], "add")
    place = node.op("iota", dtype=dtype("i64"), shape=shape_of(made), axis=len(outer) + 1)
    last = node.op("sub", count, node.broadcast_to(node.size(window), shape_of(count)))
    last = node.op("max", last, 0)
    axes = tuple(range(len(outer)))
    last = node.op("broadcast", last, shape=shape_of(made), dimensions=axes)
    seen = node.op("select", node.compare("le", place, last), made, -math.inf)
    best = node.reduce(seen, [len(outer) + 1], "max")
    begins = node.reshape(node.sliced(is_used, -1, 0, 1), tuple(outer))
    begins = node.op("broadcast", begins, shape=shape_of(best), dimensions=axes)
    return node.op("select", begins, best, 0)
