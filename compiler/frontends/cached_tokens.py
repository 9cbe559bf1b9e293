"""Tokens in caches of keys and values: where they are put, and what they see there.

A cache is pages [pages, heads, rows, length] of keys or values, f32 or narrower, which
`attention_paged` reads in place: one of a single sequence, or many, of which tables say whose they
are. Programs (`ingot.state.cache`) and language models both have theirs here.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim, minimum
from ingot.hal.spec import dtype

__all__ = ["Blocks", "Grid", "Line", "Rows", "Tokens", "Turned", "one_page"]

F32, I32, I64 = dtype("f32"), dtype("i32"), dtype("i64")


class Rows(Protocol):
    """Tokens of `texts` sequences, `longest` of one at most. `text`: the number of each token's
    sequence, i64[count]; `is_token`: where rows have one, i1[texts, longest], or None: everywhere.
    `is_there`: which of the `count` are tokens, i1[count], or None: all."""

    texts: Dim
    longest: Dim
    text: Value
    is_token: Value | None
    is_there: Value | None

    def rows(self, x: Value) -> Value:
        """x[count, ...] as [texts, longest, ...]; where there is no token stands something."""

    def joined(self, x: Value) -> Value:
        """The tokens of x[texts, longest, ...], [count, ...]."""


class Grid:
    """Rows of equal length; with `counts`, i64[texts], only the first of each are tokens."""

    def __init__(self, b: Builder, texts: Dim, longest: Dim, counts: Value | None = None) -> None:
        self.b, self.texts, self.longest = b, texts, longest
        shape = (texts, longest)
        numbers = b.value("iota", dtype=I64, shape=shape, axis=0)
        self.text = b.value("reshape", numbers, shape=(texts * longest,))
        self.is_token: Value | None = None
        self.is_there: Value | None = None
        if counts is not None:
            steps = b.value("iota", dtype=I64, shape=shape, axis=1)
            counts = b.value("broadcast", counts, shape=shape, dimensions=(0,))
            self.is_token = b.value("compare", steps, counts, direction="lt")
            self.is_there = b.value("reshape", self.is_token, shape=(texts * longest,))

    def rows(self, x: Value) -> Value:
        """See `Rows`."""
        _, *rest = tensor_type(x).shape
        return self.b.value("reshape", x, shape=(self.texts, self.longest, *rest))

    def joined(self, x: Value) -> Value:
        """See `Rows`."""
        _, _, *rest = tensor_type(x).shape
        return self.b.value("reshape", x, shape=(self.texts * self.longest, *rest))


class Tokens:
    """Tokens at `positions` of their sequences, i64[count], in one block of a function. `table`,
    integers [texts, columns]: the pages of each sequence. In a ring, columns begin anew behind
    the last one."""

    def __init__(
        self, b: Builder, rows: Rows, positions: Value, table: Value, ring: bool = False
    ) -> None:
        self.b, self.rows, self.positions, self.ring = b, rows, positions, ring
        self.table = b.value("convert", table, dtype=I32)
        self.places = positions  # among the keys that are read
        (self.count,) = tensor_type(positions).shape

    def put(self, pages: Value, x: Value) -> tuple[Value, Value]:
        """The pages with x[count, heads, length], and those that the tokens are to see."""
        kept = self.b.value(
            "scatter", pages, self._targets(pages), self._converted(x, pages),
            update_window_dims=(1, 2), inserted_window_dims=(0, 2),
            scatter_dims_to_operand_dims=(0, 2), index_vector_dim=1,
        )  # fmt: skip
        return kept, kept

    def _converted(self, x: Value, pages: Value) -> Value:
        return self.b.value("convert", x, dtype=tensor_type(pages).dtype)

    def _as_page(self, x: Value, pages: Value) -> Value:
        """x[count, heads, length] as one of the pages, [1, heads, count, length]."""
        count, heads, length = tensor_type(x).shape
        x = self.b.value("transpose", self._converted(x, pages), permutation=(1, 0, 2))
        return self.b.value("reshape", x, shape=(1, heads, count, length))

    def before(self, pages: Value, distance: int) -> Value:
        """Rows of what the tokens see of pages of one head, of those `distance` places before them:
        f32[count, length], zeros where there are none."""
        b, (number, _, rows, length) = self.b, tensor_type(pages).shape
        places = b.value("sub", self.places, b.full(distance, I64, (self.count,)))
        zero = b.full(0, I64, (self.count,))
        is_none = b.value("compare", places, zero, direction="lt")
        page, row = self._found(b.value("max", places, zero), rows)
        at = b.value("mul", page, b.number(rows, I64, (self.count,)))
        flat = b.value("reshape", pages, shape=(number * rows, length))
        found = b.value("take", flat, b.value("add", at, row), axis=0)
        found, shape = b.value("convert", found, dtype=F32), (self.count, length)
        is_none = b.value("broadcast", is_none, shape=shape, dimensions=(0,))
        return b.value("select", is_none, b.full(0.0, F32, shape), found)

    def _found(self, places: Value, length: Dim) -> tuple[Value, Value]:
        """The pages and rows of places, i64[count], in their texts, of pages of so many rows."""
        b, shape, columns = self.b, (self.count,), tensor_type(self.table).shape[1]
        lengths = b.number(length, I64, shape)
        at = self.rows.text
        if columns != 1:
            at = b.value("mul", at, b.number(columns, I64, shape))
            at = b.value("add", at, b.value("div", places, lengths))
        flat = b.value("reshape", self.table, shape=(self.rows.texts * columns,))
        page = b.value("convert", b.value("take", flat, at, axis=0), dtype=I64)
        return page, b.value("rem", places, lengths)

    def _targets(self, pages: Value) -> Value:
        """The page and the row of each token, i64[count, 2]; one that is none has no page."""
        b, shape, (number, _, length, _) = self.b, (self.count,), tensor_type(pages).shape
        found, row = self._found(self.positions, length)
        if self.rows.is_there is not None:
            found = b.value("select", self.rows.is_there, found, b.number(number, I64, shape))
        pairs = (b.value("reshape", each, shape=(self.count, 1)) for each in (found, row))
        return b.value("concatenate", *pairs, axis=1)

    def _ends(self, group: int) -> Value:
        """In front of which keys each row of queries stands, i32[texts, group * longest]."""
        b, rows = self.b, self.rows
        ends = rows.rows(b.value("add", self.places, b.full(1, I64, (self.count,))))
        shape = tensor_type(ends).shape
        if rows.is_token is not None:
            ends = b.value("select", rows.is_token, ends, b.full(0, I64, shape))
        wide = (rows.texts, group, rows.longest)
        ends = b.value("broadcast", ends, shape=wide, dimensions=(0, 2))
        ends = b.value("reshape", ends, shape=(rows.texts, group * rows.longest))
        return b.value("convert", ends, dtype=I32)

    def attend(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        scale: float,
        window: int,
        cap: float,
        sinks: Value | None = None,
    ) -> Value:
        """What tokens with q[count, n * heads, d] make of what they see of the pages k and v,
        [count, n * heads * e]. `sinks`[n * heads]: scores that take a part of the weights."""
        b, (texts, longest) = self.b, (self.rows.texts, self.rows.longest)
        (_, all_heads, d), (_, heads, _, e) = tensor_type(q).shape, tensor_type(v).shape
        group = known_dim(all_heads) // known_dim(heads)
        q = self.rows.rows(b.value("reshape", q, shape=(self.count, all_heads * d)))
        q = b.value("reshape", q, shape=(texts, longest, heads, group, d))
        q = b.value("transpose", q, permutation=(0, 2, 3, 1, 4))
        q = b.value("reshape", q, shape=(texts, heads, group * longest, d))
        sight = {"scale": scale, "window": window, "cap": cap, "ring": self.ring}
        given = [q, k, v, self.table, self._ends(group)]
        if sinks is not None:
            sinks = b.value("reshape", sinks, shape=(heads, group))
            sinks = b.value("broadcast", sinks, shape=(heads, group, longest), dimensions=(0, 1))
            given.append(b.value("reshape", sinks, shape=(heads, group * longest)))
        y = b.value("attention_paged", *given, **sight)
        y = b.value("reshape", y, shape=(texts, heads, group, longest, e))
        y = b.value("transpose", y, permutation=(0, 3, 1, 2, 4))
        y = b.value("reshape", y, shape=(texts, longest, all_heads * e))
        return self.rows.joined(y)


class Blocks(Tokens):
    """Those whose pages lie [pages, rows, heads, length]."""

    def put(self, pages: Value, x: Value) -> tuple[Value, Value]:
        """See `Tokens`. The pages that the tokens are to see have heads in front of rows."""
        order = (0, 2, 1, 3)
        targets = self._targets(self.b.value("transpose", pages, permutation=order))
        kept = self.b.value(
            "scatter", pages, targets, self._converted(x, pages), update_window_dims=(1, 2),
            inserted_window_dims=(0, 1), scatter_dims_to_operand_dims=(0, 1), index_vector_dim=1,
        )  # fmt: skip
        return kept, self.b.value("transpose", kept, permutation=order)


class Line(Tokens):
    """Those of one sequence that has one page alone, one behind another from `index`, i64[], on;
    in a ring of `length` rows, if that is not 0, one token."""

    def __init__(self, b: Builder, positions: Value, index: Value, length: int = 0) -> None:
        (count,) = tensor_type(positions).shape
        super().__init__(b, Grid(b, 1, count), positions, one_page(b), ring=length > 0)
        self.row = b.value("rem", index, b.constant(length, "i64")) if length else index

    def put(self, pages: Value, x: Value) -> tuple[Value, Value]:
        """See `Tokens`."""
        zero, page = self.b.constant(0, "i64"), self._as_page(x, pages)
        kept = self.b.value("dynamic_update_slice", pages, page, zero, zero, self.row, zero)
        return kept, kept


class Turned(Tokens):
    """Those of one sequence whose page is a ring, behind `before` others: as many as there may be,
    since they see themselves and the ring as it was, in one page that is made for them."""

    def __init__(self, b: Builder, positions: Value, before: Dim, length: int) -> None:
        (count,) = tensor_type(positions).shape
        super().__init__(b, Grid(b, 1, count), positions, one_page(b))
        old = minimum(before, length)
        first = b.number(before - old, I64, (old,))
        order = b.value("add", b.value("iota", dtype=I64, shape=(old,), axis=0), first)
        self.order = b.value("rem", order, b.full(length, I64, (old,)))
        self.places = b.value("sub", positions, b.number(before - old, I64, (count,)))

    def put(self, pages: Value, x: Value) -> tuple[Value, Value]:
        """See `Tokens`. Of tokens that take the same row the last one stays."""
        old = self.b.value("take", pages, self.order, axis=2)
        seen = self.b.value("concatenate", old, self._as_page(x, pages), axis=2)
        return super().put(pages, x)[0], seen


def one_page(b: Builder) -> Value:
    """The table of one sequence that has one page alone."""
    return b.constant(np.zeros((1, 1), np.int32))
