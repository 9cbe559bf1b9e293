"""SparseAttention and LongformerAttention: each query sees some of the keys. All scores are
computed; those of the others are hidden."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import (
    attend,
    heads_of,
    mask_of,
    merge_heads,
    positions,
    scale_of,
)
from ingot.compiler.frontends.onnx.lowerings.microsoft.grouped_query import attend_grouped
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim

__all__: list[str] = []


@lowering("SparseAttention", domain=MICROSOFT)
def sparse_attention(node: Node) -> tuple[Value | None, ...]:
    """As GroupQueryAttention with caches that have room, by blocks of keys that each block of
    queries sees; heads take the layouts of blocks in turn."""
    heads, size = node.integer("num_heads", 1), node.integer("sparse_block_size", 0)
    layouts = _layouts(node, node.input(5), node.input(6))
    count = known_dim(shape_of(layouts)[0])
    unsupported(size < 1 or heads % count != 0, f"its {heads} heads have {count} layouts")

    def seen(places: Value, keys: Dim) -> Value:
        block = node.op("div", places, size)
        rows = node.op("take", layouts, block, axis=1, mode="clamp")
        rows = node.transpose(rows, (1, 0, 2, 3))
        batch, _, queries, _ = shape_of(rows)
        wide = node.sliced(node.repeated(rows, 3, size), -1, 0, keys)
        shape = (batch, heads // count, count, queries, keys)
        each = node.op("broadcast", wide, shape=shape, dimensions=(0, 2, 3, 4))
        return node.reshape(each, (batch, heads, queries, keys))

    total = node.convert(node.input(8), "i32")
    given = [node.optional(place) for place in (0, 1, 2, 3, 4)]
    given.append(node.op("sub", total, 1))
    given += [node.optional(place) for place in (7, 9, 10)]
    return attend_grouped(node.replaced(node.opset, given, None), seen)[:3]


def _layouts(node: Node, starts: Value, columns: Value) -> Value:
    """i1[layouts, blocks, blocks]: which blocks of keys each of queries sees, as rows of places
    in a list of columns."""
    count, blocks = shape_of(starts)[0], shape_of(starts)[1] - 1
    shape = (count, blocks, shape_of(columns)[1], blocks)
    place = positions(node, shape, 2)
    first, end = (
        node.op("broadcast", node.sliced(starts, -1, a, a + blocks), shape=shape, dimensions=(0, 1))
        for a in (0, 1)
    )
    column = node.op("broadcast", columns, shape=shape, dimensions=(0, 2))
    tests = (("ge", place, first), ("lt", place, end), ("eq", column, positions(node, shape, 3)))
    hit, *others = (
        node.compare(kind, node.convert(a, "i32"), node.convert(b, "i32")) for kind, a, b in tests
    )
    for each in others:
        hit = node.op("and", hit, each)
    return node.reduce(hit, [2], "or")


@lowering("LongformerAttention", domain=MICROSOFT)
def longformer_attention(node: Node) -> Value:
    """Attention to neighbours at most `window` away and to global tokens, which attend to all
    tokens, by projections of their own."""
    x, mask, chosen = node.input(0), node.input(3), node.input(6)
    heads, window = node.integer("num_heads", 1), node.integer("window", 0)
    batch, length, _ = shape_of(x)
    scores = node.reshape(node.agree(mask, (batch, length)), (batch, 1, 1, length))
    distance = node.op(
        "sub", positions(node, (length, length), 0), positions(node, (length, length), 1)
    )
    near = node.op("abs", distance)
    near = node.compare("le", near, window)
    chosen = node.compare("ne", chosen, 0)
    column = node.reshape(chosen, (batch, 1, 1, length))
    seen = node.op("or", *node.broadcast(near, column))
    results = []
    for place, hidden in ((1, mask_of(node, seen, x)), (4, None)):
        projected = matmul(node, x, node.input(place), type_of(x).dtype)
        projected = add(node, projected, node.input(place + 1))
        width = known_dim(shape_of(projected)[2]) // 3
        q, k, v = (
            node.transpose(
                heads_of(node, node.sliced(projected, -1, at * width, (at + 1) * width), heads),
                (0, 2, 1, 3),
            )
            for at in range(3)
        )
        scale = scale_of(node, shape_of(q)[3])
        result, _, _ = attend(node, q, k, v, scale, [scores, hidden])
        results.append(merge_heads(node, result))
    row = node.op("broadcast", chosen, shape=shape_of(results[0]), dimensions=(0, 1))
    return node.op("select", row, results[1], results[0])
