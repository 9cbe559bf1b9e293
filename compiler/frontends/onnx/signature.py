"""The arguments and results of an ONNX graph: names, types, symbolic dims, docs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence

import onnx

from ingot.compiler.frontends.onnx.choose_ends import Ends
from ingot.compiler.frontends.onnx.dim_params import (
    noted_name,
    noted_size,
    plain_name,
    read_expression,
)
from ingot.compiler.frontends.onnx.edge import is_text, kind_of
from ingot.compiler.frontends.onnx.tensors import dtype_of, element_type_name
from ingot.compiler.frontends.strings import SUFFIX, doc_of_bytes, refuse_taken
from ingot.compiler.frontends.symbols import Symbols
from ingot.compiler.ir import ListType, PassedType, TensorType, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = [
    "Signature",
    "doc_of_keys",
    "doc_of_map",
    "output_problem",
    "read_signature",
    "stand_in_type",
]


@dataclass(frozen=True)
class Signature:
    """What callers see of the graph. `symbols` gives least and greatest value per symbol."""

    names: tuple[str, ...]
    types: tuple[TensorType | PassedType, ...]
    result_names: tuple[str, ...]
    symbols: Mapping[str, tuple[int, int | None]]
    docs: Mapping[str, str]
    renamed: tuple[tuple[str, Dim], ...]  # names of dims that the import replaced
    refused: Mapping[str, str]  # inputs that cannot be arguments, and why
    strings: frozenset[str]  # arguments that are where texts end; the next one has their bytes


def read_signature(ends: Ends, known: Symbols, nodes: Sequence[onnx.NodeProto] = ()) -> Signature:
    """The signature, with what is known of its symbols: inputs that are no numeric tensors of
    static rank, sequences, optionals, or maps that a DictVectorizer or CastMap of `nodes` reads,
    are refused."""
    keys = _vocabularies(nodes)
    inputs = ends.inputs
    dims_of = [dim for value in inputs for dim in value.type.tensor_type.shape.dim]
    symbols = _Symbols(known, [noted_name(dim) for dim in dims_of if noted_name(dim)])
    types: dict[str, TensorType | PassedType] = {}
    refused: dict[str, str] = {}
    texts: list[str] = []
    names = {value.name for value in inputs}
    for value in inputs:
        try:
            if value.type.WhichOneof("value") == "map_type":
                types[value.name] = _read_map(value, keys.get(value.name, []), symbols)
                continue
            kind, type = kind_of(value.type)
            if is_text(type):
                refuse_taken(value.name, names, "graph input")
            types[value.name] = _read_type(value, symbols)
            if is_text(type):
                texts.append(value.name)
                data = f"{value.name}{SUFFIX}"
                types[data] = PassedType(kind, ListType(dtype("u8"), (None,)))
                if kind == "tensor":
                    types[data] = TensorType(dtype("u8"), (symbols.of(f"{data}_size", False),))
        except CompileError as error:
            refused[value.name] = str(error)
    documented = [value for value in (*inputs, *ends.outputs) if value.doc_string]
    return Signature(
        tuple(types),
        tuple(types.values()),
        tuple(value.name for value in ends.outputs),
        {name: known.bounds.get(name, (0, None)) for name in _names(list(types.values()))},
        {value.name: value.doc_string for value in documented}
        | {f"{name}{SUFFIX}": doc_of_bytes(name) for name in texts}
        | {name: doc_of_map(keys[name][0]) for name in types.keys() & keys.keys()},
        known.renamed(),
        refused,
        frozenset(texts),
    )


def doc_of_keys(keys: Sequence[int | str]) -> str:
    """By which callers know that rows of a result are maps with these keys."""
    return f"maps of {json.dumps(keys)}"


def doc_of_map(keys: Sequence[int | str]) -> str:
    """By which callers know that an argument is a row of what a map has for these keys."""
    return "map of integers" if isinstance(keys, range) else f"map of {json.dumps(keys)}"


Keys = list[int] | list[str] | range
"""Of a map; range(n): from 0 on, and range(0): those it has, in their order."""


def _vocabularies(nodes: Sequence[onnx.NodeProto]) -> Mapping[str, list[Keys]]:
    """The keys in which each map is laid out, once for every layer that does."""
    found: dict[str, list[Keys]] = {}
    for node in nodes:
        if node.op_type == "CastMap" and node.input:
            given = {each.name: each for each in node.attribute}
            is_sparse = "map_form" in given and given["map_form"].s == b"SPARSE"
            count = given["max_map"].i if "max_map" in given else 1
            found.setdefault(node.input[0], []).append(range(count if is_sparse else 0))
        if node.op_type == "DictVectorizer" and node.input:
            for each in node.attribute:
                texts = [key.decode() for key in each.strings]
                found.setdefault(node.input[0], []).append(texts or list(each.ints))
    return found


def _read_map(value: onnx.ValueInfoProto, keys: Sequence[Keys], symbols: _Symbols) -> TensorType:
    """The row of a map: what it has for each of the keys."""
    element = dtype_of(value.type.map_type.value_type.tensor_type.elem_type)
    if element is None or not keys or any(each != keys[0] for each in keys):
        raise CompileError(
            f"graph input '{value.name}' is a map: arguments may be maps to numbers that "
            "DictVectorizer or CastMap reads, with one vocabulary"
        )
    if keys[0] == range(0):
        return TensorType(element, (symbols.of(f"{value.name}_count", False),))
    return TensorType(element, (len(keys[0]),))


def output_problem(value: onnx.ValueInfoProto, type: TensorType) -> str | None:
    """Why the graph output cannot be this, if the graph declares other elements. Another shape,
    as tools write, is warned of: the result is what the layers make."""
    tensor = value.type.tensor_type
    what = f"graph output '{value.name}' is {type}, but the model declares"
    if tensor.elem_type and dtype_of(tensor.elem_type) is not type.dtype:
        declared = dtype_of(tensor.elem_type) or element_type_name(tensor.elem_type)
        return f"{what} it as {declared}: fix the model, or leave the type of the output out"
    known = [noted_size(dim) for dim in tensor.shape.dim]
    both = zip(known, type.shape, strict=False)
    differ = any(isinstance(dim, int) and size not in (None, dim) for size, dim in both)
    if tensor.HasField("shape") and (len(known) != type.rank or differ):
        text = ",".join("?" if size is None else str(size) for size in known)
        warnings.warn(f"{what} [{text}]: the result is what the layers make", stacklevel=2)
    return None


def stand_in_type(value: onnx.ValueInfoProto, known: Symbols) -> TensorType | None:
    """The type of a value that an argument is to stand for; None if it cannot be one."""
    try:
        type = _read_type(value, _Symbols(known, []))
    except CompileError:
        return None
    return type if isinstance(type, TensorType) else None


class _Symbols:
    """Symbols by dim_param; names that no dim expression can hold are respelled."""

    def __init__(self, known: Symbols, parameters: Sequence[str]) -> None:
        self.known = known
        self.parameters = set(parameters)
        self.names: dict[str, str] = {}

    def of(self, parameter: str, given: bool) -> Dim:
        """The dim of a parameter, which the model gives or which is made up for it."""
        expression = read_expression(parameter, self.parameters) if given else None
        if expression is not None:
            values = {name: self.of(name, given) for name in sorted(dims.symbols_of(expression))}
            return dims.substitute(expression, values)
        if parameter not in self.names:
            name = plain_name(parameter)
            while name in self.names.values():
                name = f"{name}_"
            self.names[parameter] = name
        if given:
            self.known.named.add(self.names[parameter])
        return self.known.argument(self.names[parameter])


def _names(types: Sequence[TensorType | PassedType]) -> list[str]:
    """The symbols in the types, in their order; elements of sequences have none."""
    tensors = [type for type in types if isinstance(type, TensorType)]
    every = [sorted(dims.symbols_of(dim)) for type in tensors for dim in type.shape]
    return list(dict.fromkeys(name for names in every for name in names))


def _read_type(value: onnx.ValueInfoProto, symbols: _Symbols) -> TensorType | PassedType:
    kind, type = kind_of(value.type)
    if type.WhichOneof("value") != "tensor_type":
        found = type.WhichOneof("value") or "no type"
        raise CompileError(
            f"graph input '{value.name}' is {found}: arguments are tensors, sequences and "
            "optionals of tensors, and optional sequences"
        )
    tensor = type.tensor_type
    element = dtype("i64") if is_text(type) else dtype_of(tensor.elem_type)
    if element is None:
        found = element_type_name(tensor.elem_type)
        raise CompileError(
            f"graph input '{value.name}' has element type {found}: use a numeric one"
        )
    if kind != "tensor":
        return PassedType(kind, _element_type(value.name, tensor, element, symbols.known))
    if not tensor.HasField("shape"):
        raise CompileError(
            f"graph input '{value.name}' has no shape: give it one, dims may be symbolic"
        )
    shape: list[Dim] = []
    for index, dim in enumerate(tensor.shape.dim):
        size, name = noted_size(dim), noted_name(dim)
        open_dim = symbols.of(name or f"{value.name}_dim{index}", bool(name)) if size is None else 0
        shape.append(open_dim if size is None else size)
    return TensorType(element, tuple(shape))


def _element_type(
    name: str, tensor: onnx.TypeProto.Tensor, element: DType, known: Symbols
) -> ListType:
    """The elements of a sequence or an optional. Exporters write no shape, or an empty one, where
    they know none: then the rank is what the program needs (`Contents.learn_rank`)."""
    if tensor.shape.dim:
        return ListType(element, tuple(noted_size(dim) for dim in tensor.shape.dim))
    _, rank = known.ranks.setdefault(name, (element.name, None))
    if rank is not None:
        return ListType(element, (None,) * rank)
    return ListType(element, any_rank=not tensor.HasField("shape"))
