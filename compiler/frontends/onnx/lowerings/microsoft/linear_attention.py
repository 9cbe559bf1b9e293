"""Linear attention of `com.microsoft`: each token changes a state, as in gated delta networks."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.onnx.lowerings.microsoft.block_quantized import spread_blocks
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, floordiv, known_dim, product

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
    result, state = _walked(node, (query, key, value, decay, beta), state)
    kind = type_of(node.input(0)).dtype if past is None else type_of(past).dtype
    return node.convert(result, type_of(node.input(0)).dtype), node.convert(state, kind)


def _walked(
    node: Node, given: tuple[Value, Value, Value, Value | None, Value | None], state: Value
) -> tuple[Value, Value]:
    """[batch, tokens, heads * size] by queries, keys, values, decays and betas, each [tokens,
    batch, heads, size]; and the state behind the last token."""
    query, key, value, decay, beta = given
    batch, heads, size, width = shape_of(state)
    scale = node.number("scale", 0.0) or known_dim(size) ** -0.5
    groups = max(known_dim(shape_of(query)[2]) // known_dim(heads), 1)
    query = _shared(node, query, known_dim(heads), groups)
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

    made = node.full(0, "f32", (tokens, batch, heads, groups, width))
    state, made = counted_loop(node.builder, node.size(tokens), [state, made], step)
    result = node.transpose(made, (1, 0, 2, 3, 4))
    return node.reshape(result, (batch, tokens, heads * groups * width)), state


@lowering("GatedDeltaNet", domain=MICROSOFT)
def gated_delta_net(node: Node) -> tuple[Value, Value]:
    """As LinearAttention, of [tokens of all texts, heads, size] or [batch, tokens, heads, size],
    with what comes before: norms of queries and keys, and what decays and betas are made of. The
    state lies [batch, heads, size of values, size of keys]."""
    rule = node.text("update_rule", "gated_delta")
    unsupported(rule not in _RULES, f"its update_rule is '{rule}'")
    unsupported(node.optional(3) is not None, "its texts differ in length: pad them")
    capacity = node.integer("state_update_capacity", 0)
    unsupported(capacity != 0, f"its state_update_capacity is {capacity}: 0 is supported")
    for name, place, what in (("gated", 4, "decay"), ("delta", 5, "beta")):
        is_there = node.optional(place) is not None
        unsupported(is_there != (name in rule), f"{what} and '{rule}' differ: fix the model")
    past = node.optional(6)
    unsupported(node.optional(1) is None, "its query holds keys and values, too: split them")
    parts = [node.input(place) for place in range(3)]
    unsupported(past is None and type_of(parts[0]).rank == 3, "it has no state: fix the model")
    count = shape_of(parts[0])[0] if past is None else shape_of(past)[0]
    query, key, value = (_of_batch(node, x, count, 1) for x in parts)
    heads, width = shape_of(value)[2:]
    if node.integer("qk_l2_norm", 0):
        query, key = (_unit(node, x) for x in (query, key))
    shared = known_dim(heads) // known_dim(shape_of(key)[2])
    query, key = (spread_blocks(node, x, shared, 2) for x in (query, key))
    decay = None if node.optional(4) is None else _decay(node, count, heads)
    beta = None if node.optional(5) is None else _beta(node, count)
    if past is None:
        state = node.full(0, "f32", (count, heads, shape_of(key)[3], width))
    else:
        state = node.transpose(past, (0, 1, 3, 2))
    result, state = _walked(node, (query, key, value, decay, beta), state)
    result = node.reshape(result, (*shape_of(parts[2])[:-2], heads, width))
    return node.convert(result, type_of(node.input(0)).dtype), node.transpose(state, (0, 1, 3, 2))


def _of_batch(node: Node, x: Value, batch: Dim, inner: int) -> Value:
    """f32[tokens, batch, ...] of [batch * tokens, ...] or [batch, tokens, ...], where behind the
    heads stand `inner` axes."""
    shape = shape_of(x)
    if len(shape) == inner + 2:
        shape = (batch, floordiv(shape[0], batch), *shape[1:])
    x = node.reshaped(node.convert(x, "f32"), shape)
    return node.transpose(x, (1, 0, *range(2, len(shape))))


def _unit(node: Node, x: Value) -> Value:
    """x / |x| along the last axis."""
    size = node.op("sqrt", node.reduce(node.op("mul", x, x), [3], "add", keep=True))
    return node.op("div", *node.broadcast(x, node.op("max", size, node.fill(1e-12, like=size))))


def _beta(node: Node, batch: Dim) -> Value:
    kind = node.text("beta_activation", "none")
    unsupported(kind not in ("none", "sigmoid"), f"its beta_activation is '{kind}'")
    beta = _of_batch(node, node.input(5), batch, 0)
    beta = node.reshape(beta, (*shape_of(beta), 1))
    return beta if kind == "none" else node.op("logistic", beta)


def _decay(node: Node, batch: Dim, heads: Dim) -> Value:
    """The logarithm of what the state is multiplied with, per head or per element of a key."""
    given, kind = node.input(4), node.text("gate_activation", "none")
    inner = type_of(given).rank - type_of(node.input(0)).rank + 1
    decay = _of_batch(node, given, batch, inner)
    if not inner:
        decay = node.reshape(decay, (*shape_of(decay), 1))
    if kind == "none":
        return decay
    unsupported(
        kind not in ("softplus", "qwen", "sigmoid", "kda"), f"its gate_activation is '{kind}'"
    )
    rate = node.op("exp", node.reshape(node.input(7), (heads, 1)))
    bias = node.input(8)
    bias = node.reshape(bias, (heads, floordiv(product(shape_of(bias)), heads)))
    total = node.op("add", *node.broadcast(decay, bias))
    if kind in ("softplus", "qwen"):
        made = lower_as(node, "Softplus", [total], {})
        return node.op("mul", *node.broadcast(made, node.op("neg", rate)))
    made = node.op("logistic", node.op("mul", *node.broadcast(total, rate)))
    return node.op("mul", made, node.fill(node.number("gate_lower_bound", -5.0), like=made))


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
