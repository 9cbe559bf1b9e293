"""The operands of attention as sources of tiles, and the mask of a vector of scores.

Shared by the schedules for many and for few queries.
"""

from __future__ import annotations

import math

from ingot.compiler.ir import Value
from ingot.compiler.kernels.attention_entry import AttentionEntry
from ingot.compiler.kernels.items.group_tile import Source, load_where
from ingot.compiler.kernels.items.strided_source import Matrix, strided_source
from ingot.compiler.kernels.loop import Index, dtype_of, lanes_of
from ingot.hal.spec import dtype

__all__ = ["Bases", "finite", "masked", "matrix_source", "paged_source"]

F32 = dtype("f32")


class Bases:
    """Where this work-group's batch item begins in each operand and in the result."""

    def __init__(self, entry: AttentionEntry) -> None:
        self.q = entry.base(entry.q)
        self.k, self.v = (0 if entry.pages else entry.base(view) for view in (entry.k, entry.v))
        self.out = entry.base(entry.out)
        self.mask: Index = 0 if entry.mask is None else entry.base(entry.mask)


def matrix_source(
    entry: AttentionEntry, operand: int, base: Index, first: Index, line_axis: int, lines: int
) -> Source:
    """`lines` lines of operand 0, 1 or 2 from `first` on along `line_axis` (-2 or -1), the
    other axis being depth; lines beyond the last repeat it."""
    view = (entry.q, entry.k, entry.v)[operand]
    bound, along, across = (
        view.shape[line_axis],
        view.strides[line_axis],
        view.strides[-3 - line_axis],
    )
    exact = isinstance(bound, int) and bound % lines == 0
    memory = entry.binding(view, operand)
    matrix = Matrix(memory, base, along, across, dtype_of(memory))
    return strided_source(entry.b, matrix, first, None if exact else bound, F32)


def paged_source(
    entry: AttentionEntry, operand: int, first: Index, line_axis: int, end: Index
) -> Source:
    """The same of keys or values in pages: lines are keys (-2) or features (-1); keys from `end` on
    repeat the one in front of it."""
    b, view = entry.b, (entry.q, entry.k, entry.v)[operand]
    memory, stride = entry.binding(view, operand), b.dim(view.strides[-1])
    last = b.sub(end, 1)

    def row(key: Index) -> Index:
        return entry.rows(view, b.min(key, last))

    def feature(line: Index) -> Index:
        return b.mul(b.min(line, b.sub(b.dim(view.shape[-1]), 1)), stride)

    def prepare(line: Index, offset: int) -> Index:
        number = b.add(b.add(first, line), offset)
        return row(number) if line_axis == -2 else feature(number)

    def fetch(prepared: Index, depth: Index, offset: int, live: Value | None) -> Value:
        depth = b.add(depth, offset)
        across = b.mul(depth, stride) if line_axis == -2 else row(depth)
        return load_where(b, live, memory, b.add(prepared, across), dtype_of(memory))

    order = "depth" if line_axis == -2 else "lines"
    return Source(order, prepare, fetch, lambda raw: [b.convert(raw, F32)])


def masked(
    entry: AttentionEntry,
    base: Index,
    score: Value,
    query: Index,
    key: Index,
    whole: bool,
    end: Value | None = None,
) -> Value:
    """The scores of a query at key, key + 1, ..., with the mask, and -inf for keys that there
    are not; `whole`: there are all of them. In pages the query sees those in front of `end`."""
    b, keys, lanes = entry.b, entry.k.shape[-2], lanes_of(score)
    if entry.pages:
        assert end is not None
        if lanes > 1:
            key = b.op("add", b.lanes(lanes), b.broadcast(b.value(key), lanes))
        return entry.pages.hide(key, end, entry.capped(score))
    if entry.mask is not None:
        score = b.op("add", score, _mask(entry, base, query, key, lanes, whole))
    if whole:
        return score
    lowest = b.constant(-math.inf, F32, lanes)
    if lanes == 1:
        return b.op("select", b.compare("lt", key, b.dim(keys)), score, lowest)
    live = b.value(b.sub(b.dim(keys), key))
    return b.op("select", b.op("compare", b.lanes(lanes), live, direction="lt"), score, lowest)


def _mask(
    entry: AttentionEntry, base: Index, query: Index, key: Index, lanes: int, whole: bool
) -> Value:
    """The mask's elements; where there are no keys, any number."""
    b, view, keys = entry.b, entry.mask, entry.k.shape[-2]
    assert view is not None
    shape = (1,) * (2 - len(view.shape)) + view.shape
    strides = (0,) * (2 - len(view.strides)) + view.strides
    at = base
    if shape[-2] != 1:
        query = b.min(query, b.sub(b.dim(entry.q.shape[-2]), 1))
        at = b.add(at, b.mul(query, b.dim(strides[-2])))
    if shape[-1] == 1 and keys != 1:
        return b.broadcast(entry.load(view, 3, at), lanes)
    memory, stride = entry.binding(view, 3), b.dim(strides[-1])
    last = b.sub(b.dim(keys), 1)
    if lanes == 1:
        return entry.load(view, 3, b.add(at, b.mul(b.min(key, last), stride)))
    if stride == 1:
        live = None if whole else b.max(b.min(b.sub(b.dim(keys), key), lanes), 0)
        return b.convert(b.load(memory, b.add(at, key), lanes, live), F32)
    parts = [
        entry.load(view, 3, b.add(at, b.mul(b.min(b.add(key, lane), last), stride)))
        for lane in range(lanes)
    ]
    value = b.broadcast(parts[0], lanes)
    for lane, part in enumerate(parts[1:], 1):
        value = b.insert(value, part, lane)
    return value


def finite(entry: AttentionEntry, value: Value) -> Value:
    """0 for -inf: a query whose keys are all masked so far must not give NaN."""
    b = entry.b
    lowest = b.constant(-math.inf, F32)
    test = b.op("compare", value, lowest, direction="eq")
    return b.op("select", test, b.constant(0.0, F32), value)
