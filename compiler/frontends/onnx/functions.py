"""Ops that are defined by other ops: functions of the model and bodies in the ONNX schemas.

Both come as a FunctionProto. `bind_attributes` replaces references to the attributes of the
call in a body's nodes, so that the importer can walk a body as it walks a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from ingot.compiler.frontends.inlining import check_calls
from ingot.compiler.frontends.onnx.check import live_nodes, normalize_domain
from ingot.compiler.frontends.onnx.node import type_of, unsupported
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.ir import TensorType, Value

__all__ = ["bind_attributes", "check_functions", "key_of", "schema_function", "type_proto"]


def schema_function(
    node: onnx.NodeProto, domain: str, opset: int, inputs: Sequence[Structure | None]
) -> onnx.FunctionProto | None:
    """The body of an op of a standard domain as its schema defines it, None if it has none.
    UnsupportedNode: it depends on the types of the inputs, and has none for these."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    function = onnx.FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        types = [type_proto(value).SerializeToString() for value in inputs]
        body = schema.get_context_dependent_function(node.SerializeToString(), types)
        unsupported(
            not body,
            "what it does is defined only for dims that are known: give the layer inputs whose "
            "channels and weights have numbers for dims",
        )
        function.ParseFromString(body)
    else:
        return None
    for attribute in schema.attributes.values():
        if attribute.default_value.name:
            function.attribute_proto.add().CopyFrom(attribute.default_value)
    return function


def type_proto(value: Structure | None) -> onnx.TypeProto:
    """The ONNX type of a tensor; an empty one for anything else."""
    if not isinstance(value, Value) or not isinstance(value.type, TensorType):
        return onnx.TypeProto()
    type = type_of(value)
    (element,) = (
        code for code in onnx.TensorProto.DataType.values() if dtype_of(code) is type.dtype
    )
    shape = [dim if isinstance(dim, int) else str(dim) for dim in type.shape]
    return onnx.helper.make_tensor_type_proto(element, shape)


_Key = tuple[str, str, str]


def key_of(function: onnx.FunctionProto) -> _Key:
    """What nodes call it by."""
    return normalize_domain(function.domain), function.name, function.overload


def check_functions(model: onnx.ModelProto, outputs: Iterable[str]) -> None:
    """CompileError: what the graph calls for these outputs becomes too much, or calls itself."""
    functions = {key_of(each): each for each in model.functions}

    def called(nodes: Sequence[onnx.NodeProto]) -> Iterator[_Key]:
        for node in nodes:
            key = normalize_domain(node.domain), node.op_type, node.overload
            if key in functions:
                yield key
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    yield from called(graph.node)

    def live(nodes: Sequence[onnx.NodeProto], wanted: Iterable[str]) -> Iterator[_Key]:
        return called([nodes[place] for place in live_nodes(nodes, wanted)])

    def body(key: _Key) -> tuple[int, Iterator[_Key]]:
        return len(functions[key].node), live(functions[key].node, functions[key].output)

    if functions:
        check_calls(live(model.graph.node, outputs), body, lambda key: key[1])


def bind_attributes(function: onnx.FunctionProto, call: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The body's nodes with the attributes of `call`, or else their defaults, put in."""
    given = {attribute.name: attribute for attribute in function.attribute_proto}
    given |= {attribute.name: attribute for attribute in call.attribute}
    body = onnx.GraphProto(node=function.node)
    _bind(body, given)
    return list(body.node)


def _bind(graph: onnx.GraphProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    for node in graph.node:
        for place, attribute in reversed(list(enumerate(node.attribute))):
            own, name = attribute.name, attribute.ref_attr_name
            if name in given:
                attribute.CopyFrom(given[name])
                attribute.name = own
            elif name:
                del node.attribute[place]
            else:
                for inner in (attribute.g, *attribute.graphs):
                    _bind(inner, given)
