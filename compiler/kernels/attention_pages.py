"""Keys and values of `attention_paged`: where they lie, and which of them queries see.

Numbers of pages and ends come from data; out of range they are the nearest, so that no kernel
reads elsewhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ingot.compiler.dispatch.view import View, view_of
from ingot.compiler.graph.ops import AttentionPaged
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.loop import I64, Index, dtype_of, lanes_of
from ingot.hal.spec import dtype

if TYPE_CHECKING:
    from ingot.compiler.kernels.attention_entry import AttentionEntry

__all__ = ["Pages"]

F32, I32 = dtype("f32"), dtype("i32")
_MOST = 2**31 - 1  # tokens that a ring has seen


class Pages:
    """`length` keys are in a page, `keys` in all pages of a batch item. `is_one`: it has one page,
    whose rows are its keys."""

    def __init__(self, entry: AttentionEntry) -> None:
        self.entry = entry
        attributes = AttentionPaged.of(entry.root)
        self.window, self.cap, self.ring = attributes.window, attributes.cap, attributes.ring
        self.table, self.ends, *sinks = (
            view_of(entry.function, each) for each in entry.root.operands[3:]
        )
        self.sinks = sinks[0] if sinks else None
        self.count, self.heads = entry.k.shape[:2]
        self.length = entry.k.shape[-2]
        self.keys: Dim = self.table.shape[1] * self.length
        self.is_one = self.table.shape[1] == 1 and not self.ring

    def rows(self, view: View, key: Index) -> Index:
        """Element offset of a key's row in a view of keys or values."""
        b = self.entry.b
        item, head = self._item()
        column: Index = 0
        if not self.is_one:
            length = b.dim(self.length)
            column, key = b.div(key, length), b.rem(key, length)
            column = b.rem(column, b.dim(self.table.shape[1])) if self.ring else column
        number = self._number(self.table, 3, item, column)
        page = b.max(b.min(number, b.sub(b.dim(self.count), 1)), 0)
        place = b.mul(key, b.dim(view.strides[-2]))
        for index, stride in ((page, view.strides[0]), (head, view.strides[1])):
            place = b.add(place, b.mul(index, b.dim(stride)))
        return b.add(b.dim(view.offset), place)

    def seen(self, first: Index, count: Index) -> tuple[Index, Index]:
        """The keys that some of these queries see."""
        b = self.entry.b
        start = [b.data(_MOST if self.ring else b.dim(self.keys)), b.data(0)]
        with b.for_(0, count, 1, start) as loop:
            end = self.end(b.add(first, loop.index))
            low, high = loop.carried
            loop.yield_(b.data(b.min(low, end)), b.data(b.max(high, end)))
        low, high = loop.results
        if not self.window:
            return 0, high
        return b.max(b.sub(low, self.window), 0), high

    def ends_of(self, queries: Value) -> Value:
        """The ends of a vector of queries."""
        b, lanes = self.entry.b, lanes_of(queries)
        ends = b.convert(self._gathered(self.ends, 4, self._item()[0], queries), I64)
        most = b.min(_MOST, b.dim(_MOST if self.ring else self.keys))
        ends = b.op("min", ends, b.broadcast(b.value(most), lanes))
        return b.convert(b.op("max", ends, b.constant(0, I64, lanes)), I32)

    def sink(self, query: Index) -> Value | None:
        """The sink of a query, if there is one."""
        if self.sinks is None:
            return None
        at = self._at(self.sinks, self._item()[1], query)
        return self.entry.load(self.sinks, 5, at)

    def sinks_of(self, queries: Value) -> Value | None:
        """Those of a vector of queries."""
        if self.sinks is None:
            return None
        sinks = self._gathered(self.sinks, 5, self._item()[1], queries)
        return self.entry.b.convert(sinks, F32)

    def hide(self, key: Index, ends: Value, score: Value) -> Value:
        """The scores of a key, or of keys, for queries with these ends, -inf for those that do not
        see it."""
        b, lanes, element = self.entry.b, lanes_of(score), dtype_of(ends)
        lowest = b.constant(-math.inf, F32, lanes)
        key, ends = (
            x if lanes_of(x) == lanes else b.broadcast(x, lanes)
            for x in (b.convert(b.value(key), element), ends)
        )
        score = b.op("select", b.op("compare", key, ends, direction="lt"), score, lowest)
        if not self.window:
            return score
        first = b.op("sub", ends, b.constant(self.window, element, lanes))
        return b.op("select", b.op("compare", key, first, direction="ge"), score, lowest)

    def _item(self) -> tuple[Index, Index]:
        """Number of the batch item, and of the head."""
        b, heads = self.entry.b, self.entry.b.dim(self.heads)
        return b.div(b.workgroup(1), heads), b.rem(b.workgroup(1), heads)

    def end(self, query: Index) -> Index:
        """The end of a query."""
        b = self.entry.b
        end = self._number(self.ends, 4, self._item()[0], query)
        return b.max(b.min(end, _MOST if self.ring else b.dim(self.keys)), 0)

    def _number(self, view: View, operand: int, row: Index, column: Index) -> Index:
        b = self.entry.b
        memory = self.entry.binding(view, operand)
        return b.convert(b.load(memory, self._at(view, row, column)), I64)

    def _at(self, view: View, row: Index, column: Index) -> Index:
        b = self.entry.b
        at = b.add(b.dim(view.offset), b.mul(row, b.dim(view.strides[0])))
        return b.add(at, b.mul(column, b.dim(view.strides[1])))

    def _gathered(self, view: View, operand: int, row: Index, columns: Value) -> Value:
        b, lanes = self.entry.b, lanes_of(columns)
        first = b.broadcast(b.value(self._at(view, row, 0)), lanes)
        step = b.broadcast(b.value(b.dim(view.strides[1])), lanes)
        at = b.op("add", b.op("mul", columns, step), first)
        return b.gather(self.entry.binding(view, operand), at)
