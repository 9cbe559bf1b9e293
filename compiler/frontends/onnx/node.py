"""One ONNX node as a lowering sees it: operands, attributes, known shapes, and a way to emit ops.

`Node` is the whole interface between `walk.py`, which walks the graph, and the functions
in `lowerings/`. It knows no particular op. A body (a branch, the body of a loop) is lowered
by the importer, too, wherever the lowering of its node wants it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnx

from ingot.compiler.frontends.emitter import (
    Emitter,
    UnsupportedNode,
    shape_of,
    type_of,
    unsupported,
)
from ingot.compiler.frontends.onnx.contents import Contents
from ingot.compiler.frontends.onnx.dim_params import noted_name, noted_size
from ingot.compiler.frontends.onnx.external import Files
from ingot.compiler.frontends.onnx.sparse import dense_of
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.frontends.onnx.tensors import literal_of, texts_of
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Literal, TensorType, Type, Value
from ingot.compiler.ir.dims import Dim, Expr

__all__ = [
    "Bodies",
    "Node",
    "UnknownBody",
    "UnsupportedNode",
    "shape_of",
    "type_of",
    "unsupported",
]


class UnknownBody(Exception):
    """A body has layers that cannot be lowered; they are noted already."""


class Bodies(Protocol):
    """Lowers the bodies of a node; a part of the importer."""

    def lower(
        self, graph: onnx.GraphProto, inputs: Sequence[Structure], builder: Builder
    ) -> list[Structure]:
        """What the body's outputs are. UnknownBody: some layer cannot be lowered."""

    def type_of(self, name: str) -> onnx.TypeProto | None:
        """The type that the model notes of a value that the node makes, if it does."""


def _tensor(structure: Structure, index: int) -> Value:
    if isinstance(structure, Value) and isinstance(structure.type, TensorType):
        return structure
    text = structure.type if isinstance(structure, Value) else structure
    raise UnsupportedNode(f"input {index} is {text}, but the op takes a tensor: fix the model")


def _is_whole(known: np.ndarray[Any, Any]) -> bool:
    return known.size == 1 and isinstance(known.item(), int)


