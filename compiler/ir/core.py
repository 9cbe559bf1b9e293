"""The SSA IR of all levels: Module > Function > Region > Block > Op, and typed values.

Structure only: what an op means is said by the op table of its level (`graph/ops` and
so on). Ops are mutable and owned by their block; types and attributes are frozen. There
are no use lists: passes run over a block once, front to back, and ask `count_uses` or
`uses_of` where they need them, which keeps every pass linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np

from ingot.compiler.ir.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    Record,
    map_leaves,
)
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Expr
from ingot.compiler.ir.types import ScalarType, TensorType, Type, VectorType
from ingot.hal.spec import DType

__all__ = [
    "Attribute",
    "Block",
    "Function",
    "Later",
    "Literal",
    "Module",
    "Op",
    "Region",
    "Value",
    "Variable",
    "clear_region",
    "clone_op",
    "clone_region",
    "count_uses",
    "defined_by",
    "derived",
    "tensor_type",
    "uses_of",
    "walk",
]


_Type = TypeVar("_Type", bound=Type)
_Derived = TypeVar("_Derived")


class Later:
    """The elements of a large literal, which lie in a file or are computed: whoever asks for them
    makes them anew, so that few of them are in memory at a time."""

    shape: tuple[int, ...]

    is_own = False
    """Whether nobody else has the array that `make` gives, nor what it is a view of."""

    def make(self) -> np.ndarray[Any, Any]:
        """An array of them, of this shape; of any strides. Raises CompileError."""
        raise NotImplementedError

    def parts(self) -> Iterator[np.ndarray[Any, Any]]:
        """Arrays that have them one after the other, where all at a time need not be in memory.
        Raises CompileError."""
        yield self.make()


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant tensor: a read-only, C-contiguous NumPy array, or what makes it, and its dtype.

    `dtype` says what the elements mean where NumPy has no such type: without ml_dtypes,
    bf16 and f16-like elements are carried as unsigned integers of the same width, and
    sub-byte integers as one byte each.
    """

    stored: np.ndarray[Any, Any] | Later
    dtype: DType

    def __post_init__(self) -> None:
        if not isinstance(self.stored, Later):
            object.__setattr__(self, "stored", _read_only(self.stored))

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The elements. Those of large literals are read or computed each time."""
        return _read_only(self.stored.make()) if isinstance(self.stored, Later) else self.stored

    def own_array(self) -> np.ndarray[Any, Any]:
        """As `array`, to be written into."""
        if not isinstance(self.stored, Later) or not self.stored.is_own:
            return np.array(self.array)
        made = self.stored.make()
        made.flags.writeable = True
        return np.ascontiguousarray(made)

    def parts(self) -> Iterator[np.ndarray[Any, Any]]:
        """Arrays that have the elements one after the other. Raises CompileError."""
        return self.stored.parts() if isinstance(self.stored, Later) else iter((self.stored,))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return self.size * self.dtype.bytes

    @cached_property
    def splat(self) -> Literal | None:
        """Its one element, of rank 0, where all elements have the same bits."""
        first = None
        for part in self.parts() if self.size else ():
            flat = _read_only(part).reshape(-1)
            first = flat[:1].copy() if first is None else first
            raw = flat.view(np.uint8).reshape(flat.size, -1)
            if raw[-1].tobytes() != first.tobytes() or not (raw == first.view(np.uint8)).all():
                return None
        return None if first is None else Literal(first.reshape(()), self.dtype)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and self.dtype == other.dtype
            and self.shape == other.shape
            and self.array.tobytes() == other.array.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.dtype.name, self.shape, self.array.tobytes()))


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if type(array) is not np.ndarray or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).reshape(array.shape)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


Attribute = (
    bool
    | int
    | float
    | str
    | None
    | DType
    | Expr
    | Type
    | Literal
    | tuple["Attribute", ...]
    | Record
)


class Value:
    """One SSA value: a result of `owner` (an op) or an argument of `owner` (a block)."""

    __slots__ = ("name", "owner", "type")

    def __init__(self, type: Type, owner: Op | Block, name: str = "") -> None:
        self.type = type
        self.owner = owner
        self.name = name  # a hint for the printer, unique only in print

    def typed(self, kind: type[_Type]) -> _Type:
        """The type, which must be of this kind. TypeError: it is not."""
        if not isinstance(self.type, kind):
            raise TypeError(f"{self!r} has no {kind.__name__}")
        return self.type

    @property
    def dtype(self) -> DType:
        """What its elements are. TypeError: it has none."""
        if not isinstance(self.type, (TensorType, ScalarType, VectorType)):
            raise TypeError(f"{self!r} has no elements")
        return self.type.dtype

    @property
    def op(self) -> Op:
        """The op of which it is a result. TypeError: it is an argument of a block."""
        if not isinstance(self.owner, Op):
            raise TypeError(f"{self!r} is an argument, not made by an op")
        return self.owner

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


def tensor_type(value: Value) -> TensorType:
    """The type of a value that must be a tensor. TypeError: it is none."""
    return value.typed(TensorType)


class Op:
    """One operation. `location` names the source layer, "" if there is none."""

    __slots__ = ("attributes", "location", "name", "operands", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: Iterable[Value] = (),
        result_types: Iterable[Type] = (),
        attributes: Attributes = NO_ATTRIBUTES,
        regions: Iterable[Region] = (),
        location: str = "",
    ) -> None:
        self.name = name
        self.operands = list(operands)
        self.attributes = attributes
        self.regions = list(regions)
        self.location = location
        self.results = [Value(type, self) for type in result_types]

    @property
    def result(self) -> Value:
        """The one result. Raises ValueError unless there is exactly one."""
        if len(self.results) != 1:
            raise ValueError(f"op '{self.name}' has {len(self.results)} results, expected one")
        return self.results[0]

    def __repr__(self) -> str:
        return f"<{self.name} {self.operands} -> {self.results}>"


def defined_by(value: Value, *names: str) -> Op | None:
    """The op that defines the value, if it is one of `names`."""
    owner = value.owner
    return owner if isinstance(owner, Op) and owner.name in names else None


class Block:
    """Arguments and a list of ops; the last op is the terminator (`return`, `yield`)."""

    __slots__ = ("arguments", "ops")

    def __init__(self, argument_types: Iterable[Type] = ()) -> None:
        self.arguments = [Value(type, self) for type in argument_types]
        self.ops: list[Op] = []

    def append(self, op: Op) -> Op:
        """Add `op` at the end and return it."""
        self.ops.append(op)
        return op

    @property
    def terminator(self) -> Op:
        return self.ops[-1]


class Region:
    """One block, or several for code with branches (the vm level only)."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks = list(blocks)

    @property
    def block(self) -> Block:
        """The only block. Raises ValueError unless there is exactly one."""
        if len(self.blocks) != 1:
            raise ValueError(f"region has {len(self.blocks)} blocks, expected one")
        return self.blocks[0]


