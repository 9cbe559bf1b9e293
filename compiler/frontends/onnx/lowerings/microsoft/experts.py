"""Mixtures of experts: a loop over the experts, which skips those that no token chose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ingot.compiler.frontends.activations import gelu, swish
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add, gated_swish, halves
from ingot.compiler.frontends.onnx.lowerings.microsoft.block_packed import numbers_of_rows
from ingot.compiler.frontends.onnx.lowerings.microsoft.block_quantized import (
    unpacked,
    weight_of_blocks,
)
from ingot.compiler.frontends.onnx.lowerings.quantization import check_scales
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, product
from ingot.hal.spec import dtype

__all__: list[str] = []


Weight = Callable[[Node, Value], Value]
"""The weight [outputs, inputs] of the expert of a number, in f32."""


@dataclass(frozen=True)
class _Layer:
    """A dense layer of every expert, and its bias [experts, outputs]."""

    weight: Weight
    bias: Value | None

    def apply(self, node: Node, x: Value, expert: Value) -> Value:
        weight = node.transpose(self.weight(node, expert), (1, 0))
        bias = None if self.bias is None else widen(node, _row(node, self.bias, expert))
        return add(node, matmul(node, x, weight, dtype("f32")), bias)


def _row(node: Node, x: Value, index: Value) -> Value:
    """x[index] along the first axis."""
    return node.op("take", x, index, axis=0, mode="clamp")


@lowering("MoE", domain=MICROSOFT)
def mixture(node: Node) -> Value:
    layers = [
        None if node.optional(at) is None else _plain(node.input(at), node.optional(at + 1))
        for at in (2, 4, 6)
    ]
    return _mix(node, layers, None)


@lowering("MoEGroupRouter", domain=MICROSOFT)
def route_in_groups(node: Node) -> tuple[Value | None, ...]:
    """[tokens, experts]: log(s) of the chosen experts, s being the logistic function of what the
    router gives, and a number for the others; or s + bias and s of all, of which none is chosen."""
    x, bias, weight = node.input(0), node.input(1), node.optional(2)
    if weight is not None:
        x = matmul(node, widen(node, x), node.transpose(widen(node, weight), (1, 0)), dtype("f32"))
    experts = shape_of(x)[-1]
    rows = node.reshape(widen(node, x), (product(shape_of(x)[:-1]), experts))
    shares = node.op("logistic", rows)
    biased = add(node, shares, bias)
    if not node.wants(0):
        return None, biased, shares
    unsupported(node.wants(1) or weight is not None, "it gives chosen experts and all scores")
    chosen = _greatest(node, _of_groups(node, biased), node.integer("top_k", 0))
    shares = node.op("log", node.op("max", shares, 1e-20))
    rest = node.fill(node.number("router_sentinel", -10000.0), like=shares)
    return narrow(node, node.op("select", chosen, shares, rest), node.input(0)), None, None


def _of_groups(node: Node, scores: Value) -> Value:
    """Scores of the groups whose greatest ones have the greatest sums; -inf in the others."""
    groups, kept = node.integer("n_group", 1), node.integer("topk_group", 1)
    tokens, experts = shape_of(scores)
    size = known_dim(experts) // groups
    split = node.reshape(scores, (tokens, groups, size))
    most = min(node.integer("group_topk", 2), size)
    best, _ = node.several("top_k", split, k=most, axis=2, dtype=dtype("i64"))
    chosen = _greatest(node, node.reduce(best, [2], "add"), kept)
    chosen = node.op("broadcast", chosen, shape=shape_of(split), dimensions=(0, 1))
    lowest = node.fill(-math.inf, like=split)
    return node.reshape(node.op("select", chosen, split, lowest), shape_of(scores))


def _plain(weights: Value, bias: Value | None) -> _Layer:
    return _Layer(lambda node, expert: widen(node, _row(node, weights, expert)), bias)


@lowering("QMoE", domain=MICROSOFT)
def quantized_mixture(node: Node) -> Value:
    """Of integers with a scale per row or block; an expert's weight is made of them where it is
    used."""
    kind = node.text("quant_type", "int")
    unsupported(kind != "int", f"its quant_type is '{kind}': 'int' is supported")
    layers = [
        None if node.optional(at) is None else _coded(node, at, zeros, place)
        for place, (at, zeros) in enumerate(((2, 11), (5, 12), (8, 13)), 1)
    ]
    return _mix(node, layers, node.optional(14))


def _coded(node: Node, at: int, zeros_at: int, place: int) -> _Layer:
    packed, scales, zeros = node.input(at), node.input(at + 1), node.optional(zeros_at)
    check_scales(scales)
    bits = node.integer(f"fc{place}_expert_weight_bits", node.integer("expert_weight_bits", 4))
    unsupported(bits not in (2, 4, 8), f"its bits are {bits}: 2, 4 and 8 are supported")
    inputs = shape_of(packed)[2] * (8 // bits)
    if type_of(scales).rank == 2:
        scales = node.reshape(scales, (*shape_of(scales), 1))
        if zeros is not None:  # one per row, packed along the rows
            rows = node.sliced(unpacked(node, zeros, bits), -1, 0, shape_of(scales)[1])
            zeros = node.convert(node.reshape(rows, shape_of(scales)), "f32")
    spread = inputs // shape_of(scales)[2]
    unsupported(not isinstance(spread, int), f"its weight {packed.type} has no known width")

    def weight(inner: Node, expert: Value) -> Value:
        codes = unpacked(inner, _row(inner, packed, expert), bits)
        points = None if zeros is None else _row(inner, zeros, expert)
        factors = _row(inner, scales, expert)
        return weight_of_blocks(inner, codes, factors, points, bits, spread)  # type: ignore[arg-type]

    return _Layer(weight, node.optional(at + 2))


@lowering("MoEPacked", domain=MICROSOFT)
def packed_mixture(node: Node) -> Value:
    """Of weights in the blocks of ggml; an expert's numbers are made where it is used."""
    wide, inner = shape_of(node.input(0))[-1], shape_of(node.input(2))[1]
    unsupported(not isinstance(wide, int), f"its input {type_of(node.input(0))} has no known width")

    def layer(at: int, name: str, width: Dim) -> _Layer | None:
        rows = node.optional(at)
        if rows is None:
            return None

        def weight(inside: Node, expert: Value) -> Value:
            return numbers_of_rows(inside, _row(inside, rows, expert), name, known_dim(width))

        return _Layer(weight, None)

    gate, up = layer(2, "gate_type", wide), layer(3, "up_type", wide)
    return _mix(node, [gate, layer(4, "down_type", inner), up], node.optional(5))


