"""Tokens of a prompt passed through a state by chunks, as products of matrices.

A state S[key, value] of a head goes on by S = exp(g) S + key (x) d, and each token reads query S
(`recurrent.py`). With L[i, j] = exp(g of j + 1 ... i), 0 above the diagonal, the tokens of a chunk
read and leave behind

    Y = (Q K' * L) D + exp(g of 0 ... i) Q S,  S' = exp(g of all) S + (K * L[last])' D

where D is the values; for the delta rule it solves (I + beta (K K' * L, below the diagonal)) D =
beta (V - exp(g of 0 ... i) K S). That triangle is inverted by halves: the inverse of its blocks on
the diagonal, two rows first, gives that of blocks twice as large, and no power of it is made, so
rounding does not grow. Sums of g are made for each i and j by themselves, not as differences.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.gguf.configuration import Recurrence
from ingot.compiler.frontends.gguf.feature_chunks import FeatureChunk
from ingot.compiler.frontends.gguf.pieces import over_rows, part
from ingot.compiler.frontends.gguf.triangle import below, inverse, product, share
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv
from ingot.hal.spec import dtype

__all__ = ["LENGTH", "Steps", "passed"]

LENGTH = 32
"""Tokens of a chunk."""

F32 = dtype("f32")


@dataclass(frozen=True)
class Steps:
    """What tokens bring: queries and keys f32[count, key heads, key], values f32[count, heads,
    value], and for each of these heads the logarithm of what stays of its state; where that is
    another one for each feature of keys, f32[count, heads, key], or times `rates`[heads, key].
    Without `beta` the state is only added to."""

    query: Value
    key: Value
    value: Value
    decay: Value
    beta: Value | None
    rates: Value | None = None


def passed(b: Builder, r: Recurrence, steps: Steps, state: Value) -> tuple[Value, Value]:
    """The state[heads, key, value] behind all tokens, and what they read, [count, heads, value]."""
    (count, heads, value) = tensor_type(steps.value).shape
    rows = [steps.query, steps.key, steps.value, steps.decay]
    rows += [] if steps.beta is None else [steps.beta]
    chunk = FeatureChunk(r) if r.has_own_decays else _Chunk(r)
    length = chunk.length
    chunks = ceildiv(count, length)
    rows = [_padded(b, x, chunks * length - count) for x in rows]
    made = b.full(0.0, F32, (chunks * length, heads, value))

    def step(inner: Builder, place: Value, before: Sequence[Value]) -> Sequence[Value]:
        first = inner.value("mul", place, inner.constant(length, "i64"))
        own = [_rows(inner, x, first, length) for x in rows]
        state, y = chunk.of(inner, before[0], own)
        zero = inner.constant(0, "i64")
        return [state, inner.value("dynamic_update_slice", before[1], y, first, zero, zero)]

    start = chunk.grouped(b, state)
    last, result = counted_loop(b, b.number(chunks, dtype("i64")), [start, made], step)
    return chunk.ungrouped(b, last), part(result, 0, 0, count, b)


def _padded(b: Builder, x: Value, rest: Dim) -> Value:
    """x with rows of zeros behind it, which leave a state as it is."""
    zeros = b.full(0.0, F32, (rest, *tensor_type(x).shape[1:]))
    return b.value("concatenate", x, zeros, axis=0)


def _rows(b: Builder, x: Value, first: Value, length: int) -> Value:
    rest = tensor_type(x).shape[1:]
    zeros = [b.constant(0, "i64")] * len(rest)
    return b.value("dynamic_slice", x, first, *zeros, sizes=(length, *rest))


class _Chunk:
    """A chunk of tokens. Heads of values stand in groups, each with a head of keys."""

    length = LENGTH

    def __init__(self, r: Recurrence) -> None:
        self.r, self.groups, self.heads = r, r.key_heads, r.value_heads
        self.each = r.value_heads // r.key_heads

    def of(self, b: Builder, state: Value, rows: Sequence[Value]) -> tuple[Value, Value]:
        """The state[groups, key, each * value] behind a chunk, and what its tokens read, [LENGTH,
        heads, value]; `rows` as in `Steps`."""
        query, key, value, decay, *beta = rows
        columns = b.value("transpose", key, permutation=(1, 2, 0))
        query, key = (b.value("transpose", x, permutation=(1, 0, 2)) for x in (query, key))
        value, decay = self._by_heads(b, value), self._by_heads(b, decay)
        sums = self._sums(b, decay)  # [heads, i, j]
        kept = share(b, b.value("cumulative", decay, axis=1, kind="add"))  # [heads, i]
        shares = share(b, sums)
        old, *known = self._read(b, [query, key] if beta else [query], state)
        if beta:
            weight = self._by_heads(b, beta[0])
            mixed = self._weighed(b, product(b, key, columns, 2, 1), shares, with_diagonal=False)
            mixed = over_rows("mul", mixed, weight, b)
            value = b.value("sub", value, over_rows("mul", known[0], kept, b))
            value = over_rows("mul", value, weight, b)
            value = product(b, inverse(b, mixed), value, 2, 1)
        scores = self._weighed(b, product(b, query, columns, 2, 1), shares, with_diagonal=True)
        y = b.value("add", over_rows("mul", old, kept, b), product(b, scores, value, 2, 1))
        heads, length = self.heads, self.r.value_length
        last = part(shares, 1, LENGTH - 1, LENGTH, b)
        last = b.value("reshape", last, shape=(heads, LENGTH))
        added = self._in_groups(b, over_rows("mul", value, last, b))
        added = product(b, columns, added, 2, 1)
        whole = part(kept, 1, LENGTH - 1, LENGTH, b)
        whole = b.value("reshape", whole, shape=(self.groups, self.each))
        wide = (self.groups, self.r.key_length, self.each, length)
        whole = b.value("broadcast", whole, shape=wide, dimensions=(0, 2))
        whole = b.value("reshape", whole, shape=tensor_type(state).shape)
        state = b.value("add", b.value("mul", state, whole), added)
        return state, self._by_tokens(b, y)

    def grouped(self, b: Builder, state: Value) -> Value:
        """[groups, key, each * value] of [heads, key, value]."""
        r = self.r
        if r.takes_turns:
            split, order = (self.each, self.groups, r.key_length, r.value_length), (1, 2, 0, 3)
        else:
            split, order = (self.groups, self.each, r.key_length, r.value_length), (0, 2, 1, 3)
        state = b.value("reshape", state, shape=split)
        state = b.value("transpose", state, permutation=order)
        shape = (self.groups, r.key_length, self.each * r.value_length)
        return b.value("reshape", state, shape=shape)

    def ungrouped(self, b: Builder, state: Value) -> Value:
        """The other way round."""
        r = self.r
        split = (self.groups, r.key_length, self.each, r.value_length)
        state = b.value("reshape", state, shape=split)
        order = (2, 0, 1, 3) if r.takes_turns else (0, 2, 1, 3)
        state = b.value("transpose", state, permutation=order)
        return b.value("reshape", state, shape=(self.heads, r.key_length, r.value_length))

    def _by_heads(self, b: Builder, x: Value) -> Value:
        """[heads, LENGTH, ...], heads of a group side by side, of [LENGTH, heads, ...]."""
        _, _, *rest = tensor_type(x).shape
        tail = range(3, 3 + len(rest))
        split = (self.each, self.groups) if self.r.takes_turns else (self.groups, self.each)
        x = b.value("reshape", x, shape=(LENGTH, *split, *rest))
        order = (2, 1, 0, *tail) if self.r.takes_turns else (1, 2, 0, *tail)
        x = b.value("transpose", x, permutation=order)
        return b.value("reshape", x, shape=(self.heads, LENGTH, *rest))

    def _by_tokens(self, b: Builder, x: Value) -> Value:
        """The other way round, of [heads, LENGTH, value]."""
        length = self.r.value_length
        x = b.value("reshape", x, shape=(self.groups, self.each, LENGTH, length))
        order = (2, 1, 0, 3) if self.r.takes_turns else (2, 0, 1, 3)
        x = b.value("transpose", x, permutation=order)
        return b.value("reshape", x, shape=(LENGTH, self.heads, length))

    def _in_groups(self, b: Builder, x: Value) -> Value:
        """[groups, LENGTH, each * value] of [heads, LENGTH, value]."""
        length = self.r.value_length
        x = b.value("reshape", x, shape=(self.groups, self.each, LENGTH, length))
        x = b.value("transpose", x, permutation=(0, 2, 1, 3))
        return b.value("reshape", x, shape=(self.groups, LENGTH, self.each * length))

    def _read(self, b: Builder, rows: Sequence[Value], state: Value) -> list[Value]:
        """What each of rows[groups, LENGTH, key] reads of the state, [heads, LENGTH, value]."""
        length, read = self.r.value_length, list[Value]()
        joined = b.value("concatenate", *rows, axis=1) if len(rows) > 1 else rows[0]
        y = product(b, joined, state, 2, 1)
        for place in range(len(rows)):
            own = part(y, 1, place * LENGTH, (place + 1) * LENGTH, b)
            own = b.value("reshape", own, shape=(self.groups, LENGTH, self.each, length))
            own = b.value("transpose", own, permutation=(0, 2, 1, 3))
            read.append(b.value("reshape", own, shape=(self.heads, LENGTH, length)))
        return read

    def _sums(self, b: Builder, decay: Value) -> Value:
        """Of decay[heads, LENGTH] the sums of j + 1 ... i, [heads, i, j]; 0 above the diagonal."""
        shape = (self.heads, LENGTH, LENGTH)
        wide = b.value("broadcast", decay, shape=shape, dimensions=(0, 1))
        wide = b.value("select", below(b, shape), wide, b.full(0.0, F32, shape))
        return b.value("cumulative", wide, axis=1, kind="add")

    def _weighed(self, b: Builder, x: Value, shares: Value, with_diagonal: bool) -> Value:
        """x[groups, i, j] of each head times its shares[heads, i, j], below the diagonal or with
        it; 0 elsewhere."""
        split, shape = (self.groups, self.each, LENGTH, LENGTH), tensor_type(shares).shape
        x = b.value("broadcast", x, shape=split, dimensions=(0, 2, 3))
        x = b.value("mul", b.value("reshape", x, shape=shape), shares)
        return b.value("select", below(b, shape, with_diagonal), x, b.full(0.0, F32, shape))
