"""Rotary embeddings of `com.microsoft`."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import heads_of, part
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value

__all__ = ["rotate"]


def rotate(
    node: Node, x: Value, places: Value, cos: Value, sin: Value, *, interleaved: bool
) -> Value:
    """x [batch, sequence, heads, size] with the first features of each head turned as rows
    `places`, [batch or 1, sequence], of cos and sin say, [positions, half]; pairs are neighbours
    if interleaved, else half of them apart."""
    shape, wide = shape_of(x), widen(node, x)
    half = shape_of(cos)[1]
    unsupported(
        not isinstance(half, int) or (isinstance(shape[3], int) and 2 * half > shape[3]),
        f"its tables have {half} columns for heads of {shape[3]} features: fix the model",
    )
    c, s = (_angles(node, each, places, (*shape[:3], half)) for each in (cos, sin))
    turned = part(node, wide, 0, 2 * half)
    if interleaved:
        pairs = node.reshape(turned, (*shape[:3], half, 2))
        a, b = (node.reshape(part(node, pairs, i, i + 1), (*shape[:3], half)) for i in (0, 1))
    else:
        a, b = part(node, turned, 0, half), part(node, turned, half, 2 * half)
    first = node.op("sub", node.op("mul", a, c), node.op("mul", b, s))
    second = node.op("add", node.op("mul", b, c), node.op("mul", a, s))
    if interleaved:
        first, second = (node.reshape(each, (*shape[:3], half, 1)) for each in (first, second))
        joined = node.op("concatenate", first, second, axis=4)
        pieces = [node.reshape(joined, (*shape[:3], 2 * half))]
    else:
        pieces = [first, second]
    if shape[3] != 2 * half:
        pieces.append(part(node, wide, 2 * half, shape[3]))
    return narrow(node, node.op("concatenate", *pieces, axis=3) if pieces[1:] else pieces[0], x)


def _angles(node: Node, table: Value, places: Value, shape: tuple[object, ...]) -> Value:
    """Rows of the table for each place, spread over the heads."""
    rows = widen(node, node.op("take", table, places, axis=0, mode="check"))
    batch, length, half = shape_of(rows)
    return node.broadcast_to(node.reshape(rows, (batch, length, 1, half)), shape)  # type: ignore[arg-type]


@lowering("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node) -> Value:
    """Of [batch, sequence, heads * size] or [batch, heads, sequence, size]. Positions are one per
    token, or where the sequence begins."""
    x, places, cos, sin = (node.input(place) for place in range(4))
    unsupported(bool(node.integer("is_packed_batching", 0)), "its batch is packed")
    heads, interleaved = node.integer("num_heads", 0), bool(node.integer("interleaved", 0))
    is_split = type_of(x).rank == 4
    if is_split:
        split = node.transpose(x, (0, 2, 1, 3))
    else:
        half, width = shape_of(cos)[1], shape_of(x)[2]
        unsupported(
            not heads and not (isinstance(half, int) and isinstance(width, int)),
            "its num_heads is missing: fix the model",
        )
        split = heads_of(node, x, heads or int(width) // (2 * int(half)))  # type: ignore[arg-type]
    length = shape_of(split)[1]
    if type_of(places).rank < 2:
        counted = node.op("iota", dtype=type_of(places).dtype, shape=(1, length), axis=1)
        first = node.broadcast_to(node.reshape(places, (1, 1)), (1, length))
        places = node.op("add", first, counted)
    turned = rotate(node, split, places, cos, sin, interleaved=interleaved)
    if is_split:
        return node.transpose(turned, (0, 2, 1, 3))
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