def _mix(node: Node, layers: Sequence[_Layer | None], weights: Value | None) -> Value:
    """The sum over the chosen experts of what each makes of a token, times its weight."""
    unsupported(bool(node.integer("use_sparse_mixer", 0)), "its use_sparse_mixer is 1")
    first, second, third = layers
    assert first is not None
    assert second is not None
    given = node.input(0)
    width = shape_of(given)[-1]
    x = node.reshape(widen(node, given), (product(shape_of(given)[:-1]), width))
    shares = node.agree_on(_shares(node, weights), 1, shape_of(x)[0])
    count = shape_of(shares)[0]

    def step(builder: Builder, expert: Value, before: Sequence[Value]) -> Sequence[Value]:
        outer = node.within(builder)
        share = _row(outer, shares, expert)
        used = outer.compare("ne", share, 0)

        def run(inside: Builder) -> Sequence[Value]:
            inner = node.within(inside)
            hidden = _activated(inner, first, third, x, expert)
            made = second.apply(inner, hidden, expert)
            column = inner.op("broadcast", share, shape=shape_of(made), dimensions=(0,))
            return [inner.op("add", before[0], inner.op("mul", made, column))]

        any_used = outer.reduce(used, [0], "or")
        symbols = node.fresh_symbols("expert")
        return branches(builder, "if", any_used, [run, lambda inside: list(before)], symbols)

    total = node.builder.number(count, "i64")
    start = [node.full(0, "f32", shape_of(x))]
    (result,) = counted_loop(node.builder, total, start, step)
    return narrow(node, node.reshape(result, shape_of(given)), given)


