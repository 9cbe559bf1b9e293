"""The table of lowerings: which function turns an ONNX op into graph ops.

A lowering takes a `Node` and returns the values of its outputs: one value, or a tuple with one
entry per output (None for an optional output that it does not make). To add an op, write

    @lowering("Relu")
    def relu(node: Node) -> Value:
        x = node.input(0)
        return node.op("max", x, 0)

in a file of `lowerings/`. `since` is the first opset version whose meaning the function has; an
op that changed its meaning has one function per meaning, and the greatest `since` that is not
above the model's opset wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ingot.compiler.frontends.onnx.node import Node
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.frontends.own_ops import OwnLowering, find_own, lower_own
from ingot.compiler.ir import Value

__all__ = [
    "CLASSIC",
    "MICROSOFT",
    "STRINGS",
    "STRING_ITEMS",
    "Lowering",
    "find_lowering",
    "lower_as",
    "lower_whole",
    "lowering",
    "registered_ops",
]

CLASSIC = "ai.onnx.ml"
"""The domain of the standard's ops for classic machine learning."""

STRINGS = "strings"
"""Stands for the domain of an op that is given strings: its lowering for them."""

STRING_ITEMS = "sequences of strings"
"""As `STRINGS`, of an op that is given a sequence of them."""

MICROSOFT = "com.microsoft"
"""The domain of the ops that onnxruntime and its tools add to the standard's."""

_NEWEST = 1 << 30  # above every opset

Lowering = Callable[[Node], Structure | tuple[Structure | None, ...]]

_TABLE: dict[tuple[str, str], list[tuple[int, Lowering]]] = {}


def lowering(*op_types: str, since: int = 1, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Registers the function that follows for `op_types` of `domain`, from opset `since` on."""

    def register(function: Lowering) -> Lowering:
        for op_type in op_types:
            versions = _TABLE.setdefault((domain, op_type), [])
            assert all(since != known for known, _ in versions), f"two lowerings of {op_type}"
            versions.append((since, function))
            versions.sort(key=lambda version: version[0])
        return function

    return register


def find_lowering(domain: str, op_type: str, opset: int) -> Lowering | None:
    """The function for an op at this opset version, None if there is none. One that the user has
    registered comes first."""
    own = find_own(domain, op_type, registered_only=True)
    if own is not None:
        return partial(_lower_own, own)
    found: Lowering | None = None
    for since, function in _TABLE.get((domain, op_type), []):
        if since <= opset:
            found = function
    if found is None and (own := find_own(domain, op_type)) is not None:
        return partial(_lower_own, own)
    return found


def _lower_own(own: OwnLowering, node: Node) -> tuple[Value, ...]:
    operands = [node.optional(index) for index in range(len(node.inputs))]
    attributes = {name: node.attribute(name) for name in node.attribute_names}
    return tuple(lower_own(own, node.builder, node.fresh_symbol, operands, attributes))


def lower_as(
    node: Node,
    op_type: str,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, Any] | None = None,
    opset: int = _NEWEST,
) -> Value:
    """The first result of an op of the default domain in the place of `node`; without
    `attributes` it has those of the node."""
    first = lower_whole(node, op_type, inputs, attributes, opset)[0]
    assert first is not None
    return first


def lower_whole(
    node: Node,
    op_type: str,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, Any] | None = None,
    opset: int = _NEWEST,
) -> list[Value | None]:
    """As `lower_as`, all results."""
    lower = find_lowering("", op_type, opset)
    assert lower is not None, f"no lowering of {op_type}"
    made = lower(node.replaced(opset, inputs, attributes))
    results = made if isinstance(made, tuple) else (made,)
    return [each if isinstance(each, Value) else None for each in results]


def registered_ops(domain: str = "") -> list[str]:
    """The names of all ops of the domain that have a lowering, sorted."""
    return sorted(op_type for own, op_type in _TABLE if own == domain)
