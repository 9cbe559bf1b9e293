"""GroupQueryAttention: attention over a cache, whose heads several of the queries share.

A cache that is an argument of the length before the call grows by the new rows; one that keeps
its length (its result is declared as long, or it has a number of rows) is a buffer with room, of
which `total_sequence_length` rows are read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import (
    Softmax,
    attend,
    heads_of,
    mask_of,
    merge_heads,
    positions,
    scale_of,
    write_rows,
)
from ingot.compiler.frontends.onnx.lowerings.microsoft.caches import Codes, Window
from ingot.compiler.frontends.onnx.lowerings.microsoft.rotary import angles, rotate
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = ["Seen", "attend_grouped", "rotated", "split"]

Seen = Callable[[Value, Dim], Value]
"""Which keys each query sees, i1[batch, heads, queries, keys], by the places of queries,
i32[batch, queries], and how many keys there are."""


@dataclass(frozen=True)
class _Lengths:
    """Per sequence, i32[batch], how many rows were there before and are there after the call."""

    before: Value
    after: Value


@lowering("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: Node) -> tuple[Value | None, ...]:
    """Attention, the caches, and if wanted scores or weights."""
    return attend_grouped(node)


def attend_grouped(node: Node, seen: Seen | None = None) -> tuple[Value | None, ...]:
    """As GroupQueryAttention; with `seen`, caches have room and queries see those keys alone."""
    q, k, v = split(node)
    lengths = _lengths(node, q)
    if node.integer("do_rotary", 0):
        places = node.optional(9)
        if places is None:
            places = _places(node, lengths, *shape_of(q)[:2])
        q, k = rotated(node, q, k, (node.input(7), node.input(8)), places)
    q, k, v = (node.transpose(each, (0, 2, 1, 3)) for each in (q, k, v))
    window, past = None, node.optional(3)
    if node.integer("sliding_window_cache", 0):
        unsupported(past is None, "its cache drops rows, and is missing: fix the model")
        assert past is not None
        window = Window(node, past, lengths.before, lengths.after)
    (keys, present_k), (values, present_v) = (
        _cached(node, new, lengths, output, window, seen is not None)
        for output, new in ((1, k), (2, v))
    )
    kind = node.integer("qk_output", 0)
    softmax = Softmax(
        node.number("softcap", 0.0), node.optional(11), node.integer("smooth_softmax", -1) == 1
    )
    bias = node.optional(10)
    keys_count = shape_of(keys)[2]
    if bias is not None:
        bias = node.agree_on(bias, 3, keys_count)
    seen = seen if window is None else window.seen
    masks = [None if window is not None else _mask(node, q, keys_count, lengths), bias]
    if seen is not None:
        places = _places(node, lengths, shape_of(q)[0], shape_of(q)[2])
        masks.append(mask_of(node, seen(places, keys_count), q))
    result, scores, weights = attend(
        node, q, keys, values, scale_of(node, shape_of(q)[3]), masks, softmax,
        want_scores=bool(kind),
    )  # fmt: skip
    shown = {1: scores, 2: weights}.get(kind)
    shown = None if shown is None else node.convert(shown, type_of(q).dtype)
    return merge_heads(node, result), present_k, present_v, shown


def split(node: Node) -> tuple[Value, Value, Value]:
    """q, k and v as [batch, sequence, heads, size], which may come as one tensor."""
    heads, groups = node.integer("num_heads", 1), node.integer("kv_num_heads", 1)
    q, k, v = node.input(0), node.optional(1), node.optional(2)
    if k is None or v is None:
        width = shape_of(q)[2]
        unsupported(
            k is not v or not isinstance(width, int) or width % (heads + 2 * groups) != 0,
            f"its query {q.type} does not hold {heads} + 2 * {groups} heads: fix the model",
        )
        split = heads_of(node, q, heads + 2 * groups)
        ends = (0, heads, heads + groups, heads + 2 * groups)
        q, k, v = (node.sliced(split, 2, a, b) for a, b in pairwise(ends))
    else:
        q, k, v = (heads_of(node, each, n) for each, n in ((q, heads), (k, groups), (v, groups)))
    norms = node.optional(14), node.optional(15)
    if norms[0] is not None and norms[1] is not None:
        both = node.number("qk_norm_epsilon", 1e-6)
        epsilons = [node.number(f"{side}_norm_epsilon", both) for side in "qk"]
        q, k = (
            lower_as(node, "RMSNormalization", [x, scale], {"epsilon": epsilon, "axis": -1})
            for x, scale, epsilon in zip((q, k), norms, epsilons, strict=True)
        )
    return q, k, v


def _lengths(node: Node, q: Value) -> _Lengths:
    """A prompt may be shorter than the rows that are given; it begins at 0 then."""
    batch, length = shape_of(q)[:2]
    last = node.convert(node.reshape(node.input(5), (batch,)), "i32")
    after = node.op("add", last, 1)
    rows = node.optional(16)
    if rows is None:
        rows = node.broadcast_to(node.size(length, "i32"), (batch,))
    before = node.op("sub", after, node.reshape(rows, (batch,)))
    return _Lengths(node.op("max", before, 0), after)


def _places(node: Node, lengths: _Lengths, batch: Dim, length: Dim) -> Value:
    """Which position each query has: i32[batch, sequence]."""
    first = node.broadcast_to(node.reshape(lengths.before, (batch, 1)), (batch, length))
    return node.op("add", first, positions(node, (batch, length), 1))


def rotated(
    node: Node, q: Value, k: Value, tables: tuple[Value, Value], places: Value
) -> tuple[Value, Value]:
    """q and k [batch, sequence, heads, size] turned by their places, integers [batch, sequence]."""
    interleaved = bool(node.integer("rotary_interleaved", 0))
    cos, sin = angles(node, places, *tables)
    turned = [rotate(node, each, cos, sin, interleaved=interleaved) for each in (q, k)]
    return turned[0], turned[1]


def _cached(
    node: Node,
    new: Value,
    lengths: _Lengths,
    output: int,
    window: Window | None,
    has_room: bool,
) -> tuple[Value, Value]:
    """As `_extended`, for caches of any kind."""
    past, side = node.optional(output + 2), "kv"[output - 1]
    codes = None
    is_float = past is None or type_of(past).dtype.is_float
    if not is_float or node.text(f"{side}_quant_type", "NONE") != "NONE":
        unsupported(past is None, "it has codes, but no cache: fix the model")
        assert past is not None
        codes = Codes(node, side, past, node.optional(output + 11))
    kept = new if codes is None else codes.of(new)
    if window is None:
        rows, cache = _extended(node, kept, past, lengths, output, has_room)
    else:
        rows, cache = window.extended(node.input(output + 2), kept)
    return rows if codes is None else narrow(node, codes.numbers(rows), new), cache


def _extended(
    node: Node, new: Value, past: Value | None, lengths: _Lengths, output: int, has_room: bool
) -> tuple[Value, Value]:
    """The rows that are read, [batch, heads, total, size], and the cache as it is behind."""
    if past is None:
        return new, new
    batch, heads, length, size = shape_of(new)
    past = node.agree(past, (batch, heads, shape_of(past)[2], size))
    room = shape_of(past)[2]
    total = node.parts(6)[0]
    if has_room or _keeps_length(node, output):
        cache = write_rows(node, past, new, lengths.before)
        read = node.define_size(total, "total_sequence_length", "total_sequence_length", 1, room)
        return node.sliced(cache, 2, 0, read), cache
    if isinstance(total, Value):
        node.require(total, room + length, "total_sequence_length")
    else:
        node.equate(total, room + length, kept=room)
    if batch == 1:
        cache = node.op("concatenate", past, node.convert(new, type_of(past).dtype), axis=2)
    else:
        longer = node.padded(past, (0, 0, 0, 0), (0, 0, length, 0))
        cache = write_rows(node, longer, new, lengths.before)
    return cache, cache


def _keeps_length(node: Node, output: int) -> bool:
    """Whether the cache is declared as long behind the call as before, or as a positive number."""
    before = node.declared_dims(node.proto.input[output + 2])
    after = node.declared_dims(node.proto.output[output]) if node.wants(output) else None
    if after is not None and len(after) == 4 and after[2] != "" and before is not None:
        return after[2] == before[2]
    room = shape_of(node.input(output + 2))[2]
    return isinstance(room, int) and room > 0


def _mask(node: Node, q: Value, keys: Dim, lengths: _Lengths) -> Value | None:
    """What hides later keys, those that left the window, and those beyond the sequence's end."""
    batch, _, length, _ = shape_of(q)
    window, causal = node.integer("local_window_size", -1), node.integer("causal", 1)
    shape = (batch, 1, length, keys)
    key = positions(node, shape, 3)
    if not causal:
        ends = node.broadcast_to(node.reshape(lengths.after, (batch, 1, 1, 1)), shape)
        return mask_of(node, node.compare("lt", key, ends), q)
    places = node.reshape(_places(node, lengths, batch, length), (batch, 1, length, 1))
    place = node.broadcast_to(places, shape)
    allowed = node.compare("le", key, place)
    if window > 0:
        first = node.op("sub", place, window)
        allowed = node.op("and", allowed, node.compare("gt", key, first))
    return mask_of(node, allowed, q)
