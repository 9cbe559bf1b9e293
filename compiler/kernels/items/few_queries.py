"""Attention of a few queries, as in decoding: a work-group per query.

The time is that of reading keys and values once. Keys come through local memory, where
every item takes one key of a block; values are read in place, neighbouring items reading
neighbouring features, the keys of a block shared in slices that are added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.attention_entry import AttentionEntry
from ingot.compiler.kernels.items.attention_sources import (
    Bases,
    finite,
    masked,
    matrix_source,
    paged_source,
)
from ingot.compiler.kernels.items.choose_tile import is_large
from ingot.compiler.kernels.items.group_tile import LANES, Block, load_where, stream
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind
from ingot.hal.spec import dtype

__all__ = ["FewQueriesSchedule", "lower", "takes"]

F32 = dtype("f32")
MAXIMUM_QUERIES = 4
ITEMS = {True: 256, False: 64}
DEPTH = 8
"""Features of the keys that are in local memory at a time."""

UNROLLED = 4
"""Loads of values that an item has under way."""


@dataclass(frozen=True)
class FewQueriesSchedule:
    """Keys of a block, features side by side, and slices of a block's keys for the values."""

    keys: int
    features: int
    slices: int


def takes(entry: AttentionEntry) -> bool:
    """Whether the queries are few, and known to be."""
    queries = entry.q.shape[-2]
    return isinstance(queries, int) and queries <= MAXIMUM_QUERIES


def lower(entry: AttentionEntry, target: TargetInfo) -> Kernel:
    """The kernel of an entry that `takes` accepts."""
    return _FewQueries(entry, ITEMS[is_large(target)]).lower()


