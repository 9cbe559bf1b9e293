"""Det; the other ops of linear algebra are products, in `contractions.py`."""

from __future__ import annotations

from ingot.compiler.frontends.matrices import determinant
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("Det")
def det(node: Node) -> Value:
    x = node.input(0)
    unsupported(type_of(x).rank < 2, f"its input is {x.type}, expected matrices")
    square = node.agree_on(x, type_of(x).rank - 1, shape_of(x)[-2])
    return narrow(node, determinant(node.builder, widen(node, square)), x)
