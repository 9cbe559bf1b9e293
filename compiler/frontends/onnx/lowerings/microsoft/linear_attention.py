"""Linear attention of `com.microsoft`: each token changes a state, as in gated delta networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ingot.compiler.frontends.activations import softplus
from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.onnx.lowerings.microsoft.ragged import captured, spans_of
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.spans import Spans
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, floordiv, known_dim, known_dims, product

__all__: list[str] = []

_RULES = ("linear", "gated", "delta", "gated_delta")


@lowering("LinearAttentionGate", domain=MICROSOFT)
def linear_attention_gate(node: Node) -> tuple[Value, Value | None]:
    """In f32: decay_scale * softplus(a + bias), and the logistic function of b."""
    a, b = node.input(0), node.optional(3)
    element = type_of(a).dtype
    total = node.op("add", *node.broadcast(node.convert(a, "f32"), node.input(1)))
    decay = node.op("mul", *node.broadcast(softplus(node, total), node.input(2)))
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
    result, state, _ = _walked(node, (query, key, value, decay, beta), state)
    kind = type_of(node.input(0)).dtype if past is None else type_of(past).dtype
    return node.convert(result, type_of(node.input(0)).dtype), node.convert(state, kind)


def _walked(
    node: Node,
    given: tuple[Value, Value, Value, Value | None, Value | None],
    state: Value,
    spans: Spans | None = None,
    want_changes: bool = False,
) -> tuple[Value, Value, list[Value]]:
    """[batch, tokens, heads * size] by queries, keys, values, decays and betas, each [tokens,
    batch, heads, size]; the state behind the last token; and if wanted what each token adds, times
    its key, [tokens, batch, heads, size]. With `spans` the batch is 1, and texts have states of
    their own."""
    query, key, value, decay, beta = given
    _, heads, size, width = shape_of(state)
    scale = node.number("scale", 0.0) or known_dim(size) ** -0.5
    groups = max(known_dim(shape_of(query)[2]) // known_dim(heads), 1)
    query = _shared(node, query, known_dim(heads), groups)
    tokens, batch = shape_of(query)[:2]

    def step(builder: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
        inner, (states, *wholes) = node.within(builder), carried
        token = (
            None if x is None else inner.op("take", x, index, axis=0, mode="clamp")
            for x in (key, value, decay, beta)
        )
        zero, old = inner.size(0), states
        if spans is not None:
            text = inner.op("take", spans.text, index, axis=0, mode="clamp")
            old = inner.op("take", states, text, axis=0, mode="clamp")
            old = inner.reshape(old, (1, *shape_of(old)))
        state, change = _changed(inner, old, *token)
        read = _read(inner, state, inner.op("take", query, index, axis=0, mode="clamp"))
        read = inner.op("mul", read, scale)
        if spans is not None:
            state = inner.op("dynamic_update_slice", states, state, text, zero, zero, zero)
        lines = []
        for whole, new in zip(wholes, (read, change), strict=False):
            row = inner.reshape(new, (1, *shape_of(new)))
            starts = (index, *[zero] * (len(shape_of(row)) - 1))
            lines.append(inner.op("dynamic_update_slice", whole, row, *starts))
        return [state, *lines]

    carried = [state, node.full(0, "f32", (tokens, batch, heads, groups, width))]
    if want_changes:
        carried.append(node.full(0, "f32", (tokens, batch, heads, width)))
    state, made, *changes = counted_loop(node.builder, node.size(tokens), carried, step)
    result = node.transpose(made, (1, 0, 2, 3, 4))
    return node.reshape(result, (batch, tokens, heads * groups * width)), state, changes


@lowering("GatedDeltaNet", domain=MICROSOFT)
def gated_delta_net(node: Node) -> tuple[Value, Value, Value | None]:
    """As LinearAttention, of [tokens of all texts, heads, size] or [batch, tokens, heads, size],
    with what comes before: norms of queries and keys, and what decays and betas are made of. The
    state lies [batch, heads, size of values, size of keys]. Texts that differ in length are walked
    one behind another; the third result is what their first tokens change."""
    _check_rule(node)
    parts, past, starts = _parts(node), node.optional(6), node.optional(3)
    count: Dim = shape_of(parts[0])[0] if past is None else shape_of(past)[0]
    side_by_side, spans = count, None
    if starts is not None:
        spans = spans_of(node, starts, shape_of(parts[0])[0])
        count, side_by_side = spans.texts, 1
    no_state = past is None and starts is None and type_of(parts[0]).rank == 3
    unsupported(no_state, "it has no state: fix the model")
    query, key, value = (_of_batch(node, x, side_by_side, 1) for x in parts)
    heads, width = shape_of(value)[2:]
    if node.integer("qk_l2_norm", 0):
        query, key = (_unit(node, x) for x in (query, key))
    shared = known_dim(heads) // known_dim(shape_of(key)[2])
    query, wide = (node.repeated(x, 2, shared) for x in (query, key))
    decay = (
        None
        if node.optional(4) is None
        else _decay(node, side_by_side, type_of(parts[0]).rank, heads)
    )
    beta = None if node.optional(5) is None else _beta(node, side_by_side)
    if past is None:
        state = node.full(0, "f32", (count, heads, shape_of(key)[3], width))
    else:
        state = node.transpose(node.agree_on(past, 0, count), (0, 1, 3, 2))
    capacity = node.integer("state_update_capacity", 0)
    given = (query, wide, value, decay, beta)
    result, state, changes = _walked(node, given, state, spans, capacity > 0)
    result = node.reshape(result, (*shape_of(parts[2])[:-2], heads, width))
    update = None
    if capacity:
        unsupported(spans is None, "it keeps changes of texts of one length: give cu_seqlens")
        assert spans is not None
        ones = node.full(1, "f32", shape_of(value)[:3])
        factor = ones if decay is None else node.op("exp", decay)
        update = _changes(node, spans, (factor, key, *changes), capacity)
    state = node.transpose(state, (0, 1, 3, 2))
    return node.convert(result, type_of(node.input(0)).dtype), state, update


def _check_rule(node: Node) -> None:
    rule = node.text("update_rule", "gated_delta")
    unsupported(rule not in _RULES, f"its update_rule is '{rule}'")
    for name, place, what in (("gated", 4, "decay"), ("delta", 5, "beta")):
        is_there = node.optional(place) is not None
        unsupported(is_there != (name in rule), f"{what} and '{rule}' differ: fix the model")


def _parts(node: Node) -> list[Value]:
    """Queries, keys and values, [..., heads, size]; the first input may hold all of them."""
    if node.optional(1) is not None:
        return [node.input(place) for place in range(3)]
    joined, past = node.input(0), node.input(6)
    *outer, joined_width = shape_of(joined)
    heads, width, size = known_dims(shape_of(past)[1:])
    whole = known_dim(joined_width)
    count = (whole - heads * width) // (2 * size)
    fits = count > 0 and 2 * count * size + heads * width == whole
    unsupported(not fits, f"its query {type_of(joined)} does not hold what its state has")
    ends = (0, count * size, 2 * count * size, whole)
    return [
        node.reshape(node.sliced(joined, -1, a, b), (*outer, (b - a) // each, each))
        for (a, b), each in zip(pairwise(ends), (size, size, width), strict=True)
    ]


def _changes(node: Node, spans: Spans, given: Sequence[Value], capacity: int) -> Value:
    """[texts, capacity * ...] of each of [tokens, 1, ...], side by side: of each text the first
    tokens that are wanted."""
    wanted, active = node.input(9), node.optional(10)
    if active is not None:
        is_active = node.compare("ne", active, 0)
        none = node.fill(0, like=wanted)
        wanted = node.op("select", node.broadcast_to(is_active, shape_of(wanted)), wanted, none)
    pieces = []
    for each in given:
        shape = shape_of(each)
        rows = node.reshape(each, (shape[0], product(shape[1:])))
        rows = captured(node, spans, rows, wanted, capacity)
        pieces.append(node.reshape(rows, (spans.texts, capacity * shape_of(rows)[2])))
    return node.op("concatenate", *pieces, axis=1)


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
    return node.op("div", *node.broadcast(x, node.op("max", size, 1e-12)))


def _beta(node: Node, batch: Dim) -> Value:
    kind = node.text("beta_activation", "none")
    unsupported(kind not in ("none", "sigmoid"), f"its beta_activation is '{kind}'")
    beta = _of_batch(node, node.input(5), batch, 0)
    beta = node.reshape(beta, (*shape_of(beta), 1))
    return beta if kind == "none" else node.op("logistic", beta)


def _decay(node: Node, batch: Dim, rank: int, heads: Dim) -> Value:
    """The logarithm of what the state is multiplied with, per head or per element of a key, of
    which keys of this rank have one axis more or as many."""
    given, kind = node.input(4), node.text("gate_activation", "none")
    inner = type_of(given).rank - rank + 1
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
        made = softplus(node, total)
        return node.op("mul", *node.broadcast(made, node.op("neg", rate)))
    made = node.op("logistic", node.op("mul", *node.broadcast(total, rate)))
    return node.op("mul", made, node.number("gate_lower_bound", -5.0))


def _changed(
    node: Node,
    state: Value,
    key: Value | None,
    value: Value | None,
    decay: Value | None,
    beta: Value | None,
) -> tuple[Value, Value]:
    """exp(decay) * state + key x value, and the value; with beta, in place of the value it times
    what the value differs by from what the key finds."""
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
    added = node.op("broadcast", value, shape=shape, dimensions=(0, 1, 3))
    return node.op("add", state, node.op("mul", key, added)), value


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
