"""Hyper-connections, the parallel streams [..., branches, width] of a residual network, and what
Engrams bring into them: ids of n-grams, whose embeddings a gate lets in."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim
from ingot.hal.spec import dtype

__all__: list[str] = []


def _streams(node: Node) -> Value:
    """Input 0 as f32[..., branches, width]."""
    x, branches = widen(node, node.input(0)), node.integer("num_branches", 0)
    if not branches:
        return x
    *outer, width = shape_of(x)
    return node.reshape(x, (*outer, branches, width // branches))


def _gates(node: Node, gates: Value, streams: Value) -> Value:
    """f32[..., branches, width or 1] of a gate for each branch or feature."""
    gates, shape = widen(node, gates), shape_of(streams)
    if type_of(gates).rank == len(shape):
        return gates
    split = (*shape[:-1], 1) if shape_of(gates)[-1] == shape[-2] else shape
    return node.reshape(gates, split)


@lowering("HyperConnectionPreMix", domain=MICROSOFT)
def mix_before(node: Node) -> Value:
    """The gated sum of all streams."""
    streams = _streams(node)
    gated = node.op("mul", *node.broadcast(streams, _gates(node, node.input(1), streams)))
    total = node.reduce(gated, [type_of(gated).rank - 2], "add")
    total = node.op("mul", total, node.number("reduction_scale", 1.0))
    return narrow(node, total, node.input(0))


@lowering("HyperConnectionPostMix", domain=MICROSOFT)
def mix_behind(node: Node) -> Value:
    """The streams, mixed, and what a block made, gated for each."""
    streams, mix, made = _streams(node), node.optional(3), widen(node, node.input(1))
    made = node.reshape(made, (*shape_of(made)[:-1], 1, shape_of(made)[-1]))
    made = node.op("mul", *node.broadcast(made, _gates(node, node.input(2), streams)))
    if mix is not None:
        rank = type_of(mix).rank
        mix = node.transpose(widen(node, mix), (*range(rank - 2), rank - 1, rank - 2))
        streams = matmul(node, mix, streams, dtype("f32"))
    return narrow(
        node, node.reshape(add(node, streams, made), shape_of(node.input(0))), node.input(0)
    )


@lowering("HyperConnectionLowRankMix", domain=MICROSOFT)
def mix_of_low_rank(node: Node) -> tuple[Value, Value, Value]:
    """What goes into a block, of normed streams and gates of low rank; the gates of what it will
    make, and the streams with what the block before made. Each step is rounded."""
    given, made = node.input(0), node.optional(5)
    streams, gates = _streams(node), node.optional(6)
    unsupported((made is None) != (gates is None), "one of its inputs 5 and 6 is missing")

    def rounded(x: Value) -> Value:
        return widen(node, narrow(node, x, given))

    def scaled(x: Value, factor: float, op: str = "mul") -> Value:
        return rounded(node.op(op, x, factor))

    def gate(x: Value) -> Value:
        return rounded(node.op("logistic", x))

    if made is not None and gates is not None:
        made = widen(node, made)
        made = node.reshape(made, (*shape_of(made)[:-1], 1, shape_of(made)[-1]))
        made = node.op("mul", *node.broadcast(made, _gates(node, gates, streams)))
        streams = rounded(add(node, streams, made))
    shape, whole = shape_of(streams), shape_of(given)
    norm = {"epsilon": node.number("epsilon", 1e-6)}
    ones = node.full(1.0, "f32", (shape[-1],))
    normed = lower_as(node, "RMSNormalization", [streams, ones], norm)
    normed = node.reshape(normed, whole)
    weight = widen(node, node.input(1))
    normed = rounded(node.op("mul", *node.broadcast(normed, weight)))
    down, up, inject = (widen(node, node.input(place)) for place in (2, 3, 4))
    hidden = rounded(matmul(node, normed, down, dtype("f32")))
    hidden = scaled(hidden, node.number("silu_alpha", 1.0))
    hidden = rounded(node.op("mul", hidden, gate(hidden)))
    each = gate(rounded(matmul(node, hidden, up, dtype("f32"))))
    total = node.reduce(node.reshape(node.op("mul", normed, each), shape), [len(shape) - 2], "add")
    total = scaled(total, node.number("reduction_scale", 1.0))
    logits = rounded(matmul(node, normed, inject, dtype("f32")))
    logits = gate(scaled(logits, node.number("gate_div", 1.0), "div"))
    later = scaled(logits, node.number("gate_mul", 1.0))
    results = (total, later, node.reshape(streams, whole))
    first, second, third = (narrow(node, each, given) for each in results)
    return first, second, third


@lowering("EngramGate", domain=MICROSOFT)
def engram_gate(node: Node) -> tuple[Value, Value | None]:
    """value, let through as far as keys and queries agree, and its norm."""
    epsilon = {"epsilon": node.number("epsilon", 1e-5)}

    def normal(x: Value, scale: int) -> Value:
        return lower_as(node, "RMSNormalization", [x, widen(node, node.input(scale))], epsilon)

    key, query, value = (widen(node, node.input(place)) for place in range(3))
    axis = type_of(key).rank - 1
    dot = node.reduce(node.op("mul", normal(key, 3), normal(query, 4)), [axis], "add", keep=True)
    scale = known_dim(shape_of(key)[axis]) ** -0.5
    dot = node.op("mul", dot, scale)
    root = node.op("max", node.op("abs", dot), 1e-6)
    gate = node.op("logistic", node.op("mul", node.op("sign", dot), node.op("sqrt", root)))
    value = node.reshape(value, (*shape_of(value)[:-1], 1, shape_of(value)[-1]))
    gated = node.op("mul", *node.broadcast(gate, value))
    given = node.input(0)
    normed = narrow(node, normal(gated, 5), given) if node.wants(1) else None
    return narrow(node, gated, given), normed


@lowering("NGramHashMapping", domain=MICROSOFT)
def hash_ngrams(node: Node) -> tuple[Value, Value]:
    """Of [batch, tokens] the hashes of the n-grams that end with each token: so many for each n
    from 2. And the last tokens, which the next call takes."""
    ids, most = node.input(0), node.integer("max_ngram_size", 0)
    heads = node.integer("n_head_per_ngram", 0)
    unsupported(most < 2 or heads < 1, f"it has {heads} heads of n-grams up to {most}")
    (batch, tokens), type = shape_of(ids), type_of(ids).dtype
    fill, past = node.optional(5), node.optional(3)
    fill = node.constant(node.integer("pad_id", 0), type) if fill is None else fill
    fill = node.broadcast_to(node.reshape(fill, (1, 1)), (batch, tokens + most - 1))
    past = node.sliced(fill, -1, 0, most - 1) if past is None else past
    row = node.op("concatenate", node.agree(past, (batch, most - 1)), ids, axis=1)
    ends = _ends(node, row, fill)
    fill = node.sliced(fill, -1, 0, tokens)
    mixed, hashes, is_over = None, [], node.full(0, "i1", (batch, tokens))
    for shift, start in enumerate(reversed(range(most))):
        seen = node.sliced(row, -1, start, start + tokens)
        for first in ends if shift else ():
            is_over = node.op("or", is_over, node.sliced(first, -1, start, start + tokens))
        seen = node.op("select", is_over, fill, seen)
        factor = node.sliced(node.input(1), -1, shift, shift + 1)
        term = node.op("mul", *node.broadcast(seen, factor))
        mixed = term if mixed is None else node.op("xor", mixed, term)
        hashes += [node.reshape(mixed, (batch, tokens, 1))] * (heads if shift else 0)
    found = lower_as(node, "Mod", [node.op("concatenate", *hashes, axis=2), node.input(2)], {})
    return add(node, found, node.optional(4)), node.sliced(row, -1, tokens, tokens + most - 1)


def _ends(node: Node, row: Value, fill: Value) -> list[Value]:
    """Where a text ends, so that no n-gram reaches back to there: with an end of text, and before
    another segment begins. Both as `row` is, [batch, past and tokens]."""
    ends, segments = [], node.optional(6)
    if node.integer("reset_on_eos", 0) and node.optional(5) is not None:
        ends.append(node.compare("eq", row, fill))
    if segments is not None:
        batch, length = shape_of(row)
        segments = node.agree(segments, shape_of(node.input(0)))
        past = length - shape_of(segments)[1]
        zeros = node.full(0, type_of(segments).dtype, (batch, past))
        line = node.op("concatenate", zeros, segments, axis=1)
        neighbours = (node.sliced(line, 1, at, length - 1 + at) for at in (0, 1))
        differs = node.compare("ne", *neighbours)
        place = node.op("iota", dtype=dtype("i64"), shape=(batch, length - 1), axis=1)
        is_past = node.compare("lt", place, node.broadcast_to(node.size(past), shape_of(place)))
        ends.append(node.op("and", differs, node.op("not", is_past)))
    return ends
