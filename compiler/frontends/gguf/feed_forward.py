"""The feed-forward part of a layer: one network for all tokens, or a mixture of experts.

A mixture reads the weights of experts that some token chose. One token passes its experts in turn.
Of several, the pairs of token and expert are sorted by expert, and each expert takes its run of
rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

import numpy as np

from ingot.compiler.frontends.gguf.configuration import Configuration, Groups
from ingot.compiler.frontends.gguf.pieces import over_rows, part, softmax, times
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.frontends.runs import each_run, known_number
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.spec import dtype

__all__ = ["active", "feed_forward", "mixture"]

F32, I64 = dtype("f32"), dtype("i64")
Norm = Callable[[Value, str], Value]
_LEAST = 1e-20  # of a sum of shares


def feed_forward(c: Configuration, weights: Weights, x: Value, layer: int, norm: Norm) -> Value:
    """What a layer makes of x[count, width]: a network, where it has one, else experts, and a
    network for all tokens beside them. `norm` is that of the network."""
    name = f"blk.{layer}"
    has_experts = f"{name}.ffn_gate_inp.weight" in weights
    if f"{name}.ffn_down.weight" in weights or not has_experts:
        suffix = "_shexp" if f"{name}.ffn_down_shexp.weight" in weights else ""
        return _network(c, weights, x, layer, suffix, norm)
    made = mixture(c, weights, x, name, x)
    if f"{name}.ffn_down_shexp.weight" not in weights:
        return made
    b = weights.builder
    shared = _network(c, weights, x, layer, "_shexp", norm)
    if f"{name}.ffn_gate_inp_shexp.weight" not in weights:
        return b.value("add", made, shared)
    gate = weights.vector(f"{name}.ffn_gate_inp_shexp.weight", c.width)
    share = b.value("dot_general", x, gate, lhs_contract=(1,), rhs_contract=(0,))
    return b.value("add", made, over_rows("mul", shared, b.value("logistic", share), b))


def mixture(c: Configuration, weights: Weights, x: Value, name: str, routed: Value) -> Value:
    """What the experts of a layer make of x[count, width]; `routed`, of its shape, tells which."""
    return _Mixture(c, weights, name).of(x, routed)


def _network(
    c: Configuration, weights: Weights, x: Value, layer: int, suffix: str, norm: Norm
) -> Value:
    b, name = weights.builder, f"blk.{layer}"
    length = weights.rows(f"{name}.ffn_down{suffix}.weight")
    if not c.architecture.is_gated:
        hidden = weights.linear(x, f"{name}.ffn_up{suffix}", length)
        if c.architecture.activation == "xielu":
            hidden = _xielu(hidden, _curve(c, weights, layer), b)
        else:
            hidden = active(hidden, c.architecture.activation, b)
        return weights.linear(hidden, f"{name}.ffn_down{suffix}", c.width)
    if f"{name}.ffn_gate{suffix}.weight" in weights:
        # the last product multiplies both: so the first one is as those of attention are
        up = weights.linear(x, f"{name}.ffn_up{suffix}", length)
        gate = weights.linear(x, f"{name}.ffn_gate{suffix}", length)
    else:
        joined = weights.linear(x, f"{name}.ffn_up{suffix}", 2 * length)
        gate, up = (part(joined, 1, i * length, (i + 1) * length, b) for i in (0, 1))
    if c.thresholds and isfinite(c.thresholds[layer]):
        gate = _above(gate, c.thresholds[layer], b)
    hidden = _gated(gate, up, c, b)
    if f"{name}.ffn_sub_norm.weight" in weights:
        hidden = norm(hidden, f"{name}.ffn_sub_norm")
    return weights.linear(hidden, f"{name}.ffn_down{suffix}", c.width)


def _curve(c: Configuration, weights: Weights, layer: int) -> Sequence[Value]:
    """What the activation of a layer is of, f32[] each; see `Curve`."""
    b = weights.builder
    if c.curves:
        curve = c.curves[layer]
        return [b.constant(x, "f32") for x in (curve.rise, curve.fall, curve.slope, curve.end)]
    names = [f"blk.{layer}.ffn_act.{kind}" for kind in ("alpha_p", "alpha_n", "beta", "eps")]
    return [b.value("reshape", weights.vector(name, 1), shape=()) for name in names]


def _xielu(x: Value, curve: Sequence[Value], b: Builder) -> Value:
    shape = tensor_type(x).shape
    rise, fall, slope, end = curve
    rise, fall = _softplus(rise, b), b.value("add", slope, _softplus(fall, b))
    rise, fall, slope, end = (b.broadcast_to(each, shape) for each in (rise, fall, slope, end))
    above = b.value("mul", rise, b.value("mul", x, x))
    below = b.value("mul", b.value("sub", b.value("expm1", b.value("min", x, end)), x), fall)
    is_above = b.value("compare", x, b.full(0.0, F32, shape), direction="gt")
    bent = b.value("select", is_above, above, below)
    return b.value("add", bent, b.value("mul", slope, x))


def _softplus(x: Value, b: Builder) -> Value:
    return b.value("log1p", b.value("exp", x))


def _above(x: Value, deviations: float, b: Builder) -> Value:
    """By how much x[count, length] is more than the mean of its row and so many deviations."""
    shape = tensor_type(x).shape
    share = 1 / known_dim(shape[1])
    mean = times(b.value("reduce", x, axes=(1,), kind="add"), share, b)
    rest = over_rows("sub", x, mean, b)
    square = b.value("reduce", b.value("mul", rest, rest), axes=(1,), kind="add")
    deviation = times(b.value("sqrt", times(square, share, b)), deviations, b)
    return b.value("max", over_rows("sub", rest, deviation, b), b.full(0.0, F32, shape))


def _gated(gate: Value, up: Value, c: Configuration, b: Builder) -> Value:
    """What comes before the last product: gate, active, times up."""
    if c.architecture.activation != "swiglu_oai":
        return b.value("mul", active(gate, c.architecture.activation, b), up)
    shape = tensor_type(gate).shape
    least, most = (b.full(sign * c.swiglu_limit, F32, shape) for sign in (-1.0, 1.0))
    gate, up = b.value("min", gate, most), b.value("clamp", least, up, most)
    gate = b.value("mul", gate, b.value("logistic", times(gate, c.swiglu_alpha, b)))
    return b.value("mul", gate, b.value("add", up, b.full(1.0, F32, shape)))


def active(x: Value, activation: str, b: Builder) -> Value:
    """silu; gelu, the one with tanh; gelu_erf, that without; relu; relu2, its square; or tanh."""
    shape = tensor_type(x).shape
    if activation == "tanh":
        return b.value("tanh", x)
    if activation == "silu":
        return b.value("mul", x, b.value("logistic", x))
    if activation in ("relu", "relu2"):
        positive = b.value("max", x, b.full(0.0, F32, shape))
        return positive if activation == "relu" else b.value("mul", positive, positive)
    if activation == "gelu_erf":
        share = b.value("erf", times(x, 0.5**0.5, b))
        return times(b.value("mul", x, b.value("add", share, b.full(1.0, F32, shape))), 0.5, b)
    cube = b.value("mul", b.value("mul", x, x), x)
    inner = b.value("add", x, times(cube, 0.044715, b))
    share = b.value("tanh", times(inner, (2 / np.pi) ** 0.5, b))
    share = b.value("add", share, b.full(1.0, F32, shape))
    return times(b.value("mul", x, share), 0.5, b)


def _of_groups(scores: Value, groups: Groups, b: Builder) -> Value:
    """Scores [count, experts]; -inf in the groups that are not used."""
    count, experts = tensor_type(scores).shape
    split = (count, groups.count, experts // groups.count)
    scores = b.value("reshape", scores, shape=split)
    best, _ = b.op("top_k", scores, k=groups.best, axis=2, dtype=I64)
    sums = b.value("reduce", best, axes=(2,), kind="add")
    _, used = b.op("top_k", sums, k=groups.used, axis=1, dtype=I64)
    wide = (count, groups.used, groups.count)
    all = b.value("iota", dtype=I64, shape=wide, axis=2)
    used = b.value("broadcast", used, shape=wide, dimensions=(0, 1))
    used = b.value("compare", used, all, direction="eq")
    used = b.value("reduce", used, axes=(1,), kind="or")
    used = b.value("broadcast", used, shape=split, dimensions=(0, 1))
    kept = b.value("select", used, scores, b.full(-np.inf, F32, split))
    return b.value("reshape", kept, shape=(count, experts))


class _Mixture:
    """The experts of a layer. Their weights are made in front of the loops that read them."""

    def __init__(self, c: Configuration, weights: Weights, name: str) -> None:
        self.c, self.weights, self.b, self.name = c, weights, weights.builder, name
        self.is_joined = f"{name}.ffn_gate_up_exps.weight" in weights
        fronts = {"gate_up": 2} if self.is_joined else {"gate": 1, "up": 1}
        if not c.architecture.is_gated:
            fronts = {"up": 1}
        shapes = {each: (count * c.expert_length, c.width) for each, count in fronts.items()}
        shapes["down"] = (c.width, c.expert_length)
        self.stacks, self.biases = dict[str, Value](), dict[str, Value]()
        for each, (length, k) in shapes.items():
            tensor = f"{name}.ffn_{each}_exps"
            self.stacks[each] = weights.stack(tensor, (c.experts, length, k))
            if f"{tensor}.bias" in weights:
                self.biases[each] = weights.table(f"{tensor}.bias", (c.experts, length))

    def of(self, x: Value, routed: Value) -> Value:
        """The sum of what the experts that `routed` chooses make of x[count, width], by their
        shares."""
        c, b = self.c, self.b
        shares, chosen = self._chosen(routed)
        if c.normalizes_shares:
            sums = b.value("reduce", shares, axes=(1,), kind="add")
            if c.gating == "sigmoid":  # all of which may be 0
                sums = b.value("max", sums, b.full(_LEAST, F32, tensor_type(sums).shape))
            shares = over_rows("div", shares, sums, b)
        if c.share_scale != 1:
            shares = times(shares, c.share_scale, b)
        scales = f"{self.name}.ffn_down_exps.scale"
        if scales in self.weights:
            given = self.weights.vector(scales, c.experts)
            own = b.value("take", given, chosen, axis=0, mode="check")
            shares = b.value("mul", shares, own)
        count = tensor_type(x).shape[0]
        return self._of_one(x, shares, chosen) if count == 1 else self._of_many(x, shares, chosen)

    def _chosen(self, x: Value) -> tuple[Value, Value]:
        """The shares [count, k] of experts, and which these are, i64[count, k]: those with the
        greatest shares, or where there is a bias, with the greatest sums of share and bias."""
        c, b, bias = self.c, self.b, f"{self.name}.exp_probs_b"
        bias = bias if bias in self.weights else f"{bias}.bias"
        scores = self.weights.linear(x, f"{self.name}.ffn_gate_inp", c.experts)
        if c.gating == "mixer":
            return self._mixed(scores)
        all = b.value("logistic", scores) if c.gating == "sigmoid" else softmax(scores, b)
        options = {"k": c.chosen_experts, "axis": 1, "dtype": I64}
        biased = all
        if bias in self.weights:
            vector = self.weights.vector(bias, c.experts)
            biased = b.value("add", all, b.broadcast_to(vector, tensor_type(all).shape))
        if c.groups is not None:
            biased = _of_groups(biased, c.groups, b)
        greatest, chosen = b.op("top_k", biased, **options)
        if bias not in self.weights:
            return greatest, chosen
        shares = b.value(
            "gather", all, chosen, offset_dims=(), collapsed_slice_dims=(1,),
            operand_batching_dims=(0,), start_indices_batching_dims=(0,),
            start_index_map=(1,), index_vector_dim=2, slice_sizes=(1, 1),
        )  # fmt: skip
        return shares, chosen

    def _mixed(self, scores: Value) -> tuple[Value, Value]:
        """As `_chosen`, one expert after the other: the share of each is among those whose scores
        are not far below its own, without the ones before."""
        b, shape = self.b, tensor_type(scores).shape
        count, left, shares, places = shape[0], scores, list[Value](), list[Value]()
        lowest = b.full(-np.inf, F32, shape)
        for _ in range(self.c.chosen_experts):
            best, place = b.op("top_k", left, k=1, axis=1, dtype=I64)
            wide = b.value("broadcast", b.value("reshape", best, shape=(count,)),
                           shape=shape, dimensions=(0,))  # fmt: skip
            below = b.value("sub", wide, scores)
            unit = b.value("max", b.value("abs", scores), wide)
            most = times(unit, 2 * self.c.mixer_noise, b)
            near = b.value("compare", below, most, direction="le")
            near = b.value("select", near, b.value("exp", b.value("sub", left, wide)),
                           b.full(0.0, F32, shape))  # fmt: skip
            total = b.value("reduce", near, axes=(1,), kind="add")
            one = b.full(1.0, F32, (count,))
            shares.append(b.value("reshape", b.value("div", one, total), shape=(count, 1)))
            places.append(place)
            all = b.value("iota", dtype=I64, shape=shape, axis=1)
            own = b.value("broadcast", b.value("reshape", place, shape=(count,)),
                          shape=shape, dimensions=(0,))  # fmt: skip
            left = b.value("select", b.value("compare", all, own, direction="eq"), lowest, left)
        return b.value("concatenate", *shares, axis=1), b.value("concatenate", *places, axis=1)

    def _of_one(self, x: Value, shares: Value, chosen: Value) -> Value:
        c, b, k = self.c, self.b, self.c.chosen_experts
        shares, chosen = (b.value("reshape", each, shape=(k,)) for each in (shares, chosen))

        def step(inner: Builder, place: Value, before: Sequence[Value]) -> Sequence[Value]:
            expert = inner.value("take", chosen, place, axis=0)
            expert = known_number(inner, expert, self._named("expert"), 0, c.experts - 1)
            share = inner.value("take", shares, place, axis=0)
            share = inner.broadcast_to(share, tensor_type(x).shape)
            if c.architecture.weighs_inputs:
                made = self._expert(inner.value("mul", x, share), expert, inner)
            else:
                made = inner.value("mul", self._expert(x, expert, inner), share)
            return [inner.value("add", before[0], made)]

        start = b.full(0.0, F32, tensor_type(x).shape)
        (result,) = counted_loop(b, b.constant(k, "i64"), [start], step)
        return result

    def _of_many(self, x: Value, shares: Value, chosen: Value) -> Value:
        b, (count, width), k = self.b, tensor_type(x).shape, self.c.chosen_experts
        pairs = count * k
        ascending = {"k": pairs, "axis": 0, "largest": False, "dtype": I64}
        experts, order = b.op("top_k", b.value("reshape", chosen, shape=(pairs,)), **ascending)
        _, places = b.op("top_k", order, **ascending)
        tokens = b.value("div", order, b.full(k, I64, (pairs,)))
        ends = self._ends(experts, pairs)
        sorted = None
        if self.c.architecture.weighs_inputs:
            sorted = b.value("take", b.value("reshape", shares, shape=(pairs,)), order, axis=0)

        def own(inner: Builder, expert: Value, first: Value, rows: Dim) -> Value:
            own = inner.value("dynamic_slice", tokens, first, sizes=(rows,))
            read = inner.value("take", x, own, axis=0)
            if sorted is not None:
                own = inner.value("dynamic_slice", sorted, first, sizes=(rows,))
                read = over_rows("mul", read, own, inner)
            return self._expert(read, expert, inner)

        made = b.full(0.0, F32, (pairs, width))
        made = each_run(b, ends, made, own, self._named)
        made = b.value("take", made, places, axis=0)
        made = b.value("reshape", made, shape=(count, k, width))
        made = made if sorted is not None else over_rows("mul", made, shares, b)
        return b.value("reduce", made, axes=(1,), kind="add")

    def _ends(self, experts: Value, pairs: Dim) -> Value:
        """Where the run of each expert ends in the sorted ones, i64[experts]."""
        b, shape = self.b, (self.c.experts, pairs)
        all = b.value("iota", dtype=I64, shape=shape, axis=0)
        wide = b.value("broadcast", experts, shape=shape, dimensions=(1,))
        before = b.value("compare", wide, all, direction="le")
        return b.value("reduce", b.value("convert", before, dtype=I64), axes=(1,), kind="add")

    def _expert(self, x: Value, expert: Value, b: Builder) -> Value:
        def product(x: Value, name: str) -> Value:
            weight = b.value("take", self.stacks[name], expert, axis=0)
            y = b.value("dot_general", x, weight, lhs_contract=(1,), rhs_contract=(1,))
            if name not in self.biases:
                return y
            bias = b.value("take", self.biases[name], expert, axis=0)
            return b.value("add", y, b.broadcast_to(bias, tensor_type(y).shape))

        if not self.c.architecture.is_gated:
            hidden = active(product(x, "up"), self.c.architecture.activation, b)
            return product(hidden, "down")
        if self.is_joined:
            gate, up = self._apart(product(x, "gate_up"), b)
        else:
            gate, up = product(x, "gate"), product(x, "up")
        return product(_gated(gate, up, self.c, b), "down")

    def _apart(self, x: Value, b: Builder) -> tuple[Value, Value]:
        """Gate and up of x[rows, 2 * length]."""
        (rows, _), length = tensor_type(x).shape, self.c.expert_length
        is_paired = self.c.architecture.has_paired_gates
        x = b.value("reshape", x, shape=(rows, length, 2) if is_paired else (rows, 2, length))
        axis = 2 if is_paired else 1
        gate, up = (part(x, axis, place, place + 1, b) for place in (0, 1))
        shape = (rows, length)
        return b.value("reshape", gate, shape=shape), b.value("reshape", up, shape=shape)

    def _named(self, what: str) -> str:
        """A symbol of this layer."""
        return f"{what}_{self.name.replace('.', '_')}"
