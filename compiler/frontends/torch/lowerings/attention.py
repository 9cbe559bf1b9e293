"""Scaled dot product attention, as products and a softmax, which the compiler fuses again."""

from __future__ import annotations

import math
from typing import Any

from ingot.compiler.frontends.activations import gelu
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import log_sum_exp, narrow, softmax, widen
from ingot.compiler.frontends.torch.lowering import TRAINING, Context, lowering
from ingot.compiler.frontends.torch.lowerings.contractions import linear, matmul
from ingot.compiler.frontends.torch.lowerings.normalizations import layer_norm
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("aten.scaled_dot_product_attention.default")
def attention(
    c: Context,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Value:
    """[..., m, k], [..., n, k] and [..., n, v]: [..., m, v]."""
    if dropout_p:
        raise UnsupportedNode(TRAINING)
    k, v = (_repeated(c, widen(c, each), q) if enable_gqa else widen(c, each) for each in (k, v))
    scores = _scores(c, widen(c, q), k, attn_mask, is_causal, scale)
    weights = softmax(c, scores, [type_of(scores).rank - 1], False)
    if attn_mask is not None:
        weights = _without_empty_rows(c, scores, weights)
    return narrow(c, matmul(c, weights, v), q)


def _scores(
    c: Context, q: Value, k: Value, mask: Value | None, is_causal: bool, scale: Any
) -> Value:
    """What the softmax is of: [..., m, n]."""
    element, width = type_of(q).dtype, shape_of(q)[-1]
    if scale is None and isinstance(width, int):
        scale = 1 / math.sqrt(width)
    factor = c.op("rsqrt", c.size(width, element)) if scale is None else c.scalar(scale, element)
    rank = type_of(k).rank
    scores = matmul(c, q, c.transpose(k, (*range(rank - 2), rank - 1, rank - 2)))
    scores = c.op("mul", scores, c.broadcast_to(factor, shape_of(scores)))
    return _masked(c, scores, mask, is_causal)


@lowering("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    c: Context, q: Value, k: Value, v: Value, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Value | None = None, scale: Any = None,
) -> list[Value]:  # fmt: skip
    """The result, and the logarithm of the sum of the exponentials of each row; 0 of an empty
    one. Fewer heads of k and v serve several of q each."""
    if shape_of(k)[-3] != shape_of(q)[-3]:
        k, v = _repeated(c, k, q), _repeated(c, v, q)
    found = attention(c, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    scores = _scores(c, widen(c, q), widen(c, k), attn_mask, is_causal, scale)
    sums = log_sum_exp(c, scores, [type_of(scores).rank - 1], keep=False)
    empty = c.compare("eq", sums, -math.inf)
    return [found, c.op("select", empty, 0, sums)]


def _repeated(c: Context, x: Value, q: Value) -> Value:
    """Each head as often as it serves heads of q."""
    times = dims.floordiv(shape_of(q)[-3], shape_of(x)[-3])
    return c.repeated(x, type_of(x).rank - 3, times)


def _masked(c: Context, scores: Value, mask: Value | None, is_causal: bool) -> Value:
    element, shape = type_of(scores).dtype, shape_of(scores)
    if is_causal:
        rank = len(shape)
        rows, columns = (c.op("iota", dtype=_I64, shape=shape[-2:], axis=axis) for axis in (0, 1))
        kept = c.broadcast_to(c.compare("le", columns, rows), shape)
        assert rank >= 2
        scores = c.op("select", kept, scores, c.full(-math.inf, element, shape))
    if mask is None:
        return scores
    if type_of(mask).dtype.is_boolean:
        return c.op("select", *c.broadcast(mask, scores, c.full(-math.inf, element, ())))
    return c.op("add", *c.broadcast(scores, c.convert(mask, element)))


def _without_empty_rows(c: Context, scores: Value, weights: Value) -> Value:
    """Rows that the mask leaves nothing of have no weights."""
    greatest = c.reduce(scores, [type_of(scores).rank - 1], "max", keep=True)
    empty = c.compare("eq", greatest, -math.inf)
    wide, weights = c.broadcast(empty, weights)
    return c.op("select", wide, 0, weights)


@lowering("aten._scaled_dot_product_attention_math.default")
def attention_by_products(
    c: Context, q: Value, k: Value, v: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, dropout_mask: Value | None = None, *,
    scale: Any = None, enable_gqa: bool = False,
) -> list[Value]:  # fmt: skip
    result = attention(
        c, q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return [result, c.filled(0, type_of(q).dtype, c.declared[1].shape if len(c.declared) > 1
                             and c.declared[1] is not None else ())]  # fmt: skip


@lowering("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    c: Context, x: Value, width: int, heads: int, qkv_weight: Value, qkv_bias: Value,
    out_weight: Value, out_bias: Value, use_gelu: bool, norm_first: bool, eps: float,
    norm1: Value, norm1_bias: Value, norm2: Value, norm2_bias: Value,
    weight1: Value, bias1: Value, weight2: Value, bias2: Value,
    mask: Value | None = None, mask_type: int | None = None,
) -> Value:  # fmt: skip
    """nn.TransformerEncoderLayer in inference, of [b, n, width]; `mask` is not 0 where it hides."""
    batch, length, _ = shape_of(x)
    parts = (batch, heads, length, width // heads)
    kept = None
    if mask is not None:
        kept = c.op("not", c.convert(mask, "i1"))
        if mask_type == 1:  # of keys [b, n]
            kept = c.reshape(kept, (batch, 1, 1, length))

    def attend(x: Value) -> Value:
        split = (batch, length, 3, heads, width // heads)
        rows = c.reshape(linear(c, x, qkv_weight, qkv_bias), split)
        turned = c.transpose(rows, (2, 0, 3, 1, 4))
        q, k, v = (c.reshape(c.sliced(turned, 0, at, at + 1), parts) for at in range(3))
        found = c.transpose(attention(c, q, k, v, kept), (0, 2, 1, 3))
        return linear(c, c.reshape(found, shape_of(x)), out_weight, out_bias)

    def feed(x: Value) -> Value:
        inner = linear(c, x, weight1, bias1)
        return linear(c, gelu(c, inner) if use_gelu else c.op("max", inner, 0), weight2, bias2)

    for step, weight, bias in ((attend, norm1, norm1_bias), (feed, norm2, norm2_bias)):
        if norm_first:
            x = c.op("add", x, step(layer_norm(c, x, [width], weight, bias, eps)))
        else:
            x = layer_norm(c, c.op("add", x, step(x)), [width], weight, bias, eps)
    return x
