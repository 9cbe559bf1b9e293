"""Det; the other ops of linear algebra are products, in `contractions.py`."""

from __future__ import annotations

from ingot.compiler.frontends.linear_algebra import determinant
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("Det")
def det(node: Node) -> Value:
    return narrow(node, determinant(node.builder, widen(node, node.input(0))), node.input(0))
