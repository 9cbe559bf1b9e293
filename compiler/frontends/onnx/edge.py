"""What callers pass and get: from arguments to structures, and from structures to results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx

from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.onnx.contents import Contents
from ingot.compiler.frontends.onnx.dim_params import noted_size
from ingot.compiler.frontends.onnx.structures import (
    Forked,
    Items,
    Maybe,
    StringItems,
    Structure,
    as_list,
    list_of_types,
)
from ingot.compiler.frontends.onnx.tensors import dtype_of, element_type_name
from ingot.compiler.frontends.strings import SUFFIX, Strings, from_ends
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops.lists import ANY
from ingot.compiler.ir import ListType, PassedType, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = [
    "give_result",
    "give_strings",
    "is_text",
    "kind_of",
    "take_argument",
    "take_strings",
    "tensor_of",
]


def take_argument(argument: Value, builder: Builder, contents: Contents) -> Structure:
    """What a graph input stands for. An optional tensor lies in a list, and is read where it is
    asked for."""
    if not isinstance(argument.type, PassedType):
        return argument
    if argument.type.kind == "sequence":
        return builder.value("list.argument", argument, symbols=())
    name = contents.names.fresh(f"{argument.name}_given")
    list = builder.value("list.argument", argument, symbols=(name,))
    given = builder.value("dim", value=symbol(name), dtype=dtype("i64"))
    zero = builder.constant(np.zeros((), np.int64))
    present = builder.value("compare", given, zero, direction="ne")
    return Maybe(present, list, boxed=argument.type.kind == "optional")


def take_strings(ends: Structure, data: Structure, builder: Builder) -> Structure:
    """What an argument of strings stands for, of what its ends and its bytes do."""
    if isinstance(ends, Maybe) and isinstance(data, Maybe):
        assert isinstance(ends.content, Value)
        assert isinstance(data.content, Value)
        return replace(ends, content=StringItems(ends.content, data.content))
    assert isinstance(ends, Value)
    assert isinstance(data, Value)
    if isinstance(ends.type, ListType):
        return StringItems(ends, data)
    return from_ends(Emitter(builder), ends, data)


def give_result(
    structure: Structure, output: onnx.ValueInfoProto, builder: Builder, contents: Contents
) -> Value:
    """What the function returns for a graph output. CompileError: it cannot be a result."""
    given: Dim = 1
    content: Structure | None = structure
    optional = isinstance(structure, Maybe) or output.type.WhichOneof("value") == "optional_type"
    if isinstance(structure, Maybe):
        given, content = _given(structure.present, builder, contents), structure.content
        if structure.boxed:
            assert isinstance(structure.content, Value)
            return _result("optional", structure.content, given, output, builder)
    if content is None:
        return _nothing(output, builder)
    if isinstance(content, (Maybe, Forked, Strings, StringItems)):
        raise CompileError(f"graph output '{output.name}' is {structure}: optionals do not nest")
    if isinstance(content, Value) and isinstance(content.type, TensorType):
        if not optional:
            return content
        shape = tuple(dim if isinstance(dim, int) else ANY for dim in content.type.shape)
        list = builder.value("list.of", content, shape=shape)
        return _result("optional", list, given, output, builder)
    if isinstance(content, Items):
        content = as_list(content, _type_of(content, output.name, _declared(output)), builder)
    kind = "optional_sequence" if optional else "sequence"
    return _result(kind, content, given, output, builder)


def _given(present: Value | bool, builder: Builder, contents: Contents) -> Dim:
    """Whether an optional has its content, as a dim."""
    if isinstance(present, bool):
        return int(present)
    flag = builder.value("convert", present, dtype=dtype("i64"))
    name = contents.names.fresh("given")
    attributes = {"symbols": (name,), "low": 0, "high": 1, "what": "whether the optional is given"}
    builder.append("size", (flag,), (), attributes)
    return symbol(name)


def _nothing(output: onnx.ValueInfoProto, builder: Builder) -> Value:
    """An optional that never has a content."""
    kind, _ = kind_of(output.type)
    empty = builder.value("list.empty", dtype=_declared_dtype(output), shape=_declared(output))
    return _result(kind, empty, 0, output, builder)


def _result(
    kind: str, list: Value, given: Dim, output: onnx.ValueInfoProto, builder: Builder
) -> Value:
    type, code = list.typed(ListType), tensor_of(output.type).elem_type
    if code and dtype_of(code) is not type.dtype:
        raise CompileError(
            f"graph output '{output.name}' has elements of {type.element}, but the model "
            f"declares {dtype_of(code) or element_type_name(code)}: fix the model"
        )
    return builder.value("list.result", list, kind=kind, given=given)


def give_strings(
    structure: StringItems | Maybe,
    output: onnx.ValueInfoProto,
    builder: Builder,
    contents: Contents,
) -> dict[str, Value]:
    """What the function returns for a sequence or an optional of strings: the same of ends and of
    bytes."""
    given: Dim = 1
    items: Structure | None = structure
    kind, _ = kind_of(output.type)
    if not isinstance(structure, Maybe):
        kind = "optional_sequence" if kind.startswith("optional") else "sequence"
    else:
        given, items = _given(structure.present, builder, contents), structure.content
        if items is None:
            items = StringItems(Items((), dtype("i64")), Items((), dtype("u8")))
        else:
            kind = "optional" if structure.boxed else "optional_sequence"
    assert isinstance(items, StringItems)
    made: dict[str, Value] = {}
    parts = ((output.name, items.ends, _declared(output)),
             (f"{output.name}{SUFFIX}", items.data, (ANY,)))  # fmt: skip
    for name, part, declared in parts:
        list = as_list(part, _type_of(part, name, declared), builder)
        made[name] = builder.value("list.result", list, kind=kind, given=given)
    return made


def _type_of(items: Items | Value, name: str, declared: Sequence[int]) -> ListType:
    """The type of a list of the elements; of no elements as the model declares it."""
    if isinstance(items, Value):
        return items.typed(ListType)
    if items.elements:
        try:
            return list_of_types([tensor_type(each) for each in items.elements], items.dtype)
        except CompileError as error:
            raise CompileError(f"graph output '{name}' is {error}") from None
    return ListType(items.dtype, tuple(None if dim == ANY else dim for dim in declared))


def tensor_of(type: onnx.TypeProto) -> onnx.TypeProto.Tensor:
    """The type of the elements of a sequence or optional; of anything else its own."""
    return kind_of(type)[1].tensor_type


def kind_of(type: onnx.TypeProto) -> tuple[str, onnx.TypeProto]:
    """What of `PassedType` the type is, or a tensor, and the type of its elements."""
    parts: list[str] = []
    if type.WhichOneof("value") == "optional_type":
        parts.append("optional")
        type = type.optional_type.elem_type
    if type.WhichOneof("value") == "sequence_type":
        parts.append("sequence")
        type = type.sequence_type.elem_type
    return "_".join(parts) or "tensor", type


def is_text(type: onnx.TypeProto) -> bool:
    """Whether it is a tensor of strings, or one of those."""
    return bool(tensor_of(type).elem_type == onnx.TensorProto.STRING)


def _declared(output: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The declared shape of elements, as ops on lists have it."""
    sizes = [noted_size(dim) for dim in tensor_of(output.type).shape.dim]
    return tuple(ANY if size is None else size for size in sizes)


def _declared_dtype(output: onnx.ValueInfoProto) -> DType:
    code = tensor_of(output.type).elem_type
    element = dtype_of(code)
    if element is None:
        raise CompileError(
            f"graph output '{output.name}' is an optional that has nothing: declare its type, of "
            f"numeric elements, not {element_type_name(code)}"
        )
    return element
