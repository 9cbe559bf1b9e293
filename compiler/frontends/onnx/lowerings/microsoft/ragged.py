"""Texts of unequal length one behind another, without padding, as the schedulers of
onnxruntime-genai have them: VarlenCausalConvWithState and PagedAttention. Where texts begin, and
the last one ends, are integers [texts + 1]."""

from __future__ import annotations

from ingot.compiler.frontends.activations import swish
from ingot.compiler.frontends.cached_tokens import Blocks
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import (
    Softmax,
    attend,
    mask_of,
    positions,
    scale_of,
)
from ingot.compiler.frontends.onnx.lowerings.microsoft.grouped_query import rotated, split
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.spans import Spans
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim, product
from ingot.hal.spec import dtype

__all__ = ["Samples", "captured", "spans_of"]


def spans_of(node: Node, starts: Value, total: Dim) -> Spans:
    """Whose `total` tokens are. The call ends where the texts have more or fewer together."""
    key = ("spans", starts, id(node.builder.ops))
    if key not in node.remembered:
        texts = shape_of(starts)[0] - 1
        wide = node.convert(starts, "i64")
        counts = node.op("sub", *(node.sliced(wide, 0, at, texts + at) for at in (1, 0)))
        what = "the greatest number of tokens of a text"
        longest = node.define_size(node.reduce(counts, [0], "max"), "longest", what, 0, total)
        node.require(node.reduce(counts, [0], "add"), total, "the number of tokens of all texts")
        node.remembered[key] = Spans(node.builder, counts, total, longest)
    spans: Spans = node.remembered[key]
    return spans


def captured(node: Node, spans: Spans, x: Value, wanted: Value, capacity: int) -> Value:
    """[texts, capacity, ...]: of x[tokens, ...] the first ones of each text, at most as many as
    `wanted`, i32[texts]; behind them zeros."""
    shape = (spans.texts, capacity)
    place = node.op("iota", dtype=dtype("i64"), shape=shape, axis=1)
    starts, most, counts = (
        node.op("broadcast", each, shape=shape, dimensions=(0,))
        for each in (spans.starts, node.convert(wanted, "i64"), spans.counts)
    )
    rows = node.op("take", x, node.op("add", starts, place), axis=0, mode="clamp")
    is_there = node.compare("lt", place, node.op("min", most, counts))
    is_there = node.op("broadcast", is_there, shape=shape_of(rows), dimensions=(0, 1))
    return node.op("select", is_there, rows, 0)


@lowering("VarlenCausalConvWithState", domain=MICROSOFT)
def causal_convolution(node: Node) -> tuple[Value, Value, Value | None]:
    """Each channel of [tokens, channels] by its own window, which sees no later token and no other
    text; the samples that the next call needs, [texts, channels, kept]; and captured tokens."""
    x, weight, past = node.input(0), node.input(1), node.input(4)
    deltas = node.optional(6) is not None or node.optional(7) is not None
    unsupported(deltas, "its window has a delta for each token: leave kernel_delta out")
    kind, capacity = node.text("activation", "none"), node.integer("state_update_capacity", 0)
    unsupported(kind not in ("none", "silu", "swish"), f"its activation is '{kind}'")
    total, channels = shape_of(x)
    taps, step = known_dim(shape_of(weight)[2]), node.integer("dilation", 1)
    kept = (taps - 1) * step
    samples = Samples(node, spans_of(node, node.input(2), total), past, kept)
    spans = samples.spans
    sums = None if node.optional(3) is None else widen(node, node.input(3))
    for tap in range(taps):
        seen = samples.before((taps - 1 - tap) * step)
        factor = node.reshape(widen(node, node.sliced(weight, -1, tap, tap + 1)), (channels,))
        sums = add(node, node.op("mul", *node.broadcast(widen(node, seen), factor)), sums)
    assert sums is not None
    result = narrow(node, sums if kind == "none" else swish(node, sums), x)
    update = captured(node, spans, x, node.input(5), capacity) if capacity else None
    return result, samples.last(), update


