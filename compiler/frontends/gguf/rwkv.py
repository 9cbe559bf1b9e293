"""Layers of RWKV 6 and 7, and of models whose attention became such.

A layer reads each token beside the one before it: parts of it are mixed of both, feature by
feature. Of a head's state S[key, value] and a token's receptance r, key k and value v, with a decay
w of each feature of keys:

    6: y = r (S + first k (x) v),  S = w S + k (x) v
    7: S = w S + k (x) v + b (x) (a S),  y = r S

where models that were made of attention (without `first`) read the state of 6 behind the change.
Tokens of a prompt pass in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.gguf.cache import Cache
from ingot.compiler.frontends.gguf.configuration import Configuration, Recurrence
from ingot.compiler.frontends.gguf.feed_forward import active
from ingot.compiler.frontends.gguf.in_turn import each_in_turn
from ingot.compiler.frontends.gguf.pieces import over_rows, part, times
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["Rwkv"]

F32 = dtype("f32")
_EPSILON = 64e-5  # of the norm of heads
_DECAY = 0.606531  # exp(-1 / 2), as the models round it
_LEAST = 1e-12  # of a key's length


class Rwkv:
    """The layers of a model, in one block. `cache` holds what tokens before have been."""

    def __init__(self, c: Configuration, r: Recurrence, weights: Weights, cache: Cache) -> None:
        self.c, self.r, self.weights, self.cache = c, r, weights, cache
        self.b = weights.builder
        self.first_value: Value | None = None  # of layer 0, which others take a part of
        self.heads, self.length = r.value_heads, r.key_length

    def time_mix(self, x: Value, layer: int) -> Value:
        """What the layer makes of x[count, width], which a norm gave, and its state."""
        (self.count, _) = tensor_type(x).shape
        (before,) = self.cache.before(x, layer)
        self.name, change = f"blk.{layer}.time_mix", self.b.value("sub", before, x)
        make = self._seventh if self.r.is_delta else self._sixth
        y = make(x, change, layer)
        return self.weights.linear(y, f"{self.name}_output", self.c.width)

    def channel_mix(self, x: Value, layer: int) -> Value:
        """As `time_mix`, of the network."""
        b, name = self.b, f"blk.{layer}.channel_mix"
        (before,) = self.cache.before(x, layer, "feed_rows")
        change = b.value("sub", before, x)
        length = self.weights.rows(f"{name}_value.weight")
        mixed = self._mixed(x, change, self._line(f"{name}_lerp_k"))
        key = active(self.weights.linear(mixed, f"{name}_key", length), "relu2", b)
        y = self.weights.linear(key, f"{name}_value", self.c.width)
        if f"{name}_lerp_r.weight" not in self.weights:
            return y
        mixed = self._mixed(x, change, self._line(f"{name}_lerp_r"))
        gate = self.weights.linear(mixed, f"{name}_receptance", self.c.width)
        return b.value("mul", b.value("logistic", gate), y)

    # RWKV 6

    def _sixth(self, x: Value, change: Value, layer: int) -> Value:
        b, name, all = self.b, self.name, self.heads * self.length
        w, k, v, r, g = self._of_both(x, change)
        kept = self.r.key_heads * self.length
        r = self.weights.linear(r, f"{name}_receptance", all)
        key, value = (
            self._wide(self.weights.linear(each, f"{name}_{kind}", kept))
            for kind, each in (("key", k), ("value", v))
        )
        w = b.value("tanh", self._small(w, f"{name}_decay_w1"))
        w = self.weights.linear(w, f"{name}_decay_w2", all)
        decay = b.value("neg", b.value("exp", self._plus(w, self._line(f"{name}_decay"))))
        first, gate = None, self.weights.linear(g, f"{name}_gate", all)
        if f"{name}_first.weight" in self.weights:
            first = self.weights.table(f"{name}_first.weight", (self.heads, self.length))
            gate = active(gate, "silu", b)
        else:
            gate = b.value("logistic", gate)
            share = b.value("neg", b.value("expm1", decay))
            key = b.value("mul", key, self._split(share))
            r = times(r, self.length**-0.5, b)
        y = self._passed([self._split(r), key, value, self._split(decay)], first, layer)
        y = self._flat(y) if first is None else self._normed(y)
        return b.value("mul", y, gate)

    def _of_both(self, x: Value, change: Value) -> list[Value]:
        """Five mixtures of a token and the one before it, whose shares follow from both."""
        b, name, width = self.b, self.name, self.c.width
        inner = self._small(self._mixed(x, change, self._line(f"{name}_lerp_x")), f"{name}_w1")
        inner, each = b.value("tanh", inner), self.weights.rows(f"{name}_w2.weight")
        weight = self.weights.stack(f"{name}_w2", (5, width, each))
        made = list[Value]()
        for place, kind in enumerate("wkvrg"):
            own = b.value("reshape", part(weight, 0, place, place + 1, b), shape=(width, each))
            share = b.value(
                "dot_general", part(inner, 1, place * each, (place + 1) * each, b), own,
                lhs_contract=(1,), rhs_contract=(1,),
            )  # fmt: skip
            made.append(self._lerp(x, change, self._plus(share, self._share(place, kind, 5))))
        return made

    # RWKV 7

    def _seventh(self, x: Value, change: Value, layer: int) -> Value:
        b, name, all = self.b, self.name, self.heads * self.length
        is_gated = f"{name}_g1.weight" in self.weights
        kinds = "rwkvag" if is_gated else "rwkva"
        r, w, k, v, a, *g = (
            self._mixed(x, change, self._share(place, kind, len(kinds)))
            for place, kind in enumerate(kinds)
        )
        receptance, key, value = (
            self.weights.linear(each, f"{name}_{kind}", all)
            for kind, each in (("receptance", r), ("key", k), ("value", v))
        )
        w = self._narrow(b.value("tanh", self._small(w, f"{name}_w1")), "w")
        decay = times(b.value("logistic", w), -_DECAY, b)
        if self.first_value is None:
            self.first_value = value
        else:
            share = b.value("logistic", self._narrow(self._small(v, f"{name}_v1"), "v"))
            value = self._lerp(value, b.value("sub", self.first_value, value), share)
        rate = b.value("logistic", self._narrow(self._small(a, f"{name}_a1"), "a"))
        unit = self._unit(self._split(self._by(key, self._line(f"{name}_k_k"))))
        scaled = self._by(key, self._line(f"{name}_k_a"))
        key = b.value("add", key, b.value("sub", b.value("mul", rate, scaled), scaled))
        r, k, v = (self._split(each) for each in (receptance, key, value))
        taken = b.value("mul", unit, self._split(rate))
        rows = [r, k, v, self._split(decay), b.value("neg", unit), taken]
        y = self._passed(rows, None, layer)
        y = self._normed(y) if f"{name}_ln.weight" in self.weights else self._flat(y)
        bonus = self._split(self._by(self._flat(b.value("mul", r, k)), self._line(f"{name}_r_k")))
        bonus = b.value("reduce", bonus, axes=(2,), kind="add")
        y = b.value("add", y, self._flat(over_rows("mul", v, bonus, b)))
        if not is_gated:
            return y
        gate = b.value("logistic", self._small(g[0], f"{name}_g1"))
        return b.value("mul", y, self.weights.linear(gate, f"{name}_g2", all))

    def _narrow(self, x: Value, kind: str) -> Value:
        """What a product makes of few features, and a constant of each."""
        made = self.weights.linear(x, f"{self.name}_{kind}2", self.heads * self.length)
        return self._plus(made, self._line(f"{self.name}_{kind}0"))

    def _unit(self, x: Value) -> Value:
        """Each row of x[count, heads, length] as long as 1."""
        b = self.b
        square = b.value("reduce", b.value("mul", x, x), axes=(2,), kind="add")
        length = b.value("sqrt", square)
        least = b.full(_LEAST, F32, tensor_type(length).shape)
        return over_rows("div", x, b.value("max", length, least), b)

    # Both

    def _passed(self, rows: Sequence[Value], first: Value | None, layer: int) -> Value:
        """What tokens read of the state, [count, heads, value], which goes on. `rows`: r, k, v and
        the logarithm of w, [count, heads, length] each, and a and b of RWKV 7."""
        shape, heads, length = self.r.state, self.heads, self.length

        def step(b: Builder, own: Sequence[Value], state: Value) -> tuple[Value, Value]:
            r, k, v, w, *taken = (b.value("reshape", x, shape=(heads, length)) for x in own)
            wide = [b.value("broadcast", x, shape=shape, dimensions=(0, 1)) for x in (r, k, w)]
            receptance, key, decay = wide
            value = b.value("broadcast", v, shape=shape, dimensions=(0, 2))
            added = b.value("mul", key, value)
            after = b.value("add", b.value("mul", state, b.value("exp", decay)), added)
            if taken:
                out, back = (b.value("broadcast", x, shape=shape, dimensions=(0, 1)) for x in taken)
                found = b.value("reduce", b.value("mul", out, state), axes=(1,), kind="add")
                found = b.value("broadcast", found, shape=shape, dimensions=(0, 2))
                after = b.value("add", after, b.value("mul", back, found))
            seen = after
            if first is not None:
                own_share = b.value("broadcast", first, shape=shape, dimensions=(0, 1))
                seen = b.value("add", state, b.value("mul", own_share, added))
            y = b.value("reduce", b.value("mul", receptance, seen), axes=(1,), kind="add")
            return after, b.value("reshape", y, shape=(1, heads, length))

        state, y = each_in_turn(self.b, rows, self.cache.state(layer), step, (heads, length))
        self.cache.keep_state(layer, state)
        return y

    def _normed(self, y: Value) -> Value:
        """Each head of y[count, heads, length] less its mean, over its deviation."""
        b, shape = self.b, tensor_type(y).shape

        def mean(x: Value) -> Value:
            return times(b.value("reduce", x, axes=(2,), kind="add"), 1 / self.length, b)

        y = over_rows("sub", y, mean(y), b)
        square = mean(b.value("mul", y, y))
        square = b.value("add", square, b.full(_EPSILON, F32, shape[:2]))
        y = self._flat(over_rows("mul", y, b.value("rsqrt", square), b))
        y = self._by(y, self._line(f"{self.name}_ln"))
        bias = self.weights.line(f"{self.name}_ln.bias", self.heads * self.length)
        return self._plus(y, bias)

    def _share(self, place: int, kind: str, count: int) -> Value:
        """How much of the token before each feature takes; those of all kinds may be one tensor."""
        name, width = f"{self.name}_lerp_fused.weight", self.c.width
        if name not in self.weights:
            return self._line(f"{self.name}_lerp_{kind}")
        all = self.weights.line(name, count * width)
        return part(all, 0, place * width, (place + 1) * width, self.b)

    def _mixed(self, x: Value, change: Value, share: Value) -> Value:
        return self._lerp(x, change, self.b.broadcast_to(share, tensor_type(x).shape))

    def _lerp(self, x: Value, change: Value, share: Value) -> Value:
        return self.b.value("add", x, self.b.value("mul", change, share))

    def _small(self, x: Value, name: str) -> Value:
        """What a product gives that has few rows."""
        tensor = self.weights.file.tensors.get(f"{name}.weight")
        return self.weights.linear(x, name, 1 if tensor is None else tensor.shape[0])

    def _line(self, name: str) -> Value:
        return self.weights.line(f"{name}.weight", self.heads * self.length)

    def _by(self, x: Value, y: Value) -> Value:
        return self.b.value("mul", x, self.b.broadcast_to(y, tensor_type(x).shape))

    def _plus(self, x: Value, y: Value) -> Value:
        return self.b.value("add", x, self.b.broadcast_to(y, tensor_type(x).shape))

    def _split(self, x: Value) -> Value:
        return self.b.value("reshape", x, shape=(self.count, self.heads, self.length))

    def _flat(self, x: Value) -> Value:
        return self.b.value("reshape", x, shape=(self.count, self.heads * self.length))

    def _wide(self, x: Value) -> Value:
        """[count, heads, length] of heads of keys, each for all heads of its group."""
        b, kept, each = self.b, self.r.key_heads, self.heads // self.r.key_heads
        shape = (self.count, kept, each, self.length)
        x = b.value("reshape", x, shape=(self.count, kept, self.length))
        x = b.value("broadcast", x, shape=shape, dimensions=(0, 1, 3))
        return b.value("reshape", x, shape=(self.count, self.heads, self.length))
