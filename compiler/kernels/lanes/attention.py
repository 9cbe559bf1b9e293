"""Kernels for attention: softmax(q k^T * scale + mask) v without storing the scores.

Lanes are queries. A workgroup takes a block of queries of one batch item, packs them
transposed into scratch, and walks over blocks of keys: a tile product gives scores (a key
a row, queries along the lanes), so that maxima and sums of the softmax are per lane and
need no shuffles; a second tile product adds the block's values. Between blocks the running
maximum and sum are corrected as the maximum grows. Operands and result may be transposed
views: heads are never moved in memory. A mask with rows of its own is looked at before a block's
products: keys behind the last one that a query of the block sees are left out, which is half of all
under a causal mask. Where heads of one query each share keys, the first one's workgroup takes them
all as queries, and those of the others end at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial, reduce

from ingot.compiler.dispatch.view import View
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.forms.fuse_attention import HIDDEN
from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, floordiv
from ingot.compiler.kernels.attention_entry import AttentionEntry, weight_of
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.few_queries import FEW, FewQueries
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.register_tile import (
    TileShape,
    for_row_tiles,
    multiply,
    tail_heights,
    zero_tile,
)
from ingot.compiler.kernels.squares import transpose
from ingot.hal.spec import dtype

__all__ = ["AttentionSchedule", "lower_attention"]

F32 = dtype("f32")
QUERY_BLOCK = 64
"""Of 12 heads, 128 x 128 x 64, blocks of 32 and 64 take 276 us with AVX-512, 16 346, 128 282."""

MOST_HEADS = 16
"""Heads of one query that meet keys that they share in one workgroup: a vector of queries. Of 32
heads and 4096 keys of 64 features, one thread takes 1.27 ms with each apart, .93 with 4 together,
.60 with 8, .31 with 16, .42 with 32. Those that share the only head of keys stand in two parts at
least, for threads."""


MOST_CONVERTED = 256
"""Features of narrow keys and values that become f32 in scratch: 128 KB of a block of keys."""

KEY_BLOCK = 128
"""Keys whose scores are in scratch: the same in blocks of 64 takes 281 us instead of 276. Of 8
heads, 1500 x 1500 x 64, with L1 of 48 KB, 256 take 40.8 ms, 128 38.4, 96 38.0, 64 39.1."""


@dataclass(frozen=True)
class AttentionSchedule:
    """Queries and keys of a block, and the tile of both products."""

    queries: int
    keys: int
    tile_rows: int
    tile_vectors: int


@dataclass(frozen=True)
class _Block:
    """One block of queries: how many of them are real."""

    first: Index
    live: Index


@dataclass(frozen=True)
class _Vectors(_Block):
    """The same, and how many vectors of lanes there are."""

    vectors: int


def _heads_as_rows(view: View, share: int) -> View:
    """A view [..., heads, 1, d] with `share` neighbouring heads as the rows of the first one."""
    if len(view.shape) < 2:
        return view
    *outer, _, last = view.shape
    if not outer or outer[-1] == 1:
        return replace(view, shape=(*outer, 1, last))
    strides = (*view.strides[:-2], view.strides[-3], view.strides[-1])
    return replace(view, shape=(*outer, share, last), strides=strides)


def lower_attention(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one attention op. ValueError: there is none for its types."""
    return _Attention(function, target).lower()


