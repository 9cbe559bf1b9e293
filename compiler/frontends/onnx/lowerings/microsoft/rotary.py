"""Rotary embeddings of `com.microsoft`."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import heads_of
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim

__all__ = ["angles", "rotate"]


def rotate(node: Node, x: Value, cos: Value, sin: Value, *, interleaved: bool) -> Value:
    """x [batch, sequence, heads, size] with the first features of each head turned by angles,
    whose cosines and sines are [batch or 1, sequence, half]; pairs are neighbours if
    interleaved, else half of them apart."""
    shape, wide = shape_of(x), widen(node, x)
    half = shape_of(cos)[2]
    unsupported(
        not isinstance(half, int) or (isinstance(shape[3], int) and 2 * half > shape[3]),
        f"its tables have {half} columns for heads of {shape[3]} features: fix the model",
    )
    c, s = (
        node.broadcast_to(
            node.reshape(widen(node, each), (*shape_of(each)[:2], 1, half)), (*shape[:3], half)
        )
        for each in (cos, sin)
    )
    turned = node.sliced(wide, -1, 0, 2 * half)
    if interleaved:
        pairs = node.reshape(turned, (*shape[:3], half, 2))
        a, b = (node.reshape(node.sliced(pairs, -1, i, i + 1), (*shape[:3], half)) for i in (0, 1))
    else:
        a, b = node.sliced(turned, -1, 0, half), node.sliced(turned, -1, half, 2 * half)
    first = node.op("sub", node.op("mul", a, c), node.op("mul", b, s))
    second = node.op("add", node.op("mul", b, c), node.op("mul", a, s))
    if interleaved:
        first, second = (node.reshape(each, (*shape[:3], half, 1)) for each in (first, second))
        joined = node.op("concatenate", first, second, axis=4)
        pieces = [node.reshape(joined, (*shape[:3], 2 * half))]
    else:
        pieces = [first, second]
    if shape[3] != 2 * half:
        pieces.append(node.sliced(wide, -1, 2 * half, shape[3]))
    return narrow(node, node.op("concatenate", *pieces, axis=3) if pieces[1:] else pieces[0], x)


def angles(node: Node, places: Value, *tables: Value) -> list[Value]:
    """The rows of both tables for each place."""
    return [node.op("take", table, places, axis=0, mode="check") for table in tables]


@lowering("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node) -> Value:
    """Of [batch, sequence, heads * size] or [batch, heads, sequence, size]. Positions are one per
    token, or where the sequence begins."""
    x, places, cos, sin = (node.input(place) for place in range(4))
    if type_of(places).rank < 2:
        length = shape_of(x)[2 if type_of(x).rank == 4 else 1]
        counted = node.op("iota", dtype=type_of(places).dtype, shape=(1, length), axis=1)
        first = node.broadcast_to(node.reshape(places, (1, 1)), (1, length))
        places = node.op("add", first, counted)
    return _embed(node, x, angles(node, places, cos, sin))


@lowering("MRotaryEmbedding", domain=MICROSOFT)
def multimodal_rotary_embedding(node: Node) -> Value:
    """As RotaryEmbedding, by three positions per token, each of which has some of the columns:
    one run behind the other, or every third one."""
    x, places, *tables = (node.input(place) for place in range(4))
    streams = [
        angles(node, node.reshape(each, shape_of(places)[1:]), *tables)
        for each in (node.sliced(places, 0, at, at + 1) for at in range(3))
    ]
    sections = node.integers("mrope_section") or ()
    unsupported(len(sections) != 3, f"its mrope_section is {sections}: fix the model")
    owner = [at for at, count in enumerate(sections) for _ in range(count)]
    if node.integer("mrope_layout", 0):
        owner = [0] * len(owner)
        for at in (1, 2):
            owner[at : 3 * sections[at] : 3] = [at] * len(owner[at : 3 * sections[at] : 3])
    return _embed(node, x, [_by_column(node, rows, owner) for rows in zip(*streams, strict=True)])


def _by_column(node: Node, rows: Sequence[Value], owner: Sequence[int]) -> Value:
    """Each column of the one of `rows` that owns it."""
    result, numbers = rows[0], node.constant(owner, "i32")
    for at, each in enumerate(rows[1:], 1):
        mine = node.compare("eq", numbers, at)
        mine = node.broadcast_to(mine, shape_of(each))
        result = node.op("select", mine, each, result)
    return result


def _embed(node: Node, x: Value, tables: Sequence[Value]) -> Value:
    """x, with or without an axis of heads, turned."""
    unsupported(bool(node.integer("is_packed_batching", 0)), "its batch is packed")
    heads, interleaved = node.integer("num_heads", 0), bool(node.integer("interleaved", 0))
    if type_of(x).rank == 4:
        split = node.transpose(x, (0, 2, 1, 3))
        turned = rotate(node, split, tables[0], tables[1], interleaved=interleaved)
        return node.transpose(turned, (0, 2, 1, 3))
    half, width = shape_of(tables[0])[2], shape_of(x)[2]
    if not heads:
        unsupported(
            not isinstance(half, int) or not isinstance(width, int),
            "its num_heads is missing: fix the model",
        )
        heads = known_dim(width) // (2 * known_dim(half))
    split = heads_of(node, x, heads)
    turned = rotate(node, split, tables[0], tables[1], interleaved=interleaved)
    return node.reshape(turned, shape_of(x))


@lowering("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(node: Node) -> tuple[Value, ...]:
    """q cos(angle) + turned q sin(angle), and the same of k; sine and cosine in f32."""
    angle = node.input(0)
    batch, length, size = shape_of(angle)
    results = []
    for place in (1, 3):
        x = node.input(place)
        terms = []
        for name, each in (("cos", x), ("sin", node.input(place + 1))):
            factor = node.reshape(narrow(node, node.op(name, angle), x), (batch, 1, length, size))
            terms.append(node.op("mul", each, node.broadcast_to(factor, shape_of(each))))
        results.append(node.op("add", *terms))
    return tuple(results)