@dataclass(eq=False)
class Function:
    """A named region. Exported functions have named tensor arguments and results.

    `symbols` gives each symbolic dim of the arguments its least and greatest value (None:
    none). `docs` are texts of the source by argument or result name.
    """

    name: str
    body: Region
    argument_names: list[str] = field(default_factory=list)
    result_names: list[str] = field(default_factory=list)
    exported: bool = True
    symbols: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)
    attributes: Attributes = NO_ATTRIBUTES

    @property
    def block(self) -> Block:
        """The entry block."""
        return self.body.blocks[0]

    @property
    def arguments(self) -> list[Value]:
        return self.block.arguments

    @property
    def result_types(self) -> list[Type]:
        """The operand types of the `return` that ends the entry block."""
        return [value.type for value in self.block.terminator.operands]


@dataclass(frozen=True)
class Variable:
    """State of a session that functions load and store: its type, and what it is at first.

    `initial` has the shape of the type, or rank 0: then every element is that number. A first dim
    that is no number is open: there are as many rows as functions have loaded at most.
    """

    type: TensorType
    initial: Literal

    @property
    def grows(self) -> bool:
        """Whether the first dim is open."""
        return self.type.rank > 0 and not isinstance(self.type.shape[0], int)

    def takes(self, type: TensorType) -> bool:
        """Whether a value of this type may be loaded and stored."""
        if not self.grows or type.rank == 0:
            return type == self.type
        return TensorType(type.dtype, (self.type.shape[0], *type.shape[1:])) == self.type


