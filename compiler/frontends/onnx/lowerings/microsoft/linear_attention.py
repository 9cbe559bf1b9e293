"""Linear attention of `com.microsoft`: each token changes a state, as in gated delta networks."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, floordiv, known_dim

__all__: list[str] = []

_RULES = ("linear", "gated", "delta", "gated_delta")


@lowering("LinearAttentionGate", domain=MICROSOFT)
def linear_attention_gate(node: Node) -> tuple[Value, Value | None]:
    """In f32: decay_scale * softplus(a + bias), and the logistic function of b."""
    a, b = node.input(0), node.optional(3)
    element = type_of(a).dtype
    total = node.op("add", *node.broadcast(node.convert(a, "f32"), node.input(1)))
    decay = node.op("mul", *node.broadcast(lower_as(node, "Softplus", [total]), node.input(2)))
    beta = None if b is None else node.op("logistic", node.convert(b, "f32"))
    return node.convert(decay, element), None if beta is None else node.convert(beta, element)


@lowering("LinearAttention", domain=MICROSOFT)
def linear_attention(node: Node) -> tuple[Value, Value]:
    """[batch, tokens, heads * size] and the state [batch, heads, size of keys, size of values], one
    token after the other, in f32."""
    rule, window = node.text("update_rule", "gated_delta"), node.integer("state_window", 0)
    unsupported(rule not in _RULES, f"its update_rule is '{rule}'")
    unsupported(window != 0, f"its state_window is {window}: use 0, the last state alone")
    readers, heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    fits = readers > 0 and heads > 0 and (readers % heads == 0 or heads % readers == 0)
    unsupported(not fits, f"it has {readers} heads of queries and {heads} of keys: fix the model")
    query, key, value = (
        _by_token(node, node.input(place), count)
        for place, count in enumerate((readers, heads, heads))
    )
    _, batch, _, size = shape_of(query)
    past, decay, beta = (node.optional(place) for place in (3, 4, 5))
    unsupported("gated" in rule and decay is None, "its decay is missing: fix the model")
    unsupported("delta" in rule and beta is None, "its beta is missing: fix the model")
    decay = _by_token(node, decay, heads) if decay is not None and "gated" in rule else None
    if beta is not None:
        many = known_dim(shape_of(beta)[2])
        beta = _by_token(node, beta, many) if "delta" in rule else None
    shape = (batch, heads, size, shape_of(value)[3])
    state = node.full(0, "f32", shape)
    if past is not None:
        state = node.agree(node.convert(past, "f32"), shape)
    scale = node.number("scale", 0.0) or known_dim(size) ** -0.5
    groups = max(readers // heads, 1)
    query = _shared(node, query, heads, groups)
    tokens = shape_of(query)[0]

    def step(builder: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
        inner, (state, made) = node.within(builder), carried
        token = (
            None if x is None else inner.op("take", x, index, axis=0, mode="clamp")
            for x in (key, value, decay, beta)
        )
        state = _changed(inner, state, *token)
        read = _read(inner, state, inner.op("take", query, index, axis=0, mode="clamp"))
        read = inner.op("mul", read, inner.fill(scale, like=read))
        zero = inner.size(0)
        row = inner.reshape(read, (1, *shape_of(read)))
        starts = (index, *[zero] * (len(shape_of(row)) - 1))
        return [state, inner.op("dynamic_update_slice", made, row, *starts)]

    made = node.full(0, "f32", (tokens, batch, heads, groups, shape[3]))
    state, made = counted_loop(node.builder, node.size(tokens), [state, made], step)
    result = node.transpose(made, (1, 0, 2, 3, 4))
    result = node.reshape(result, (batch, tokens, heads * groups * shape[3]))
    kind = type_of(node.input(0)).dtype if past is None else type_of(past).dtype
    return node.convert(result, type_of(node.input(0)).dtype), node.convert(state, kind)


def _changed(
    node: Node,
    state: Value,
    key: Value | None,
    value: Value | None,
    decay: Value | None,
    beta: Value | None,
) -> Value:
    """exp(decay) * state + key x value; with beta, in place of the value it times what the value
    differs by from what the key finds."""
    assert key is not None
    assert value is not None
    shape = shape_of(state)
    if decay is not None:
        factor = node.op("exp", decay)
        factor = node.reshape(factor, (*shape_of(factor), 1))
        state = node.op("mul", state, node.broadcast_to(factor, shape))
    if beta is not None:
        change = node.op("sub", value, _read(node, state, key))
        value = node.op("mul", change, node.broadcast_to(beta, shape_of(change)))
    key = node.op("broadcast", key, shape=shape, dimensions=(0, 1, 2))
    value = node.op("broadcast", value, shape=shape, dimensions=(0, 1, 3))
    return node.op("add", state, node.op("mul", key, value))


def _by_token(node: Node, x: Value, heads: int) -> Value:
    """f32[tokens, batch, heads, size] of [batch, tokens, heads * size]."""
    batch, tokens, width = shape_of(x)
    parts = node.reshape(node.convert(x, "f32"), (batch, tokens, heads, floordiv(width, heads)))
    return node.transpose(parts, (1, 0, 2, 3))


def _shared(node: Node, query: Value, heads: int, groups: int) -> Value:
    """[tokens, batch, heads, groups, size]: of each head the queries that read it; several heads
    may share one."""
    tokens, batch, readers, size = shape_of(query)
    if known_dim(readers) >= heads:
        return node.reshape(query, (tokens, batch, heads, groups, size))
    each: tuple[Dim, ...] = (tokens, batch, readers, heads // known_dim(readers), size)
    query = node.op("broadcast", query, shape=each, dimensions=(0, 1, 2, 4))
    return node.reshape(query, (tokens, batch, heads, 1, size))


def _read(node: Emitter, state: Value, x: Value) -> Value:
    """[batch, heads, ..., values]: what rows [batch, heads, ..., keys] find in the state."""
    axis = len(shape_of(x)) - 1
    return node.op(
        "dot_general", x, state, lhs_batch=(0, 1), rhs_batch=(0, 1), lhs_contract=(axis,),
        rhs_contract=(2,), dtype=type_of(x).dtype,
    )  # fmt: skip
