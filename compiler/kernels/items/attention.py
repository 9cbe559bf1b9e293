"""Attention for work-groups: softmax(q k^T * scale + mask) v, a block of queries per group.

The group walks over blocks of keys. It makes a tile of scores as any product is made,
takes the maximum of each row over the items that share it, leaves the exponentials in
local memory, and multiplies them with the block of values, which comes through local
memory too. Results stay in registers to the end, where they are corrected for the maximum
whenever it grows; the scores are never stored. Few queries have a schedule of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ingot.compiler.graph.ops import ReduceKind
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.attention_entry import AttentionEntry
from ingot.compiler.kernels.items import few_queries
from ingot.compiler.kernels.items.attention_sources import (
    Bases,
    finite,
    masked,
    matrix_source,
    paged_source,
)
from ingot.compiler.kernels.items.choose_tile import is_large
from ingot.compiler.kernels.items.group_tile import (
    LANES,
    Block,
    GroupTile,
    ItemTile,
    TileProduct,
    stream,
)
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes import attention
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.work_group import WorkGroup
from ingot.hal.spec import dtype

__all__ = ["GroupAttentionSchedule", "lower_attention"]

F32 = dtype("f32")

SIDES = {True: 16, False: 8}
"""Items along queries and along keys of a large and a small group."""

MAXIMUM_ACCUMULATORS = 64
DEPTHS = (8, 4, 2)


@dataclass(frozen=True)
class GroupAttentionSchedule:
    """The tile of scores, and that of results, which the same items make."""

    scores: GroupTile
    results: GroupTile


def lower_attention(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one attention op. ValueError: there is none for its types."""
    if target.group_size == 1:
        return attention.lower_attention(function, target)
    entry = AttentionEntry(function)
    if few_queries.takes(entry):
        return few_queries.lower(entry, target)
    return _Attention(entry, _choose(entry, target)).lower()