class Samples:
    """The tokens x[tokens, channels] of a node, in front of which those of `past`, [texts,
    channels, kept], stand in each text."""

    def __init__(self, node: Node, spans: Spans, past: Value, kept: int) -> None:
        self.node, self.spans, self.kept = node, spans, kept
        x = node.input(0)
        past = node.agree(past, (spans.texts, shape_of(x)[1], kept))
        rows = node.reshape(node.transpose(past, (0, 2, 1)), (spans.texts * kept, shape_of(x)[1]))
        self.rows = node.op("concatenate", x, rows, axis=0)

    def _at(self, place: Value, text: Value, start: Value) -> Value:
        """Those at places of texts that begin there; negative ones are of the past."""
        node, kept = self.node, self.kept
        before = node.op("mul", text, kept)
        before = add(node, before, node.size(self.spans.total + kept))
        now = node.compare("ge", place, 0)
        row = node.op("add", node.op("select", now, start, before), place)
        return node.op("take", self.rows, row, axis=0, mode="clamp")

    def before(self, step: int) -> Value:
        """What stands so many places in front of each token."""
        node, spans = self.node, self.spans
        start = node.op("take", spans.starts, spans.text, axis=0, mode="clamp")
        place = node.op("sub", spans.place, step)
        return self._at(place, spans.text, start)

    def last(self) -> Value:
        """The last ones of each text, [texts, channels, kept]."""
        node, shape = self.node, (self.spans.texts, self.kept)
        text, step = (node.op("iota", dtype=dtype("i64"), shape=shape, axis=at) for at in (0, 1))
        count, start = (
            node.op("broadcast", each, shape=shape, dimensions=(0,))
            for each in (self.spans.counts, self.spans.starts)
        )
        place = node.op("add", node.op("sub", count, self.kept), step)
        return node.transpose(self._at(place, text, start), (0, 2, 1))


@lowering("PagedAttention", domain=MICROSOFT)
def paged_attention(node: Node) -> tuple[Value, Value, Value]:
    """Attention of [tokens, heads * size] over caches [blocks, rows, heads, size], of which a
    table says whose they are: [tokens, heads * size], and the caches with the new tokens."""
    _refuse(node)
    caches, starts = (node.input(3), node.input(4)), node.input(5)
    total = shape_of(node.input(0))[0]
    spans = spans_of(node, starts, total)
    past = node.convert(node.agree(node.input(6), (spans.texts,)), "i64")
    table = node.agree_on(node.input(7), 0, spans.texts)
    counts = add(node, past, spans.counts)
    _check_room(node, past, counts, shape_of(table)[1] * shape_of(caches[0])[1])
    places = add(node, spans.place, node.op("take", past, spans.text, axis=0, mode="clamp"))
    given = [None if x is None else _as_batch(node, x) for x in map(node.optional, range(3))]
    norms = (node.optional(12), node.optional(13))
    inner = node.replaced(node.opset, [*given, *[None] * 11, *norms], None)
    q, k, v = split(inner)
    if node.integer("do_rotary", 0):
        q, k = rotated(node, q, k, (node.input(8), node.input(9)), _as_batch(node, places))
    tokens = Blocks(node.builder, spans, places, table)
    if not node.integer("is_causal", 1):
        last = node.op("sub", counts, 1)
        tokens.places = node.op("take", last, spans.text, axis=0, mode="clamp")
    q, k, v = (node.reshape(each, shape_of(each)[1:]) for each in (q, k, v))
    (keys, seen_keys), (values, seen_values) = (
        tokens.put(cache, each) for cache, each in zip(caches, (k, v), strict=True)
    )
    scale, cap = scale_of(node, shape_of(q)[2]), node.number("softcap", 0.0)
    window, sink = max(node.integer("local_window_size", -1), 0), node.optional(11)
    if sink is None:
        result = tokens.attend(q, seen_keys, seen_values, scale=scale, window=window, cap=cap)
        return result, keys, values
    read = [_read(node, cache, tokens.table, counts) for cache in (keys, values)]
    ends = add(node, tokens.places, node.fill(1, like=tokens.places))
    mask = _mask(node, node.convert(spans.rows(ends), "i32"), shape_of(read[0])[2], window)
    rows = node.transpose(spans.rows(q), (0, 2, 1, 3))
    softmax = Softmax(cap, node.agree(sink, (shape_of(q)[1],)))
    result, _, _ = attend(node, rows, read[0], read[1], scale, [mask], softmax)
    result = spans.joined(node.transpose(result, (0, 2, 1, 3)))
    return node.reshape(result, (total, product(shape_of(result)[1:]))), keys, values


