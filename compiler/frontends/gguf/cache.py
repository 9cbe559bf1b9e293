"""Keys and values of all tokens so far: of one text, one behind another; of several, in pages."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.pieces import capped, part, softmax, times
from ingot.compiler.frontends.gguf.spans import Spans
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, symbol
from ingot.hal.spec import dtype

__all__ = ["SLACK", "Caches", "PagedCache", "PlainCache", "Position", "ring_length"]

F32, I32, I64 = dtype("f32"), dtype("i32"), dtype("i64")

Caches = list[Value]
"""Keys and values of each layer in turn, f32 or f16: [kv_heads, capacity, length] of one text, and
[pages, kv_heads, rows of a page, length] of several."""

SLACK = 64
"""Positions of a ring beside its window: so many tokens may be taken back."""


def ring_length(c: Configuration, capacity: int) -> int | None:
    """Positions of the caches of layers with windows, in which each token takes the place of the
    one so many before it; None where the capacity is no more than that."""
    length = c.window + SLACK
    return length if any(c.windows) and length < capacity else None


@dataclass(frozen=True)
class Position:
    """Where the tokens of a call stand: behind `before` others, which the value `index` is too."""

    name: str  # of what a function measures there
    index: Value  # i64[]
    before: Dim
    count: Dim

    @property
    def end(self) -> Dim:
        return self.before + self.count

    def places(self, b: Builder) -> Value:
        """The positions of the tokens, i64[count]."""
        steps = b.value("iota", dtype=I64, shape=(self.count,), axis=0)
        return b.value("add", steps, b.broadcast_to(self.index, (self.count,)))


class PlainCache:
    """The cache of one text, in one block of a function. `caches` become those with the tokens of
    the call. `ring`: how long those of layers with windows are, if they are rings."""

    def __init__(
        self, c: Configuration, b: Builder, at: Position, ring: int | None, caches: Caches
    ) -> None:
        self.c, self.b, self.at, self.caches = c, b, at, list(caches)
        self.ring = 0 if ring is None else ring
        self.positions = at.places(b)
        self.used = self._used() if self.ring else 0
        kinds = {c.has_window(layer) for layer in range(c.layers)}
        self.masks = {local: self._mask(local) for local in sorted(kinds)}

    def attend(self, q: Value, k: Value, v: Value, layer: int) -> Value:
        """See `Cache.attend`."""
        c, b, is_local = self.c, self.b, self.c.has_window(layer)
        count, group = self.at.count, c.heads // c.kv_heads
        append = self._turned if self.ring and is_local else self._appended
        k, v = (append(each, 2 * layer + place) for place, each in enumerate((k, v)))
        q = b.value("reshape", q, shape=(count, c.kv_heads, group, c.key_length))
        q = b.value("transpose", q, permutation=(1, 2, 0, 3))
        q = b.value("reshape", q, shape=(c.kv_heads, group * count, c.key_length))
        y = self._attend(q, k, v, is_local)
        y = b.value("reshape", y, shape=(c.kv_heads, group, count, c.value_length))
        y = b.value("transpose", y, permutation=(2, 0, 1, 3))
        return b.value("reshape", y, shape=(count, c.heads * c.value_length))

    def _rows(self, x: Value, place: int) -> Value:
        """x[count, heads, length] as rows of a cache."""
        x = self.b.value("transpose", x, permutation=(1, 0, 2))
        return self.b.value("convert", x, dtype=tensor_type(self.caches[place]).dtype)

    def _appended(self, x: Value, place: int) -> Value:
        """The keys or values of all tokens so far, f32[heads, end, length], with x at their end."""
        b, zero = self.b, self.b.constant(0, "i64")
        starts = (zero, self.at.index, zero)
        cache = b.value("dynamic_update_slice", self.caches[place], self._rows(x, place), *starts)
        self.caches[place] = cache
        return b.value("convert", part(cache, 1, 0, self.at.end, b), dtype=F32)

    # Rings

    def _used(self) -> Dim:
        """How many rows of a ring are read: of one token it is one of them."""
        b, last = self.b, self.b.constant(self.ring, "i64")
        tokens = b.number(self.at.end if self.at.count == 1 else self.at.before, I64)
        name = f"used_{self.at.name}"
        limits = {"low": 0, "high": self.ring}
        b.append("size", (b.value("min", tokens, last),), (), {"symbols": (name,), **limits})
        return symbol(name)

    def _owners(self, newest: Value, count: Dim) -> Value:
        """The positions of the tokens in the first rows of a ring, of which this is the newest."""
        b, shape = self.b, (count,)
        newest, length = b.broadcast_to(newest, shape), b.full(self.ring, I64, shape)
        rows = b.value("iota", dtype=I64, shape=shape, axis=0)
        age = b.value("add", b.value("sub", newest, rows), length)
        return b.value("sub", newest, b.value("rem", age, length))

    def _turned(self, x: Value, place: int) -> Value:
        """The keys or values that the tokens may see, f32, whose places `_keys` gives."""
        b, old, x = self.b, self.caches[place], self._rows(x, place)
        zero, length = b.constant(0, "i64"), b.constant(self.ring, "i64")
        if self.at.count == 1:
            row = b.value("rem", self.at.index, length)
            cache = b.value("dynamic_update_slice", old, x, zero, row, zero)
            seen = part(cache, 1, 0, self.used, b)
        else:
            seen = b.value("concatenate", part(old, 1, 0, self.used, b), x, axis=1)
            newest = b.value("sub", b.number(self.at.end, I64), b.constant(1, "i64"))
            own = self._owners(newest, self.ring)
            own = b.value("sub", own, b.broadcast_to(self.at.index, (self.ring,)))
            is_new = b.value("compare", own, b.full(0, I64, (self.ring,)), direction="ge")
            new = b.value("take", x, own, axis=1)
            shape = tensor_type(old).shape
            is_new = b.value("broadcast", is_new, shape=shape, dimensions=(1,))
            cache = b.value("select", is_new, new, old)
        self.caches[place] = cache
        return b.value("convert", seen, dtype=F32)

    # What tokens see

    def _keys(self, is_local: bool) -> Value:
        """The places of the tokens whose keys are read, i64[keys]."""
        b = self.b
        if not (self.ring and is_local):
            return b.value("iota", dtype=I64, shape=(self.at.end,), axis=0)
        if self.at.count == 1:
            return self._owners(self.at.index, self.used)
        newest = b.value("sub", self.at.index, b.constant(1, "i64"))
        return b.value("concatenate", self._owners(newest, self.used), self.positions, axis=0)

    def _mask(self, is_local: bool) -> Value | None:
        """What to add to scores f32[group * count, keys]; None where a token sees all."""
        b, count = self.b, self.at.count
        if count == 1 and not is_local:
            return None
        keys = self._keys(is_local)
        shape = (count, tensor_type(keys).shape[0])
        own = b.value("broadcast", self.positions, shape=shape, dimensions=(0,))
        others = b.value("broadcast", keys, shape=shape, dimensions=(1,))
        seen = b.value("compare", others, own, direction="le")
        if is_local:
            first = b.value("sub", own, b.full(self.c.window, "i64", shape))
            seen = b.value("and", seen, b.value("compare", others, first, direction="gt"))
        lowest = b.full(-np.inf, F32, shape)
        mask = b.value("select", seen, b.full(0.0, F32, shape), lowest)
        group = self.c.heads // self.c.kv_heads
        mask = b.value("broadcast", mask, shape=(group, *shape), dimensions=(1, 2))
        return b.value("reshape", mask, shape=(group * count, shape[1]))

    def _attend(self, q: Value, k: Value, v: Value, is_local: bool) -> Value:
        b, mask, cap = self.b, self.masks[is_local], self.c.attention_cap
        if not cap:
            masks = [] if mask is None else [mask]
            return b.value("attention", q, k, v, *masks, scale=self.c.scale)
        scores = b.value(
            "dot_general",
            q,
            k,
            lhs_batch=(0,),
            rhs_batch=(0,),
            lhs_contract=(2,),
            rhs_contract=(2,),
        )
        scores = capped(times(scores, self.c.scale, b), cap, b)
        if mask is not None:
            scores = b.value("add", scores, b.broadcast_to(mask, tensor_type(scores).shape))
        return b.value(
            "dot_general", softmax(scores, b), v,
            lhs_batch=(0,), rhs_batch=(0,), lhs_contract=(2,), rhs_contract=(1,),
        )  # fmt: skip


class PagedCache:
    """The caches of several texts in one block of a function: `tables` i32[texts, n] are the pages
    of each, `positions` i64[count] where the tokens of the call stand in their texts, all of them
    in front of `end`. `spans` says whose they are; without it each text has one."""

    def __init__(
        self,
        c: Configuration,
        b: Builder,
        tables: Value,
        positions: Value,
        end: Dim,
        caches: Caches,
        spans: Spans | None,
    ) -> None:
        self.c, self.b, self.caches, self.spans = c, b, list(caches), spans
        self.length = known_dim(tensor_type(caches[0]).shape[2])
        self.tables = part(tables, 1, 0, (end + self.length - 1) // self.length, b)
        self.texts, self.columns = tensor_type(self.tables).shape
        self.positions = positions
        (self.count,) = tensor_type(positions).shape
        self.each: Dim = 1 if spans is None else spans.longest
        self.targets = self._targets()
        self.ends = self._ends()

    def _targets(self) -> Value:
        """The page and the row of each token, i64[count, 2]."""
        b, shape = self.b, (self.count,)
        length = b.full(self.length, I64, shape)
        if self.spans is None:
            texts = b.value("iota", dtype=I64, shape=shape, axis=0)
        else:
            texts = self.spans.text
        at = b.value("mul", texts, b.broadcast_to(b.number(self.columns, I64), shape))
        at = b.value("add", at, b.value("div", self.positions, length))
        pages = b.value("reshape", self.tables, shape=(self.texts * self.columns,))
        pages = b.value("convert", b.value("take", pages, at, axis=0), dtype=I64)
        rows = b.value("rem", self.positions, length)
        columns = (b.value("reshape", each, shape=(self.count, 1)) for each in (pages, rows))
        return b.value("concatenate", *columns, axis=1)

    def _ends(self) -> Value:
        """In front of which keys each row of queries stands, i32[texts, group * each]."""
        b, shape = self.b, (self.texts, self.each)
        ends = self._rows(b.value("add", self.positions, b.full(1, I64, (self.count,))))
        if self.spans is not None:
            ends = b.value("select", self.spans.is_token, ends, b.full(0, I64, shape))
        group = self.c.heads // self.c.kv_heads
        wide = (self.texts, group, self.each)
        ends = b.value("broadcast", ends, shape=wide, dimensions=(0, 2))
        ends = b.value("reshape", ends, shape=(self.texts, group * self.each))
        return b.value("convert", ends, dtype=I32)

    def _rows(self, x: Value) -> Value:
        """x[count, ...] as [texts, each, ...]."""
        if self.spans is not None:
            return self.spans.rows(x)
        rest = tensor_type(x).shape[1:]
        return self.b.value("reshape", x, shape=(self.texts, 1, *rest))

    def attend(self, q: Value, k: Value, v: Value, layer: int) -> Value:
        """See `Cache.attend`."""
        c, b, texts, each = self.c, self.b, self.texts, self.each
        group = c.heads // c.kv_heads
        k, v = (self._put(x, 2 * layer + place) for place, x in enumerate((k, v)))
        q = b.value("reshape", q, shape=(self.count, c.heads * c.key_length))
        q = b.value("reshape", self._rows(q), shape=(texts, each, c.kv_heads, group, c.key_length))
        q = b.value("transpose", q, permutation=(0, 2, 3, 1, 4))
        q = b.value("reshape", q, shape=(texts, c.kv_heads, group * each, c.key_length))
        window = c.window if c.has_window(layer) else 0
        sight = {"scale": c.scale, "window": window, "cap": c.attention_cap}
        y = b.value("attention_paged", q, k, v, self.tables, self.ends, **sight)
        y = b.value("reshape", y, shape=(texts, c.kv_heads, group, each, c.value_length))
        y = b.value("transpose", y, permutation=(0, 3, 1, 2, 4))
        y = b.value("reshape", y, shape=(texts, each, c.heads * c.value_length))
        if self.spans is not None:
            return self.spans.joined(y)
        return b.value("reshape", y, shape=(self.count, c.heads * c.value_length))

    def _put(self, x: Value, place: int) -> Value:
        """The pages with the keys or values of the call's tokens."""
        b, pages = self.b, self.caches[place]
        x = b.value("convert", x, dtype=tensor_type(pages).dtype)
        self.caches[place] = b.value(
            "scatter", pages, self.targets, x,
            update_window_dims=(1, 2), inserted_window_dims=(0, 2),
            scatter_dims_to_operand_dims=(0, 2), index_vector_dim=1,
        )  # fmt: skip
        return self.caches[place]
