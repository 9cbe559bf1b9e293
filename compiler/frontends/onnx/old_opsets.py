"""Nodes of opsets 1 to 6 as the nodes of opset 7 that they stand for.

Up to opset 6 broadcasting was an attribute, some inputs were attributes, and some attributes
had other names or types. What was only a hint (`consumed_inputs`, `output_sequence`) is read by
no lowering.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.ir import Value

__all__ = ["OPSET", "revise"]

OPSET = 7
"""The opset whose nodes `revise` makes."""


def revise(node: Node) -> Node:
    """The node, of an opset before 7, as one of opset 7. UnsupportedNode: there is none."""
    revised = node.revised(OPSET)
    change = _CHANGES.get(node.proto.op_type)
    if change is not None:
        change(revised)
    return revised


def _broadcast(node: Node) -> None:
    """The second operand lies along the axes of the first from `axis` on, else along its last."""
    a, b = node.input(0), node.input(1)
    if not node.integer("broadcast", 0) or not node.has("axis"):
        return
    axis = node.axis(0, type_of(a).rank)
    behind = type_of(a).rank - axis - type_of(b).rank
    unsupported(behind < 0, f"{b.type} does not fit axes {axis} and behind of {a.type}")
    node.inputs[1] = node.reshape(b, (*shape_of(b), *[1] * behind))


def _slope(node: Node) -> None:
    """One slope for all, or one per channel."""
    x, slope = node.input(0), node.input(1)
    if type_of(x).rank > 1 and type_of(slope).rank == 1 and shape_of(slope) != (1,):
        node.inputs[1] = node.reshape(slope, (*shape_of(slope), *[1] * (type_of(x).rank - 2)))


def _inference(node: Node) -> None:
    """Exporters that meant inference left `is_test` out as often as they set it."""
    unsupported(
        not node.integer("is_test", 1),
        "its is_test is 0: training mode is not supported; export the model in eval mode",
    )


def _dropout(node: Node) -> None:
    """Only an `is_test` of 0 that is written down means training, as above."""
    if not node.integer("is_test", 1):
        ratio = node.constant(node.number("ratio", 0.5), "f32")
        node.inputs += [ratio, node.constant(True, "i1")]


def _cast(node: Node) -> None:
    if node.attribute_type("to") == onnx.AttributeProto.STRING:
        name = node.text("to", "")
        codes = dict(onnx.TensorProto.DataType.items())
        unsupported(
            name not in codes, f"casts to '{name}', which is no element type: fix the model"
        )
        node.set_attribute("to", codes[name])


def _concatenate(node: Node) -> None:
    if not node.has("axis"):
        node.set_attribute("axis", 1)


def _norm(node: Node) -> None:
    if node.attribute_type("p") == onnx.AttributeProto.FLOAT:
        power = node.number("p", 2.0)
        unsupported(power != int(power), f"its p is {power}, expected a whole number")
        node.set_attribute("p", int(power))


def _pad(node: Node) -> None:
    if node.has("paddings"):
        node.set_attribute("pads", node.integers("paddings"))


def _reshape(node: Node) -> None:
    if len(node.inputs) < 2:
        node.inputs.append(node.constant(node.integers("shape") or (), "i64"))


def _split(node: Node) -> None:
    """The sizes are an input, of the dtype of the first, or an attribute."""
    if node.optional(1) is not None:
        node.inputs[1] = node.convert(node.input(1), "i64")


def _tile(node: Node) -> None:
    """Opset 1 repeats along one axis; both numbers are of the dtype of the first input."""
    if len(node.inputs) == 3:
        rank = type_of(node.input(0)).rank
        axes = node.constant(range(rank), "i64")
        times, axis = (
            node.broadcast_to(node.convert(node.reshape(each, ()), "i64"), (rank,))
            for each in node.inputs[1:]
            if isinstance(each, Value)
        )
        meets = node.compare("eq", axes, axis)
        node.inputs[1:] = [node.op("select", meets, times, 1)]


def _upsample(node: Node) -> None:
    if not node.has("scales"):
        factors = [node.number(f"{side}_scale", 1.0) for side in ("height", "width")]
        node.set_attribute("scales", [1.0, 1.0, *factors])


_CHANGES: dict[str, Callable[[Node], None]] = {
    **dict.fromkeys(("Add", "And", "Div", "Equal", "Greater", "Less"), _broadcast),
    **dict.fromkeys(("Mul", "Or", "Pow", "Sub", "Xor"), _broadcast),
    **dict.fromkeys(("GlobalLpPool", "LpPool"), _norm),
    "BatchNormalization": _inference,
    "Cast": _cast,
    "Concat": _concatenate,
    "Dropout": _dropout,
    "PRelu": _slope,
    "Pad": _pad,
    "Reshape": _reshape,
    "Split": _split,
    "Tile": _tile,
    "Upsample": _upsample,
}