def _read(node: Node, cache: Value, table: Value, counts: Value) -> Value:
    """The rows of each text, [texts, heads, keys, size], as many as its pages have; zeros behind
    its first `counts`, where a page may hold anything."""
    pages = node.op("take", cache, table, axis=0, mode="clamp")
    texts, columns, length, heads, size = shape_of(pages)
    rows = node.reshape(pages, (texts, columns * length, heads, size))
    place = positions(node, shape_of(rows)[:2], 1)
    counts = node.op(
        "broadcast", node.convert(counts, "i32"), shape=shape_of(place), dimensions=(0,)
    )
    is_there = node.compare("lt", place, counts)
    is_there = node.op("broadcast", is_there, shape=shape_of(rows), dimensions=(0, 1))
    rows = node.op("select", is_there, rows, 0)
    return node.transpose(rows, (0, 2, 1, 3))


def _mask(node: Node, ends: Value, keys: Dim, window: int) -> Value:
    """What hides keys that are not in front of the ends, i32[texts, longest], of queries, or that
    left their window; [texts, 1, longest, keys]."""
    shape = (*shape_of(ends), keys)
    key = positions(node, shape, 2)
    ends = node.op("broadcast", ends, shape=shape, dimensions=(0, 1))
    allowed = node.compare("lt", key, ends)
    if window:
        first = node.op("sub", ends, window)
        allowed = node.op("and", allowed, node.compare("ge", key, first))
    mask = mask_of(node, allowed, node.full(0, "f32", ()))
    return node.reshape(mask, (shape[0], 1, *shape[1:]))


def _check_room(node: Node, past: Value, counts: Value, room: Dim) -> None:
    """The call ends where a text has no room in its blocks, behind which are those of the next."""
    key = ("room", node.input(5), node.input(6), room, id(node.builder.ops))
    if key not in node.remembered:
        is_outside = node.op(
            "or",
            node.compare("lt", past, 0),
            node.compare("gt", counts, node.broadcast_to(node.size(room), shape_of(counts))),
        )
        without = node.reduce(node.convert(is_outside, "i64"), [0], "add")
        node.require(without, 0, "the number of texts for which their blocks have no room")
        node.remembered[key] = without


def _as_batch(node: Node, x: Value) -> Value:
    """[1, tokens, ...]."""
    return node.reshape(x, (1, *shape_of(x)))


def _refuse(node: Node) -> None:
    layout = node.text("kv_cache_layout", "SEPARATE")
    unsupported(layout != "SEPARATE", f"its kv_cache_layout is '{layout}': use 'SEPARATE'")
    for name in ("k_quant_type", "v_quant_type", "qk_rotation", "v_rotation"):
        kind = node.text(name, "NONE")
        unsupported(kind != "NONE", f"its {name} is '{kind}': caches must be of plain floats")
    unsupported(node.optional(10) is not None, "it has a slot_mapping: leave it out")
    unsupported(node.integer("rotary_offset", 0) != 0, "its rotary_offset is not 0")
    cache = type_of(node.input(3))
    unsupported(not cache.dtype.is_float, f"its cache {cache} is quantised: use floats")
    rows = cache.shape[1]
    unsupported(not isinstance(rows, int), f"its blocks have {rows} rows: make the dim a number")
    is_cut = not node.integer("is_causal", 1) and node.integer("local_window_size", -1) > 0
    unsupported(is_cut, "it has a window, but is not causal")
