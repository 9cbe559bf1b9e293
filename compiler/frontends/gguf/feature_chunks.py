"""Chunks of tokens of the delta rule where each feature of keys has a decay of its own.

With g[i] a row of logarithms, tokens i and j meet in the sum over features of query[i] key[j]
exp(g of j + 1 ... i). For all i and j that is no product of matrices, whose factors may overflow.
It is one for j in the first half of a block and i in the second: of query[i] exp(g from the middle
to i) and key[j] exp(g of j + 1 to the middle), shares of at most 1. So the triangle is made by
halves, blocks of two tokens first, and the shares of a block are products of those of its halves.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.gguf.configuration import Recurrence
from ingot.compiler.frontends.gguf.pieces import over_rows, part
from ingot.compiler.frontends.gguf.triangle import (
    LEAST_SHARE,
    halves,
    inverse,
    product,
    quarters,
    share,
)
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["FeatureChunk"]

F32 = dtype("f32")


class FeatureChunk:
    """A chunk of tokens, whose heads have a key and a value each."""

    length = 16
    """Tokens: what the levels of 32 need of 32 heads is more than L2. 256 tokens of 32 heads of 128
    x 128 take 20.6 ms, with 32 tokens 26.9, with 8 22.9, and 47.7 one by one."""

    def __init__(self, r: Recurrence) -> None:
        self.shape = (r.value_heads, self.length, r.key_length)

    def grouped(self, b: Builder, state: Value) -> Value:
        """As the loop over chunks carries it: as it is."""
        return state

    def ungrouped(self, b: Builder, state: Value) -> Value:
        """The other way round."""
        return state

    def of(self, b: Builder, state: Value, rows: Sequence[Value]) -> tuple[Value, Value]:
        """The state[heads, key, value] behind a chunk, and what its tokens read, [length, heads,
        value]; `rows` as in `Steps`, with beta."""
        heads, length, keys = self.shape
        *rows, beta = rows
        query, key, value, decay = (b.value("transpose", x, permutation=(1, 0, 2)) for x in rows)
        reading = b.value("concatenate", query, key, axis=1)
        mixed, before, after = self._mixed(b, reading, key, share(b, decay))
        read = product(b, self._weighed(b, reading, before), state, 2, 1)
        old, known = (part(read, 1, at, at + length, b) for at in (0, length))
        scores, below = (part(mixed, 1, at, at + length, b) for at in (0, length))
        weight = b.value("transpose", beta, permutation=(1, 0))
        value = over_rows("mul", b.value("sub", value, known), weight, b)
        value = product(b, inverse(b, over_rows("mul", below, weight, b)), value, 2, 1)
        own = b.value("reduce", b.value("mul", query, key), axes=(2,), kind="add")
        y = b.value("add", old, product(b, scores, value, 2, 1))
        y = b.value("add", y, over_rows("mul", value, own, b))
        kept = b.value("reshape", part(before, 1, length - 1, length, b), shape=(heads, keys))
        added = product(b, b.value("mul", key, after), value, 1, 1)
        state = b.value("add", over_rows("mul", state, kept, b), added)
        return state, b.value("transpose", y, permutation=(1, 0, 2))

    def _mixed(
        self, b: Builder, reading: Value, key: Value, before: Value
    ) -> tuple[Value, Value, Value]:
        """What queries and keys, reading[heads, i, key], take of keys before them, [heads, i, j];
        and the shares of features from the beginning to behind each token, and from behind it to
        the end. `before` are those of each token alone."""
        heads, length, _ = self.shape
        shape, after = (heads, 2 * length, length), b.full(1.0, F32, self.shape)
        mixed = b.full(0.0, F32, shape)
        for size in halves(length):
            late = b.value("mul", key, after)
            own = product(b, self._weighed(b, reading, before), late, 2, 2)
            mixed = b.value("select", quarters(b, shape, size), own, mixed)
            before, after = self._of_twice(b, before, after, size)
        return mixed, before, after

    def _weighed(self, b: Builder, reading: Value, shares: Value) -> Value:
        """Queries and keys times the shares of their tokens."""
        heads, length, keys = self.shape
        wide = (heads, 2, length, keys)
        shares = b.value("broadcast", shares, shape=wide, dimensions=(0, 2, 3))
        return b.value("mul", reading, b.value("reshape", shares, shape=tensor_type(reading).shape))

    def _of_twice(self, b: Builder, before: Value, after: Value, size: int) -> tuple[Value, Value]:
        """The shares before and behind tokens within blocks of 2 * size, of those within blocks of
        `size`."""
        heads, length, keys = self.shape
        pairs = (heads, length // size // 2, 2)
        whole = part(b.value("reshape", before, shape=(*pairs, size, keys)), 3, size - 1, size, b)
        whole = b.value("reshape", whole, shape=(*pairs, keys))
        first, second = (part(whole, 2, place, place + 1, b) for place in range(2))
        ones = b.full(1.0, F32, tensor_type(first).shape)

        def times(x: Value, *factors: Value) -> Value:
            factor = b.value("concatenate", *factors, axis=2)
            wide = (*pairs, size, keys)
            factor = b.value("broadcast", factor, shape=wide, dimensions=(0, 1, 2, 4))
            x = b.value("mul", x, b.value("reshape", factor, shape=self.shape))
            least, zero = (b.full(each, F32, self.shape) for each in (LEAST_SHARE, 0.0))
            return b.value("select", b.value("compare", x, least, direction="gt"), x, zero)

        return times(before, ones, first), times(after, second, ones)
