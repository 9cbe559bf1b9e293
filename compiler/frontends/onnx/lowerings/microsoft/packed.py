"""Texts without their padding, one after another: RemovePadding, RestorePadding, and the attention
that onnxruntime's packing mode puts between them."""

from __future__ import annotations

from ingot.compiler.frontends.indexed import scatter_rows
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.multi_head import attend_projected
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dims

__all__: list[str] = []


@lowering("RemovePadding", domain=MICROSOFT)
def remove_padding(node: Node) -> tuple[Value, ...]:
    """[batch, n, size] as [tokens, size]; where each token stood, those of the padding behind,
    i32[batch, n]; where each text begins and the last one ends; the length of the longest."""
    x, counts = node.input(0), node.convert(node.input(1), "i32")
    batch, length, size = shape_of(x)
    counts = node.agree(counts, (batch,))
    place = node.op("iota", dtype=type_of(counts).dtype, shape=(batch, length), axis=1)
    ends = node.op("broadcast", counts, shape=(batch, length), dimensions=(0,))
    is_text = node.reshape(node.compare("lt", place, ends), (batch * length,))
    is_padding = node.op("not", is_text)
    text, padding = (
        node.convert(node.reshape(each, shape_of(each)[1:]), "i32")
        for each in (node.nonzero(is_text, "tokens"), node.nonzero(is_padding, "padding"))
    )
    rows = node.op("take", node.reshape(x, (batch * length, size)), text, axis=0, mode="clamp")
    places = node.op("concatenate", text, padding, axis=0)
    sums = node.op("cumulative", counts, axis=0, kind="add")
    starts = node.op("concatenate", node.full(0, "i32", (1,)), sums, axis=0)
    longest = node.reduce(counts, [0], "max", keep=True)
    return rows, node.reshaped(places, (batch, length)), starts, longest


@lowering("RestorePadding", domain=MICROSOFT)
def restore_padding(node: Node) -> Value:
    return _restored(node, node.input(0), node.input(1))


def _restored(node: Node, x: Value, places: Value) -> Value:
    """[tokens, size] as [batch, n, size], with zeros between texts."""
    (batch, length), (tokens, size) = shape_of(places), shape_of(x)
    whole = node.full(0, type_of(x).dtype, (batch * length, size))
    rows = scatter_rows(node, whole, _places(node, places, tokens), x, "set")
    return node.reshape(rows, (batch, length, size))


def _places(node: Node, places: Value, tokens: Dim) -> Value:
    """Where each token stood, i32[tokens]."""
    batch, length = shape_of(places)
    return node.sliced(node.reshape(places, (batch * length,)), -1, 0, tokens)


@lowering("PackedAttention", domain=MICROSOFT)
def packed_attention(node: Node) -> Value:
    """Attention of the projections of tokens by one merged weight."""
    x = node.input(0)
    projected = matmul(node, x, node.input(1), type_of(x).dtype)
    return _attended(node, add(node, projected, node.optional(2)), 3)


@lowering("PackedMultiHeadAttention", domain=MICROSOFT)
def packed_multi_head_attention(node: Node) -> Value:
    """Attention of queries, keys and values, which may lie side by side for each head."""
    k, v = node.optional(1), node.optional(2)
    if k is None or v is None:
        tokens, heads, _, size = shape_of(node.input(0))
        whole = node.transpose(node.input(0), (0, 2, 1, 3))
        joined = node.reshape(whole, (tokens, 3 * heads * size))
    else:
        split = (node.input(0), k, v)
        joined = node.op("concatenate", *split, axis=1)
        node = node.revised(node.opset)
        node.set_attribute("qkv_hidden_sizes", known_dims(shape_of(each)[1] for each in split))
    return _attended(node, add(node, joined, node.optional(3)), 4)


def _attended(node: Node, projected: Value, first: int) -> Value:
    """Attention within each text: [tokens, size]; inputs from number `first` tell the texts."""
    places, starts, bias = node.input(first), node.input(first + 1), node.optional(first + 2)
    batch = shape_of(places)[0]
    starts = node.agree(node.convert(starts, "i32"), (batch + 1,))
    lengths = node.op("sub", *(node.sliced(starts, 0, at, batch + at) for at in (1, 0)))
    padded = _restored(node, projected, places)
    result, _ = attend_projected(node, padded, lengths, None, bias)
    batch, length, size = shape_of(result)
    rows = node.reshape(result, (batch * length, size))
    tokens = shape_of(projected)[0]
    return node.op("take", rows, _places(node, places, tokens), axis=0, mode="clamp")
