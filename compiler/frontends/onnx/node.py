"""One ONNX node as a lowering sees it: operands, attributes, known shapes, and a way to emit ops.

`Node` is the whole interface between `walk.py`, which walks the graph, and the functions
in `lowerings/`. It knows no particular op. A body (a branch, the body of a loop) is lowered
by the importer, too, wherever the lowering of its node wants it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

from ingot.compiler.frontends.onnx.contents import Contents
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.frontends.onnx.tensors import literal_of
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import lookup
from ingot.compiler.ir import Block, Literal, TensorType, Type, Value, dims
from ingot.compiler.ir.dims import Dim, Expr
from ingot.hal.spec import DType, dtype

__all__ = [
    "Bodies",
    "Node",
    "UnknownBody",
    "UnsupportedNode",
    "shape_of",
    "type_of",
    "unsupported",
]


class UnsupportedNode(Exception):
    """The op is known, but not in this form. The text says in which and what to do."""


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


def type_of(value: Value) -> TensorType:
    """The tensor type of a value; every value of the graph level has one."""
    assert isinstance(value.type, TensorType)
    return value.type


def shape_of(value: Value) -> tuple[Dim, ...]:
    return type_of(value).shape


def _tensor(structure: Structure, index: int) -> Value:
    if isinstance(structure, Value) and isinstance(structure.type, TensorType):
        return structure
    text = structure.type if isinstance(structure, Value) else structure
    raise UnsupportedNode(f"input {index} is {text}, but the op takes a tensor: fix the model")


def _is_whole(known: np.ndarray[Any, Any]) -> bool:
    return known.size == 1 and isinstance(known.item(), int)


class Node:
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
        folders: Sequence[Path],
        bodies: Bodies,
    ) -> None:
        self.proto = proto
        self.inputs = list(inputs)
        self.opset = opset
        self.folders = folders
        self.bodies = bodies
        self._builder = builder
        self._contents = contents
        self.left_out: dict[int, str] = {}  # by output, why it has no value
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

    def leave_out(self, index: int, problem: str) -> None:
        """The output at `index` has no value: the problem of a layer that reads it."""
        self.left_out[index] = problem

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
        return literal_of(self._attributes[name].t, self.folders)

    def graph(self, name: str) -> onnx.GraphProto:
        """An attribute that is a body. UnsupportedNode if it was left out."""
        if name not in self._attributes:
            raise UnsupportedNode(f"its {name} is missing: fix the model")
        return self._attributes[name].g

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

    def normalize_axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front. UnsupportedNode if it is out of range."""
        if not -rank <= axis < max(rank, 1):
            raise UnsupportedNode(
                f"axis {axis} is out of range for rank {rank}: expected {-rank} to {rank - 1}"
            )
        return axis % rank if rank else 0

    # ---- what is known only when the model runs

    def parts(self, index: int) -> list[Dim | Value]:
        """The elements of a small input of static rank 0 or 1: dims where they are known, else
        values of rank 0. CompileError if their count depends on data."""
        return self._contents.parts(self._builder, self.input(index))

    def define_size(
        self, part: Dim | Value, hint: str, what: str, low: Dim = 0, high: Dim | None = None
    ) -> Dim:
        """The number `part` as a dim: see `Amounts`. The symbol has a name like `hint`."""
        name = partial(self._contents.fresh_symbol, hint)
        return self._contents.define_size(self._builder, part, name, what, low, high)

    def define_amount(self, part: Dim | Value, place: int, what: str) -> Dim:
        """As `define_size`, for element `place` of an input that may be negative."""
        return self._contents.define_amount(
            self._builder,
            part,
            lambda side: self._contents.fresh_symbol(f"{self.proto.output[0]}_{side}_{place}"),
            what,
        )

    def require(self, value: Value, size: Dim, what: str) -> None:
        """Check when the model runs that a number is `size`."""
        name = self._contents.fresh_symbol("required")
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

    def nonzero(self, value: Value, hint: str) -> Value:
        """The places where `value` is not 0: i64[rank, n] with n a fresh symbol."""
        key = ("nonzero", value, id(self._builder.ops))
        if key not in self._contents.remembered:
            name = self._contents.fresh_symbol(hint)
            self._contents.remembered[key] = self.op("nonzero", value, symbols=(name,))
        result: Value = self._contents.remembered[key]
        return result

    def known(self, value: Value) -> np.ndarray[Any, Any] | None:
        """The elements of a small value (integers, dims, numbers), None if they are not known."""
        return self._contents.of(value)

    # ---- emitting

    @property
    def builder(self) -> Builder:
        """What the node's ops are made with."""
        return self._builder

    def within(self, builder: Builder) -> Node:
        """The node as it emits into a region that `builder` builds."""
        inner = copy(self)
        inner._builder = builder
        return inner

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
            yield self._contents.fresh_symbol(hint)

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
        return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]

    def op(self, name: str, *operands: Value, **attributes: Any) -> Value:
        """Emits one graph op and returns its result; the dims of operands that need one shape
        agree from here on."""
        if lookup(name).same and len({type_of(each).rank for each in operands}) == 1:
            operands = tuple(self.agree(each, shape_of(operands[0])) for each in operands)
        result = self._builder.op(name, *operands, **attributes)
        assert isinstance(result, Value), f"graph op '{name}' has several results"
        return result

    def several(self, name: str, *operands: Value, **attributes: Any) -> tuple[Value, ...]:
        """Emits one graph op with several results."""
        result = self._builder.op(name, *operands, **attributes)
        return result if isinstance(result, tuple) else (result,)

    def constant(self, values: Any, dtype: DType | str) -> Value:
        """A constant tensor of `values`."""
        element = _dtype(dtype)
        return self._builder.constant(Literal(np.asarray(values).astype(element.numpy), element))

    def literal(self, literal: Literal) -> Value:
        return self._builder.constant(literal)

    def fill(self, number: float, like: Value) -> Value:
        """A tensor of the shape and dtype of `like` whose elements are all `number`."""
        return self._builder.full(number, type_of(like).dtype, shape_of(like))

    def full(self, number: float, dtype: DType | str, shape: Sequence[Dim]) -> Value:
        return self._builder.full(number, _dtype(dtype), tuple(shape))

    def broadcast_to(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` spread to `shape` by NumPy's rules."""
        if shape_of(value) == tuple(shape):
            return value
        return self._builder.broadcast_to(value, tuple(shape))

    def broadcast(self, *values: Value) -> list[Value]:
        """All `values` spread to their common shape by NumPy's rules."""
        shape = self.common_shape(*(shape_of(value) for value in values))
        return [self.broadcast_to(value, shape) for value in values]

    def agree(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` with the dims `shape`, which its own must equal. Symbols of arguments become
        one; what cannot be made equal so, or in a body that may not run, the call checks."""
        for a, b in zip(shape_of(value), shape, strict=True):
            self.equate(a, b)
        return self.reshape(value, shape)

    def equate(self, a: Dim, b: Dim, kept: Dim = 0) -> None:
        """Two dims are one, as `agree` has it; symbols of `kept` stay if others can go."""
        if not self._are_one(a, b, kept):
            self._builder.append("assert", (), (), {"a": a, "b": b})

    def agree_on(self, value: Value, axis: int, dim: Dim) -> Value:
        """As `agree`, for one axis."""
        shape = list(shape_of(value))
        shape[axis] = dim
        return self.agree(value, shape)

    def _are_one(self, a: Dim, b: Dim, kept: Dim = 0) -> bool:
        what = "its operands"
        if self._builder.ops is self._contents.entry:
            return self._contents.symbols.equate(a, b, what, kept)
        low, high = dims.bounds(a - b)
        unsupported(low > 0 or high < 0, f"{what}: the dims {a} and {b} differ: fix the model")
        return a == b

    def common_shape(self, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
        """The shape that all `shapes` broadcast to. UnsupportedNode if they do not."""
        rank = max((len(shape) for shape in shapes), default=0)
        common: list[Dim] = [1] * rank
        for shape in shapes:
            for axis, dim in enumerate(shape, rank - len(shape)):
                known = common[axis]
                fixed = isinstance(dim, int) and isinstance(known, int)
                if fixed and dim != known and 1 not in (dim, known):
                    texts = " and ".join(f"[{','.join(map(str, s))}]" for s in shapes)
                    raise UnsupportedNode(f"shapes {texts} do not broadcast: fix the model")
                common[axis] = dims.broadcast(known, dim)
        return tuple(common)

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        if shape_of(value) == tuple(shape):
            return value
        return self.op("reshape", value, shape=tuple(shape))

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        if list(permutation) == list(range(len(permutation))):
            return value
        return self.op("transpose", value, permutation=tuple(permutation))

    def convert(self, value: Value, target: DType | str) -> Value:
        """`value` as dtype `target`; itself if it has that dtype."""
        element = _dtype(target)
        return (
            value if type_of(value).dtype is element else self.op("convert", value, dtype=element)
        )

    def compare(self, direction: str, a: Value, b: Value) -> Value:
        return self.op("compare", a, b, direction=direction)

    def reduce(self, value: Value, axes: Sequence[int], kind: str, keep: bool = False) -> Value:
        """The reduction of `value` over `axes`, which stay as dims of 1 if `keep`."""
        axes = sorted(axes)
        if not axes:
            return value
        result = self.op("reduce", value, axes=tuple(axes), kind=kind)
        return self.keep_axes(result, shape_of(value), axes) if keep else result

    def broadcast_back(self, value: Value, shape: Sequence[Dim], axes: Sequence[int]) -> Value:
        """`value`, the result of reducing `shape` over `axes`, spread to `shape` again."""
        kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
        if not axes:
            return value
        return self.op("broadcast", value, shape=tuple(shape), dimensions=kept)

    def keep_axes(self, value: Value, shape: Sequence[Dim], axes: Sequence[int]) -> Value:
        """`value`, the result of reducing `shape` over `axes`, with those dims as 1."""
        kept = [1 if axis in axes else dim for axis, dim in enumerate(shape)]
        return self.reshape(value, kept)

    def sizes(self, values: Sequence[Dim], element: DType | str = "i64") -> Value:
        """A rank-1 tensor of dims, as constant where they are integers."""
        if all(isinstance(value, int) for value in values):
            return self.constant(np.asarray(values, np.int64).reshape(len(values)), element)
        parts = [self.reshape(self.size(value, element), (1,)) for value in values]
        return parts[0] if len(parts) == 1 else self.op("concatenate", *parts, axis=0)

    def size(self, value: Dim, element: DType | str = "i64") -> Value:
        """A rank-0 tensor of one dim, of an integer or floating-point dtype."""
        if isinstance(value, int):
            return self.constant(value, element)
        if _dtype(element).is_integer:
            return self.op("dim", value=value, dtype=_dtype(element))
        return self.op("convert", self.size(value), dtype=_dtype(element))


def _dtype(name: DType | str) -> DType:
    return dtype(name) if isinstance(name, str) else name


def unsupported(condition: bool, message: str) -> None:
    """Raises UnsupportedNode with `message` if `condition` holds."""
    if condition:
        raise UnsupportedNode(message)