class _FewQueries:
    """State while one kernel is made."""

    def __init__(self, entry: AttentionEntry, items: int) -> None:
        self.entry, self.b, self.items = entry, entry.b, items
        self.group = WorkGroup(self.b, (items, 1, 1))
        self.item = self.group.ordinal()
        self.d, self.e = entry.d, entry.e
        features = min(1 << (self.e - 1).bit_length(), items)
        self.runs = -(-self.e // features)
        self.schedule = FewQueriesSchedule(items, features, items // features)
        self.pitch = items + LANES
        self.queries = self.group.allocate(self.d, F32)
        self.keys = self.group.allocate(2 * DEPTH * self.pitch, F32)
        self.weights = self.group.allocate(items, F32)
        self.query = self.b.workgroup(0)
        self.bases = Bases(entry)
        self.first, self.end = entry.seen(self.query, 1)
        self.feature = self.b.rem(self.item, features)
        self.slice = self.b.div(self.item, features)

    def lower(self) -> Kernel:
        b, entry = self.b, self.entry
        self._load_query()
        zero = b.constant(0.0, F32)
        greatest, total = entry.start(entry.pages.sink(self.query) if entry.pages else None)
        total = b.op("select", b.compare("eq", self.item, 0), total, zero)
        start = [greatest, total, *[zero] * self.runs]
        with b.for_(self.first, self.end, self.items, start) as loop:
            loop.yield_(*self._key_block(loop.index, loop.carried))
        self._write(loop.results[1], loop.results[2:])
        return entry.kernel(
            (1, 1, 1),
            self.schedule,
            local_size=self.group.size,
            local_length=self.group.local_length,
        )

    def _load_query(self) -> None:
        """The scaled query into local memory."""
        b, view = self.b, self.entry.q
        scale = b.constant(self.entry.scale, F32)
        base = b.add(self.bases.q, b.mul(self.query, b.dim(view.strides[-2])))
        with self.group.each(0, self.d) as loop:
            at = b.add(base, b.mul(loop.index, b.dim(view.strides[-1])))
            b.store(self.queries, loop.index, b.op("mul", self.entry.load(view, 0, at), scale))
        self.group.barrier()

    def _key_block(self, key: Index, carried: Sequence[Value]) -> list[Value]:
        """Add `items` keys, one an item; `carried`: maximum, the item's total, its sums."""
        b, entry = self.b, self.entry
        mine = b.add(key, self.item)
        score, end = self._score(key), b.value(self.end)
        score = masked(entry, self.bases.mask, score, self.query, mine, False, end)
        (best,) = self.group.reduce([score], combine_kind(b, "max"))
        best = b.op("max", carried[0], best)
        shift = finite(entry, best)
        factor = b.op("exp", b.op("sub", carried[0], shift))
        weight = b.op("exp", b.op("sub", score, shift))
        b.store(self.weights, self.item, weight)
        total = b.op("add", b.op("mul", carried[1], factor), weight)
        self.group.barrier()
        sums = [b.op("mul", value, factor) for value in carried[2:]]
        sums = self._add_values(key, sums)
        return [best, total, *sums]

    def _score(self, key: Index) -> Value:
        """q k of the item's key."""
        b, entry = self.b, self.entry
        if entry.pages:
            source = paged_source(entry, 1, key, -2, self.end)
        else:
            source = matrix_source(entry, 1, self.bases.k, key, -2, self.items)
        block = Block(self.group, source, self.items, DEPTH, self.pitch, self.keys)

        def body(buffer: Index, index: Index, old: Sequence[Value]) -> Sequence[Value]:
            base = b.add(b.mul(buffer, DEPTH * self.pitch), self.item)
            end = DEPTH if self.d % DEPTH == 0 else b.min(b.sub(self.d, index), DEPTH)
            with b.for_(0, end, 1, old, unroll=end == DEPTH) as loop:
                q = b.load(self.queries, b.add(index, loop.index))
                k = b.load(self.keys, b.add(base, b.mul(loop.index, self.pitch)))
                loop.yield_(b.fma(q, k, loop.carried[0]))
            return loop.results

        limit = None if self.d % DEPTH == 0 else self.d
        return stream((block,), (0, self.d, DEPTH), limit, [b.constant(0.0, F32)], body)[0]

    def _add_values(self, key: Index, sums: Sequence[Value]) -> list[Value]:
        """The sums with the item's slice of the block's weights times values."""
        b, view = self.b, self.entry.v
        type = tensor_type(self.entry.root.operands[2])
        memory = self.entry.binding(view, 2)
        slices, features = self.schedule.slices, self.schedule.features
        columns = []
        for run in range(self.runs):
            column = b.min(b.add(self.feature, run * features), self.e - 1)
            columns.append(b.add(self.bases.v, b.mul(column, b.dim(view.strides[-1]))))
        count = b.min(b.sub(self.end, key), self.items)
        with b.for_(0, count, slices * UNROLLED, sums) as loop:
            totals = list(loop.carried)
            for step in range(UNROLLED):
                at = b.add(b.add(loop.index, step * slices), self.slice)
                live = b.compare("lt", at, count)
                weight = load_where(b, live, self.weights, at, F32)
                line = self._line(b.add(key, at))
                for run, column in enumerate(columns):
                    value = load_where(b, live, memory, b.add(column, line), type.dtype)
                    totals[run] = b.fma(weight, b.convert(value, F32), totals[run])
            loop.yield_(*totals)
        return loop.results

    def _line(self, key: Index) -> Index:
        """Where the values of a key begin, behind those of the batch item."""
        b, view = self.b, self.entry.v
        if self.entry.pages:
            return self.entry.rows(view, b.min(key, b.sub(self.end, 1)))
        return b.mul(key, b.dim(view.strides[-2]))

    def _write(self, total: Value, sums: Sequence[Value]) -> None:
        """Add the slices, divide, and store."""
        b, view = self.b, self.entry.out
        memory, stored = self.entry.result()
        (whole,) = self.group.reduce([total], combine_kind(b, "add"))
        base = b.add(self.bases.out, b.mul(self.query, b.dim(view.strides[-2])))
        features = self.schedule.features
        for run, value in enumerate(sums):
            b.store(self.keys, self.item, value)
            self.group.barrier()
            column = b.add(self.item, run * features)
            live = b.compare("lt", column, self.e)
            live = b.op("and", b.compare("lt", self.item, features), live)

            def store(column: Index = column) -> None:
                result = b.load(self.keys, self.item)
                for part in range(1, self.schedule.slices):
                    more = b.load(self.keys, b.add(self.item, part * features))
                    result = b.op("add", result, more)
                result = b.convert(self.entry.share(result, whole), stored)
                b.store(memory, b.add(base, b.mul(column, b.dim(view.strides[-1]))), result)

            b.if_(live, store)
            self.group.barrier()