class Node(Emitter):
    """An ONNX node whose inputs have been lowered.

    `inputs` has None for optional inputs that were left out; trailing ones may be absent. They
    are tensors but for ops that ask for a `structure`.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        inputs: Sequence[Structure | None],
        opset: int,
        builder: Builder,
        contents: Contents,
        files: Files,
        bodies: Bodies,
    ) -> None:
        self.proto = proto
        self.inputs = list(inputs)
        self.opset = opset
        self.files = files
        self.bodies = bodies
        super().__init__(builder)
        self._contents = contents
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    # ---- operands

    def input(self, index: int) -> Value:
        """The input at `index`. UnsupportedNode if it was left out."""
        value = self.optional(index)
        if value is None:
            raise UnsupportedNode(f"input {index} is missing, the op needs it: fix the model")
        return value

    def optional(self, index: int) -> Value | None:
        """The input at `index`, None if it was left out."""
        structure = self.structure(index)
        return None if structure is None else _tensor(structure, index)

    def structure(self, index: int) -> Structure | None:
        """The input at `index`, which may be a sequence or an optional; None if left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def given(self, index: int) -> Structure:
        """As `structure`. UnsupportedNode if it was left out."""
        structure = self.structure(index)
        if structure is None:
            raise UnsupportedNode(f"input {index} is missing, the op needs it: fix the model")
        return structure

    def present(self) -> Iterator[Value]:
        """All inputs that were not left out, for ops with any number of them."""
        present = enumerate(self.inputs)
        return (_tensor(value, index) for index, value in present if value is not None)

    def wants(self, index: int) -> bool:
        """True if the model names the output at `index`."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    @property
    def output_count(self) -> int:
        return len(self.proto.output)

    # ---- attributes

    def has(self, name: str) -> bool:
        return name in self._attributes

    def attribute_type(self, name: str) -> int | None:
        """Of which kind an attribute is, as AttributeProto numbers them; None if left out."""
        return self._attributes[name].type if name in self._attributes else None

    def integer(self, name: str, default: int) -> int:
        return int(self._attributes[name].i) if name in self._attributes else default

    def number(self, name: str, default: float) -> float:
        return float(self._attributes[name].f) if name in self._attributes else default

    def text(self, name: str, default: str) -> str:
        return self._attributes[name].s.decode() if name in self._attributes else default

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers; None if it was left out."""
        if name not in self._attributes:
            return None
        return tuple(int(value) for value in self._attributes[name].ints)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """An attribute that is a list of floats; None if it was left out."""
        if name not in self._attributes:
            return None
        return tuple(float(value) for value in self._attributes[name].floats)

    def texts(self, name: str) -> list[str] | None:
        """An attribute that is a list of strings; None if it was left out."""
        if name not in self._attributes:
            return None
        return [value.decode() for value in self._attributes[name].strings]

    def tensor(self, name: str) -> Literal | None:
        """An attribute that is a tensor; None if it was left out."""
        if name not in self._attributes:
            return None
        return literal_of(self._attributes[name].t, self.files)

    def sparse_tensor(self, name: str) -> Literal | None:
        """An attribute that is a sparse tensor, made dense; None if it was left out."""
        if name not in self._attributes:
            return None
        return dense_of(self._attributes[name].sparse_tensor, self.files)

    def tensor_texts(self, name: str) -> tuple[list[str], tuple[int, ...]] | None:
        """An attribute that is a tensor of strings, and its shape; None if it is none."""
        if name not in self._attributes:
            return None
        tensor = self._attributes[name].t
        if tensor.data_type != onnx.TensorProto.STRING:
            return None
        return texts_of(tensor), tuple(tensor.dims)

    def strings(self, index: int) -> Strings | None:
        """The input at `index` if it is of strings."""
        structure = self.structure(index)
        return structure if isinstance(structure, Strings) else None

    def count(self, number: Value, what: str) -> Dim:
        """As `define_size`, of a value."""
        return self.define_size(number, f"{self.proto.output[0]}_count", what)

    def graph(self, name: str) -> onnx.GraphProto:
        """An attribute that is a body. UnsupportedNode if it was left out."""
        if name not in self._attributes:
            raise UnsupportedNode(f"its {name} is missing: fix the model")
        return self._attributes[name].g

    @property
    def attribute_names(self) -> list[str]:
        return list(self._attributes)

    def attribute(self, name: str) -> Any:
        """An attribute as Python has it: a number, a text, an array, or a list of them.
        UnsupportedNode: it is of another kind."""
        value = onnx.helper.get_attribute_value(self._attributes[name])
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, onnx.TensorProto):
            return literal_of(value, self.files).array
        if isinstance(value, (int, float)):
            return value
        if isinstance(value, Sequence) and all(
            isinstance(each, (int, float, bytes)) for each in value
        ):
            return [each.decode() if isinstance(each, bytes) else each for each in value]
        raise UnsupportedNode(f"its attribute '{name}' is no number, text, tensor or list of them")

    # ---- what is known at import

    def known_number(self, index: int) -> float | None:
        """The only element of an input if it is known at import, else None."""
        value = self.optional(index)
        known = None if value is None else self._contents.of(value)
        if known is None or known.size != 1 or isinstance(known.reshape(-1)[0], Expr):
            return None
        return float(known.reshape(-1)[0])

    def known_element(self, value: Value) -> int | None:
        """The only element of an integer tensor if it is known at import, else None."""
        known = self._contents.of(value) if type_of(value).dtype.is_integer else None
        return known.item() if known is not None and _is_whole(known) else None

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """The attribute `name` as an axis of a tensor of `rank`, counted from the front."""
        return self.normalize_axis(self.integer(name, default), rank)

    # ---- what is known only when the model runs

    def parts(self, index: int) -> list[Dim | Value]:
        """The elements of a small input of static rank 0 or 1: dims where they are known, else
        values of rank 0. CompileError if their count depends on data."""
        return self._contents.parts(self._builder, self.input(index))

    def fresh_symbol(self, hint: str) -> str:
        """A name for a symbol that an op defines, like `hint`."""
        return self._contents.names.fresh(hint)

    def define_size(
        self, part: Dim | Value, hint: str, what: str, low: Dim = 0, high: Dim | None = None
    ) -> Dim:
        """The number `part` as a dim: see `Amounts`. The symbol has a name like `hint`."""
        name = partial(self._contents.names.fresh, hint)
        return self._contents.define_size(self._builder, part, name, what, low, high)

    def define_amount(self, part: Dim | Value, place: int, what: str) -> Dim:
        """As `define_size`, for element `place` of an input that may be negative."""
        return self._contents.define_amount(
            self._builder,
            part,
            lambda side: self._contents.names.fresh(f"{self.proto.output[0]}_{side}_{place}"),
            what,
        )

    def require(self, value: Value, size: Dim, what: str) -> None:
        """Check when the model runs that a number is `size`."""
        name = self._contents.names.fresh("required")
        checked = {"symbols": (name,), "low": size, "high": size, "what": what}
        self._builder.append("size", (value,), (), checked)

    def define_dims(self, index: int, what: str) -> list[Dim]:
        """The elements of a small input as dims, fresh symbols where they depend on data."""
        return [
            self.define_size(part, f"{self.proto.output[0]}_{axis}", f"element {axis} of {what}")
            for axis, part in enumerate(self.parts(index))
        ]

    def as_value(self, part: Dim | Value) -> Value:
        """A part as an i64 of rank 0."""
        return self.convert(part, "i64") if isinstance(part, Value) else self.size(part)

    def nonzero(self, value: Value, hint: str, limit: Dim | None = None) -> Value:
        """The places where `value` is not 0: i64[rank, n] with n a fresh symbol. With `limit`
        those before it along the first axis."""
        key = ("nonzero", value, limit, id(self._builder.ops))
        if key not in self._contents.remembered:
            name = self._contents.names.fresh(hint)
            before = value if limit is None else self.sliced(value, 0, 0, limit)
            self._contents.remembered[key] = self.op("nonzero", before, symbols=(name,))
        result: Value = self._contents.remembered[key]
        return result

    def known(self, value: Value) -> np.ndarray[Any, Any] | None:
        """The elements of a small value (integers, dims, numbers), None if they are not known."""
        return self._contents.of(value)

    # ---- emitting

    def with_input(self, index: int, value: Value) -> Node:
        """The node with another input."""
        inner = copy(self)
        inner.inputs = [*self.inputs[:index], value, *self.inputs[index + 1 :]]
        return inner

    def revised(self, opset: int) -> Node:
        """A copy as a node of another opset, whose inputs and attributes may be changed."""
        inner = copy(self)
        inner.opset, inner.inputs = opset, [*self.inputs]
        inner._attributes = dict(self._attributes)
        return inner

    def replaced(
        self, opset: int, inputs: Sequence[Value | None], attributes: Mapping[str, Any] | None
    ) -> Node:
        """A copy as a node of another opset, with these inputs and, unless None, attributes."""
        inner = self.revised(opset)
        inner.inputs = list(inputs)
        if attributes is not None:
            inner._attributes = {}
            for name, value in attributes.items():
                inner.set_attribute(name, value)
        return inner

    def set_attribute(self, name: str, value: Any) -> None:
        """Gives a `revised` node an attribute."""
        self._attributes[name] = onnx.helper.make_attribute(name, value)

    @property
    def remembered(self) -> dict[Any, Any]:
        """What lowerings keep of the model, under keys of their own."""
        return self._contents.remembered

    def aside(self, types: Sequence[Type]) -> Block:
        """A block for ops that are thrown away. It lives on, for what is remembered of it."""
        block = Block(types)
        self._contents.remembered["aside", id(block)] = block
        return block

    def fresh_symbols(self, hint: str) -> Iterator[str]:
        """Names of symbols that are in use nowhere."""
        while True:
            yield self._contents.names.fresh(hint)

    def learn_rank(self, list: Value, rank: int) -> None:
        """The elements of the list have this rank. If it comes from a graph input that leaves it
        open, the import starts again."""
        self._contents.learn_rank(list, rank)

    def declared_rank(self) -> int | None:
        """The rank that the model notes of the tensor that the node makes, if it does."""
        declared = self.declared_dims(self.proto.output[0])
        return None if declared is None else len(declared)

    def declared_dims(self, name: str) -> list[int | str] | None:
        """The dims that the model notes of the tensor of that name, "" for one that it leaves
        open; None if it notes none."""
        type = self.bodies.type_of(name)
        if type is None or not type.tensor_type.HasField("shape"):
            return None
        dims = type.tensor_type.shape.dim
        sizes = [noted_size(dim) for dim in dims]
        return [
            noted_name(dim) if size is None else size for dim, size in zip(dims, sizes, strict=True)
        ]

    def _are_one(self, a: Dim, b: Dim, kept: Dim = 0) -> bool:
        if self._builder.ops is self._contents.entry:
            return self._contents.symbols.equate(a, b, "its operands", kept)
        return super()._are_one(a, b, kept)