@dataclass(eq=False)
class Module:
    """Functions by name, in order, variables by name, and attributes such as the producer."""

    functions: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)

    def add(self, function: Function) -> Function:
        """Add `function`. Raises ValueError if its name is taken."""
        if function.name in self.functions:
            raise ValueError(f"module has a function '{function.name}' already")
        self.functions[function.name] = function
        return function


def walk(root: Module | Function | Region | Block | Op) -> Iterator[Op]:
    """All ops below `root`, an op before the ops of its regions."""
    if isinstance(root, Module):
        for function in root.functions.values():
            yield from walk(function.body)
        return
    if isinstance(root, Function):
        root = root.body
    for block in root.blocks if isinstance(root, Region) else (root,):
        for op in block.ops if isinstance(block, Block) else (block,):
            yield op
            if op.regions:
                for region in op.regions:
                    yield from walk(region)


def derived(
    value: Value,
    known: dict[Value, _Derived],
    needed: Callable[[Value], Iterable[Value]],
    compute: Callable[[Value], _Derived],
) -> _Derived:
    """known[value], by `compute` of it once all values that it needs are known. No recursion:
    chains of ops can be long."""
    waiting = [value]
    while waiting:
        last = waiting[-1]
        missing = [] if last in known else [each for each in needed(last) if each not in known]
        if missing:
            waiting += missing
        else:
            waiting.pop()
            if last not in known:
                known[last] = compute(last)
    return known[value]


def count_uses(root: Module | Function | Region | Block) -> dict[Value, int]:
    """How often each value is an operand below `root`; values without use are absent."""
    counts: dict[Value, int] = {}
    for op in walk(root):
        for operand in op.operands:
            counts[operand] = counts.get(operand, 0) + 1
    return counts


def uses_of(root: Module | Function | Region | Block) -> dict[Value, list[tuple[Op, int]]]:
    """Per value the ops that use it and the operand's place, in order."""
    uses: dict[Value, list[tuple[Op, int]]] = {}
    for op in walk(root):
        for place, operand in enumerate(op.operands):
            uses.setdefault(operand, []).append((op, place))
    return uses


def clone_op(
    op: Op,
    values: dict[Value, Value],
    map_type: Callable[[Type], Type] = lambda type: type,
    change: Callable[[Any], Any] | None = None,
) -> Op:
    """A copy of `op` and its regions with operands mapped; `values` learns its results.

    Operands that are not in `values` stay as they are (captured from outside); `change` maps what
    stands in attributes.
    """
    copy = Op(
        op.name,
        [values.get(operand, operand) for operand in op.operands],
        [map_type(result.type) for result in op.results],
        op.attributes if change is None else map_leaves(op.attributes, change),
        [clone_region(region, values, map_type, change) for region in op.regions],
        op.location,
    )
    for old, new in zip(op.results, copy.results, strict=True):
        new.name = old.name
        values[old] = new
    return copy


def clone_region(
    region: Region,
    values: dict[Value, Value],
    map_type: Callable[[Type], Type] = lambda type: type,
    change: Callable[[Any], Any] | None = None,
) -> Region:
    """A copy of `region`; `values` learns its block arguments and results."""
    copy = Region()
    for block in region.blocks:
        new_block = Block(map_type(argument.type) for argument in block.arguments)
        for old, new in zip(block.arguments, new_block.arguments, strict=True):
            new.name = old.name
            values[old] = new
        copy.blocks.append(new_block)
        for op in block.ops:
            new_block.append(clone_op(op, values, map_type, change))
    return copy


def clear_region(region: Region) -> None:
    """Free the ops of a region that nobody reads any more: they refer to each other."""
    for block in region.blocks:
        for op in block.ops:
            for each in op.regions:
                clear_region(each)
            op.results.clear()
            op.operands.clear()
        block.ops.clear()
        block.arguments.clear()