class _Attention(AttentionEntry):
    """State while one kernel is made."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function)
        self.lanes = min(target.lanes(F32), 16)
        vectors = 4 if target.register_count >= 32 else 2
        rows = 6 if target.register_count >= 32 else 5
        self.schedule = AttentionSchedule(QUERY_BLOCK, KEY_BLOCK, rows, vectors)
        self.ends: list[Value] = []  # of the queries of a block, per vector
        self.few_length = 0  # of scratch, of a block with few queries
        self.numbers_pitch = self._numbers_pitch()

    def lower(self) -> Kernel:
        b, block = self.b, self.schedule.queries
        queries = b.dim(self.q.shape[-2])
        first = b.mul(b.workgroup(0), block)
        live = b.min(b.sub(queries, first), block)
        lives = set(range(1, block + 1))  # what `live` may be
        if isinstance(queries, int):
            lives = {queries % block or block, *([block] if queries > block else [])}
        every = partial(self._queries, _Block(first, live), lives)
        if not self._heads_sharing() or (isinstance(queries, int) and queries > 1):
            every()
        elif queries == 1:
            self._join_heads()
        else:
            b.if_(b.compare("eq", queries, 1), self._join_heads, every)
        return self._finish()

    def _queries(self, block: _Block, lives: set[int]) -> None:
        """A block with one of these counts of live queries, which are done one after another if
        they are few."""
        fewest = {each for each in lives if each <= FEW and FewQueries.takes(self)}

        def many() -> None:
            self._block(block, lives - fewest)

        def few() -> None:
            queries = FewQueries(self, self.lanes)
            self.few_length = max(self.few_length, queries.scratch_length)
            queries.attend(block.first, block.live)

        if not fewest:
            many()
        elif lives == fewest:
            few()
        else:
            self.b.if_(self.b.compare("gt", block.live, FEW), many, few)

    def _heads_sharing(self) -> int:
        """How many neighbouring heads share keys, which a workgroup reads for several of them where
        each has one query; 0 where there are keys for each."""
        if self.pages or len(self.q.shape) < 3:
            return 0
        share = floordiv(self.q.shape[-3], self.k.shape[-3])
        return share if isinstance(share, int) and share > 1 else 0

    def _join_heads(self) -> None:
        """Heads that share keys, of one query each, as queries of the first one's workgroup."""
        b, share = self.b, self._heads_sharing()
        parts = max(-(-share // MOST_HEADS), 2 if self.k.shape[-3] == 1 else 1)
        count = -(-share // parts)
        joined = copy(self)
        joined.q, joined.out = _heads_as_rows(self.q, share), _heads_as_rows(self.out, share)
        joined.mask = None if self.mask is None else _heads_as_rows(self.mask, share)
        place = b.rem(b.workgroup(1), share)
        live = count if share % count == 0 else b.min(count, b.sub(share, place))
        lives = {count, share % count or count}
        is_first = b.compare("eq", b.rem(place, count), 0)
        b.if_(is_first, lambda: joined._queries(_Block(0, live), lives))
        self.few_length = joined.few_length

    # Scratch: queries [d][block], scores [keys][block], sums [e][block], and a row of what there is
    # one of per query.

    def _scratch(self, part: str) -> Value:
        scores, sums = self.d, self.d + KEY_BLOCK
        row = sums + self.e
        rows = {"queries": 0, "scores": scores, "sums": sums, "row": row, "numbers": row + 1}
        return self.b.scratch(rows[part] * QUERY_BLOCK * 4, F32)

    def _scratch_length(self) -> int:
        numbers = KEY_BLOCK * self.numbers_pitch * 4
        length = (self.d + KEY_BLOCK + self.e + 1) * QUERY_BLOCK * 4 + numbers
        return max(length, self.few_length)

    def _block(self, block: _Block, lives: set[int]) -> None:
        """A block with one of these counts of live queries: in all of its vectors, or in one."""
        b, every = self.b, self.schedule.queries // self.lanes

        def attend(count: int) -> None:
            self._attend(_Vectors(block.first, block.live, count))

        if min(lives) > self.lanes or max(lives) <= self.lanes:
            known = every if min(lives) > self.lanes else 1
            self._pack_queries(block, known)
            attend(known)
            self._write(block, known)
            return
        is_wide = b.compare("gt", block.live, self.lanes)
        count = b.op("select", is_wide, b.value(every), b.value(1))
        self._pack_queries(block, count)
        b.if_(is_wide, lambda: attend(every), lambda: attend(1))
        self._write(block, count)

    def _attend(self, block: _Vectors) -> None:
        """Leave the block's sums of values in scratch, and in the row those of weights."""
        b = self.b
        zero = b.constant(0.0, F32, self.lanes)
        sums = self._scratch("sums")
        with b.for_(0, b.dim(self.e)) as loop:
            for vector in range(block.vectors):
                b.store(sums, self._at(loop.index, vector), zero)
        first, keys = self.seen(block.first, block.live)
        sinks: list[Value | None] = [None] * block.vectors
        if self.pages:
            lanes = [self._query_lanes(block, vector) for vector in range(block.vectors)]
            self.ends = [self.pages.ends_of(queries) for queries in lanes]
            sinks = [self.pages.sinks_of(queries) for queries in lanes]
        starts = [self.start(sink, self.lanes) for sink in sinks]
        state = [each[part] for part in (0, 1) for each in starts]
        if isinstance(keys, int) and keys <= KEY_BLOCK:
            totals = self._key_block(block, 0, keys, state)[block.vectors :]
        else:
            body = partial(self._key_block, block)
            totals = self.blocks(first, keys, KEY_BLOCK, state, body)[block.vectors :]
        self._keep(0, totals)

    def _key_block(
        self, block: _Vectors, key: Index, count: Index, state: list[Value]
    ) -> list[Value]:
        """Add keys [key, key + count); `state` is per vector the maxima, then the sums."""
        b, most = self.b, count
        lowest = b.constant(-math.inf, F32, self.lanes)
        zero = b.constant(0.0, F32, self.lanes)
        old, totals = state[: block.vectors], state[block.vectors :]
        if self._mask_is_packed():
            seen = self._pack_mask(block, key, count, self._unseen(old))
            if not isinstance(count, int) or count > self.schedule.queries:
                height = self.schedule.tile_rows
                count = b.min(b.mul(b.div(b.add(seen, height - 1), height), height), count)
        maxima = self._scores(block, key, count, most)
        new = [b.op("max", a, m) for a, m in zip(old, maxima, strict=True)]
        shift = [self._finite(value, lowest, zero) for value in new]
        factor = [weight_of(b, a, s) for a, s in zip(old, shift, strict=True)]
        totals = [b.op("mul", total, f) for total, f in zip(totals, factor, strict=True)]
        totals = self._exponentials(block, count, shift, totals)
        self._add_values(block, key, count, factor)
        return [*new, *totals]

    def _unseen(self, old: list[Value]) -> Value:
        """Masks up to which no query sees a key: -inf, or where all have seen others also what
        stands for it. `old` are the maxima of their scores so far."""
        b = self.b
        least = b.reduce(reduce(partial(b.op, "min"), old), "min")
        have_seen = b.op("compare", least, b.constant(HIDDEN / 2, F32), direction="gt")
        return b.op("select", have_seen, b.constant(HIDDEN, F32), b.constant(-math.inf, F32))

    def _finite(self, value: Value, lowest: Value, zero: Value) -> Value:
        """0 for -inf: a query whose keys are all masked so far must not give NaN."""
        b = self.b
        return b.op("select", b.op("compare", value, lowest, direction="eq"), zero, value)

    def _at(self, row: Index, vector: Index) -> Index:
        b = self.b
        return b.add(b.mul(row, QUERY_BLOCK), b.mul(vector, self.lanes))

    def _query_lanes(self, block: _Block, vector: Index) -> Value:
        """Query numbers of one vector's lanes; lanes beyond the last repeat it."""
        b = self.b
        last = b.broadcast(b.value(b.sub(b.add(block.first, block.live), 1)), self.lanes)
        first = b.add(block.first, b.mul(vector, self.lanes))
        first = b.broadcast(b.value(first), self.lanes)
        return b.op("min", b.op("add", b.lanes(self.lanes), first), last)

    def _gather(self, view: View, operand: int, base: Index, queries: Value, stride: Dim) -> Value:
        b = self.b
        step = b.broadcast(b.value(b.dim(stride)), self.lanes)
        first = b.broadcast(b.value(base), self.lanes)
        at = b.op("add", b.op("mul", queries, step), first)
        return b.convert(b.gather(self.binding(view, operand), at), F32)

    def _pack_queries(self, block: _Block, count: Index) -> None:
        """Store q * scale transposed: squares of lanes where features are adjacent."""
        b, view, lanes = self.b, self.q, self.lanes
        factor = b.constant(self.scale, F32, lanes)
        memory, base = self._scratch("queries"), self.base(view)
        d = self.d
        squares = d // lanes * lanes if view.strides[-1] == 1 else 0
        last = b.sub(b.add(block.first, block.live), 1)
        with b.for_(0, count) as vectors:
            if squares:
                starts = []
                for i in range(lanes):
                    row = b.min(b.add(b.add(block.first, b.mul(vectors.index, lanes)), i), last)
                    starts.append(b.add(base, b.mul(row, b.dim(view.strides[-2]))))
                with b.for_(0, squares, lanes) as loop:
                    binding = self.binding(view, 0)
                    rows = [b.load(binding, b.add(start, loop.index), lanes) for start in starts]
                    for j, value in enumerate(transpose(b, [b.convert(r, F32) for r in rows])):
                        at = self._at(b.add(loop.index, j), vectors.index)
                        b.store(memory, at, b.op("mul", value, factor))
            queries = self._query_lanes(block, vectors.index)
            with b.for_(squares, d) as loop:
                at = b.add(base, b.mul(loop.index, b.dim(view.strides[-1])))
                value = self._gather(view, 0, at, queries, view.strides[-2])
                b.store(memory, self._at(loop.index, vectors.index), b.op("mul", value, factor))

    def _width(self, block: _Vectors) -> int:
        """The vectors of tiles, which are side by side in a block."""
        return min(self.schedule.tile_vectors, block.vectors)

    def _keep(self, first: Index, values: Sequence[Value]) -> None:
        """Store the row's vectors from `first` on."""
        for place, value in enumerate(values):
            self.b.store(self._scratch("row"), self._at(0, self.b.add(first, place)), value)

    def _kept(self, first: Index, count: int) -> list[Value]:
        b, memory = self.b, self._scratch("row")
        return [b.load(memory, self._at(0, b.add(first, i)), self.lanes) for i in range(count)]

    def _tiles(
        self,
        count: Index,
        most: Index,
        carried: list[Value],
        body: Callable[[int, Index, list[Value]], list[Value]],
    ) -> list[Value]:
        """`body(height, first row, carried)` over `count` rows: `most`, or fewer in whole tiles."""
        height = self.schedule.tile_rows
        tails = tail_heights(height, most % height if isinstance(most, int) else None)
        return for_row_tiles(self.b, count, (height, *tails), body, carried)

    def _numbers_pitch(self) -> int:
        """Elements from one row of keys or values to the next where these become f32 in scratch,
        once for a block of queries; 0: they are read as they lie. 512 tokens of 9 heads of 64
        features, which see 2048 keys of 3 heads in f16: 16.1 ms, and 25.2 where each number is made
        where it is read (f32: 15.2)."""
        views, most = (self.k, self.v), max(self.d, self.e)
        is_f32 = tensor_type(self.root.operands[1]).dtype is F32
        if is_f32 or most > MOST_CONVERTED or any(view.strides[-1] != 1 for view in views):
            return 0
        return -(-most // self.lanes) * self.lanes

    def _rows_of(self, operand: int, key: Index, count: Index) -> Callable[[Index, Index], Value]:
        """Reads (row, feature) of keys or values from `key` on, `count` rows."""
        b, lanes, pitch = self.b, self.lanes, self.numbers_pitch
        view, features = ((self.k, self.d), (self.v, self.e))[operand - 1]
        base, (along, across) = self.rows(view, key), map(b.dim, view.strides[-2:])

        def read(row: Index, feature: Index) -> Value:
            at = b.add(base, b.mul(row, along))
            return self.load(view, operand, b.add(at, b.mul(feature, across)))

        if not pitch:
            return read
        memory, source = self._scratch("numbers"), self.binding(view, operand)
        with b.for_(0, count) as loop:
            at, to = b.add(base, b.mul(loop.index, along)), b.mul(loop.index, pitch)
            for feature in range(0, features, lanes):
                part = None if feature + lanes <= features else features - feature
                line = b.convert(b.load(source, b.add(at, feature), lanes, part), F32)
                b.store(memory, b.add(to, feature), line)
        return lambda row, feature: b.load(memory, b.add(b.mul(row, pitch), feature))

    def _lines(self, memory: Value, start: Index) -> Callable[[Index, int], Value]:
        """Reads (step, vector) of scratch rows of a block, from vector `start` on."""
        b = self.b
        return lambda step, i: b.load(memory, self._at(step, b.add(start, i)), self.lanes)

    def _multiply(
        self,
        shape: TileShape,
        sums: list[Value],
        count: Index,
        row: Index,
        element: Callable[[Index, Index], Value],
        lines: Callable[[Index, int], Value],
    ) -> list[Value]:
        """sums + element times lines over `count` steps, for rows `row`, row + 1, ..."""
        b = self.b
        return multiply(b, shape, sums, count, lambda i, step: element(b.add(row, i), step), lines)

    def _scores(self, block: _Vectors, key: Index, count: Index, most: Index) -> list[Value]:
        """Store the block's scores; per lane their maximum."""
        b = self.b
        queries, scores = self._scratch("queries"), self._scratch("scores")
        element = self._rows_of(1, key, count)
        lowest = b.constant(-math.inf, F32, self.lanes)
        width = self._width(block)
        with b.for_(0, block.vectors, width) as groups:

            def body(height: int, row: Index, carried: list[Value]) -> list[Value]:
                shape = TileShape(height, width, self.lanes)
                zeros = zero_tile(b, F32, shape)
                lines = self._lines(queries, groups.index)
                sums = self._multiply(shape, zeros, b.dim(self.d), row, element, lines)
                for place, value in enumerate(sums):
                    i, vector = divmod(place, width)
                    at, of_block = b.add(row, i), b.add(groups.index, vector)
                    target = self._at(at, of_block)
                    if self.pages:
                        b.store(scores, target, value)
                        continue
                    if self._mask_is_packed():
                        value = b.op("add", value, b.load(scores, target, self.lanes))
                    else:
                        value = self._add_mask(block, b.add(key, at), of_block, value)
                    b.store(scores, target, value)
                    carried[vector] = b.op("max", carried[vector], value)
                return carried

            maxima = self._tiles(count, most, [] if self.pages else [lowest] * width, body)
            self._keep(groups.index, maxima)
        if self.pages:
            return self._hidden(block, key, count)
        return self._kept(0, block.vectors)

    def _hidden(self, block: _Vectors, key: Index, count: Index) -> list[Value]:
        """Cap the block's scores, and hide those of keys that a query does not see; per lane
        their maximum."""
        b, scores, pages = self.b, self._scratch("scores"), self.pages
        assert pages is not None
        lowest = b.constant(-math.inf, F32, self.lanes)
        with b.for_(0, count, 1, [lowest] * block.vectors) as loop:
            maxima = []
            for vector, most in enumerate(loop.carried):
                at = self._at(loop.index, vector)
                score = self.capped(b.load(scores, at, self.lanes))
                score = pages.hide(b.add(key, loop.index), self.ends[vector], score)
                b.store(scores, at, score)
                maxima.append(b.op("max", most, score))
            loop.yield_(*maxima)
        return loop.results

    def _mask_is_packed(self) -> bool:
        """Whether the mask has rows of its own for queries, whose keys are adjacent."""
        view = self.mask
        if view is None or len(view.shape) < 2:
            return False
        return view.shape[-2] != 1 and view.shape[-1] != 1 and view.strides[-1] == 1

    def _pack_mask(self, block: _Vectors, key: Index, count: Index, unseen: Value) -> Index:
        """Store the mask where the scores will be, transposed in squares of lanes; behind which
        keys there is none that a query sees: an element above `unseen`."""
        b, view, lanes = self.b, self.mask, self.lanes
        assert view is not None
        memory, binding = self._scratch("scores"), self.binding(view, 3)
        base, last = b.add(self.base(view), key), b.sub(b.add(block.first, block.live), 1)
        with b.for_(0, block.vectors, 1, [b.value(0)]) as vectors:
            column = b.mul(vectors.index, lanes)
            first = b.add(block.first, column)
            rows = [b.min(b.add(first, i), last) for i in range(lanes)]
            starts = [b.add(base, b.mul(row, b.dim(view.strides[-2]))) for row in rows]
            with b.for_(0, count, lanes, vectors.carried) as loop:
                live = b.min(b.sub(count, loop.index), lanes)
                loaded = [b.load(binding, b.add(at, loop.index), lanes, live) for at in starts]
                lines = [b.convert(line, F32) for line in loaded]
                for j, value in enumerate(transpose(b, lines)):
                    at = b.add(b.mul(b.add(loop.index, j), QUERY_BLOCK), column)
                    b.store(memory, at, value)
                behind = b.op("compare", b.lanes(lanes), b.value(live), direction="ge")
                most = reduce(partial(b.op, "max"), lines)
                most = b.op("select", behind, b.constant(-math.inf, F32, lanes), most)
                is_hidden = b.op("compare", b.reduce(most, "max"), unseen, direction="le")
                end = b.max(loop.carried[0], b.add(loop.index, live))
                loop.yield_(b.op("select", is_hidden, loop.carried[0], b.value(end)))
            vectors.yield_(*loop.results)
        return vectors.results[0]

    def _add_mask(self, block: _Block, key: Index, vector: Index, score: Value) -> Value:
        view, b = self.mask, self.b
        if view is None:
            return score
        shape = (1,) * (2 - len(view.shape)) + view.shape
        strides = (0,) * (2 - len(view.strides)) + view.strides
        at = self.base(view)
        if shape[-1] != 1 or self.k.shape[-2] == 1:
            at = b.add(at, b.mul(key, b.dim(strides[-1])))
        if shape[-2] == 1:
            return b.op("add", score, b.broadcast(self.load(view, 3, at), self.lanes))
        queries = self._query_lanes(block, vector)
        return b.op("add", score, self._gather(view, 3, at, queries, strides[-2]))

    def _exponentials(
        self, block: _Vectors, count: Index, shift: list[Value], totals: list[Value]
    ) -> list[Value]:
        """Scores become exp(score - shift); per lane their sum is added to `totals`."""
        b, scores = self.b, self._scratch("scores")
        with b.for_(0, count, 1, totals) as loop:
            following = []
            for vector, total in enumerate(loop.carried):
                at = self._at(loop.index, vector)
                value = weight_of(b, b.load(scores, at, self.lanes), shift[vector])
                b.store(scores, at, value)
                following.append(b.op("add", total, value))
            loop.yield_(*following)
        return loop.results

    def _add_values(self, block: _Vectors, key: Index, count: Index, factor: list[Value]) -> None:
        """sums = sums * factor + probabilities times values of this block."""
        b = self.b
        scores, sums = self._scratch("scores"), self._scratch("sums")
        value_of = self._rows_of(2, key, count)
        width = self._width(block)
        self._keep(0, factor)
        with b.for_(0, block.vectors, width) as groups:
            factors = self._kept(groups.index, width)

            def body(height: int, row: Index, carried: list[Value]) -> list[Value]:
                shape = TileShape(height, width, self.lanes)
                places = [
                    self._at(b.add(row, i), b.add(groups.index, vector))
                    for i in range(height)
                    for vector in range(width)
                ]
                initial = [
                    b.op("mul", b.load(sums, at, self.lanes), factors[place % width])
                    for place, at in enumerate(places)
                ]
                lines = self._lines(scores, groups.index)
                results = self._multiply(
                    shape, initial, count, row, lambda row, step: value_of(step, row), lines
                )
                for at, value in zip(places, results, strict=True):
                    b.store(sums, at, value)
                return carried

            self._tiles(b.dim(self.e), b.dim(self.e), [], body)

    def _write(self, block: _Block, count: Index) -> None:
        """Divide by the sums and store the block, queries as rows again."""
        b, sums, lanes = self.b, self._scratch("sums"), self.lanes
        memory, stored = self.result()
        base, step = self.base(self.out), b.dim(self.out.strides[-1])
        e = self.e
        squares = e // lanes * lanes if step == 1 else 0
        with b.for_(0, count) as vectors:
            before = b.mul(vectors.index, lanes)
            first, live = b.add(block.first, before), b.sub(block.live, before)
            (total,) = self._kept(vectors.index, 1)

            def scaled(row: Index) -> Value:
                value = self.share(b.load(sums, self._at(row, vectors.index), lanes), total)
                return b.convert(value, stored)

            def store(lane: int, column: Index, value: Value) -> None:
                row = b.mul(b.add(first, lane), b.dim(self.out.strides[-2]))
                at = b.add(b.add(base, row), b.mul(column, step))
                b.if_(b.compare("lt", lane, live), lambda: b.store(memory, at, value))

            with b.for_(0, squares, lanes) as loop:
                columns = [scaled(b.add(loop.index, j)) for j in range(lanes)]
                for i, value in enumerate(transpose(b, columns)):
                    store(i, loop.index, value)
            with b.for_(squares, e) as loop:
                column = scaled(loop.index)
                for i in range(lanes):
                    store(i, loop.index, b.extract(column, i))

    def _finish(self) -> Kernel:
        return self.kernel((QUERY_BLOCK, 1, 1), self.schedule, self._scratch_length())
