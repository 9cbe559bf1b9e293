"""Attention over latents (MLA, of DeepSeek): keys and values of all heads follow from one short row
for each token, and that is what the cache holds.

Products that would make keys and values of a row are put on the other side: queries are multiplied
with the weight of keys, and what attention gives with that of values. So all heads attend to one
key, the row and its rotated part, whose value is the row.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.gguf.configuration import Configuration, Latent
from ingot.compiler.frontends.gguf.pieces import part
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value

__all__ = ["LatentAttention"]

Norm = Callable[[Value, str], Value]
Turn = Callable[[Value], Value]


class LatentAttention:
    """That of the layer called `name`. `norm` and `turn` are those of the network."""

    def __init__(
        self, c: Configuration, heads: Latent, weights: Weights, name: str, norm: Norm, turn: Turn
    ) -> None:
        self.c, self.weights, self.b, self.name = c, weights, weights.builder, name
        self.norm, self.turn = norm, turn
        self.value = heads.value_length
        self.length, self.turned = c.attention[0].value_length, c.rope.length
        self.plain = heads.key_length - self.turned  # features of a query that are not rotated

    def projections(self, x: Value) -> tuple[Value, Value, Value]:
        """Of x[count, width] the queries [count, heads, length + turned], the key [count, 1, length
        + turned] and the value [count, 1, length]."""
        c, b, (count, _) = self.c, self.b, tensor_type(x).shape
        row = self.weights.linear(x, f"{self.name}.attn_kv_a_mqa", self.length + self.turned)
        latent = self.norm(part(row, 1, 0, self.length, b), f"{self.name}.attn_kv_a_norm")
        latent = b.value("reshape", latent, shape=(count, 1, self.length))
        rotated = part(row, 1, self.length, self.length + self.turned, b)
        rotated = b.value("reshape", rotated, shape=(count, 1, self.turned))
        key = b.value("concatenate", latent, self._turned(rotated), axis=2)
        q, length = self._queries(x), self.plain + self.turned
        q = b.value("reshape", q, shape=(count, c.heads, length))
        plain, rotated = part(q, 2, 0, self.plain, b), part(q, 2, self.plain, length, b)
        plain = b.value(
            "dot_general", plain, self._weight("k"),
            lhs_batch=(1,), rhs_batch=(0,), lhs_contract=(2,), rhs_contract=(2,),
        )  # fmt: skip
        plain = b.value("transpose", self._adapted(plain, q, "k"), permutation=(1, 0, 2))
        return b.value("concatenate", plain, self._turned(rotated), axis=2), key, latent

    def values(self, y: Value) -> Value:
        """The heads of values, [count, heads * value], of y[count, heads * length]."""
        c, b, (count, _) = self.c, self.b, tensor_type(y).shape
        rows = b.value("reshape", y, shape=(count, c.heads, self.length))
        y = b.value(
            "dot_general", rows, self._weight("v"),
            lhs_batch=(1,), rhs_batch=(0,), lhs_contract=(2,), rhs_contract=(2,),
        )  # fmt: skip
        y = b.value("transpose", self._adapted(y, rows, "v"), permutation=(1, 0, 2))
        return b.value("reshape", y, shape=(count, c.heads * self.value))

    def _adapted(self, y: Value, x: Value, kind: str) -> Value:
        """y[heads, count, ...], which a part of `_weight` made of x[count, heads, ...], and what
        adapters of that weight make of it."""
        adapters, name, b = self.weights.adapters, f"{self.name}.attn_kv_b", self.b
        if adapters is None or name not in adapters or f"{name}.weight" not in self.weights:
            return y
        both, heads = self.plain + self.value, self.c.heads
        down, up = adapters.factors(name, (heads * both, self.length), (1, 0), b)
        (used, _) = tensor_type(up).shape
        up = b.value("reshape", up, shape=(used, heads, both))
        of_heads = {"lhs_batch": (1,), "rhs_batch": (1,), "lhs_contract": (2,)}
        if kind == "k":
            x, up = part(x, 2, 0, self.plain, b), part(up, 2, 0, self.plain, b)
            inner = b.value("dot_general", x, up, **of_heads, rhs_contract=(2,))
            added = b.value("dot_general", inner, down, lhs_contract=(2,), rhs_contract=(0,))
        else:
            inner = b.value("dot_general", x, down, lhs_contract=(2,), rhs_contract=(1,))
            up = part(up, 2, self.plain, both, b)
            added = b.value("dot_general", inner, up, **of_heads, rhs_contract=(0,))
        return b.value("add", y, added)

    def _queries(self, x: Value) -> Value:
        length, name = self.c.heads * (self.plain + self.turned), f"{self.name}.attn_q"
        if f"{name}_a.weight" not in self.weights:
            return self.weights.linear(x, name, length)
        x = self.weights.linear(x, f"{name}_a", self.weights.rows(f"{name}_b.weight"))
        return self.weights.linear(self.norm(x, f"{name}_a_norm"), f"{name}_b", length)

    def _weight(self, kind: str) -> Value:
        """What makes queries of latents ("k": [heads, length, plain]), or values ("v": [heads,
        value, length])."""
        c, b, value = self.c, self.b, self.value
        if f"{self.name}.attn_kv_b.weight" not in self.weights:
            shape = (self.length, self.plain) if kind == "k" else (value, self.length)
            return self.weights.stack(f"{self.name}.attn_{kind}_b", (c.heads, *shape))
        both = self.plain + value
        joined = self.weights.table(f"{self.name}.attn_kv_b.weight", (c.heads * both, self.length))
        joined = b.value("reshape", joined, shape=(c.heads, both, self.length))
        if kind == "v":
            return part(joined, 1, self.plain, both, b)
        return b.value("transpose", part(joined, 1, 0, self.plain, b), permutation=(0, 2, 1))

    def _turned(self, x: Value) -> Value:
        """x[count, heads, turned], neighbours that turn together as halves, and rotated."""
        b, (count, heads, length) = self.b, tensor_type(x).shape
        if self.c.architecture.turns_halves:
            return self.turn(x)
        x = b.value("reshape", x, shape=(count, heads, self.turned // 2, 2))
        x = b.value("transpose", x, permutation=(0, 1, 3, 2))
        return self.turn(b.value("reshape", x, shape=(count, heads, length)))
