"""What attention of T5 and of gated models adds to its scores for the distance of two tokens."""

from __future__ import annotations

import math

from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import heads_of, positions
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("RelativePositionBias", domain=MICROSOFT)
def relative_position_bias(node: Node) -> Value:
    """[1, heads, queries, keys] out of a table [buckets, heads] that lies by columns."""
    table = node.input(0)
    buckets, heads = shape_of(table)
    unsupported(not isinstance(buckets, int), f"its table has {buckets} buckets")
    queries, keys = (node.define_dims(at, "a length")[0] for at in (1, 2))
    bucket = _buckets(node, queries, keys, known_dim(buckets))
    rows = node.reshape(table, (heads, buckets))
    found = node.op("take", rows, bucket, axis=1, mode="clamp")
    return node.reshape(found, (1, heads, queries, keys))


def _buckets(node: Node, queries: Dim, keys: Dim, buckets: int) -> Value:
    """The bucket of each distance, i32[queries, keys]: one for each small distance, then by the
    logarithm; with `is_bidirectional` later keys have half of them to themselves."""
    shape = (queries, keys)
    ahead = node.op("sub", positions(node, shape, 1), positions(node, shape, 0))
    zero = node.fill(0, like=ahead)
    if node.integer("is_bidirectional", 0):
        buckets //= 2
        later = node.compare("gt", ahead, zero)
        first = node.op("select", later, buckets, zero)
        distance = node.op("abs", ahead)
    else:
        first, distance = zero, node.op("max", node.op("neg", ahead), zero)
    exact = buckets // 2
    wide = node.convert(node.op("max", distance, 1), "f32")
    ratio = node.op("log", node.op("div", wide, exact))
    scale = (buckets - exact) / math.log(node.integer("max_distance", 128) / exact)
    steps = node.convert(node.op("mul", ratio, scale), "i32")
    far = node.op("add", steps, exact)
    far = node.op("min", far, buckets - 1)
    is_near = node.compare("lt", distance, exact)
    return node.op("add", first, node.op("select", is_near, distance, far))


@lowering("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(node: Node) -> Value:
    """A bias [1, heads, queries, keys] times a gate that each query makes for itself."""
    unsupported(node.optional(6) is not None, "its tokens are packed")
    heads = node.integer("num_heads", 1)
    given = node.input(0)
    query = add(node, widen(node, given), widen(node, node.input(1)))
    split = node.transpose(heads_of(node, query, heads), (0, 2, 1, 3))
    weight = widen(node, node.input(3))
    gates = matmul(node, split, weight, type_of(split).dtype)
    gates = add(node, gates, widen(node, node.input(4)))
    batch, _, length, width = shape_of(gates)
    pairs = node.reshape(gates, (batch, heads, length, 2, width // 2))
    pairs = node.op("logistic", node.reduce(pairs, [4], "add"))
    u, r = node.sliced(pairs, -1, 0, 1), node.sliced(pairs, -1, 1, 2)
    one = node.constant(1.0, dtype("f32"))
    inner = node.op("mul", *node.broadcast(r, widen(node, node.input(5))))
    inner = node.op("sub", *node.broadcast(inner, one))
    gate = node.op("add", *node.broadcast(node.op("mul", u, inner), node.constant(2.0, "f32")))
    return narrow(node, node.op("mul", *node.broadcast(gate, widen(node, node.input(2)))), given)
