"""What the attention ops of `com.microsoft` share: heads, masks, caches, and the products.

Products and softmax are written so that the compiler makes one `attention` of them; scores that
are capped, joined by a sink, or results themselves are computed one after another, in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lower_as
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, known_dims
from ingot.hal.spec import dtype

__all__ = [
    "Softmax",
    "attend",
    "heads_of",
    "mask_of",
    "merge_heads",
    "positions",
    "scale_of",
    "write_rows",
]


_MOST = 64
"""Queries that kernels for the CPU take at once."""


def heads_of(node: Node, x: Value, heads: int) -> Value:
    """[batch, sequence, heads * size] as [batch, sequence, heads, size]."""
    batch, length, width = shape_of(x)
    unsupported(
        isinstance(width, int) and width % heads != 0,
        f"its {width} features cannot be split into {heads} heads: fix the model",
    )
    return node.reshape(x, (batch, length, heads, width // heads))


def merge_heads(node: Node, x: Value) -> Value:
    """[batch, heads, sequence, size] as [batch, sequence, heads * size]."""
    batch, heads, length, size = shape_of(x)
    return node.reshape(node.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def scale_of(node: Node, size: Dim) -> float:
    """The factor of the scores: an attribute, or by the size of a head."""
    scale = node.number("scale", 0.0)
    unsupported(not scale and not isinstance(size, int), f"its heads have {size} features")
    return scale or 1 / math.sqrt(known_dim(size))


def positions(node: Node, shape: Sequence[Dim], axis: int) -> Value:
    """The place along `axis` of each element of an i32 tensor."""
    return node.op("iota", dtype=dtype("i32"), shape=tuple(shape), axis=axis)


def mask_of(node: Node, allowed: Value, like: Value, blocked: float | None = None) -> Value:
    """What is added to scores: 0 where allowed, else `blocked`, or the least number."""
    element = type_of(like).dtype
    if blocked is None:
        blocked = -65504.0 if element.name == "f16" else float(np.finfo(np.float32).min) * 0.99
    shape = shape_of(allowed)
    zero, low = (node.full(number, element, shape) for number in (0.0, blocked))
    return node.op("select", allowed, zero, low)


@dataclass(frozen=True)
class Softmax:
    """How weights are made of scores: these capped to +- `cap` first, and `sink`, a number per
    head, joined to the sum, or 0 for all heads if `smooth`."""

    cap: float = 0.0
    sink: Value | None = None
    smooth: bool = False

    @property
    def is_plain(self) -> bool:
        return not self.cap and self.sink is None and not self.smooth


def attend(
    node: Node,
    q: Value,
    k: Value,
    v: Value,
    scale: float,
    masks: Sequence[Value | None] = (),
    softmax: Softmax | None = None,
    want_scores: bool = False,
) -> tuple[Value, Value, Value]:
    """softmax(scale q k^T + masks) v for q [b, n, s, d], k [b, m, t, d], v [b, m, t, e], where m
    divides n; masks spread to [b, n, s, t]: the result [b, n, s, e], scores and weights, both
    [b, n, s, t]. Neighbouring heads of q that share one of k become rows of one matrix, which
    reads keys and values once, where products stay apart or heads have a few rows each."""
    softmax = softmax or Softmax()
    batch, _, length, size = shape_of(q)
    keys = shape_of(k)[2]
    heads, groups = known_dims((shape_of(q)[1], shape_of(k)[1]))  # both are attributes
    unsupported(heads % groups != 0, f"its {heads} heads cannot share {groups} of keys")
    share = heads // groups
    given = q
    if want_scores or not softmax.is_plain:
        q, k, v = (widen(node, each) for each in (q, k, v))
    elif share > 1 and not _are_few(share, length):
        k, v = (node.repeated(each, 1, share) for each in (k, v))
        groups, share = heads, 1
    whole = (batch, heads, length, keys)
    grouped = (batch, groups, share * length, keys)
    mask = add(node, *masks) if any(each is not None for each in masks) else None
    rows = node.reshape(q, (batch, groups, share * length, size))
    scores = _dot(node, rows, k, 3)
    scores = node.op("mul", scores, scale)
    if softmax.cap:
        cap = node.fill(softmax.cap, like=scores)
        scores = node.op("mul", node.op("tanh", node.op("div", scores, cap)), cap)
    if mask is not None:
        mask = node.convert(mask, type_of(scores).dtype)
        mask = _in_rank_4(node, mask)
        if share > 1 or any(a not in (1, b) for a, b in zip(shape_of(mask), whole, strict=True)):
            mask = node.reshape(node.broadcast_to(mask, whole), grouped)
        scores = add(node, scores, mask)
    weights = _weights(node, scores, softmax, (batch, groups, share, length, keys))
    result = node.reshape(_dot(node, weights, v, 2), (batch, heads, length, shape_of(v)[-1]))
    scores, weights = (node.reshape(each, whole) for each in (scores, weights))
    return narrow(node, result, given), scores, weights


def _are_few(share: int, length: Dim) -> bool:
    """Whether a kernel takes rows of all heads that share one of k at once. One row of each it
    joins by itself. Masks are made for each head then."""
    return isinstance(length, int) and length > 1 and share * length <= _MOST


def _in_rank_4(node: Node, mask: Value) -> Value:
    """The mask with axes of 1 in front."""
    shape = shape_of(mask)
    return node.reshape(mask, (*[1] * (4 - len(shape)), *shape))


def _dot(node: Node, a: Value, b: Value, contract: int) -> Value:
    """Over the last axis of a and this one of b, of each batch and head."""
    b = node.agree_on(b, contract, shape_of(a)[3])
    return node.op(
        "dot_general", a, b, lhs_batch=(0, 1), rhs_batch=(0, 1), lhs_contract=(3,),
        rhs_contract=(contract,), dtype=type_of(a).dtype,
    )  # fmt: skip


def _weights(node: Node, scores: Value, softmax: Softmax, split: Sequence[Dim]) -> Value:
    """The softmax over the last axis, whose sum a sink may join."""
    if softmax.sink is None and not softmax.smooth:
        return lower_as(node, "Softmax", [scores], {"axis": -1})
    rows = node.reshape(scores, split)
    sink = softmax.sink
    if sink is None:
        sinks = node.full(0, "f32", (*split[:-1], 1))
    else:
        column = node.reshape(widen(node, sink), (1, split[1], split[2], 1, 1))
        sinks = node.broadcast_to(column, (*split[:-1], 1))
    joined = node.op("concatenate", rows, sinks, axis=4)
    weights = lower_as(node, "Softmax", [joined], {"axis": -1})
    return node.reshape(node.sliced(weights, -1, 0, split[-1]), shape_of(scores))


def write_rows(node: Node, buffer: Value, rows: Value, starts: Value) -> Value:
    """The buffer [b, n, t, d] with rows [b, n, s, d] from place `starts`, i32[b], of axis 2 on."""
    batch = shape_of(buffer)[0]
    rows = node.convert(rows, type_of(buffer).dtype)
    zero = node.constant(0, "i32")
    if batch == 1:
        start = node.reshape(starts, ())
        return node.op("dynamic_update_slice", buffer, rows, zero, zero, start, zero)
    return node.op(
        "scatter", buffer, node.reshape(starts, (batch, 1)), rows, update_window_dims=(1, 2, 3),
        inserted_window_dims=(), input_batching_dims=(0,), scatter_indices_batching_dims=(0,),
        scatter_dims_to_operand_dims=(2,), index_vector_dim=1, kind="set", mode="skip",
    )  # fmt: skip
