"""The layers of a language model as graph ops: norms and attention with its cache.

What a layer has is told by the tensors of the file - biases, norms of heads, joined projections,
norms behind - and what it does with them by the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.feed_forward import feed_forward
from ingot.compiler.frontends.gguf.pieces import part, softmax, times
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.spec import dtype

__all__ = ["Caches", "Position", "Transformer"]

F32 = dtype("f32")

Caches = list[Value]
"""Keys and values of each layer in turn, f32 or f16[kv_heads, capacity, length]."""


@dataclass(frozen=True)
class Position:
    """Where the tokens of a call stand: behind `before` others, which the value `index` is too."""

    index: Value  # i64[]
    before: Dim
    count: Dim

    @property
    def end(self) -> Dim:
        return self.before + self.count


class Transformer:
    """Builds the network in one block; what several layers share is built once."""

    def __init__(
        self, configuration: Configuration, weights: Weights, builder: Builder, capacity: int
    ) -> None:
        self.c, self.weights, self.b, self.capacity = configuration, weights, builder, capacity
        self.weights.builder = builder

    def logits(
        self, ids: Value, at: Position, caches: Caches, rows: Dim = 1
    ) -> tuple[Value, Caches]:
        """The logits behind the last `rows` of ids i32[count], f32[rows, vocabulary], of one
        without the first axis, and the caches with these tokens."""
        self.at, made = at, list(caches)
        self.turns = {local: self._turns(local) for local in self._kinds()}
        self.masks = {local: self._mask(local) for local in self._kinds()}
        x = self.weights.embedding(ids, self.c.width)
        if self.c.architecture.scales_embedding:
            x = self._times(x, self.c.width**0.5)
        for layer in range(self.c.layers):
            with self.b.at(f"blk.{layer}"):
                x = self._layer(x, layer, made)
        with self.b.at("output"):
            last = self._part(x, 0, at.count - rows, at.count)
            x = self.weights.output(self._norm(last, "output_norm"))
            if rows == 1:
                x = self.b.value("reshape", x, shape=tensor_type(x).shape[-1:])
            return self._capped(x, self.c.logit_cap), made

    def _kinds(self) -> list[bool]:
        """Whether layers have windows: the answers there are."""
        return sorted({self.c.has_window(layer) for layer in range(self.c.layers)})

    def _layer(self, x: Value, layer: int, caches: Caches) -> Value:
        name = f"blk.{layer}"
        y = self._attention(self._norm(x, f"{name}.attn_norm"), layer, caches)
        x = self._added(x, y, f"{name}.post_attention_norm")
        y = self._norm(x, f"{name}.ffn_norm")
        y = feed_forward(self.c, self.weights, y, name)
        return self._added(x, y, f"{name}.post_ffw_norm")

    def _added(self, x: Value, y: Value, norm: str) -> Value:
        if f"{norm}.weight" in self.weights:
            y = self._norm(y, norm)
        return self.b.value("add", x, y)

    # Parts

    def _norm(self, x: Value, name: str) -> Value:
        """x / rms(x) * weight over the last axis."""
        b, shape = self.b, tensor_type(x).shape
        length = known_dim(shape[-1])
        total = b.value("reduce", b.value("mul", x, x), axes=(len(shape) - 1,), kind="add")
        mean = self._times(total, 1.0 / length)
        epsilon = b.full(self.c.epsilon, F32, shape[:-1])
        factor = b.value("rsqrt", b.value("add", mean, epsilon))
        dimensions = tuple(range(len(shape) - 1))
        factor = b.value("broadcast", factor, shape=shape, dimensions=dimensions)
        weight = b.broadcast_to(self.weights.vector(f"{name}.weight", length), shape)
        return b.value("mul", b.value("mul", x, factor), weight)

    def _product(self, x: Value, y: Value) -> Value:
        return self.b.value("mul", x, y)

    def _times(self, x: Value, factor: float) -> Value:
        return times(x, factor, self.b)

    def _capped(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap), or x without a cap."""
        return x if not cap else self._times(self.b.value("tanh", self._times(x, 1 / cap)), cap)

    def _part(self, x: Value, axis: int, start: Dim, limit: Dim) -> Value:
        return part(x, axis, start, limit, self.b)

    def _reshaped(self, x: Value, *shape: Dim) -> Value:
        return self.b.value("reshape", x, shape=shape)

    # Attention

    def _attention(self, x: Value, layer: int, caches: Caches) -> Value:
        c, b, name = self.c, self.b, f"blk.{layer}"
        count, group = self.at.count, c.heads // c.kv_heads
        q, k, v = self._projections(x, name)
        q = self._heads(q, c.heads, c.key_length, f"{name}.attn_q_norm", layer)
        k = self._heads(k, c.kv_heads, c.key_length, f"{name}.attn_k_norm", layer)
        v = self._reshaped(v, count, c.kv_heads, c.value_length)
        k, v = (
            self._appended(each, 2 * layer + place, caches) for place, each in enumerate((k, v))
        )
        q = self._reshaped(q, count, c.kv_heads, group, c.key_length)
        q = b.value("transpose", q, permutation=(1, 2, 0, 3))
        q = self._reshaped(q, c.kv_heads, group * count, c.key_length)
        y = self._attend(q, k, v, c.has_window(layer))
        y = self._reshaped(y, c.kv_heads, group, count, c.value_length)
        y = b.value("transpose", y, permutation=(2, 0, 1, 3))
        y = self._reshaped(y, count, c.heads * c.value_length)
        return self.weights.linear(y, f"{name}.attn_output", c.width)

    def _projections(self, x: Value, name: str) -> Sequence[Value]:
        """Queries, keys and values of all heads."""
        c = self.c
        turned = c.rope.length if c.architecture.is_interleaved else 0
        lengths = (c.heads * c.key_length, c.kv_heads * c.key_length, c.kv_heads * c.value_length)
        if f"{name}.attn_qkv.weight" in self.weights:
            joined = self.weights.linear(x, f"{name}.attn_qkv", sum(lengths))
            ends = np.cumsum(lengths).tolist()
            return [
                self._part(joined, 1, end - n, end) for end, n in zip(ends, lengths, strict=True)
            ]
        turns = ((c.heads, turned), (c.kv_heads, turned), (c.kv_heads, 0))
        return [
            self.weights.linear(x, f"{name}.attn_{part}", length, turn)
            for part, length, turn in zip("qkv", lengths, turns, strict=True)
        ]

    def _heads(self, x: Value, heads: int, length: int, norm: str, layer: int) -> Value:
        """[count, heads, length], normalized if the model does, and turned."""
        x = self._reshaped(x, self.at.count, heads, length)
        if f"{norm}.weight" in self.weights:
            x = self._norm(x, norm)
        turned = self.c.rope.length
        half = turned // 2
        a, b = self._part(x, 2, 0, half), self._part(x, 2, half, turned)
        cosine, sine = (
            self.b.value("broadcast", each, shape=tensor_type(a).shape, dimensions=(0, 2))
            for each in self.turns[self.c.has_window(layer)]
        )
        parts = [
            self.b.value("sub", self._product(a, cosine), self._product(b, sine)),
            self.b.value("add", self._product(b, cosine), self._product(a, sine)),
        ]
        if turned < length:
            parts.append(self._part(x, 2, turned, length))
        return self.b.value("concatenate", *parts, axis=2)

    def _turns(self, is_local: bool) -> tuple[Value, Value]:
        """Cosines and sines f32[count, rope_length / 2] of the tokens' angles."""
        c, b, count = self.c, self.b, self.at.count
        half = c.rope.length // 2
        base = (c.architecture.local_rope_base if is_local else None) or c.rope.base
        is_plain = is_local and c.architecture.local_rope_base
        steps = base ** (-2.0 * np.arange(half) / c.rope.length)
        if not is_plain:
            is_long = self.capacity > c.rope.original
            factors = (c.rope.long if is_long else ()) or c.rope.factors or 1
            steps = steps / c.rope.divisor / np.array(factors)
        frequencies = b.constant(steps.astype(np.float32))
        stored = self.weights.rope_factors(half, self.capacity > c.rope.original)
        if stored is not None:
            frequencies = b.value("div", frequencies, stored)
        positions = b.value("convert", self.positions(count), dtype=F32)
        positions = b.value("broadcast", positions, shape=(count, half), dimensions=(0,))
        angles = b.value("mul", positions, b.broadcast_to(frequencies, (count, half)))
        turns = [b.value(name, angles) for name in ("cos", "sin")]
        if c.rope.scale != 1 and not is_plain:
            turns = [self._times(each, c.rope.scale) for each in turns]
        return turns[0], turns[1]

    def positions(self, count: Dim) -> Value:
        """The positions of the tokens, i64[count]."""
        b = self.b
        steps = b.value("iota", dtype=dtype("i64"), shape=(count,), axis=0)
        return b.value("add", steps, b.broadcast_to(self.at.index, (count,)))

    def _appended(self, x: Value, place: int, caches: Caches) -> Value:
        """The keys or values of all tokens so far, [heads, end, length], with x at their end."""
        b, zero = self.b, self.b.constant(0, "i64")
        element = tensor_type(caches[place]).dtype
        x = b.value("transpose", x, permutation=(1, 0, 2))
        x = x if element is F32 else b.value("convert", x, dtype=element)
        starts = (zero, self.at.index, zero)
        caches[place] = b.value("dynamic_update_slice", caches[place], x, *starts)
        x = self._part(caches[place], 1, 0, self.at.end)
        return x if element is F32 else b.value("convert", x, dtype=F32)

    def _mask(self, is_local: bool) -> Value | None:
        """What to add to scores f32[group * count, end]; None where a token sees all."""
        b, count, end = self.b, self.at.count, self.at.end
        if count == 1 and not is_local:
            return None
        shape = (count, end)
        own = b.value("broadcast", self.positions(count), shape=shape, dimensions=(0,))
        others = b.value("iota", dtype=dtype("i64"), shape=shape, axis=1)
        seen = b.value("compare", others, own, direction="le")
        if is_local:
            first = b.value("sub", own, b.full(self.c.window, "i64", shape))
            seen = b.value("and", seen, b.value("compare", others, first, direction="gt"))
        lowest = b.full(-np.inf, F32, shape)
        mask = b.value("select", seen, b.full(0.0, F32, shape), lowest)
        group = self.c.heads // self.c.kv_heads
        mask = b.value("broadcast", mask, shape=(group, count, end), dimensions=(1, 2))
        return self._reshaped(mask, group * count, end)

    def _attend(self, q: Value, k: Value, v: Value, is_local: bool) -> Value:
        b, mask, cap = self.b, self.masks[is_local], self.c.attention_cap
        if not cap:
            masks = [] if mask is None else [mask]
            return b.value("attention", q, k, v, *masks, scale=self.c.scale)
        scores = b.value(
            "dot_general",
            q,
            k,
            lhs_batch=(0,),
            rhs_batch=(0,),
            lhs_contract=(2,),
            rhs_contract=(2,),
        )
        scores = self._capped(self._times(scores, self.c.scale), cap)
        if mask is not None:
            scores = b.value("add", scores, b.broadcast_to(mask, tensor_type(scores).shape))
        return b.value(
            "dot_general", softmax(scores, b), v,
            lhs_batch=(0,), rhs_batch=(0,), lhs_contract=(2,), rhs_contract=(1,),
        )  # fmt: skip
