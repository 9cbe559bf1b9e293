"""The layers of a language model as graph ops: norms, and attention over what a cache holds.

What a layer has is told by the tensors of the file - biases, norms of heads, joined projections,
norms behind - and what it does with them by the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ingot.compiler.frontends.gguf.cache import Cache
from ingot.compiler.frontends.gguf.configuration import SLOPED, Configuration
from ingot.compiler.frontends.gguf.feed_forward import feed_forward, mixture
from ingot.compiler.frontends.gguf.latent import LatentAttention
from ingot.compiler.frontends.gguf.layer_inputs import LayerInputs
from ingot.compiler.frontends.gguf.pieces import capped, over_rows, part, times
from ingot.compiler.frontends.gguf.recurrent import RecurrentLayer
from ingot.compiler.frontends.gguf.rwkv import Rwkv
from ingot.compiler.frontends.gguf.streams import Streams
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
        x = self.hidden(ids, cache, rows)
        with self.b.at("output"):
            x = self._scaled(self.weights.output(x), self.c.logit_scale)
            return capped(x, self.c.logit_cap, self.b)

    def hidden(
        self, ids: Value, cache: Cache, rows: Dim | Value, kinds: Value | None = None
    ) -> Value:
        """What the layers make of these tokens, behind the last norm: f32[rows, width]. `kinds`:
        which of two texts each is of, i32[count]; without them all are of the first."""
        self.cache = cache
        (self.count,) = tensor_type(ids).shape
        self.turns = {local: self._turns(local) for local in self._kinds()}
        self.warmth = self._warmth() if self.c.temperature_scale else None
        if self.c.relative is not None:
            cache.relative = cache.scores(self.weights)
        x = self._scaled(self.weights.embedding(ids, self.c.width), self.c.embedding_scale)
        if self.c.architecture.normalizes_embedding:
            x = self._bare_norm(x)
        if "position_embd.weight" in self.weights:
            x = self.b.value("add", x, self._placed())
        if "token_types.weight" in self.weights:
            x = self.b.value("add", x, self._typed(kinds, tensor_type(x).shape))
        if self._normalizes_first:
            x = self.norm(x, "token_embd_norm")
        if self.c.layer_input:
            self.inputs = LayerInputs(self.c, self.weights, self.norm, ids, x)
        if self.c.recurrence is not None and self.c.recurrence.shifts:
            self.rwkv = Rwkv(self.c, self.c.recurrence, self.weights, cache)
        x = self._through_layers(x, rows)
        if self.c.architecture.norms_sums:
            return x
        with self.b.at("output"):
            return self.norm(x, self._last_norm)

    @property
    def _last_norm(self) -> str:
        """The norm behind all layers, for which files have three names."""
        for name in ("enc.output_norm", "token_embd_norm"):
            if f"{name}.weight" in self.weights and "output_norm.weight" not in self.weights:
                return name
        return "output_norm"

    @property
    def _normalizes_first(self) -> bool:
        is_last = not self.c.architecture.norms_sums and self._last_norm == "token_embd_norm"
        return "token_embd_norm.weight" in self.weights and not is_last

    def _typed(self, kinds: Value | None, shape: tuple[Dim, ...]) -> Value:
        """What tokens have added for the text that they are of, for x of this shape."""
        name = "token_types.weight"
        if kinds is not None:
            return self.weights.rows_of(name, kinds, self.c.width)
        row = self.weights.rows_of(name, self.b.constant(np.zeros(1, np.int32)), self.c.width)
        return self.b.broadcast_to(self._reshaped(row, self.c.width), shape)

    def _through_layers(self, x: Value, rows: Dim | Value) -> Value:
        """What the layers make of x[count, width], of the tokens behind which logits are asked."""
        if self.c.streams == 1:
            for layer in self.c.built:
                with self.b.at(f"blk.{layer}"):
                    x = self._layer(x, layer)
            return self._chosen(x, rows)
        streams = Streams(self.c, self.weights, self.norm)
        versions = streams.of(x)
        for layer in self.c.built:
            with self.b.at(f"blk.{layer}"):
                predicted = streams.predicted(versions, layer)
                made = self._layer(predicted[0], layer)
                versions = streams.corrected(predicted, made, layer, self.inputs)
        return streams.joined([self._chosen(each, rows) for each in versions])

    def _chosen(self, x: Value, rows: Dim | Value) -> Value:
        """Rows of x[count, width]: the last ones, or those of these numbers."""
        if isinstance(rows, Value):
            return self.b.value("take", x, rows, axis=0)
        return self._part(x, 0, self.count - rows, self.count)

    def _kinds(self) -> list[bool]:
        """Whether layers that are rotated have windows: the answers there are."""
        every = zip(self.c.windows, self.c.rotated, strict=True)
        return sorted({is_local for is_local, is_rotated in every if is_rotated})

    def _layer(self, x: Value, layer: int) -> Value:
        name, architecture = f"blk.{layer}", self.c.architecture
        if architecture.norms_sums:
            return self._normed_sums(x, layer)
        first = f"{name}.attn_norm_2"
        is_there = f"{first}.weight" in self.weights and architecture.network_norm != "attn_norm_2"
        first = first if is_there else f"{name}.attn_norm"
        is_normed = architecture.starts_normed and layer == 0
        has_norm = architecture.has_norms_before and not is_normed
        normed = self.norm(x, first) if has_norm else x
        if self.c.networks[layer]:
            y = feed_forward(self.c, self.weights, normed, layer, self.norm)
        else:
            mix = self._attention
            if self.c.convolved[layer]:
                mix = self._recurrent if self.c.recurrence else self._convolution
            y = mix(normed, layer)
            if architecture.has_both:
                y = self.b.value("add", y, self._attention(normed, layer))
        if architecture.has_single_parts:
            return self.b.value("add", x, y)
        front, before = f"{name}.{architecture.network_norm}", x
        x = self._added(x, y, f"{name}.post_attention_norm", front)
        if self.c.decoder is not None:
            x = self.b.value("add", x, self._crossed(x, layer))
        if f"{name}.laurel_l.weight" in self.weights:
            x = self._times(self.b.value("add", x, self._augmented(normed, name)), 0.5**0.5)
        if not self.c.is_parallel:
            normed = self.norm(x, front) if architecture.has_norms_before else x
        elif f"{front}.weight" in self.weights:
            normed = self.norm(before, front)
        if self.c.has_feed_rows:
            y = self.rwkv.channel_mix(normed, layer)
        else:
            y = feed_forward(self.c, self.weights, normed, layer, self.norm)
        if f"{name}.pre_ffw_norm_2.weight" in self.weights:
            y = self._beside_experts(x, y, name)
        x = self._added(x, y, f"{name}.post_ffw_norm", front)
        if self.c.layer_input and self.c.streams == 1:
            x = self.b.value("add", x, self.inputs.made(x, layer))
        if self.c.halving_period and (layer + 1) % self.c.halving_period == 0:
            x = self._times(x, 0.5)
        if f"{name}.layer_output_scale.weight" in self.weights:
            scale = self.weights.vector(f"{name}.layer_output_scale.weight", 1)
            scale = self._reshaped(scale)
            x = self._product(x, self.b.broadcast_to(scale, tensor_type(x).shape))
        return x

    def _normed_sums(self, x: Value, layer: int) -> Value:
        """A layer whose norms stand behind sums."""
        b, name = self.b, f"blk.{layer}"
        y = self.norm(b.value("add", x, self._attention(x, layer)), f"{name}.attn_output_norm")
        if f"{name}.attn_norm_2.weight" in self.weights:
            y = self.norm(b.value("add", y, x), f"{name}.attn_norm_2")
        made = feed_forward(self.c, self.weights, y, layer, self.norm)
        return self.norm(b.value("add", y, made), f"{name}.layer_output_norm")

    def _augmented(self, x: Value, name: str) -> Value:
        """x[count, width] and what two small products make of it."""
        rank = self.weights.rows(f"{name}.laurel_r.weight")
        y = self.weights.linear(x, f"{name}.laurel_l", rank)
        y = self.weights.linear(y, f"{name}.laurel_r", self.c.width)
        return self.b.value("add", x, self.norm(y, f"{name}.laurel_post_norm"))

    def _beside_experts(self, x: Value, y: Value, name: str) -> Value:
        """The sum of y, which a network made of x[count, width], and of what experts make."""
        scale = self.weights.vector(f"{name}.ffn_gate_inp.scale", self.c.width)
        scale = self.b.broadcast_to(scale, tensor_type(x).shape)
        routed = self._times(self._product(self._bare_norm(x), scale), self.c.width**-0.5)
        made = self.norm(x, f"{name}.pre_ffw_norm_2")
        made = mixture(self.c, self.weights, made, name, routed)
        parts = [
            self.norm(each, f"{name}.post_ffw_norm_{place}")
            for place, each in enumerate((y, made), 1)
        ]
        return self.b.value("add", *parts)

    def _added(self, x: Value, y: Value, norm: str, front: str) -> Value:
        """x, and y behind its norm, if there is one that does not stand in front of networks;
        architectures without norms in front of parts have them."""
        is_there = f"{norm}.weight" in self.weights and norm != front
        if is_there or not self.c.architecture.has_norms_before:
            y = self.norm(y, norm)
        return self.b.value("add", x, self._scaled(y, self.c.residual_scale))

    # Parts

    def norm(self, x: Value, name: str, heads: int = 1, paired: int = 0) -> Value:
        """x / rms(x) * weight over the last axis; x less its mean where the architecture wants
        that, and with a bias if there is one. `heads` and `paired` as of `_halves`."""
        b, shape = self.b, tensor_type(x).shape
        length = known_dim(shape[-1])
        if self.c.architecture.is_centered:
            x = over_rows("sub", x, self._mean(x, length), b)
        y = self._bare_norm(x)
        if self.c.architecture.has_bare_norms:
            return y
        tensor = name if name in self.weights else f"{name}.weight"  # so in files of falcon-h1
        y = b.value("mul", y, self._for_features(tensor, shape, heads, paired))
        if f"{name}.bias" not in self.weights:
            return y
        return b.value("add", y, self._for_features(f"{name}.bias", shape, heads, paired))

    def _for_features(
        self, name: str, shape: Sequence[Dim], heads: int = 1, paired: int = 0
    ) -> Value:
        """A number of each feature, or of each feature of each head, for all of x[..., length]."""
        length = known_dim(shape[-1])
        each = known_dim(shape[-2]) if self.weights.has_rows(name) else 1
        if each > 1:
            vector = self.weights.table(name, (each, length))
        else:
            vector = self.weights.vector(name, length)
        if paired:
            vector = self._reshaped(vector, 1, each * length)
            vector = self._halves(vector, heads * each, paired)
        vector = self._reshaped(vector, *((each, length) if each > 1 else (length,)))
        return self.b.broadcast_to(vector, tuple(shape))

    def _bare_norm(self, x: Value) -> Value:
        """x / rms(x) over the last axis."""
        b, shape = self.b, tensor_type(x).shape
        mean = self._mean(b.value("mul", x, x), known_dim(shape[-1]))
        epsilon = b.full(self.c.epsilon, F32, shape[:-1])
        return over_rows("mul", x, b.value("rsqrt", b.value("add", mean, epsilon)), b)

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
        if r.shifts:
            return self.rwkv.time_mix(x, layer)
        made = RecurrentLayer(self.c, r, self.weights, f"blk.{layer}", self.norm, self._convolved)
        return made.of(x, self.cache, layer)

    def _convolved(self, x: Value, name: str, layer: int) -> Value:
        """Each feature of x[count, width] over its last positions, by the weights of this name."""
        b, (count, width), taps = self.b, tensor_type(x).shape, self.c.window
        width = known_dim(width)
        kinds = [f"{name}_{kind}.weight" for kind in "qkv"]
        if kinds[0] in self.weights:
            parts = [self.weights.table(each, (width // 3, taps)) for each in kinds]
            weight = b.value("concatenate", *parts, axis=0)
        else:
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
            turn: Callable[[Value], Value] = _unturned
            if c.rotated[layer]:
                turn = partial(self._rotated, length=c.rope.length, layer=layer)
            latent = LatentAttention(c, c.latent, self.weights, name, self.norm, turn)
            q, k, v = latent.projections(x)
            y = latent.values(self.cache.attend(self._warmed(q), k, v, layer, None))
            return self.weights.linear(y, f"{name}.attn_output", c.width)
        heads, source = c.attention[layer], c.sources[layer]
        q, *own = self._projections(x, layer)
        gate = None
        if f"{name}.attn_gate.weight" in self.weights:
            gate = self.weights.linear(x, f"{name}.attn_gate", c.heads * heads.value_length)
        if c.architecture.gates_attention:
            pairs = self._reshaped(q, self.count, c.heads, 2 * heads.key_length)
            q, gate = (
                self._reshaped(
                    self._part(pairs, 2, start, start + heads.key_length),
                    *(self.count, c.heads * heads.key_length),
                )
                for start in (0, heads.key_length)
            )
        q = self._heads(q, c.heads, heads.key_length, f"{name}.attn_q_norm", layer)
        if not (c.architecture.warms_still and c.rotated[layer]):
            q = self._warmed(q)
        if c.has_sloped_keys:
            unit = 1.0 if c.architecture.scales_slopes else c.scale
            slopes = np.repeat(np.array(c.slopes, np.float32)[:, None] / unit, SLOPED, axis=1)
            shape = (self.count, c.heads, SLOPED)
            steep = self.b.broadcast_to(self.b.constant(slopes.astype(np.float32)), shape)
            q = self.b.value("concatenate", q, steep, axis=2)
        sinks = f"{name}.attn_sinks.weight"
        given = self.weights.vector(sinks, c.heads) if sinks in self.weights else None
        if source == layer:
            k, v = own
            k = self._heads(k, heads.count, heads.key_length, f"{name}.attn_k_norm", layer)
            v = self._reshaped(self._limited(v), self.count, heads.count, heads.value_length)
            if c.has_sloped_keys:
                k = self.b.value("concatenate", k, self._places(heads.count), axis=2)
            v = self._bare_norm(v) if c.architecture.has_bare_values else v
            y = self.cache.attend(q, k, v, layer, given)
        else:
            y = self.cache.attend_to(q, layer, source, given)
        if f"{name}.attn_sub_norm.weight" in self.weights:
            y = self.norm(y, f"{name}.attn_sub_norm")
        y = self._scaled(y, c.value_scale)
        if gate is not None:
            y = self._product(y, self.b.value("logistic", gate))
        return self.weights.linear(y, f"{name}.attn_output", c.width)

    def _crossed(self, x: Value, layer: int) -> Value:
        """Attention of x[count, width] to what an encoder has read."""
        name, heads, source = f"blk.{layer}", self.c.attention[layer], self.cache.source
        assert source is not None
        q = self.norm(x, f"{name}.cross_attn_norm")
        q = self.weights.linear(q, f"{name}.cross_attn_q", self.c.heads * heads.key_length)
        q = self._reshaped(q, self.count, self.c.heads, heads.key_length)
        y = source.attend(self.b, q, layer)
        return self.weights.linear(y, f"{name}.cross_attn_output", self.c.width)

    def _projections(self, x: Value, layer: int) -> Sequence[Value]:
        """Queries of all heads, and keys and values where the layer has some of its own."""
        c, name, heads = self.c, f"blk.{layer}", self.c.attention[layer]
        rope = c.local_rope if c.has_window(layer) else c.rope
        turned = rope.length if c.architecture.is_interleaved else 0
        queries = c.heads * heads.key_length * (2 if c.architecture.gates_attention else 1)
        lengths = (queries, heads.count * heads.key_length, heads.count * heads.value_length)
        if f"{name}.attn_qkv.weight" in self.weights:
            joined = self.weights.linear(x, f"{name}.attn_qkv", sum(lengths))
            groups = heads.count if c.architecture.joins_heads else 1
            parts = self._reshaped(joined, self.count, groups, sum(lengths) // groups)
            ends = np.cumsum(lengths).tolist()
            q, k, v = (
                self._reshaped(
                    self._part(parts, 2, (end - length) // groups, end // groups),
                    *(self.count, length),
                )
                for end, length in zip(ends, lengths, strict=True)
            )
            return [self._halves(q, c.heads, turned), self._halves(k, heads.count, turned), v]
        turns = ((c.heads, turned), (heads.count, turned), (heads.count, 0))
        kinds = "qkv" if c.sources[layer] == layer else "q"
        if c.architecture.has_bare_values and f"{name}.attn_v.weight" not in self.weights:
            kinds = kinds.removesuffix("v")
        made = [
            self.weights.linear(x, f"{name}.attn_{kind}", length, turn)
            for kind, length, turn in zip(kinds, lengths, turns, strict=False)
        ]
        return [*made, made[1]] if kinds == "qk" else made

    def _halves(self, x: Value, heads: int, paired: int) -> Value:
        """x[count, length] of so many heads, pairs of neighbours in their first features as
        halves."""
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
        rope = self.c.local_rope if self.c.has_window(layer) else self.c.rope
        paired = rope.length if self.c.architecture.is_interleaved else 0
        if is_whole:
            x = self.norm(x, norm, heads, paired)
        x = self._reshaped(x, self.count, heads, length)
        turns_first = self.c.architecture.turns_first
        if is_normed and not is_whole and not turns_first:
            x = self.norm(x, norm, 1, paired)
        x = self._limited(x)
        if self.c.rotated[layer]:
            x = self._rotated(x, length, layer)
            x = self._bare_norm(x) if self.c.unit_heads else x
        is_last = is_normed and not is_whole and turns_first
        return self.norm(x, norm, 1, paired) if is_last else x

    def _rotated(self, x: Value, length: int, layer: int) -> Value:
        is_local = self.c.has_window(layer)
        turned = (self.c.local_rope if is_local else self.c.rope).length
        half = turned // 2
        a, b = self._part(x, 2, 0, half), self._part(x, 2, half, turned)
        cosine, sine = (
            self.b.value("broadcast", each, shape=tensor_type(a).shape, dimensions=(0, 2))
            for each in self.turns[is_local]
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
        b, count, rope = self.b, self.count, self.c.local_rope if is_local else self.c.rope
        half = rope.length // 2
        factors = (rope.long if self.is_long else ()) or rope.factors or 1
        steps = rope.base ** (-2.0 * np.arange(half) / rope.length)
        steps = steps / rope.divisor / np.array(factors)
        frequencies = b.constant(steps.astype(np.float32))
        stored = None if rope.is_plain else self.weights.rope_factors(half, self.is_long)
        if stored is not None:
            frequencies = b.value("div", frequencies, stored)
        positions = self._positions()
        positions = b.value("broadcast", positions, shape=(count, half), dimensions=(0,))
        angles = b.value("mul", positions, b.broadcast_to(frequencies, (count, half)))
        turns = [b.value(name, angles) for name in ("cos", "sin")]
        if self.c.architecture.turns_backwards:
            turns[1] = b.value("neg", turns[1])
        if rope.scale != 1:
            turns = [self._times(each, rope.scale) for each in turns]
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

    def _places(self, heads: int) -> Value:
        """Features of keys that tell their position, f32[count, heads, 2]: the remainder by 256 and
        the rest, which a cache of f16 holds exactly, too."""
        b, positions = self.b, self._positions()
        fine = b.value("rem", positions, b.full(256.0, F32, (self.count,)))
        parts = [
            b.value("broadcast", x, shape=(self.count, heads, 1), dimensions=(0,))
            for x in (fine, b.value("sub", positions, fine))
        ]
        return b.value("concatenate", *parts, axis=2)

    def _warmed(self, q: Value) -> Value:
        """Queries [count, heads, length], which may grow with their positions."""
        if self.warmth is None:
            return q
        shape = tensor_type(q).shape
        return self._product(
            q, self.b.value("broadcast", self.warmth, shape=shape, dimensions=(0,))
        )

    def _warmth(self) -> Value:
        """Factors of queries, f32[count]: 1 + scale * log(1 + position / length), of whole
        quotients."""
        c, b, shape = self.c, self.b, (self.count,)
        length, positions = b.full(c.temperature_length, F32, shape), self._positions()
        one = b.full(1.0, F32, shape)
        if c.architecture.warms_still:
            positions = b.value("add", positions, one)
        steps = b.value("floor", b.value("div", positions, length))
        logarithm = b.value("log", b.value("add", steps, one))
        return b.value("add", self._times(logarithm, c.temperature_scale), one)


def _unturned(x: Value) -> Value:
    return x
