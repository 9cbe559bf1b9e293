"""A beam of texts: which go on, and the best ones that have ended."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.request import Request, appended
from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.scores import Scores
from ingot.compiler.frontends.onnx.node import Node, shape_of
from ingot.compiler.frontends.onnx.registry import lower_as
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["Beams"]

_I32 = dtype("i32")


class Beams:
    """`width` texts that go on and as many that have ended for each one of the batch.

    What a step carries on: which are done, i1[batch]; the sums of logarithms of those that go on,
    f32[batch, width]; scores, from the best down and -inf where there is none, and tokens of those
    that have ended, f32[batch, width] and i32[batch, width, max_length].
    """

    COUNT = 4

    def __init__(self, request: Request, batch: Dim, width: Dim) -> None:
        node = request.node
        self._request, self.batch, self.width = request, batch, width
        self._count = request.size("num_return_sequences", 1, 1, width)
        self._scores = Scores(request, width)
        self._penalty = request.scalar("length_penalty", "f32") or node.constant(1.0, "f32")
        self._stops_early = node.integer("early_stopping", 0) == 1
        self._end = node.constant(request.eos, "i32")

    def owners(self, node: Node) -> Value:
        """Which text of the batch each row is of, i32[batch * width]."""
        text = node.op("iota", dtype=_I32, shape=(self.batch, self.width), axis=0)
        return node.reshape(text, (self.batch * self.width,))

    def start(self, node: Node) -> list[Value]:
        """All rows of a text are equal at first, so only the first one counts."""
        shape = (self.batch, self.width)
        place = node.op("iota", dtype=_I32, shape=shape, axis=1)
        is_first = node.compare("eq", place, 0)
        zero, low = (node.full(each, "f32", shape) for each in (0.0, -1e9))
        return [
            node.full(False, "i1", (self.batch,)),
            node.op("select", is_first, zero, low),
            node.full(-math.inf, "f32", shape),
            node.full(self._request.pad, "i32", (*shape, self._request.length)),
        ]

    def advance(
        self, node: Node, tokens: Value, logits: Value, beams: Sequence[Value], is_first: bool
    ) -> tuple[Value, Value, list[Value], Value]:
        """The rows i32[rows] that go on, their tokens with one more, the beams behind the step,
        and the scores of all tokens, f32[batch, width, vocabulary]."""
        done, sums, best, texts = beams
        batch, width, count = self.batch, self.width, shape_of(logits)[1]
        likely = lower_as(node, "LogSoftmax", [logits], {"axis": -1})
        likely = self._scores.processed(node, likely, tokens, is_first)
        likely = node.reshape(likely, (batch, width, count))
        sums = node.op("broadcast", sums, shape=shape_of(likely), dimensions=(0, 1))
        likely = node.op("add", likely, sums)
        flat = node.reshape(likely, (batch, width * count))
        sums, places = node.several("top_k", flat, k=2 * width, axis=1, largest=True, dtype=_I32)
        each = node.broadcast_to(node.size(count, "i32"), shape_of(places))
        rows, chosen = self._rows(node, node.op("div", places, each)), node.op("rem", places, each)
        ends = node.compare("eq", chosen, node.broadcast_to(self._end, shape_of(chosen)))
        score = self._by_length(node, sums, shape_of(tokens)[1])
        is_open = node.op("not", self._spread(node, done))
        counts = node.op("and", node.sliced(ends, -1, 0, width), is_open)
        ended, own = (node.sliced(each, -1, 0, width) for each in (score, rows))
        best, texts = self._joined(node, best, texts, counts, ended, own, tokens)
        following = self._stopped(node, done, best, score)
        at = self._going_on(node, ends)
        sums, chosen, rows = (node.gather_along(x, at, 1, "clamp") for x in (sums, chosen, rows))
        pad = node.fill(self._request.pad, like=chosen)
        chosen = node.op("select", is_open, chosen, pad)
        rows, chosen = (node.reshape(each, (batch * width,)) for each in (rows, chosen))
        tokens = appended(node, node.op("take", tokens, rows, axis=0, mode="clamp"), chosen)
        return rows, tokens, [following, sums, best, texts], likely

    def finish(self, node: Node, tokens: Value, beams: Sequence[Value]) -> tuple[Value, Value]:
        """The best texts of all, i32[batch, return, max_length], and their scores."""
        done, sums, best, texts = beams
        shape = (self.batch, self.width)
        is_open = node.op("not", self._spread(node, done))
        score = self._by_length(node, sums, shape_of(tokens)[1])
        rows = self._rows(node, node.op("iota", dtype=_I32, shape=shape, axis=1))
        best, texts = self._joined(node, best, texts, is_open, score, rows, tokens)
        return node.sliced(texts, 1, 0, self._count), node.sliced(best, 1, 0, self._count)

    def _spread(self, node: Node, x: Value) -> Value:
        """[batch] as [batch, width]."""
        return node.op("broadcast", x, shape=(self.batch, self.width), dimensions=(0,))

    def _rows(self, node: Node, beam: Value) -> Value:
        """Beams i32[batch, n] as rows of all texts."""
        first = node.op("iota", dtype=_I32, shape=shape_of(beam), axis=0)
        width = node.broadcast_to(node.size(self.width, "i32"), shape_of(beam))
        return node.op("add", node.op("mul", first, width), beam)

    def _by_length(self, node: Node, sums: Value, length: Dim) -> Value:
        """Sums of logarithms as scores of texts of this length."""
        factor = node.op("pow", node.size(length, "f32"), self._penalty)
        return node.op("div", sums, node.broadcast_to(factor, shape_of(sums)))

    def _joined(
        self, node: Node, best: Value, texts: Value, counts: Value, score: Value, rows: Value,
        tokens: Value,
    ) -> tuple[Value, Value]:  # fmt: skip
        """The best of those that have ended and those of `rows` [batch, width] that count now."""
        batch, width, longest = shape_of(texts)
        score = node.op("select", counts, score, -math.inf)
        ended = self._request.filled(node, node.op("take", tokens, rows, axis=0, mode="clamp"))
        best, at = node.several(
            "top_k", node.op("concatenate", best, score, axis=1), k=width, axis=1, largest=True,
            dtype=_I32,
        )  # fmt: skip
        both = node.op("concatenate", texts, ended, axis=1)
        both = node.reshape(both, (batch * width * 2, longest))
        first = node.op("iota", dtype=_I32, shape=(batch, width), axis=0)
        step = node.broadcast_to(node.size(2 * width, "i32"), (batch, width))
        at = node.op("add", node.op("mul", first, step), at)
        return best, node.op("take", both, at, axis=0, mode="clamp")

    def _stopped(self, node: Node, done: Value, best: Value, score: Value) -> Value:
        """Which texts are done: as many have ended as there are beams, and none of what goes on
        can become better, or nobody asks."""
        batch, width = self.batch, self.width
        worst = node.reshape(node.sliced(best, -1, width - 1, width), (batch,))
        full = node.compare("gt", worst, -math.inf)
        if not self._stops_early:
            greatest = node.reshape(node.sliced(score, -1, 0, 1), (batch,))
            full = node.op("and", full, node.compare("ge", worst, greatest))
        return node.op("or", done, full)

    def _going_on(self, node: Node, ends: Value) -> Value:
        """The places of the first `width` candidates that do not end, i32[batch, width]."""
        shape = shape_of(ends)
        place = node.op("iota", dtype=_I32, shape=shape, axis=1)
        count = node.broadcast_to(node.size(shape[1], "i32"), shape)
        key = node.op("select", ends, node.op("add", place, count), place)
        key, _ = node.several("top_k", key, k=self.width, axis=1, largest=False, dtype=_I32)
        return node.op("rem", key, node.sliced(count, -1, 0, self.width))
