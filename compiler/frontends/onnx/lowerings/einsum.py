"""Einsum."""

from __future__ import annotations

from ingot.compiler.frontends.einsum import contract_letters
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("Einsum")
def einsum(node: Node) -> Value:
    values = [widen(node, value) for value in node.present()]
    product = contract_letters(node, node.text("equation", ""), values)
    return narrow(node, product, node.input(0))