def _shares(node: Node, weights: Value | None) -> Value:
    """How much of each token each expert gets, f32[experts, tokens]: the softmax of what the
    router gives, of the `k` greatest."""
    routed, k = widen(node, node.input(1)), node.integer("k", 1)
    if weights is None:
        weights = lower_as(node, "Softmax", [routed], {"axis": -1})
    is_chosen = _greatest(node, routed, k)
    weights = widen(node, weights)
    shares = node.op("select", is_chosen, weights, 0)
    if node.integer("normalize_routing_weights", 0):
        total = node.reduce(shares, [1], "add")
        total = add(node, total, node.fill(node.number("routing_epsilon", 0.0), like=total))
        shares = node.op("div", shares, node.broadcast_back(total, shape_of(shares), [1]))
    factor = node.fill(node.number("routed_scaling_factor", 1.0), like=shares)
    return node.transpose(node.op("mul", shares, factor), (1, 0))


def _greatest(node: Node, scores: Value, k: int) -> Value:
    """Which `k` of each row of [tokens, experts] are the greatest."""
    tokens, experts = shape_of(scores)
    _, chosen = node.several("top_k", scores, k=k, axis=1, dtype=dtype("i64"))
    wide = (tokens, k, experts)
    index = node.op("broadcast", chosen, shape=wide, dimensions=(0, 1))
    hit = node.compare("eq", index, node.op("iota", dtype=dtype("i64"), shape=wide, axis=2))
    return node.reduce(hit, [1], "or")


_ACTIVATIONS: dict[str, Callable[[Node, Value], Value]] = {
    "relu": lambda node, x: node.op("max", x, 0),
    "gelu": lambda node, x: gelu(node, x, approximate="tanh"),
    "silu": swish,
    "identity": lambda node, x: x,
}


def _activated(node: Node, first: _Layer, third: _Layer | None, x: Value, expert: Value) -> Value:
    hidden = first.apply(node, x, expert)
    packed = node.proto.op_type == "MoEPacked"
    kind = node.text("activation_type", "swiglu" if packed else "relu")
    if kind in ("swiglu", "geglu"):
        return _gated(node, kind, third, x, expert, hidden)
    if kind in ("relu2", "relu_squared"):
        positive = node.op("max", hidden, 0)
        return node.op("mul", positive, positive)
    unsupported(kind not in _ACTIVATIONS, f"its activation_type is '{kind}'")
    hidden = _ACTIVATIONS[kind](node, hidden)
    return hidden if third is None else node.op("mul", hidden, third.apply(node, x, expert))


def _gated(
    node: Node, kind: str, third: _Layer | None, x: Value, expert: Value, both: Value
) -> Value:
    """The activation of the gate times the rest, which the third layer makes, or the first one
    beside the gate or between its columns."""
    fusion = node.integer("swiglu_fusion", 0)
    if fusion == 1:
        tokens, width = shape_of(both)
        pairs = node.reshape(both, (tokens, width // 2, 2))
        gate, rest = (
            node.reshape(node.sliced(pairs, -1, at, at + 1), (tokens, width // 2)) for at in (0, 1)
        )
    elif fusion == 2:
        gate, rest = halves(node, both)
    else:
        unsupported(third is None, "its swiglu_fusion is 0, but it has no third layer")
        assert third is not None
        gate, rest = both, third.apply(node, x, expert)
    if kind == "geglu":
        return node.op("mul", gelu(node, gate, approximate="tanh"), rest)
    unsupported(
        bool(node.integer("swiglu_limit_after_activation", 0)), "it clamps the activated gate"
    )
    limit = node.number("swiglu_limit", 0.0) if node.has("swiglu_limit") else None
    return gated_swish(node, gate, rest, limit)
