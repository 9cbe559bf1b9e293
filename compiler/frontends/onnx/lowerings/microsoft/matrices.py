"""Inverses and distances of `com.microsoft`."""

from __future__ import annotations

from ingot.compiler.frontends.matrices import inverse
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("Inverse", domain=MICROSOFT)
def inverse_of_matrices(node: Node) -> Value:
    x = node.input(0)
    unsupported(type_of(x).rank < 2, f"its input is {x.type}, expected matrices")
    square = node.agree_on(x, type_of(x).rank - 1, shape_of(x)[-2])
    return narrow(node, inverse(node.builder, widen(node, square)), x)


@lowering("CDist", domain=MICROSOFT)
def distances(node: Node) -> Value:
    """The distance of each row of A to each row of B, by squares and products."""
    a, b = node.input(0), node.input(1)
    metric = node.text("metric", "sqeuclidean")
    unsupported(metric not in ("sqeuclidean", "euclidean"), f"its metric is '{metric}'")
    product = matmul(node, a, node.transpose(b, (1, 0)), type_of(a).dtype)
    squares = [node.reduce(node.op("mul", x, x), [1], "add") for x in (a, b)]
    rows, columns = shape_of(product)
    total = add(node, node.reshape(squares[0], (rows, 1)), node.reshape(squares[1], (1, columns)))
    twice = node.op("mul", product, 2)
    result = node.op("sub", total, twice)
    result = node.op("max", result, 0)
    return node.op("sqrt", result) if metric == "euclidean" else result


@lowering("TorchEmbedding", domain=MICROSOFT)
def embedding(node: Node) -> Value:
    """Rows of a table; the other inputs are for training."""
    return lower_as(node, "Gather", [node.input(0), node.input(1)], {"axis": 0})


@lowering("GatedAdd", domain=MICROSOFT)
def gated_add(node: Node) -> Value:
    """x + y * gate, where the product is rounded, too."""
    unsupported(node.optional(3) is not None, "it projects its gate: only one device has that")
    return node.op("add", node.input(0), node.op("mul", *node.broadcast(*list(node.present())[1:])))
