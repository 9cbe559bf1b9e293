"""Models whose texts become vectors: tokens see all of their text, and nothing is kept.

`embed(counts: i64[texts], ids: i32[s])` takes the tokens of several texts, `counts` of each, one
text behind another, and gives a vector for each, f32[texts, n], as it is: its length is not 1.
Models that rank texts have `rank` instead, of texts of two parts, which gives scores, f32[texts,
n]; where tokens of the parts differ it also takes `kinds: i32[s]`, 0 or 1.
Models that say nothing of vectors of texts have `embed_tokens`, which gives that of each token,
f32[s, n]. `capacity()` says how many tokens a text may have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.gguf.cache import Cache
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.feed_forward import active
from ingot.compiler.frontends.gguf.function_builder import FunctionBuilder
from ingot.compiler.frontends.gguf.pieces import over_rows, part, softmax
from ingot.compiler.frontends.gguf.pooling import Head
from ingot.compiler.frontends.gguf.relative import RelativeScores
from ingot.compiler.frontends.gguf.transformer import Transformer
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.frontends.spans import Spans
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Module, TensorType, Value
from ingot.compiler.ir.dims import symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["WholeTexts", "build_encoder"]

MOST_TEXTS = 256
"""Of one call."""

F32, I32, I64 = dtype("f32"), dtype("i32"), dtype("i64")
_DENSE = ("dense_2", "dense_3")
"""Products behind the pooling."""
_TYPES = "token_types.weight"


def build_encoder(weights: Weights, c: Configuration, capacity: int, producer: str) -> Module:
    """The module. CompileError: layers do what needs a cache, or attend in another way."""
    given = {
        "states": c.recurrence is not None, "convolutions": any(c.convolved),
        "keys of other layers": any(each != layer for layer, each in enumerate(c.sources)),
        "chunks of attention": c.longest > 0, "limits of scores": c.attention_cap > 0,
        "sinks": any(f"blk.{layer}.attn_sinks.weight" in weights for layer in range(c.layers)),
    }  # fmt: skip
    wrong = [name for name, is_there in given.items() if is_there]
    if wrong:
        raise CompileError(
            f"{weights.file.title} makes vectors of texts (pooling_type), but its layers have "
            f"{' and '.join(wrong)}, which is not supported there"
        )
    module = Module(attributes={"producer": producer})
    texts, total = symbol("texts"), symbol("s")
    types = {"counts": TensorType(I64, (texts,)), "ids": TensorType(I32, (total,))}
    if c.head is not None and weights.length(_TYPES) > 1:
        types["kinds"] = TensorType(I32, (total,))
    f = FunctionBuilder(module, types)
    f.function.symbols |= {"texts": (1, MOST_TEXTS), "s": (1, MOST_TEXTS * capacity)}
    counts, *tokens = f.arguments
    spans = f.spans(counts, total, capacity)
    weights.open(f.b)
    network = Transformer(c, weights, f.b, capacity > c.rope.original)
    seen = WholeTexts(c, f.b, spans)
    if c.pooling == "tokens":
        f.end("embed_tokens", vectors=network.hidden(tokens[0], seen, total))
    elif c.head is None:
        f.end("embed", vectors=_dense(weights, _pooled(network, seen, tokens)))
    else:
        f.end("rank", scores=_scores(network, _pooled(network, seen, tokens), c.head))
    f = FunctionBuilder(module, {})
    f.end("capacity", tokens=f.b.constant(capacity, "i64"))
    return module


def _pooled(network: Transformer, seen: WholeTexts, tokens: Sequence[Value]) -> Value:
    """The vectors of texts, f32[texts, width], of `tokens`: their ids, and perhaps their kinds."""
    spans, pooling, (ids, *kinds) = seen.spans, network.c.pooling, tokens
    if pooling == "mean":
        return _mean(network.hidden(ids, seen, spans.total, *kinds), spans)
    return network.hidden(ids, seen, spans.starts if pooling == "first" else spans.last, *kinds)


def _dense(weights: Weights, x: Value) -> Value:
    """What products behind the pooling make of vectors, f32[texts, n]."""
    for name in _DENSE:
        if f"{name}.weight" in weights:
            x = weights.linear(x, name, weights.length(f"{name}.weight"))
    return x


def _scores(network: Transformer, x: Value, head: Head) -> Value:
    """The scores that vectors x[texts, width] have, f32[texts, n]."""
    weights, b = network.weights, network.b
    has_hidden = "cls.weight" in weights
    if has_hidden:
        x = active(weights.linear(x, "cls", weights.length("cls.weight")), head.activation, b)
        if "cls.norm.weight" in weights:
            x = network.norm(x, "cls.norm")
    if "cls.output.weight" in weights or not has_hidden:
        x = weights.linear(x, "cls.output", weights.length("cls.output.weight"))
    if not head.is_choice:
        return x
    (_, count) = tensor_type(x).shape
    if count != 2:
        raise CompileError(
            f"{weights.file.title} has {count} scores, but its labels are yes and no: expected 2"
        )
    return part(softmax(x, b), 1, 0, 1, b)


def _mean(x: Value, spans: Spans) -> Value:
    """Of the tokens of each text, f32[texts, width], of x[total, width]."""
    b, rows = spans.b, spans.rows(x)
    shape, is_token = tensor_type(rows).shape, spans.is_token
    assert is_token is not None
    is_token = b.value("broadcast", is_token, shape=shape, dimensions=(0, 1))
    sums = b.value("select", is_token, rows, b.full(0.0, F32, shape))
    sums = b.value("reduce", sums, axes=(1,), kind="add")
    return over_rows("div", sums, b.value("convert", spans.counts, dtype=F32), b)


class WholeTexts(Cache):
    """Tokens in the place of a cache: keys and values are those of the call."""

    def __init__(self, c: Configuration, b: Builder, spans: Spans) -> None:
        self.c, self.b, self.spans, self.positions = c, b, spans, spans.place
        self.masks: dict[object, Value] = {}  # by whether a layer has a window
        self.relative: RelativeScores | None = None

    def attend(self, q: Value, k: Value, v: Value, layer: int, sinks: Value | None) -> Value:
        """What tokens with q[count, heads, d] make of k[count, kv_heads, d] and
        v[count, kv_heads, e] of their texts, [count, heads * e]."""
        b, is_local = self.b, self.c.has_window(layer)
        added = None if self.relative is None else self.relative.of(layer)
        if (is_local, added) not in self.masks:
            self.masks[is_local, added] = self._mask(self.c.window if is_local else 0, added)
        rows = [
            b.value("transpose", self.spans.rows(x), permutation=(0, 2, 1, 3)) for x in (q, k, v)
        ]
        options = {"scale": self.c.scale, "empty": True}
        y = b.value("attention", *rows, self.masks[is_local, added], **options)
        y = self.spans.joined(b.value("transpose", y, permutation=(0, 2, 1, 3)))
        count, heads, length = tensor_type(y).shape
        return b.value("reshape", y, shape=(count, heads * length))

    def scores(self, weights: Weights) -> RelativeScores:
        """Those of tokens by how far they are from each other."""
        places = self.b.value("iota", dtype=I64, shape=(self.spans.longest,), axis=0)
        return RelativeScores(self.c, weights, places, self.spans.longest)

    def _mask(self, window: int, scores: Value | None) -> Value:
        """What scores have added, [texts, heads or 1, queries or 1, longest]: -inf for keys that a
        token does not see, and `scores` f32[heads, queries, longest]. `window`: positions on both
        sides together, 0 for all."""
        b, c, spans = self.b, self.c, self.spans
        is_narrow = not (window or c.slopes or c.is_causal or scores is not None)
        queries, heads = 1 if is_narrow else spans.longest, len(c.slopes) or 1
        heads = heads if scores is None else c.heads
        shape = (spans.texts, heads, queries, spans.longest)
        assert spans.is_token is not None
        seen = b.value("broadcast", spans.is_token, shape=shape, dimensions=(0, 3))
        added = b.full(0.0, F32, shape)
        if scores is not None:
            added = b.value("broadcast", scores, shape=shape, dimensions=(1, 2, 3))
        if window or c.slopes or c.is_causal:
            place, key = (b.value("iota", dtype=I64, shape=shape, axis=axis) for axis in (2, 3))
            distance = b.value("sub", place, key)
            if c.is_causal:
                zero = b.full(0, I64, shape)
                ahead = b.value("compare", distance, zero, direction="ge")
                seen = b.value("and", seen, ahead)
            far = distance if c.is_causal else b.value("abs", distance)
            if window:
                most = b.full(window - 1 if c.is_causal else window // 2, I64, shape)
                seen = b.value("and", seen, b.value("compare", far, most, direction="le"))
            if c.slopes:
                slopes = b.constant(np.array(c.slopes, np.float32) * -1)
                steep = b.value("broadcast", slopes, shape=shape, dimensions=(1,))
                added = b.value("mul", b.value("convert", far, dtype=F32), steep)
        return b.value("select", seen, added, b.full(-np.inf, F32, shape))
