"""Layers with a state of a fixed length, which each token changes: the gated delta rule of
Qwen3-Next and those after it, Mamba 2, and Mamba 1, whose features are heads of one value.

Of a state S[heads, key, value] and a token's key, query and value (B, C and x of Mamba):

    S = exp(decay) S + key (x) d,  y = query S

where d is the value, or what of it the state does not give for the key yet, times beta. S is read
once for key and query together, and once to be changed. What tokens have on their own is made for
all of them at once; several pass by chunks (`chunks.py`), or in turn where heads have one value
(`in_turn.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.frontends.gguf.cache import Cache
from ingot.compiler.frontends.gguf.chunks import Steps, passed
from ingot.compiler.frontends.gguf.configuration import Configuration, Recurrence
from ingot.compiler.frontends.gguf.in_turn import passed_in_turn
from ingot.compiler.frontends.gguf.pieces import over_rows, part, times
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim
from ingot.hal.spec import dtype

__all__ = ["RecurrentLayer"]

F32 = dtype("f32")
_LEAST = 1e-6  # of the square of a key's length
Norm = Callable[[Value, str], Value]
Convolve = Callable[[Value, str, int], Value]


class RecurrentLayer:
    """The layer called `name`. `norm` and `convolve` are those of the network."""

    def __init__(
        self,
        c: Configuration,
        r: Recurrence,
        weights: Weights,
        name: str,
        norm: Norm,
        convolve: Convolve,
    ) -> None:
        self.c, self.r, self.weights, self.b = c, r, weights, weights.builder
        self.name, self.norm, self.convolve = name, norm, convolve

    def of(self, x: Value, cache: Cache, layer: int) -> Value:
        """What the layer makes of x[count, width], and of its state, which goes on."""
        (self.count, _) = tensor_type(x).shape
        state = cache.state(layer)
        make = self._delta if self.r.is_delta else self._mamba
        make = self._first_mamba if self.r.rank else make
        make = self._kimi if self.r.has_own_decays else make
        steps, finish = make(x, layer)
        if self.r.rank or (self.r.has_own_decays and self.count == 1):
            state, y = passed_in_turn(self.b, self.r, steps, state)
        elif self.count == 1:
            state, y = self._step(steps, state)
        else:
            state, y = passed(self.b, self.r, steps, state)
        cache.keep_state(layer, state)
        is_there = f"{self.name}.ssm_out.weight" in self.weights
        out = f"{self.name}.{'ssm_out' if is_there else 'attn_output'}"
        return self.weights.linear(finish(y), out, self.c.width)

    # The gated delta rule

    def _delta(self, x: Value, layer: int) -> tuple[Steps, Callable[[Value], Value]]:
        b, r = self.b, self.r
        rows, gate = self._rows_and_gate(x)
        rows = self._silu(self.convolve(rows, f"{self.name}.ssm_conv1d", layer))
        keys, values = r.key_heads * r.key_length, r.value_heads * r.value_length
        query, key = (
            self._unit(self._heads(part(rows, 1, start, start + keys, b), r.key_heads))
            for start in (0, keys)
        )
        value = self._heads(part(rows, 1, 2 * keys, 2 * keys + values, b), r.value_heads)
        beta, alpha = self._shares(x)
        query = times(query, r.key_length**-0.5, b)
        steps = Steps(query, key, value, self._decay(alpha), b.value("logistic", beta))

        def finish(y: Value) -> Value:
            y = self.norm(y, f"{self.name}.ssm_norm")
            return b.value("mul", self._flat(y), self._silu(gate))

        return steps, finish

    def _kimi(self, x: Value, layer: int) -> tuple[Steps, Callable[[Value], Value]]:
        """With a decay of each feature of keys, which two small products make."""
        b, r, name = self.b, self.r, self.name
        heads, length = r.value_heads, r.key_length
        all = heads * length
        kinds = [self.weights.linear(x, f"{name}.attn_{kind}", all) for kind in "qkv"]
        rows = b.value("concatenate", *kinds, axis=1)
        rows = self._silu(self.convolve(rows, f"{name}.ssm_conv1d", layer))
        query, key, value = (
            self._heads(part(rows, 1, start, start + all, b), heads) for start in (0, all, 2 * all)
        )
        query = times(self._unit(query), length**-0.5, b)
        bias = self.weights.line(f"{name}.ssm_dt.bias", all)
        forget = self._softened(self._row_plus(self._narrow(x, "f"), bias))
        rate = b.value("broadcast", self._rate(), shape=(heads, length), dimensions=(0,))
        decay = self._row_times(forget, b.value("reshape", rate, shape=(all,)))
        beta = b.value("logistic", self.weights.linear(x, f"{name}.ssm_beta", heads))
        steps = Steps(query, self._unit(key), value, self._heads(decay, heads), beta)

        def finish(y: Value) -> Value:
            gate = b.value("logistic", self._narrow(x, "g"))
            return b.value("mul", self._flat(self.norm(y, f"{name}.ssm_norm")), gate)

        return steps, finish

    def _narrow(self, x: Value, kind: str) -> Value:
        """Of x[count, width] features of all heads, by way of those of one."""
        r, name = self.r, f"{self.name}.ssm_{kind}"
        x = self.weights.linear(x, f"{name}_a", r.key_length)
        return self.weights.linear(x, f"{name}_b", r.value_heads * r.value_length)

    def _rows_and_gate(self, x: Value) -> tuple[Value, Value]:
        """Queries, keys and values of all heads, [count, rows], and what gates the results; one
        product may make both, head of keys by head."""
        b, r, name = self.b, self.r, self.name
        keys, values = r.key_heads * r.key_length, r.value_heads * r.value_length
        if f"{name}.ssm_in.weight" not in self.weights:
            rows = self.weights.linear(x, f"{name}.attn_qkv", 2 * keys + values)
            return rows, self.weights.linear(x, f"{name}.attn_gate", values)
        lengths = (keys, keys, values, values)
        joined = self.weights.linear(x, f"{name}.ssm_in", sum(lengths))
        *parts, gate = self._of_heads(joined, lengths)
        return b.value("concatenate", *parts, axis=1), gate

    def _shares(self, x: Value) -> Sequence[Value]:
        """What beta and decay are made of, [count, heads] each."""
        heads, name = self.r.value_heads, self.name
        if f"{name}.ssm_ba.weight" in self.weights:
            return self._of_heads(self.weights.linear(x, f"{name}.ssm_ba", 2 * heads), (heads,) * 2)
        return [self.weights.linear(x, f"{name}.ssm_{kind}", heads) for kind in ("beta", "alpha")]

    def _of_heads(self, x: Value, lengths: Sequence[int]) -> list[Value]:
        """Parts of these lengths of x[count, length], whose columns stand by heads of keys."""
        heads, b = self.r.key_heads, self.b
        x = b.value("reshape", x, shape=(self.count, heads, sum(lengths) // heads))
        parts, start = list[Value](), 0
        for length in lengths:
            own = part(x, 2, start, start + length // heads, b)
            parts.append(b.value("reshape", own, shape=(self.count, length)))
            start += length // heads
        return parts

    def _unit(self, x: Value) -> Value:
        """Each row as long as 1."""
        b, shape = self.b, tensor_type(x).shape
        square = b.value("reduce", b.value("mul", x, x), axes=(2,), kind="add")
        square = b.value("add", square, b.full(_LEAST, F32, shape[:-1]))
        return over_rows("mul", x, b.value("rsqrt", square), b)

    def _for_values(self, x: Value) -> Value:
        """x[count, key heads, length] for each head of values: those of a head of keys stand side
        by side, or as far from each other as there are heads of keys."""
        b, r, (count, heads, length) = self.b, self.r, tensor_type(x).shape
        each = r.value_heads // r.key_heads
        if each == 1:
            return x
        shape = (count, each, heads, length) if r.takes_turns else (count, heads, each, length)
        wide = b.value("broadcast", x, shape=shape, dimensions=(0, 2 if r.takes_turns else 1, 3))
        return b.value("reshape", wide, shape=(count, r.value_heads, length))

    # Mamba 2

    def _mamba(self, x: Value, layer: int) -> tuple[Steps, Callable[[Value], Value]]:
        b, r, name = self.b, self.r, self.name
        keys, values = r.key_heads * r.key_length, r.value_heads * r.value_length
        lengths = (values, values + 2 * keys, r.value_heads)
        joined = self.weights.linear(x, f"{name}.ssm_in", sum(lengths))
        starts = (0, lengths[0], lengths[0] + lengths[1])
        gate, rows, steps = (
            part(joined, 1, start, start + length, b)
            for start, length in zip(starts, lengths, strict=True)
        )
        rows = self._silu(self.convolve(rows, f"{name}.ssm_conv1d", layer))
        own = self._heads(part(rows, 1, 0, values, b), r.value_heads)
        key, query = (
            self._heads(part(rows, 1, start, start + keys, b), r.key_heads)
            for start in (values, values + keys)
        )
        width = self._softplus(steps)
        decay = self._row_times(width, self._rate())
        value = over_rows("mul", own, width, b)
        skip = self._vector("ssm_d")

        def finish(y: Value) -> Value:
            wide = b.value("broadcast", skip, shape=tensor_type(own).shape, dimensions=(1,))
            y = self._flat(b.value("add", y, b.value("mul", own, wide)))
            y = b.value("mul", y, self._silu(gate))
            return self._normed(y) if f"{name}.ssm_norm.weight" in self.weights else y

        return Steps(query, key, value, decay, None), finish

    def _normed(self, y: Value) -> Value:
        """y[count, length], each group by itself."""
        b, r, name = self.b, self.r, f"{self.name}.ssm_norm"
        length = r.value_heads * r.value_length
        each = length // r.key_heads
        rows = b.value("reshape", y, shape=(self.count, r.key_heads, each))
        square = b.value("reduce", b.value("mul", rows, rows), axes=(2,), kind="add")
        mean = times(square, 1 / each, b)
        mean = b.value("add", mean, b.full(self.c.epsilon, F32, tensor_type(mean).shape))
        rows = over_rows("mul", rows, b.value("rsqrt", mean), b)
        if self.weights.rows(f"{name}.weight") == length:
            weight = self.weights.vector(f"{name}.weight", length)
        else:
            weight = self.weights.table(f"{name}.weight", (r.key_heads, each))
            weight = b.value("reshape", weight, shape=(length,))
        return self._row_times(self._flat(rows), weight)

    # Mamba 1

    def _first_mamba(self, x: Value, layer: int) -> tuple[Steps, Callable[[Value], Value]]:
        b, r, name = self.b, self.r, self.name
        inner = r.value_heads
        joined = self.weights.linear(x, f"{name}.ssm_in", 2 * inner)
        rows, gate = (part(joined, 1, start, start + inner, b) for start in (0, inner))
        rows = self._silu(self.convolve(rows, f"{name}.ssm_conv1d", layer))
        ends = (r.rank, r.rank + r.key_length, r.rank + 2 * r.key_length)
        small = self.weights.linear(rows, f"{name}.ssm_x", ends[-1])
        width, key, query = (
            self._maybe_normed(part(small, 1, start, end, b), f"{name}.ssm_{kind}_norm")
            for kind, start, end in zip(("dt", "b", "c"), (0, *ends), ends, strict=False)
        )
        width = self._softened(self.weights.linear(width, f"{name}.ssm_dt", inner))
        rates = self._rates((inner, r.key_length))
        value = self._heads(b.value("mul", rows, width), inner)
        steps = Steps(self._heads(query, 1), self._heads(key, 1), value, width, None, rates)
        skip = self.weights.vector(f"{name}.ssm_d", inner)

        def finish(y: Value) -> Value:
            y = b.value("add", self._flat(y), self._row_times(rows, skip))
            return b.value("mul", y, self._silu(gate))

        return steps, finish

    def _maybe_normed(self, x: Value, name: str) -> Value:
        """x[count, length] by the norm of this name, or by one without weights, if there is one."""
        if f"{name}.weight" in self.weights:
            return self.norm(x, name)
        if not self.r.normalizes:
            return x
        b, (count, length) = self.b, tensor_type(x).shape
        square = b.value("reduce", b.value("mul", x, x), axes=(1,), kind="add")
        mean = times(square, 1 / known_dim(length), b)
        mean = b.value("add", mean, b.full(self.r.epsilon, F32, (count,)))
        return over_rows("mul", x, b.value("rsqrt", mean), b)

    # All

    def _decay(self, x: Value) -> Value:
        """The logarithm of what stays of the state, [count, heads]."""
        return self._row_times(self._softplus(x), self._rate())

    def _rate(self) -> Value:
        """By what steps are multiplied, a number below 0 for each head."""
        return self._negative(self._vector)

    def _rates(self, shape: tuple[int, int]) -> Value:
        """As `_rate`, for each feature of keys of each head."""
        return self._negative(lambda kind: self.weights.table(f"{self.name}.{kind}", shape))

    def _negative(self, read: Callable[[str], Value]) -> Value:
        if f"{self.name}.ssm_a" in self.weights:
            return read("ssm_a")
        return self.b.value("neg", self.b.value("exp", read("ssm_a_log")))

    def _vector(self, kind: str) -> Value:
        """A number of each head; files have it as a row or a column."""
        return self.weights.line(f"{self.name}.{kind}", self.r.value_heads)

    def _softplus(self, x: Value) -> Value:
        """log(1 + exp(x + bias)), [count, heads]."""
        bias = self._vector("ssm_dt.bias")
        return self._softened(
            self.b.value("add", x, self.b.broadcast_to(bias, tensor_type(x).shape))
        )

    def _softened(self, x: Value) -> Value:
        """log(1 + exp(x))."""
        b, shape = self.b, tensor_type(x).shape
        small = b.value("log1p", b.value("exp", b.value("neg", b.value("abs", x))))
        return b.value("add", b.value("max", x, b.full(0.0, F32, shape)), small)

    def _row_plus(self, x: Value, y: Value) -> Value:
        return self.b.value("add", x, self.b.broadcast_to(y, tensor_type(x).shape))

    def _row_times(self, x: Value, y: Value) -> Value:
        return self.b.value("mul", x, self.b.broadcast_to(y, tensor_type(x).shape))

    def _silu(self, x: Value) -> Value:
        return self.b.value("mul", x, self.b.value("logistic", x))

    def _heads(self, x: Value, heads: int) -> Value:
        (_, length) = tensor_type(x).shape
        return self.b.value("reshape", x, shape=(self.count, heads, length // heads))

    def _flat(self, x: Value) -> Value:
        length = self.r.value_heads * self.r.value_length
        return self.b.value("reshape", x, shape=(self.count, length))

    def _step(self, steps: Steps, state: Value) -> tuple[Value, Value]:
        """The state behind the only token, and what it reads, [1, heads, value]."""
        b, r = self.b, self.r
        heads, lengths = r.value_heads, (r.key_length, r.value_length)
        query, key = (
            b.value("reshape", self._for_values(x), shape=(heads, lengths[0]))
            for x in (steps.query, steps.key)
        )
        value = b.value("reshape", steps.value, shape=(heads, lengths[1]))
        kept = b.value("reshape", b.value("exp", steps.decay), shape=(heads,))
        reads = [query] if steps.beta is None else [query, key]
        pairs = [b.value("reshape", x, shape=(heads, 1, lengths[0])) for x in reads]
        read = b.value(
            "dot_general", b.value("concatenate", *pairs, axis=1), state,
            lhs_batch=(0,), rhs_batch=(0,), lhs_contract=(2,), rhs_contract=(1,),
        )  # fmt: skip
        shape, wide = tensor_type(value).shape, tensor_type(state).shape
        read = b.value(
            "mul", read, b.value("broadcast", kept, shape=tensor_type(read).shape, dimensions=(0,))
        )
        old, *known = (
            b.value("reshape", part(read, 1, i, i + 1, b), shape=shape) for i in range(len(reads))
        )
        if steps.beta is not None:
            beta = b.value("reshape", steps.beta, shape=(heads,))
            value = over_rows("mul", b.value("sub", value, known[0]), beta, b)
        own = b.value("reduce", b.value("mul", query, key), axes=(1,), kind="add")
        y = b.value("add", old, over_rows("mul", value, own, b))
        key = b.value("broadcast", key, shape=wide, dimensions=(0, 1))
        added = b.value("mul", key, b.value("broadcast", value, shape=wide, dimensions=(0, 2)))
        kept = b.value("broadcast", kept, shape=wide, dimensions=(0,))
        state = b.value("add", b.value("mul", state, kept), added)
        return state, b.value("reshape", y, shape=(1, *shape))
