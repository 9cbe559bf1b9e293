"""Attention of a few queries, as in decoding: one after another they meet a block of keys, features
along lanes.

The time is that of reading keys and values once, for a block stays in L1, and each query asks for a
part of the next one. Scores of as many keys as a vector has lanes are sums of products along the
features, turned by shuffles into one vector of scores, so that the softmax has keys along the
lanes; values are added as rows of features. Keys whose features lie apart, but whose neighbours are
adjacent, are read along the keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import accumulate

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.attention_entry import AttentionEntry, weight_of
from ingot.compiler.kernels.loop import Index, dtype_of
from ingot.compiler.kernels.register_tile import for_row_tiles
from ingot.compiler.kernels.squares import transpose
from ingot.hal.spec import dtype

__all__ = ["FEW", "FewQueries"]

F32 = dtype("f32")
KEYS = 32
"""Keys of a block, which all queries meet before the next one comes: with their values 16 KB of 64
features, and as much is asked for meanwhile, so L1 has both. 30 layers of 3 heads, 4096 keys in f32
and in f16, 3 queries each: 13.7 and 7.5 ms (13.8 and 12.5 GB/s); blocks of 64 take 16.2 and 7.8,
those of 1024 that nobody asks for 19.2 and 12.7."""

FEW = 6
"""Queries that meet a block of keys one after another. 8 heads, 4096 keys of 64 features: 5 take
1.12 ms (as part of a vector of queries 1.38), 6 1.26 (1.39), 8 1.52 (1.43)."""

_LINE = 64  # bytes: lines of caches, and what parts of scratch are aligned to

SUMS = 8
"""Accumulators: what hides the latency of multiply-adds, and fits beside operands.
Of 512 keys, 12 heads, 8 take 52.6 us with AVX-512, 4 53.7, 2 59.8."""


@dataclass(frozen=True)
class _Query:
    """Number `number` of the entry's queries, which is `place` of the `count` that meet a block,
    and where in scratch its row and its sums begin."""

    number: Index
    place: Index
    count: Index
    row: Index
    sums: Index


class FewQueries:
    """Writes the code of one entry for `lanes` lanes.

    In scratch are the scores of a block of keys, and for each query its features, its sums, and
    the greatest score so far in all lanes, and the sums of weights; each up to a whole vector.
    """

    def __init__(self, entry: AttentionEntry, lanes: int) -> None:
        self.entry, self.b, self.lanes = entry, entry.b, lanes
        self.d, self.e = entry.d, entry.e
        lengths = KEYS + lanes, FEW * self._whole(self.d), FEW * self._whole(self.e)
        aligned = (-(-4 * length // _LINE) * _LINE for length in lengths)
        starts = list(accumulate(aligned, initial=0))
        memories = [self.b.scratch(start, F32) for start in starts]
        self.scores, self.query, self.sums, self.state = memories
        self.scratch_length = starts[-1] + 4 * FEW * 2 * lanes
        self.zero = self.b.constant(0.0, F32, lanes)
        self.lowest = self.b.constant(-math.inf, F32, lanes)

    @staticmethod
    def takes(entry: AttentionEntry) -> bool:
        """Whether keys and values lie so that vectors of them can be loaded."""
        return 1 in entry.k.strides[-2:] and entry.v.strides[-1] == 1

    def _whole(self, features: int) -> int:
        """Up to a whole vector."""
        return -(-features // self.lanes) * self.lanes

    def attend(self, first: Index, count: Index) -> None:
        """Write the results of queries [first, first + count), FEW at most."""
        b, entry = self.b, self.entry
        with b.for_(0, count) as loop:
            query = self._query(first, loop.index, count)
            self._load_query(query)
            self._keep(loop.index, self._start(query.number))
        begin, keys = entry.seen(first, count)

        def meet(key: Index, count_of_keys: Index, _: Sequence[Value]) -> list[Value]:
            with b.for_(0, count) as loop:
                query = self._query(first, loop.index, count)
                self._meet(query, loop.index, key, count_of_keys)
            return []

        entry.blocks(begin, keys, KEYS, [], meet)
        with b.for_(0, count) as loop:
            _, total = self._kept(loop.index)
            self._write(self._query(first, loop.index, count), b.reduce(total, "add"))

    def _query(self, first: Index, place: Index, count: Index) -> _Query:
        b = self.b
        row, sums = (b.mul(place, self._whole(features)) for features in (self.d, self.e))
        return _Query(b.add(first, place), place, count, row, sums)

    def _meet(self, query: _Query, place: Index, key: Index, count: Index) -> None:
        """Add those of keys [key, key + count) that the query sees."""
        b = self.b
        if not self.entry.pages:
            self._keep(place, self._block(query, key, count, self._kept(place)))
            return
        low, high = self.entry.seen(query.number, 1)
        low, high = b.max(low, key), b.min(high, b.add(key, count))

        def add() -> None:
            seen = b.sub(high, low)
            self._keep(place, self._block(query, low, seen, self._kept(place)))

        b.if_(b.compare("lt", low, high), add)

    def _kept(self, place: Index) -> list[Value]:
        """What a query has in front of a block: in all lanes the maximum, per lane the sum."""
        b, lanes = self.b, self.lanes
        at = b.mul(place, 2 * lanes)
        return [b.load(self.state, b.add(at, part), lanes) for part in (0, lanes)]

    def _keep(self, place: Index, state: Sequence[Value]) -> None:
        at = self.b.mul(place, 2 * self.lanes)
        for part, value in enumerate(state):
            self.b.store(self.state, self.b.add(at, part * self.lanes), value)

    def _load_query(self, query: _Query) -> None:
        """The scaled query into scratch, zeros behind it, and sums of zero."""
        b, view = self.b, self.entry.q
        parts = (self.query, query.row, self.d), (self.sums, query.sums, self.e)
        for memory, start, features in parts:
            with b.for_(0, features, self.lanes) as loop:
                b.store(memory, b.add(start, loop.index), self.zero)
        scale = b.constant(self.entry.scale, F32)
        base = b.add(self.entry.base(view), b.mul(query.number, b.dim(view.strides[-2])))
        with b.for_(0, self.d) as loop:
            at = b.add(base, b.mul(loop.index, b.dim(view.strides[-1])))
            value = b.op("mul", self.entry.load(view, 0, at), scale)
            b.store(self.query, b.add(query.row, loop.index), value)

    def _start(self, number: Index) -> list[Value]:
        """The state in front of the first key: a sink counts in the first lane."""
        sink = self.entry.pages.sink(number) if self.entry.pages else None
        if sink is None:
            return [self.lowest, self.zero]
        greatest, total = self.entry.start(sink)
        return [self.b.broadcast(greatest, self.lanes), self.b.insert(self.zero, total, 0)]

    def _block(
        self, query: _Query, key: Index, count: Index, carried: Sequence[Value]
    ) -> list[Value]:
        """Add keys [key, key + count); `carried`: in all lanes the maximum, per lane the sum."""
        b, lanes = self.b, self.lanes
        old, total = carried
        best = self._scores(query, key, count)
        new = b.op("max", old, b.broadcast(b.reduce(best, "max"), lanes))
        masked = b.op("compare", new, self.lowest, direction="eq")
        shift = b.op("select", masked, self.zero, new)  # no NaN if all keys are masked so far
        factor = weight_of(b, old, shift)
        with b.for_(0, count, lanes, [b.op("mul", total, factor)]) as loop:
            value = weight_of(b, b.load(self.scores, loop.index, lanes), shift)
            b.store(self.scores, loop.index, value)
            loop.yield_(b.op("add", loop.carried[0], value))
        for start in range(0, self.e, SUMS * lanes):
            self._add_values(query, key, count, factor, start)
        return [new, loop.results[0]]

    def _asking(self, query: _Query, key: Index) -> Callable[[Index, int], None]:
        """Asks at `keys` rows from `row` of a block on for a query's part of as many a block behind
        them, of keys and of values. Where pages are several, the next may lie anywhere."""
        b, entry = self.b, self.entry
        is_one = not entry.pages or entry.pages.is_one
        known = [
            (entry.binding(view, operand), entry.rows(view, key), b.dim(view.strides[-2]), features)
            for operand, view, features in ((1, entry.k, self.d), (2, entry.v, self.e))
            if is_one and view.strides[-1] == 1
        ]

        def ask(row: Index, keys: int) -> None:
            share = b.div(b.add(query.count, keys - 1), query.count)
            first = b.add(b.add(row, KEYS), b.mul(query.place, share))
            for memory, base, pitch, features in known:
                with b.for_(0, share) as loop:
                    at = b.add(base, b.mul(b.add(first, loop.index), pitch))
                    for feature in range(0, features, _LINE // dtype_of(memory).bytes):
                        b.prefetch(memory, b.add(at, feature), soon=True)

        return ask

    # Scores: q k^T

    def _scores(self, query: _Query, key: Index, count: Index) -> Value:
        """Store the block's scores, behind them -inf up to a whole vector; their maximum."""
        b, lanes = self.b, self.lanes
        adjacent = self.entry.k.strides[-1] == 1
        products = partial(self._along_features if adjacent else self._along_keys, query.row)
        vectors = max(SUMS // lanes, 1) if adjacent else SUMS
        base, ask = self.entry.rows(self.entry.k, key), self._asking(query, key)

        def tile(keys: int, row: Index, best: Sequence[Value], live: Index = lanes) -> list[Value]:
            (most,) = best
            scores = products(base, row, keys // lanes, live)
            if live is lanes:
                ask(row, keys)
            for place, score in enumerate(map(self.entry.capped, scores)):
                at = b.add(row, place * lanes)
                score = self._add_mask(query.number, b.add(key, at), live, score)
                if live is not lanes:
                    dead = b.op("compare", b.lanes(lanes), b.value(live), direction="ge")
                    score = b.op("select", dead, self.lowest, score)
                b.store(self.scores, at, score)
                most = b.op("max", most, score)
            return [most]

        heights = list(dict.fromkeys((vectors * lanes, lanes)))
        best = for_row_tiles(b, count, heights, tile, [self.lowest])
        rest = b.rem(count, lanes)
        if rest == 0:
            return best[0]
        some = b.compare("gt", rest, 0)
        return b.if_(some, lambda: tile(lanes, b.sub(count, rest), best, rest), lambda: best)[0]

    def _along_features(
        self, query: Index, base: Index, row: Index, vectors: int, live: Index
    ) -> list[Value]:
        """The products of the query with `vectors` vectors of keys from `row` of the block on,
        whose features are adjacent; keys from `live` on are the last one again."""
        b, view, lanes = self.b, self.entry.k, self.lanes
        last = b.sub(live, 1)
        places = [
            b.add(row, i if live is lanes else b.min(i, last)) for i in range(vectors * lanes)
        ]
        starts = [b.add(base, b.mul(place, b.dim(view.strides[-2]))) for place in places]

        def step(feature: Index, sums: Sequence[Value], count: Index | None) -> list[Value]:
            part = b.load(self.query, b.add(query, feature), lanes)
            lines = [self._load(1, b.add(start, feature), count) for start in starts]
            return [b.fma(part, line, sum) for line, sum in zip(lines, sums, strict=True)]

        whole = self.d // lanes * lanes
        with b.for_(0, whole, lanes, [self.zero] * len(starts)) as loop:
            loop.yield_(*step(loop.index, loop.carried, None))
        sums = loop.results
        if whole < self.d:
            sums = step(whole, sums, self.d - whole)
        squares = [transpose(b, sums[i : i + lanes]) for i in range(0, len(sums), lanes)]
        return [reduce(partial(b.op, "add"), square) for square in squares]

    def _along_keys(
        self, query: Index, base: Index, row: Index, vectors: int, live: Index
    ) -> list[Value]:
        """The same of keys that are adjacent; those from `live` on are zero."""
        b, view, lanes = self.b, self.entry.k, self.lanes
        base = b.add(base, row)
        count = None if live is lanes else live
        with b.for_(0, self.d, 1, [self.zero] * vectors) as loop:
            part = b.broadcast(b.load(self.query, b.add(query, loop.index)), lanes)
            start = b.add(base, b.mul(loop.index, b.dim(view.strides[-1])))
            lines = [self._load(1, b.add(start, i * lanes), count) for i in range(vectors)]
            sums = zip(lines, loop.carried, strict=True)
            loop.yield_(*(b.fma(part, line, sum) for line, sum in sums))
        return loop.results

    def _load(self, operand: int, at: Index, count: Index | None) -> Value:
        """A vector of keys or values as f32."""
        entry = self.entry
        memory = entry.binding((entry.k, entry.v)[operand - 1], operand)
        return self.b.convert(self.b.load(memory, at, self.lanes, count), F32)

    def _add_mask(self, number: Index, key: Index, live: Index, score: Value) -> Value:
        """The scores of keys from `key` on with their mask."""
        b, view, lanes = self.b, self.entry.mask, self.lanes
        if view is None:
            return score
        shape, strides = (1, 1, *view.shape)[-2:], (0, 0, *view.strides)[-2:]
        at = self.entry.base(view)
        if shape[-2] != 1:
            at = b.add(at, b.mul(number, b.dim(strides[-2])))
        if shape[-1] == 1:
            return b.op("add", score, b.broadcast(self.entry.load(view, 3, at), lanes))
        places = b.op("min", b.lanes(lanes), b.value(b.sub(live, 1)))
        step = b.dim(strides[-1])
        at = b.add(at, b.mul(key, step))
        memory = self.entry.binding(view, 3)
        if step == 1:
            mask = b.load(memory, at, lanes, None if live is lanes else live)
        else:
            places = b.op("mul", places, b.value(step))
            mask = b.gather(memory, b.op("add", places, b.broadcast(b.value(at), lanes)))
        return b.op("add", score, b.convert(mask, F32))

    # Values

    def _add_values(
        self, query: _Query, key: Index, count: Index, factor: Value, start: int
    ) -> None:
        """sums = sums * factor + probabilities times values, for features from `start` on."""
        b, view, lanes = self.b, self.entry.v, self.lanes
        features = range(start, min(self.e, start + SUMS * lanes), lanes)
        base = self.entry.rows(view, key)

        def add(height: int, row: Index, sums: Sequence[Value]) -> list[Value]:
            sums = list(sums)
            for i in range(height):
                weight = b.broadcast(b.load(self.scores, b.add(row, i)), lanes)
                line = b.add(base, b.mul(b.add(row, i), b.dim(view.strides[-2])))
                for place, feature in enumerate(features, i * len(features)):
                    part = None if feature + lanes <= self.e else self.e - feature
                    value = self._load(2, b.add(line, feature), part)
                    sums[place] = b.fma(weight, value, sums[place])
            return sums

        height = max(SUMS // len(features), 1)
        heights = list(dict.fromkeys((height, 1)))
        parts = for_row_tiles(b, count, heights, add, [self.zero] * (height * len(features)))
        for place, feature in enumerate(features):
            total = reduce(partial(b.op, "add"), parts[place :: len(features)])
            at = b.add(query.sums, feature)
            b.store(self.sums, at, b.fma(b.load(self.sums, at, lanes), factor, total))

    def _write(self, query: _Query, total: Value) -> None:
        """Divide by the sum of the weights, and store."""
        b, view, lanes = self.b, self.entry.out, self.lanes
        memory, stored = self.entry.result()
        step = b.dim(view.strides[-1])
        base = b.add(self.entry.base(view), b.mul(query.number, b.dim(view.strides[-2])))
        for feature in range(0, self.e, lanes):
            sum = b.load(self.sums, b.add(query.sums, feature), lanes)
            value = self.entry.share(sum, b.broadcast(total, lanes))
            value = b.convert(value, stored)
            part = None if feature + lanes <= self.e else self.e - feature
            if step == 1:
                b.store(memory, b.add(base, feature), value, part)
                continue
            for lane in range(part or lanes):
                at = b.add(base, b.mul(feature + lane, step))
                b.store(memory, at, b.extract(value, lane))
