"""VarlenNGramHashMapping of `com.microsoft`: hashes of the n-grams of texts of unequal length."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.ragged import Samples, captured, spans_of
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.frontends.spans import Spans
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []


class _Line:
    """Numbers [tokens] of texts, in front of which those of `past`, [texts, kept], stand."""

    def __init__(self, node: Node, spans: Spans, x: Value, past: Value, kept: int) -> None:
        self.node, self.spans, self.kept = node, spans, kept
        column = node.with_input(0, node.reshape(x, (*shape_of(x), 1)))
        past = node.agree(past, (spans.texts, kept))
        self.samples = Samples(column, spans, node.reshape(past, (spans.texts, 1, kept)), kept)

    def before(self, step: int) -> Value:
        return self.node.reshape(self.samples.before(step), (self.spans.total,))

    def last(self) -> Value:
        return self.node.reshape(self.samples.last(), (self.spans.texts, self.kept))


@lowering("VarlenNGramHashMapping", domain=MICROSOFT)
def hash_ngrams_of_texts(node: Node) -> tuple[Value | None, ...]:
    """Of ids [tokens] the hashes of the n-grams that end with each token, [tokens, heads]; the
    last ids and segments of each text, [texts, kept]; and the ids behind captured tokens."""
    ids, most = node.input(0), node.integer("max_ngram_size", 0)
    heads = node.integer("n_head_per_ngram", 0)
    unsupported(most < 2 or heads < 1, f"it has {heads} heads of n-grams up to {most}")
    (tokens,), type, kept = shape_of(ids), type_of(ids).dtype, most - 1
    spans = spans_of(node, node.input(3), tokens)
    fill = node.optional(6)
    fill = node.constant(node.integer("pad_id", 0), type) if fill is None else fill
    fill = node.reshape(fill, ())

    def filled(*shape: Dim) -> Value:
        return node.broadcast_to(fill, shape)

    past = node.optional(4)
    line = _Line(node, spans, ids, filled(spans.texts, kept) if past is None else past, kept)
    segments = _segments(node, spans, kept)
    is_end = bool(node.integer("reset_on_eos", 0)) and node.optional(6) is not None
    mixed, hashes, is_over = None, [], node.full(0, "i1", (tokens,))
    for shift in range(most):
        seen = line.before(shift)
        if shift and is_end:
            is_over = node.op("or", is_over, node.compare("eq", seen, filled(tokens)))
        if shift and segments is not None:
            differs = node.compare("ne", segments.before(shift), segments.before(shift - 1))
            is_over = node.op("or", is_over, differs)
        seen = node.op("select", is_over, filled(tokens), seen)
        factor = node.sliced(node.input(1), 0, shift, shift + 1)
        term = node.op("mul", *node.broadcast(seen, factor))
        mixed = term if mixed is None else node.op("xor", mixed, term)
        hashes += [node.reshape(mixed, (tokens, 1))] * (heads if shift else 0)
    found = lower_as(node, "Mod", [node.op("concatenate", *hashes, axis=1), node.input(2)], {})
    return (
        add(node, found, node.optional(5)),
        line.last(),
        None if segments is None else segments.last(),
        _captured(node, spans, line),
    )


def _segments(node: Node, spans: Spans, kept: int) -> _Line | None:
    """The numbers of the segments. Without those of the past, it is all of the first one."""
    segments, past = node.optional(7), node.optional(8)
    if segments is None:
        return None
    if past is None:
        first = node.op("take", segments, spans.starts, axis=0, mode="clamp")
        shape = (spans.texts, kept)
        past = node.op("broadcast", first, shape=shape, dimensions=(0,))
    return _Line(node, spans, segments, past, kept)


def _captured(node: Node, spans: Spans, line: _Line) -> Value | None:
    """[texts, capacity, kept]: the ids that end with each of the first tokens; else padding."""
    capacity = node.integer("state_update_capacity", 0)
    if not capacity:
        return None
    pad = node.integer("pad_id", 0)
    columns = [line.before(step) for step in reversed(range(line.kept))]
    states = node.op(
        "concatenate", *(node.reshape(each, (*shape_of(each), 1)) for each in columns), axis=1
    )
    states = node.op("sub", states, pad)
    found = captured(node, spans, states, node.input(9), capacity)
    return node.op("add", found, pad)
