"""Tokens passed through a state one after another, where each feature of keys has a decay of its
own: one token, or several of heads of one value, of which a chunk is no product of matrices.

    S[k, v] = exp(g[k]) S[k, v] + key[k] d[v],  y[v] = sum of query[k] S[k, v]

where d is the value, or for the delta rule beta (value - what the state that decayed gives for the
key). g is `decay`, or `decay` of the head times its `rates`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ingot.compiler.frontends.gguf.chunks import Steps
from ingot.compiler.frontends.gguf.configuration import Recurrence
from ingot.compiler.frontends.gguf.pieces import over_rows
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["each_in_turn", "passed_in_turn"]

F32 = dtype("f32")
Step = Callable[[Builder, Sequence[Value], Value], tuple[Value, Value]]


def passed_in_turn(b: Builder, r: Recurrence, steps: Steps, state: Value) -> tuple[Value, Value]:
    """The state[heads, key, value] behind all tokens, and what they read, [count, heads, value]."""
    (_, heads, value) = tensor_type(steps.value).shape
    rows = [steps.query, steps.key, steps.value, steps.decay]
    rows += [] if steps.beta is None else [steps.beta]

    def step(inner: Builder, own: Sequence[Value], state: Value) -> tuple[Value, Value]:
        query, key, value, decay, *beta = own
        parts = {"query": query, "key": key, "value": value, "decay": decay}
        one = replace(steps, **parts, beta=beta[0] if beta else None)
        return _stepped(inner, r, one, state)

    return each_in_turn(b, rows, state, step, (heads, value))


def each_in_turn(
    b: Builder, rows: Sequence[Value], state: Value, step: Step, shape: Sequence[Dim]
) -> tuple[Value, Value]:
    """The state behind all tokens, and what they read, [count, *shape]. `step` takes what a token
    has of each of `rows`, [1, ...], and the state; it gives that behind the token, and what it
    reads, [1, *shape]."""
    count = tensor_type(rows[0]).shape[0]
    if count == 1:
        return step(b, rows, state)

    def body(inner: Builder, place: Value, before: Sequence[Value]) -> Sequence[Value]:
        zeros = [inner.constant(0, "i64")] * len(shape)
        state, y = step(inner, [_row(inner, x, place) for x in rows], before[0])
        return [state, inner.value("dynamic_update_slice", before[1], y, place, *zeros)]

    made = b.full(0.0, F32, (count, *shape))
    last, y = counted_loop(b, b.number(count, dtype("i64")), [state, made], body)
    return last, y


def _row(b: Builder, x: Value, place: Value) -> Value:
    """That of one token, [1, ...]."""
    rest = tensor_type(x).shape[1:]
    zeros = [b.constant(0, "i64")] * len(rest)
    return b.value("dynamic_slice", x, place, *zeros, sizes=(1, *rest))


def _stepped(b: Builder, r: Recurrence, steps: Steps, state: Value) -> tuple[Value, Value]:
    """The state behind one token, and what that reads, [1, heads, value]."""
    shape = heads, keys, values = r.state

    def of_keys(x: Value) -> Value:
        """x[1, heads or 1, key] for the whole state."""
        if tensor_type(x).shape[1] == 1:
            flat, axes = b.value("reshape", x, shape=(keys,)), (1,)
            return b.value("broadcast", flat, shape=shape, dimensions=axes)
        x = b.value("reshape", x, shape=(heads, keys))
        return b.value("broadcast", x, shape=shape, dimensions=(0, 1))

    def read(x: Value) -> Value:
        """What the state gives for x of the whole state, [heads, value]."""
        return b.value("reduce", b.value("mul", state, x), axes=(1,), kind="add")

    decay = steps.decay
    if steps.rates is not None:
        decay = over_rows("mul", steps.rates, b.value("reshape", decay, shape=(heads,)), b)
    kept = b.value("exp", b.value("reshape", decay, shape=(heads, keys)))
    kept = b.value("broadcast", kept, shape=shape, dimensions=(0, 1))
    state, key = b.value("mul", state, kept), of_keys(steps.key)
    value = b.value("reshape", steps.value, shape=(heads, values))
    if steps.beta is not None:
        beta = b.value("reshape", steps.beta, shape=(heads,))
        value = over_rows("mul", b.value("sub", value, read(key)), beta, b)
    wide = b.value("broadcast", value, shape=shape, dimensions=(0, 2))
    state = b.value("add", state, b.value("mul", key, wide))
    return state, b.value("reshape", read(of_keys(steps.query)), shape=(1, heads, values))
