"""The layers of a language model as graph ops: norms, and attention over what a cache holds.

What a layer has is told by the tensors of the file - biases, norms of heads, joined projections,
norms behind - and what it does with them by the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ingot.compiler.frontends.gguf.cache import Cache
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.feed_forward import feed_forward
from ingot.compiler.frontends.gguf.latent import LatentAttention
from ingot.compiler.frontends.gguf.pieces import capped, over_rows, part, times
from ingot.compiler.frontends.gguf.recurrent import RecurrentLayer
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.spec import dtype

__all__ = ["Transformer"]

F32 = dtype("f32")


class Transformer:
    """Builds the network in one block; what several layers share is built once. `is_long`: there
    is room for more positions than the model was first trained for."""

    def __init__(
        self, configuration: Configuration, weights: Weights, builder: Builder, is_long: bool
    ) -> None:
        self.c, self.weights, self.b, self.is_long = configuration, weights, builder, is_long
        self.weights.builder = builder

    def logits(self, ids: Value, cache: Cache, rows: Dim | Value) -> Value:
        """The logits behind the last `rows` of ids i32[count], or behind those of these numbers,
        i64[rows]: f32[rows, vocabulary]."""
        self.cache = cache
        (self.count,) = tensor_type(ids).shape
        self.turns = {local: self._turns(local) for local in self._kinds()}
        self.warmth = self._warmth() if self.c.temperature_scale else None
        x = self._scaled(self.weights.embedding(ids, self.c.width), self.c.embedding_scale)
        if "position_embd.weight" in self.weights:
            x = self.b.value("add", x, self._placed())
        for layer in self.c.built:
            with self.b.at(f"blk.{layer}"):
                x = self._layer(x, layer)
        with self.b.at("output"):
            if isinstance(rows, Value):
                last = self.b.value("take", x, rows, axis=0)
            else:
                last = self._part(x, 0, self.count - rows, self.count)
            is_lfm = "token_embd_norm.weight" in self.weights
            norm = "token_embd_norm" if is_lfm else "output_norm"
            x = self.weights.output(self._norm(last, norm))
            x = self._scaled(x, self.c.logit_scale)
            return capped(x, self.c.logit_cap, self.b)

    def _kinds(self) -> list[bool]:
        """Whether layers that are rotated have windows: the answers there are."""
        every = zip(self.c.windows, self.c.rotated, strict=True)
        return sorted({is_local for is_local, is_rotated in every if is_rotated})

    def _layer(self, x: Value, layer: int) -> Value:
        name, architecture = f"blk.{layer}", self.c.architecture
        first = f"{name}.attn_norm_2"
        first = first if f"{first}.weight" in self.weights else f"{name}.attn_norm"
        normed = self._norm(x, first) if architecture.has_norms_before else x
        if self.c.networks[layer]:
            y = feed_forward(self.c, self.weights, normed, name, self._norm)
        else:
            mix = self._attention
            if self.c.convolved[layer]:
                mix = self._recurrent if self.c.recurrence else self._convolution
            y = mix(normed, layer)
        if architecture.has_single_parts:
            return self.b.value("add", x, y)
        front, before = f"{name}.{architecture.network_norm}", x
        x = self._added(x, y, f"{name}.post_attention_norm", front)
        if not self.c.is_parallel:
            normed = self._norm(x, front) if architecture.has_norms_before else x
        elif f"{front}.weight" in self.weights:
            normed = self._norm(before, front)
        y = feed_forward(self.c, self.weights, normed, name, self._norm)
        return self._added(x, y, f"{name}.post_ffw_norm", front)

    def _added(self, x: Value, y: Value, norm: str, front: str) -> Value:
        """x, and y behind its norm, if there is one that does not stand in front of networks;
        architectures without norms in front of parts have them."""
        is_there = f"{norm}.weight" in self.weights and norm != front
        if is_there or not self.c.architecture.has_norms_before:
            y = self._norm(y, norm)
        return self.b.value("add", x, self._scaled(y, self.c.residual_scale))

    # Parts

    def _norm(self, x: Value, name: str) -> Value:
        """x / rms(x) * weight over the last axis; x less its mean where the architecture wants
        that, and with a bias if there is one."""
        b, shape = self.b, tensor_type(x).shape
        length = known_dim(shape[-1])
        if self.c.architecture.is_centered:
            x = over_rows("sub", x, self._mean(x, length), b)
        mean = self._mean(b.value("mul", x, x), length)
        epsilon = b.full(self.c.epsilon, F32, shape[:-1])
        factor = b.value("rsqrt", b.value("add", mean, epsilon))
        dimensions = tuple(range(len(shape) - 1))
        factor = b.value("broadcast", factor, shape=shape, dimensions=dimensions)
        y = b.value("mul", x, factor)
        if self.c.architecture.has_bare_norms:
            return y
        weight = b.broadcast_to(self.weights.vector(f"{name}.weight", length), shape)
        y = b.value("mul", y, weight)
        if f"{name}.bias" not in self.weights:
            return y
        bias = self.weights.vector(f"{name}.bias", length)
        return b.value("add", y, b.broadcast_to(bias, shape))

    def _mean(self, x: Value, length: int) -> Value:
        """That of the last axis."""
        axes = (tensor_type(x).rank - 1,)
        return self._times(self.b.value("reduce", x, axes=axes, kind="add"), 1.0 / length)

    def _product(self, x: Value, y: Value) -> Value:
        return self.b.value("mul", x, y)

    def _times(self, x: Value, factor: float) -> Value:
        return times(x, factor, self.b)

    def _scaled(self, x: Value, factor: float) -> Value:
        return x if factor == 1 else self._times(x, factor)

    def _part(self, x: Value, axis: int, start: Dim, limit: Dim) -> Value:
        return part(x, axis, start, limit, self.b)

    def _reshaped(self, x: Value, *shape: Dim) -> Value:
        return self.b.value("reshape", x, shape=shape)

    def _convolution(self, x: Value, layer: int) -> Value:
        """A gate, a convolution over the last positions of each feature, and another gate."""
        width, name = self.c.width, f"blk.{layer}.shortconv"
        x = self.weights.linear(x, f"{name}.in_proj", 3 * width)
        first, last, x = (self._part(x, 1, i * width, (i + 1) * width) for i in range(3))
        y = self._convolved(self._product(first, x), f"{name}.conv", layer)
        return self.weights.linear(self._product(last, y), f"{name}.out_proj", width)

    def _recurrent(self, x: Value, layer: int) -> Value:
        """A layer with a state."""
        r = self.c.recurrence
        assert r is not None
        made = RecurrentLayer(self.c, r, self.weights, f"blk.{layer}", self._norm, self._convolved)
        return made.of(x, self.cache, layer)

    def _convolved(self, x: Value, name: str, layer: int) -> Value:
        """Each feature of x[count, width] over its last positions, by the weights of this name."""
        b, (count, width), taps = self.b, tensor_type(x).shape, self.c.window
        width = known_dim(width)
        weight = self.weights.table(f"{name}.weight", (width, taps))

        def times_tap(x: Value, distance: int) -> Value:
            tap = self._part(weight, 1, taps - 1 - distance, taps - distance)
            return self._product(x, b.broadcast_to(self._reshaped(tap, width), (count, width)))

        y = times_tap(x, 0)
        for distance, before in enumerate(self.cache.before(x, layer), 1):
            y = b.value("add", y, times_tap(before, distance))
        if f"{name}.bias" in self.weights:
            bias = self.weights.vector(f"{name}.bias", width)
            y = b.value("add", y, b.broadcast_to(bias, (count, width)))
        return y

    # Attention

    def _attention(self, x: Value, layer: int) -> Value:
        c, name = self.c, f"blk.{layer}"
        if c.latent is not None:
            turn = partial(self._rotated, length=c.rope.length, layer=layer)
            latent = LatentAttention(c, c.latent, self.weights, name, self._norm, turn)
            y = latent.values(self.cache.attend(*latent.projections(x), layer, None))
            return self.weights.linear(y, f"{name}.attn_output", c.width)
        q, k, v = self._projections(x, name)
        v = self._limited(v)
        gate = None
        if c.architecture.gates_attention:
            pairs = self._reshaped(q, self.count, c.heads, 2 * c.key_length)
            q, gate = (
                self._reshaped(
                    self._part(pairs, 2, start, start + c.key_length),
                    *(self.count, c.heads * c.key_length),
                )
                for start in (0, c.key_length)
            )
        q = self._heads(q, c.heads, c.key_length, f"{name}.attn_q_norm", layer)
        k = self._heads(k, c.kv_heads, c.key_length, f"{name}.attn_k_norm", layer)
        if self.warmth is not None:
            warmth = self.b.value(
                "broadcast", self.warmth, shape=tensor_type(q).shape, dimensions=(0,)
            )
            q = self._product(q, warmth)
        v = self._reshaped(v, self.count, c.kv_heads, c.value_length)
        sinks = f"{name}.attn_sinks.weight"
        given = self.weights.vector(sinks, c.heads) if sinks in self.weights else None
        y = self.cache.attend(q, k, v, layer, given)
        if f"{name}.attn_sub_norm.weight" in self.weights:
            y = self._norm(y, f"{name}.attn_sub_norm")
        if gate is not None:
            y = self._product(y, self.b.value("logistic", gate))
        return self.weights.linear(y, f"{name}.attn_output", c.width)

    def _projections(self, x: Value, name: str) -> Sequence[Value]:
        """Queries, keys and values of all heads."""
        c = self.c
        turned = c.rope.length if c.architecture.is_interleaved else 0
        queries = c.heads * c.key_length * (2 if c.architecture.gates_attention else 1)
        lengths = (queries, c.kv_heads * c.key_length, c.kv_heads * c.value_length)
        if f"{name}.attn_qkv.weight" in self.weights:
            joined = self.weights.linear(x, f"{name}.attn_qkv", sum(lengths))
            groups = c.kv_heads if c.architecture.joins_heads else 1
            parts = self._reshaped(joined, self.count, groups, sum(lengths) // groups)
            ends = np.cumsum(lengths).tolist()
            q, k, v = (
                self._reshaped(
                    self._part(parts, 2, (end - length) // groups, end // groups),
                    *(self.count, length),
                )
                for end, length in zip(ends, lengths, strict=True)
            )
            return [self._halves(q, c.heads, turned), self._halves(k, c.kv_heads, turned), v]
        turns = ((c.heads, turned), (c.kv_heads, turned), (c.kv_heads, 0))
        return [
            self.weights.linear(x, f"{name}.attn_{part}", length, turn)
            for part, length, turn in zip("qkv", lengths, turns, strict=True)
        ]

    def _halves(self, x: Value, heads: int, paired: int) -> Value:
        """x[count, length], the pairs of neighbours in the first features of heads as halves."""
        (count, length), b = tensor_type(x).shape, self.b
        if not paired:
            return x
        split = self._reshaped(x, count, heads, known_dim(length) // heads)
        pairs = self._reshaped(self._part(split, 2, 0, paired), count, heads, paired // 2, 2)
        pairs = b.value("transpose", pairs, permutation=(0, 1, 3, 2))
        parts = [self._reshaped(pairs, count, heads, paired)]
        if paired < known_dim(length) // heads:
            parts.append(self._part(split, 2, paired, known_dim(length) // heads))
        return self._reshaped(b.value("concatenate", *parts, axis=2), count, length)

    def _limited(self, x: Value) -> Value:
        """x, no farther from 0 than projections may be."""
        if not self.c.projection_limit:
            return x
        shape, limit = tensor_type(x).shape, self.c.projection_limit
        least, most = (self.b.full(sign * limit, F32, shape) for sign in (-1.0, 1.0))
        return self.b.value("clamp", least, x, most)

    def _heads(self, x: Value, heads: int, length: int, norm: str, layer: int) -> Value:
        """[count, heads, length], normalized if the model does, all heads at once or each,
        limited and turned."""
        is_normed = f"{norm}.weight" in self.weights
        is_whole = is_normed and self.weights.rows(f"{norm}.weight") == heads * length
        if is_whole:
            x = self._norm(x, norm)
        x = self._reshaped(x, self.count, heads, length)
        turns_first = self.c.architecture.turns_first
        if is_normed and not is_whole and not turns_first:
            x = self._norm(x, norm)
        x = self._limited(x)
        if self.c.rotated[layer]:
            x = self._rotated(x, length, layer)
        return self._norm(x, norm) if is_normed and not is_whole and turns_first else x

    def _rotated(self, x: Value, length: int, layer: int) -> Value:
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
        c, b, count = self.c, self.b, self.count
        half = c.rope.length // 2
        base = (is_local and c.architecture.local_rope_base) or c.rope.base
        architecture = c.architecture
        is_plain = is_local and (architecture.local_rope_base or architecture.has_plain_windows)
        steps = base ** (-2.0 * np.arange(half) / c.rope.length)
        if not is_plain:
            factors = (c.rope.long if self.is_long else ()) or c.rope.factors or 1
            steps = steps / c.rope.divisor / np.array(factors)
        frequencies = b.constant(steps.astype(np.float32))
        stored = self.weights.rope_factors(half, self.is_long)
        if stored is not None:
            frequencies = b.value("div", frequencies, stored)
        positions = self._positions()
        positions = b.value("broadcast", positions, shape=(count, half), dimensions=(0,))
        angles = b.value("mul", positions, b.broadcast_to(frequencies, (count, half)))
        turns = [b.value(name, angles) for name in ("cos", "sin")]
        if c.rope.scale != 1 and not is_plain:
            turns = [self._times(each, c.rope.scale) for each in turns]
        return turns[0], turns[1]

    def _placed(self) -> Value:
        """What is learned of the tokens' positions, f32[count, width]."""
        first, places = self.c.architecture.first_position, self.cache.positions
        if first:
            places = self.b.value("add", places, self.b.full(first, dtype("i64"), (self.count,)))
        return self.weights.positions(places, (self.c.context + first, self.c.width))

    def _positions(self) -> Value:
        """Of the tokens in their texts, f32[count]."""
        return self.b.value("convert", self.cache.positions, dtype=F32)

    def _warmth(self) -> Value:
        """Factors of queries, f32[count]: 1 + scale * log(1 + position / original), of whole
        quotients."""
        c, b, shape = self.c, self.b, (self.count,)
        length = b.full(c.rope.original, F32, shape)
        steps = b.value("floor", b.value("div", self._positions(), length))
        one = b.full(1.0, F32, shape)
        logarithm = b.value("log", b.value("add", steps, one))
        return b.value("add", self._times(logarithm, c.temperature_scale), one)
