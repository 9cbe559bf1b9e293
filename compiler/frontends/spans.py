"""Tokens of several texts, one behind another: which are whose, and as rows of one length."""

from __future__ import annotations

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["Spans"]

I64 = dtype("i64")


class Spans:
    """`counts` i64[texts] tokens of each text, `total` together, `longest` of one at most. `text`,
    `place`: the number of each token's text, and its own in this text, i64[total]; `starts` and
    `last`: the first and the last tokens of texts, i64[texts]."""

    def __init__(self, b: Builder, counts: Value, total: Dim, longest: Dim) -> None:
        self.b, self.counts, self.total, self.longest = b, counts, total, longest
        (self.texts,) = tensor_type(counts).shape
        ends = b.value("cumulative", counts, axis=0, kind="add")
        self.starts = starts = b.value("sub", ends, counts)
        self.last = b.value("sub", ends, b.full(1, I64, (self.texts,)))
        tokens = b.value("iota", dtype=I64, shape=(total,), axis=0)
        pairs = (total, self.texts)
        behind = b.value(
            "compare",
            b.value("broadcast", ends, shape=pairs, dimensions=(1,)),
            b.value("broadcast", tokens, shape=pairs, dimensions=(0,)),
            direction="le",
        )
        behind = b.value("convert", behind, dtype=I64)
        self.text = b.value("reduce", behind, axes=(1,), kind="add")
        self.place = b.value("sub", tokens, b.value("take", starts, self.text, axis=0))
        shape = (self.texts, longest)
        steps = b.value("iota", dtype=I64, shape=shape, axis=1)
        counts, starts = (
            b.value("broadcast", each, shape=shape, dimensions=(0,)) for each in (counts, starts)
        )
        self.is_token: Value | None = b.value("compare", steps, counts, direction="lt")
        self.is_there: Value | None = None
        self._tokens = b.value("add", starts, steps)

    def rows(self, x: Value) -> Value:
        """x[total, ...] as [texts, longest, ...]; where a text is shorter stands something else."""
        return self.b.value("take", x, self._tokens, axis=0)

    def joined(self, x: Value) -> Value:
        """[total, ...] of x[texts, longest, ...]."""
        b, (_, _, *rest) = self.b, tensor_type(x).shape
        flat = b.value("reshape", x, shape=(self.texts * self.longest, *rest))
        longest = b.broadcast_to(b.number(self.longest, I64), (self.total,))
        at = b.value("add", b.value("mul", self.text, longest), self.place)
        return b.value("take", flat, at, axis=0)