def _choose(entry: AttentionEntry, target: TargetInfo) -> GroupAttentionSchedule:
    """As many queries as there are and registers allow, and as deep as local memory allows."""
    side = SIDES[is_large(target)]
    columns = -(-entry.e // (side * LANES)) * LANES * side
    queries = entry.q.shape[-2]
    rows = LANES
    while rows > 1 and rows * columns // side > MAXIMUM_ACCUMULATORS:
        rows //= 2
    while rows > 1 and isinstance(queries, int) and rows // 2 * side >= queries:
        rows //= 2
    choices = [
        GroupAttentionSchedule(
            GroupTile(rows * side, side * LANES, 8, side, side),
            GroupTile(rows * side, columns, depth, side, side),
        )
        for depth in DEPTHS
    ]
    fitting = [each for each in choices if _local_length(each) <= target.local_memory]
    if not fitting:
        raise ValueError(f"attention of rows of {entry.e} does not fit local memory")
    return fitting[0]


def _local_length(schedule: GroupAttentionSchedule) -> int:
    """Bytes: the weights of a block, and what products and maxima use in turn."""
    return 4 * (_weights_length(schedule) + _shared_length(schedule))


def _weights_length(schedule: GroupAttentionSchedule) -> int:
    return schedule.scores.columns * schedule.scores.left_pitch


def _shared_length(schedule: GroupAttentionSchedule) -> int:
    results, scores = schedule.results, schedule.scores
    values = results.right_length(F32) // 4
    return max(values, scores.local_length(F32) // 4, scores.rows * scores.across)


@dataclass(frozen=True)
class _State:
    """Per row of an item the maximum and the item's part of the sum; the results so far."""

    maxima: Sequence[Value]
    totals: Sequence[Value]
    sums: Sequence[Value]

    def values(self) -> list[Value]:
        return [*self.maxima, *self.totals, *self.sums]


class _Attention:
    """State while one kernel is made."""

    def __init__(self, entry: AttentionEntry, schedule: GroupAttentionSchedule) -> None:
        self.entry, self.schedule, self.b = entry, schedule, entry.b
        self.tile = schedule.scores
        self.group = WorkGroup(self.b, (self.tile.across, self.tile.down, 1))
        self.shared = self.group.allocate(_shared_length(schedule), F32)
        self.weights = self.group.allocate(_weights_length(schedule), F32)
        self.scores = TileProduct(self.group, schedule.scores, F32, 0)
        self.results = ItemTile(self.group, schedule.results, F32)
        self.bases = Bases(entry)
        self.first = self.b.mul(self.b.workgroup(0), self.tile.rows)
        live = self.b.sub(self.b.dim(entry.q.shape[-2]), self.first)
        self.keys = entry.seen(self.first, self.b.min(live, self.tile.rows))
        self.ends = self._ends()

    def lower(self) -> Kernel:
        b = self.b
        start = _State(*self._start(), self.results.zeros())
        with b.for_(*self.keys, self.tile.columns, start.values()) as loop:
            state = self._unpack(loop.carried)
            loop.yield_(*self._key_block(loop.index, state).values())
        self._write(self._unpack(loop.results))
        return self.entry.kernel(
            (self.tile.rows, 1, 1),
            self.schedule,
            local_size=self.group.size,
            local_length=self.group.local_length,
        )

    def _start(self) -> tuple[list[Value], list[Value]]:
        """Per row the maximum and the item's part of the sum in front of the first key: a sink
        counts for the first item."""
        b, pages = self.b, self.entry.pages
        is_first = b.compare("eq", self.group.item(0), 0)
        maxima, totals = [], []
        for query in self._queries():
            greatest, total = self.entry.start(pages.sink(query) if pages else None)
            maxima.append(greatest)
            totals.append(b.op("select", is_first, total, b.constant(0.0, F32)))
        return maxima, totals

    def _queries(self) -> list[Index]:
        """The numbers of the item's rows; those beyond the last repeat it."""
        b = self.b
        last = b.sub(b.dim(self.entry.q.shape[-2]), 1)
        rows = (b.add(self.first, self.scores.row(i)) for i in range(self.tile.item_rows))
        return [b.min(row, last) for row in rows]

    def _ends(self) -> list[Value | None]:
        """In pages, where what a row of the item sees ends."""
        b, pages = self.b, self.entry.pages
        return [b.value(pages.end(row)) if pages else None for row in self._queries()]

    def _unpack(self, values: Sequence[Value]) -> _State:
        rows = self.tile.item_rows
        return _State(values[:rows], values[rows : 2 * rows], values[2 * rows :])

    def _key_block(self, key: Index, state: _State) -> _State:
        """Add the keys of one block."""
        b, entry = self.b, self.entry
        left = matrix_source(entry, 0, self.bases.q, self.first, -2, self.tile.rows)
        if entry.pages:
            right = paged_source(entry, 1, key, -2, self.keys[1])
        else:
            right = matrix_source(entry, 1, self.bases.k, key, -2, self.tile.columns)
        scores = self.scores.run(self.scores.zeros(), entry.d, left, right)
        scores = self._masked(key, scores)
        maxima = self._row_maxima(state.maxima, scores)
        shifts = [finite(self.entry, value) for value in maxima]
        factors = [
            b.op("exp", b.op("sub", old, shift))
            for old, shift in zip(state.maxima, shifts, strict=True)
        ]
        totals = self._exponentials(scores, shifts, state.totals, factors)
        b.barrier()
        vectors = self.schedule.results.vectors
        sums = [
            b.op("mul", value, factors[place // vectors]) for place, value in enumerate(state.sums)
        ]
        sums = self._add_values(key, sums)
        return _State(maxima, totals, sums)

    def _masked(self, key: Index, scores: list[Value]) -> list[Value]:
        """Scores times scale, with the mask."""
        b, entry, tile = self.b, self.entry, self.tile
        keys = entry.k.shape[-2]
        whole = isinstance(keys, int) and keys % tile.columns == 0
        result = []
        for place, value in enumerate(scores):
            i, vector = divmod(place, tile.vectors)
            value = b.op("mul", value, b.constant(entry.scale, F32, LANES))
            query = b.add(self.first, self.scores.row(i))
            column = b.add(key, self.scores.column(vector))
            end = self.ends[i]
            result.append(masked(entry, self.bases.mask, value, query, column, whole, end))
        return result

    def _row_maxima(self, old: Sequence[Value], scores: Sequence[Value]) -> list[Value]:
        """Per row of the item the greatest score so far, over all items of the row."""
        b, vectors = self.b, self.tile.vectors
        best = []
        for i in range(self.tile.item_rows):
            row = scores[i * vectors]
            for more in scores[i * vectors + 1 : (i + 1) * vectors]:
                row = b.op("max", row, more)
            best.append(b.reduce(row, "max"))
        rows = zip(old, self._join(best, "max"), strict=True)
        return [b.op("max", before, now) for before, now in rows]

    def _join(self, values: Sequence[Value], kind: ReduceKind) -> list[Value]:
        """Per row of the item the values of all items of the row combined. Has a barrier, and
        needs one before the shared memory is used again."""
        b, pitch = self.b, self.tile.across
        for i, value in enumerate(values):
            at = b.add(b.mul(self.scores.row(i), pitch), self.group.item(0))
            b.store(self.shared, at, value)
        b.barrier()
        joined = []
        for i in range(len(values)):
            base = b.mul(self.scores.row(i), pitch)
            total = b.load(self.shared, base, LANES, aligned=True)
            for start in range(LANES, pitch, LANES):
                more = b.load(self.shared, b.add(base, start), LANES, aligned=True)
                total = b.op(kind, total, more)
            joined.append(b.reduce(total, kind))
        return joined

    def _exponentials(
        self,
        scores: Sequence[Value],
        shifts: Sequence[Value],
        totals: Sequence[Value],
        factors: Sequence[Value],
    ) -> list[Value]:
        """Store exp(score - shift), key by key; the totals with them."""
        b, tile = self.b, self.tile
        result = []
        for i, (total, factor) in enumerate(zip(totals, factors, strict=True)):
            total = b.op("mul", total, factor)
            for vector in range(tile.vectors):
                value = b.op("sub", scores[i * tile.vectors + vector], shifts[i])
                value = b.op("exp", value)
                total = b.op("add", total, b.reduce(value, "add"))
                column = self.scores.column(vector)
                for lane in range(LANES):
                    line = b.mul(b.add(column, lane), tile.left_pitch)
                    at = b.add(line, self.scores.row(i))
                    b.store(self.weights, at, b.extract(value, lane))
            result.append(total)
        return result

    def _add_values(self, key: Index, sums: Sequence[Value]) -> list[Value]:
        """sums + the block's weights times its values."""
        b, tile, wide = self.b, self.tile, self.schedule.results
        keys = self.keys[1]
        if self.entry.pages:
            source = paged_source(self.entry, 2, 0, -1, keys)
        else:
            source = matrix_source(self.entry, 2, self.bases.v, 0, -1, wide.columns)
        block = Block(self.group, source, wide.columns, wide.depth, wide.right_pitch, self.shared)

        def body(buffer: Index, index: Index, old: Sequence[Value]) -> Sequence[Value]:
            right = b.mul(buffer, wide.depth * wide.right_pitch)
            with b.for_(0, wide.depth, 1, old, unroll=True) as loop:
                line = b.mul(b.add(index, loop.index), tile.left_pitch)
                at = b.add(right, b.mul(loop.index, wide.right_pitch))
                loop.yield_(
                    *self.results.outer_product(
                        loop.carried, (self.weights, line), (self.shared, at)
                    )
                )
            return loop.results

        return stream((block,), (key, tile.columns, wide.depth), keys, sums, body)

    def _write(self, state: _State) -> None:
        """Join the sums of each row's items, divide, and store."""
        b, vectors = self.b, self.schedule.results.vectors
        queries = b.dim(self.entry.q.shape[-2])
        for i, total in enumerate(self._join(state.totals, "add")):
            row = b.add(self.first, self.scores.row(i))
            sums = state.sums[i * vectors : (i + 1) * vectors]
            live = b.compare("lt", row, queries)
            b.if_(live, partial(self._write_row, row, sums, total))

    def _write_row(self, row: Index, sums: Sequence[Value], total: Value) -> None:
        b, view = self.b, self.entry.out
        memory, stored = self.entry.result()
        e, step = self.entry.e, view.strides[-1]
        base = b.add(self.bases.out, b.mul(row, b.dim(view.strides[-2])))
        for vector, value in enumerate(sums):
            column = self.results.column(vector)
            value = b.convert(self.entry.share(value, total), stored)
            for lane in range(LANES):
                at = b.add(column, lane)

                def store(at: Index = at, value: Value = value, lane: int = lane) -> None:
                    place = b.add(base, b.mul(at, b.dim(step)))
                    b.store(memory, place, b.extract(value, lane))

                b.if_(b.compare("lt", at, e), store)
