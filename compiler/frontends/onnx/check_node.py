"""What the ONNX standard says of a node's form: its attributes and its number of inputs.

Lowerings read what they need and would not notice the rest: an attribute that is missing
would get a default, one of the wrong kind would be ignored. Nodes of other domains have no
schema here and are not looked at.
"""

from __future__ import annotations

import onnx

from ingot.compiler.frontends.onnx.check import DEFAULT_DOMAIN
from ingot.compiler.frontends.onnx.registry import CLASSIC
from ingot.hal.errors import CompileError

__all__ = ["check_node"]


def check_node(node: onnx.NodeProto, domain: str, opset: int) -> None:
    """CompileError if the node breaks the schema of its op."""
    if domain not in (DEFAULT_DOMAIN, CLASSIC) or not onnx.defs.has(node.op_type, domain):
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return  # the op is younger than the opset: there is no lowering either
    _check_attributes(node, schema)
    count = len(node.input)
    if not schema.min_input <= count <= schema.max_input:
        expected = f"{schema.min_input} to {schema.max_input}"
        if schema.min_input == schema.max_input:
            expected = str(schema.min_input)
        raise CompileError(f"it has {count} inputs, expected {expected}: fix the model")


def _check_attributes(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> None:
    given = {attribute.name for attribute in node.attribute}
    for name, row in schema.attributes.items():
        if row.required and name not in given:
            raise CompileError(f"its attribute '{name}' is missing, the op needs it: fix the model")
    for attribute in node.attribute:
        row = schema.attributes.get(attribute.name)
        if row is None:
            continue  # exporters leave notes of their own
        if attribute.type != row.type.value and not attribute.ref_attr_name:
            got = onnx.AttributeProto.AttributeType.Name(attribute.type)
            raise CompileError(
                f"its attribute '{attribute.name}' is of the kind {got}, expected {row.type.name}: "
                "fix the model"
            )
