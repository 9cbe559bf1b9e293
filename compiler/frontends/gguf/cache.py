"""Keys and values of all tokens so far: of one text, one behind another; of several, in pages."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from ingot.compiler.frontends.cached_tokens import Line, Tokens, Turned
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.halves import SourceTokens
from ingot.compiler.frontends.gguf.pieces import part
from ingot.compiler.frontends.gguf.relative import RelativeScores
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["SLACK", "Cache", "Caches", "Position", "ring_length"]

F32 = dtype("f32")
Caches = list[Value]
"""What is held of each layer in turn (`Configuration.cached`), f32 or f16, [pages, heads, rows of a
page, length]; of one text they are one page. Behind these the states of layers that have one."""

SLACK = 64
"""Positions of a ring beside its window: so many tokens may be taken back."""


def ring_length(c: Configuration, capacity: int) -> int | None:
    """Positions of the caches of layers with windows, in which each token takes the place of the
    one so many before it; None where the capacity is no more than that."""
    length = c.window + SLACK
    return length if any((*c.windows, *c.convolved)) and length < capacity else None


@dataclass(frozen=True)
class Position:
    """Where the tokens of a call stand: behind `before` others, which the value `index` is too."""

    index: Value  # i64[]
    before: Dim
    count: Dim

    @property
    def end(self) -> Dim:
        return self.before + self.count

    def places(self, b: Builder) -> Value:
        """The positions of the tokens, i64[count]."""
        steps = b.value("iota", dtype=dtype("i64"), shape=(self.count,), axis=0)
        return b.value("add", steps, b.broadcast_to(self.index, (self.count,)))


class Cache:
    """The caches of all layers in one block of a function, and the tokens of the call in those of
    layers without a window, and with one. `caches` become those with these tokens."""

    def __init__(self, c: Configuration, full: Tokens, local: Tokens, caches: Caches) -> None:
        self.c, self.full, self.local, self.caches = c, full, local, list(caches)
        lengths = [len(c.cached(layer)) for layer in range(c.layers)]
        self._first = list(accumulate(lengths, initial=0))  # cache of each layer
        self.seen: dict[int, Value] = {}  # caches with what tokens of this call see
        self.relative: RelativeScores | None = None
        self.source: SourceTokens | None = None  # what an encoder has read
        self.end: Dim = 0  # of one text, with the tokens of this call
        self.positions = full.positions
        """Where the tokens of this call stand in their texts, i64[count]."""

    @staticmethod
    def of_one(
        c: Configuration, b: Builder, at: Position, ring: int | None, caches: Caches
    ) -> Cache:
        """That of one text. `ring`: how long those of layers with windows are, if they are
        rings."""
        positions = at.places(b)
        full: Tokens = Line(b, positions, at.index)
        if ring is None:
            local = full
        elif at.count == 1:
            local = Line(b, positions, at.index, ring)
        else:
            local = Turned(b, positions, at.before, ring)
        cache = Cache(c, full, local, caches)
        cache.end = at.end
        return cache

    def attend(self, q: Value, k: Value, v: Value, layer: int, sinks: Value | None) -> Value:
        """What tokens with q[count, heads, d] make of what they see, [count, heads * e]: the
        keys[count, kv_heads, d] and values[count, kv_heads, e] of this call are put into the cache
        of the layer first. `sinks` as for `Tokens.attend`."""
        tokens = self.local if self.c.has_window(layer) else self.full
        for place, x in enumerate((k, v), self._first[layer]):
            self.caches[place], self.seen[place] = tokens.put(self.caches[place], x)
        return self.attend_to(q, layer, layer, sinks)

    def attend_to(self, q: Value, layer: int, source: int, sinks: Value | None) -> Value:
        """As `attend`, to what `source`, a layer in front of this one, has put."""
        c, is_local = self.c, self.c.has_window(layer)
        tokens, window = (self.local, c.window) if is_local else (self.full, 0)
        k, v = (self.seen[self._first[source] + place] for place in (0, 1))
        if self.relative is not None:
            return self._attend_relatively(q, k, v, self.relative.of(layer))
        return tokens.attend(
            q, k, v, scale=c.scale, window=window, cap=c.attention_cap, sinks=sinks
        )

    def scores(self, weights: Weights) -> RelativeScores:
        """Those of the tokens of one text by how far they are from those before."""
        return RelativeScores(self.c, weights, self.positions, self.end)

    def _attend_relatively(self, q: Value, k: Value, v: Value, scores: Value) -> Value:
        """As `attend_to`, of one text, with something added to scores, f32[heads, count, end]."""
        assert self.relative is not None
        b, shape, (count, heads, _) = self.full.b, tensor_type(scores).shape, tensor_type(q).shape
        distance = self.relative.distances
        zero = b.full(0, dtype("i64"), tensor_type(distance).shape)
        is_ahead = b.value("compare", distance, zero, direction="gt")
        is_ahead = b.value("broadcast", is_ahead, shape=shape, dimensions=(1, 2))
        mask = b.value("select", is_ahead, b.full(-np.inf, F32, shape), scores)
        mask = b.value("reshape", mask, shape=(1, *shape))
        k, v = (b.value("convert", part(x, 2, 0, self.end, b), dtype=F32) for x in (k, v))
        q = b.value("transpose", q, permutation=(1, 0, 2))
        q = b.value("reshape", q, shape=(1, *tensor_type(q).shape))
        y = b.value("attention", q, k, v, mask, scale=self.c.scale)
        y = b.value("transpose", y, permutation=(0, 2, 1, 3))
        return b.value("reshape", y, shape=(count, heads * tensor_type(v).shape[3]))

    def state(self, layer: int) -> Value:
        """What a layer with a state has made of all tokens before, [heads, key, value]."""
        return self.caches[self._first[-1] + self.c.recurrent.index(layer)]

    def keep_state(self, layer: int, state: Value) -> None:
        """What it has made of these, too."""
        self.caches[self._first[-1] + self.c.recurrent.index(layer)] = state

    def before(self, x: Value, layer: int, kind: str = "rows") -> list[Value]:
        """x[count, length] of a convolution, or of what `kind` names, is put into the cache; what
        it is of the tokens one, two, ... places before each, [count, length], zeros where there
        are none."""
        (count, length) = tensor_type(x).shape
        place = self._first[layer] + list(self.c.cached(layer)).index(kind)
        x = self.local.b.value("reshape", x, shape=(count, 1, length))
        self.caches[place], pages = self.local.put(self.caches[place], x)
        return [self.local.before(pages, distance) for distance in range(1, self.c.window)]
