"""Attention and MultiHeadAttention, and their kin for one query, with and without caches."""

from __future__ import annotations

from itertools import pairwise

from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import (
    attend,
    heads_of,
    mask_of,
    merge_heads,
    positions,
    scale_of,
    write_rows,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, known_dim

__all__ = ["attend_projected", "masks_of"]


@lowering("Attention", "DecoderMaskedSelfAttention", domain=MICROSOFT)
def attention_of_input(node: Node) -> tuple[Value | None, ...]:
    """Attention of the projections of one tensor by one merged weight; both caches are one
    tensor [2, batch, heads, past, size]."""
    unsupported(bool(node.integer("do_rotary", 0)), "its do_rotary is 1: use GroupQueryAttention")
    unsupported(node.optional(8) is not None, "it looks up beams in its cache: leave them out")
    x = node.input(0)
    projected = matmul(node, x, node.input(1), type_of(x).dtype)
    used = node.optional(6) if node.integer("past_present_share_buffer", 0) else None
    projected = add(node, projected, node.optional(2))
    mask, past, bias = (node.optional(place) for place in (3, 4, 5))
    return attend_projected(node, projected, mask, past, bias, used)


def attend_projected(
    node: Node,
    projected: Value,
    mask: Value | None,
    past: Value | None,
    bias: Value | None = None,
    used: Value | None = None,
) -> tuple[Value, Value | None]:
    """Attention of merged queries, keys and values; `bias` is added to scores, `used` says how
    much of a cache with room is in use."""
    heads = node.integer("num_heads", 1)
    width = shape_of(projected)[2]
    sizes = node.integers("qkv_hidden_sizes") or ()
    unsupported(not sizes and not isinstance(width, int), f"its weight has {width} columns")
    widths = sizes or (known_dim(width) // 3,) * 3
    ends = (0, widths[0], widths[0] + widths[1], sum(widths))
    q, k, v = (
        node.transpose(heads_of(node, node.sliced(projected, -1, a, b), heads), (0, 2, 1, 3))
        for a, b in pairwise(ends)
    )
    offset: Dim = 0
    present: Value | None = None
    if past is not None:
        shape = shape_of(past)
        both = [node.reshape(node.sliced(past, 0, at, at + 1), shape[1:]) for at in (0, 1)]
        k, cache_k, offset = _join_cache(node, k, both[0], used)
        v, cache_v, _ = _join_cache(node, v, both[1], used)
        caches = [node.reshape(each, (1, *shape_of(each))) for each in (cache_k, cache_v)]
        present = node.op("concatenate", *caches, axis=0) if node.wants(1) else None
    elif node.wants(1):
        caches = [node.reshape(each, (1, *shape_of(each))) for each in (k, v)]
        present = node.op("concatenate", *caches, axis=0)
    masks = masks_of(node, q, k, mask, bias, offset)
    result, _, _ = attend(node, q, k, v, scale_of(node, shape_of(q)[3]), masks)
    return merge_heads(node, result), present


def _join_cache(
    node: Node, new: Value, past: Value, used: Value | None
) -> tuple[Value, Value, Dim]:
    """The rows that are read, the cache behind, and at which row the new ones begin. `used`: how
    many rows of a cache with room are there already."""
    batch, heads, length, size = shape_of(new)
    past = node.agree(past, (batch, heads, shape_of(past)[2], size))
    room = shape_of(past)[2]
    if used is None:
        joined = node.op("concatenate", past, new, axis=2)
        return joined, joined, room
    before = node.define_size(
        _element(node, used), "past_sequence_length", "past_sequence_length", 0, room - length
    )
    starts = node.broadcast_to(node.size(before, "i32"), (batch,))
    cache = write_rows(node, past, new, starts)
    return node.sliced(cache, 2, 0, before + length), cache, before


def _element(node: Node, value: Value) -> Dim | Value:
    known = node.known_element(value)
    return node.reshape(value, ()) if known is None else known


def masks_of(
    node: Node, q: Value, k: Value, mask: Value | None, bias: Value | None, offset: Dim
) -> list[Value | None]:
    """What is added to the scores; `offset` is the place of the first query among the keys."""
    length, keys = shape_of(q)[2], shape_of(k)[2]
    masks = [bias]
    if mask is not None:
        masks.append(_padding_mask(node, mask, q, keys, offset))
    if node.integer("unidirectional", 0):
        key = positions(node, (length, keys), 1)
        start = node.broadcast_to(node.size(offset, "i32"), (length, keys))
        place = node.op("add", positions(node, (length, keys), 0), start)
        masks.append(mask_of(node, node.compare("le", key, place), q))
    return masks


def _padding_mask(node: Node, mask: Value, q: Value, keys: Dim, offset: Dim) -> Value:
    """What is added to scores for a mask: 1 and 0 per key, per query and key, or per query and
    key of the longest sequence; or ends of the keys, perhaps with their starts behind."""
    batch, _, length, _ = shape_of(q)
    blocked = node.number("mask_filter_value", -10000.0)
    rank = type_of(mask).rank
    if rank == 1:
        allowed = _between_ends(node, mask, batch, keys)
    else:
        if rank == 4:
            mask = node.sliced(node.sliced(mask, 2, offset, offset + length), 3, 0, keys)
        elif rank == 3:
            own = shape_of(mask)
            mask = node.reshape(mask, (own[0], 1, *own[1:]))
        else:
            mask = node.reshape(mask, (batch, 1, 1, shape_of(mask)[1]))
        mask = node.agree_on(mask, 3, keys)
        allowed = node.compare("gt", mask, 0)
    return mask_of(node, allowed, q, blocked)


def _between_ends(node: Node, mask: Value, batch: Dim, keys: Dim) -> Value:
    """Which keys lie before the end of their sequence, and not before its start: i1[batch, 1, 1,
    keys]. Behind the ends of all stand the starts of all, or else what only kernels need."""
    shape, count = (batch, 1, 1, keys), shape_of(mask)[0]
    key = positions(node, shape, 3)
    has_more = count != batch and dims.bounds(count - batch)[0] > 0
    ends = node.sliced(mask, -1, 0, batch) if has_more else node.agree_on(mask, 0, batch)
    ends = node.convert(node.reshape(ends, (batch, 1, 1, 1)), "i32")
    allowed = node.compare("lt", key, node.broadcast_to(ends, shape))
    if count == 2 * batch:
        starts = node.reshape(node.sliced(mask, -1, batch, count), (batch, 1, 1, 1))
        starts = node.broadcast_to(node.convert(starts, "i32"), shape)
        allowed = node.op("and", allowed, node.compare("ge", key, starts))
    return allowed


@lowering("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node) -> tuple[Value | None, ...]:
    """Attention of queries, keys and values in any of their forms; the caches, and the scores."""
    unsupported(node.optional(9) is not None, "it looks up beams in its cache: leave them out")
    q, k, v = _operands(node, node.optional(3))
    return _attend_split(node, q, k, v, 4, 5, 6, node.optional(8))


@lowering("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_masked_multi_head_attention(node: Node) -> tuple[Value | None, ...]:
    """As MultiHeadAttention, of one new token."""
    unsupported(node.optional(9) is not None, "it looks up beams in its cache: leave them out")
    shared = node.integer("past_present_share_buffer", 0)
    q, k, v = _operands(node, node.optional(10))
    return _attend_split(node, q, k, v, 3, 4, 5, node.optional(7) if shared else None)


@lowering("DecoderAttention", domain=MICROSOFT)
def decoder_attention(node: Node) -> tuple[Value | None, ...]:
    """Of tensors [sequence, batch, features]: of the query with itself, or with the key if
    `static_kv`, whose keys and values are the cache once there is one."""
    names = ("static_kv", "use_past", "has_layer_state", "has_key_padding_mask")
    flags = [node.known_number(place) for place in range(8, 12)]
    wrong = [name for name, flag in zip(names, flags, strict=True) if flag is None]
    unsupported(bool(wrong), f"{', '.join(wrong)} are not known: make them initializers")
    is_static, uses_past, has_state, has_mask = (bool(flag) for flag in flags)
    has_past = uses_past and has_state
    query, other, width = node.input(0), node.input(1), shape_of(node.input(0))[2]
    weight, bias = node.input(3), node.input(4)

    def project(x: Value, matrix: Value, at: int) -> Value:
        made = matmul(node, node.transpose(x, (1, 0, 2)), matrix, type_of(x).dtype)
        made = add(node, made, node.sliced(bias, -1, at * width, (at + 1) * width))
        heads = heads_of(node, made, node.integer("num_heads", 1))
        return node.transpose(heads, (0, 2, 1, 3))

    q = project(query, node.input(2), 0)
    if is_static and has_past:
        k, v = (node.agree_on(node.input(place), 1, shape_of(q)[1]) for place in (6, 7))
    else:
        source = other if is_static else query
        k, v = (
            project(source, node.sliced(weight, -1, at * width, (at + 1) * width), at + 1)
            for at in (0, 1)
        )
        if has_past:
            k = _join_cache(node, k, node.input(6), None)[0]
            v = _join_cache(node, v, node.input(7), None)[0]
    masks: list[Value | None] = []
    if has_mask:
        seen = node.op("not", node.agree_on(node.input(5), 1, shape_of(k)[2]))
        seen = node.reshape(seen, (shape_of(q)[0], 1, 1, shape_of(k)[2]))
        masks.append(mask_of(node, seen, q, node.number("mask_filter_value", -10000.0)))
    result, _, _ = attend(node, q, k, v, scale_of(node, shape_of(q)[3]), masks)
    return node.transpose(merge_heads(node, result), (1, 0, 2)), k, v


def _attend_split(
    node: Node, q: Value, k: Value, v: Value, mask: int, bias: int, past: int, used: Value | None
) -> tuple[Value | None, ...]:
    """Of [batch, heads, sequence, size], with the places of the inputs."""
    offset: Dim = 0
    caches = node.optional(past), node.optional(past + 1)
    present = k, v
    if caches[0] is not None and caches[1] is not None:
        k, present_k, offset = _join_cache(node, k, caches[0], used)
        v, present_v, _ = _join_cache(node, v, caches[1], used)
        present = present_k, present_v
    masks = masks_of(node, q, k, node.optional(mask), node.optional(bias), offset)
    result, scores, _ = attend(
        node, q, k, v, scale_of(node, shape_of(q)[3]), masks, want_scores=node.wants(3)
    )
    shown = node.convert(scores, type_of(q).dtype) if node.wants(3) else None
    return merge_heads(node, result), *present, shown


def _operands(node: Node, bias: Value | None) -> tuple[Value, Value, Value]:
    """q, k and v as [batch, heads, sequence, size] with the bias added: k and v may have that
    form, one of them may hold the others behind its heads, or all features lie side by side."""
    heads = node.integer("num_heads", 1)
    q, k, v = node.input(0), node.optional(1), node.optional(2)
    if type_of(q).rank == 5:
        split = [node.sliced(q, 3, at, at + 1) for at in range(3)]
    elif k is None:
        width = shape_of(q)[2]
        unsupported(not isinstance(width, int) or width % 3 != 0, f"its query is {q.type}")
        third = known_dim(width) // 3
        split = [node.sliced(q, -1, at * third, (at + 1) * third) for at in range(3)]
    elif v is None:
        split = [q, *(node.sliced(k, 3, at, at + 1) for at in range(2))]
    else:
        split = [q, k, v]
    return _biased(node, split, heads, bias)


def _biased(
    node: Node, split: list[Value], heads: int, bias: Value | None
) -> tuple[Value, Value, Value]:
    results: list[Value] = []
    start: Dim = 0
    for each in split:
        if type_of(each).rank == 4:  # a cache, which has its bias
            results.append(node.agree_on(each, 1, heads))
            continue
        if type_of(each).rank == 5:
            batch, length, _, _, size = shape_of(each)
            each = node.reshape(each, (batch, length, heads * size))
        width = shape_of(each)[2]
        if bias is not None:
            each = add(node, each, node.sliced(bias, -1, start, start + width))
        start = start + width
        results.append(node.transpose(heads_of(node, each, heads), (0, 2, 1, 3)))
    q, k, v = results
    return q, k, v
