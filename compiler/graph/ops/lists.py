"""Rows of ops on lists: tensors of one dtype and rank, whose count and dims only a run tells.

Lists are values like tensors: an op that changes one gives a new one. ONNX sequences whose
length is not known at import are lists, and so is what a loop makes larger step by step.
Positions are dims; one that no element has ends the call. `list.get`, `list.length` and
`list.argument` define symbols.

What callers pass and get has a type of its own (`PassedType`), which only `list.argument` reads
and `list.result` makes.
"""

from __future__ import annotations

from typing import Literal

from ingot.compiler.graph.ops.table import OpRow, register, require
from ingot.compiler.ir import ListType, PassedType, TensorType
from ingot.compiler.ir.attributes import Attributes, Dims, Ints, Names
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbol, symbols_of
from ingot.hal.spec import DType

__all__ = [
    "ANY",
    "LIST_OPS",
    "ListArgument",
    "ListEmpty",
    "ListErase",
    "ListGet",
    "ListInsert",
    "ListLength",
    "ListOf",
    "ListResult",
    "ListWiden",
    "list_type",
]

ANY = -1
"""Stands in an attribute for a dim in which the elements of a list may differ."""


def list_type(dtype: DType, shape: tuple[int, ...]) -> ListType:
    """The type of a list whose elements have this shape, with ANY for what may differ."""
    return ListType(dtype, tuple(None if dim == ANY else dim for dim in shape))


def _require_list(list: object) -> None:
    require(isinstance(list, ListType), f"operand 0 must be a list, not {list}")


def _require_tensor(x: object) -> None:
    require(isinstance(x, TensorType), f"an element must be a tensor, not {x}")


def _require_element(list: ListType, x: TensorType) -> None:
    _require_tensor(x)
    fits = x.dtype is list.dtype and (list.any_rank or x.rank == list.rank)
    for dim, wanted in zip(x.shape, list.shape, strict=False):
        fits = fits and (wanted is None or dim == wanted)
    require(fits, f"{x} is no element of {list}")


@dataclass(frozen=True)
class ListEmpty(Attributes):
    """A list of no elements. `shape` is that of its elements, -1 where they may differ."""

    dtype: DType
    shape: Ints

    def result(self) -> ListType:
        return list_type(self.dtype, self.shape)


@dataclass(frozen=True)
class ListOf(Attributes):
    """A list of one element. `shape` is as that of `list.empty`."""

    shape: Ints

    def result(self, x: TensorType) -> ListType:
        _require_tensor(x)
        result = list_type(x.dtype, self.shape)
        _require_element(result, x)
        return result


@dataclass(frozen=True)
class ListInsert(Attributes):
    """The list with x in front of element `index`, at its end where that is its length."""

    index: Dim

    def result(self, list: ListType, x: TensorType) -> ListType:
        _require_list(list)
        _require_element(list, x)
        return list


@dataclass(frozen=True)
class ListErase(Attributes):
    """The list without element `index`."""

    index: Dim

    def result(self, list: ListType) -> ListType:
        _require_list(list)
        return list


def _extend(list: ListType, x: TensorType) -> ListType:
    _require_list(list)
    _require_tensor(x)
    fits = x.dtype is list.dtype and x.rank == list.rank > 0 and list.shape[0] is None
    for dim, wanted in zip(x.shape[1:], list.shape[1:], strict=False):
        fits = fits and (wanted is None or dim == wanted)
    require(fits, f"{x} are no rows for the element of {list}")
    return list


@dataclass(frozen=True)
class ListWiden(Attributes):
    """The list as one whose elements may differ in more dims: `shape` is as in `list.empty`."""

    shape: Ints

    def result(self, list: ListType) -> ListType:
        _require_list(list)
        result = list_type(list.dtype, self.shape)
        fits = result.rank == list.rank and not list.any_rank
        for dim, wanted in zip(list.shape, result.shape, strict=False):
            fits = fits and (wanted is None or dim == wanted)
        require(fits, f"{list} is no {result}")
        return result


@dataclass(frozen=True)
class ListGet(Attributes):
    """Element `index`, which has this `shape`; symbols of it that are in `symbols` are defined by
    the op, of the others it is known."""

    index: Dim
    shape: Dims
    symbols: Names = ()

    def result(self, list: ListType) -> TensorType:
        _require_list(list)
        result = TensorType(list.dtype, self.shape)
        known = len(self.shape) == list.rank and not list.any_rank
        require(known, f"{result} is no element of {list}")
        for dim, wanted in zip(self.shape, list.shape, strict=True):
            fits = dim == wanted or (
                wanted is None and bool(symbols_of(dim) or isinstance(dim, int))
            )
            require(fits, f"{result} is no element of {list}")
        missing = [name for name in self.symbols if symbol(name) not in self.shape]
        require(not missing, f"its symbol '{missing[0] if missing else ''}' is no dim of {result}")
        return result


@dataclass(frozen=True)
class ListLength(Attributes):
    """Defines its symbol as the count of elements."""

    symbols: Names

    def result(self, list: ListType) -> tuple[TensorType, ...]:
        _require_list(list)
        require(len(self.symbols) == 1, f"a length is one symbol, not {len(self.symbols)}")
        return ()


@dataclass(frozen=True)
class ListArgument(Attributes):
    """The list that an argument is; an optional tensor is one of one element, and nothing an empty
    one. Its symbol is 1 if the argument was given, else 0."""

    symbols: Names = ()

    def result(self, argument: PassedType) -> ListType:
        require(isinstance(argument, PassedType), f"operand 0 must be an argument, not {argument}")
        require(
            len(self.symbols) <= 1, f"whether it is given is one symbol, not {len(self.symbols)}"
        )
        return argument.list


@dataclass(frozen=True)
class ListResult(Attributes):
    """The list as a result of the function; of an optional nothing where `given` is 0."""

    kind: Literal["sequence", "optional", "optional_sequence"]
    given: Dim = 1

    def result(self, list: ListType) -> PassedType:
        _require_list(list)
        return PassedType(self.kind, list)


_ROWS = (
    OpRow("list.empty", "lists", (), ListEmpty),
    OpRow("list.of", "lists", ("x",), ListOf),
    OpRow("list.insert", "lists", ("list", "x"), ListInsert),
    OpRow("list.erase", "lists", ("list",), ListErase),
    OpRow(
        "list.extend",
        "lists",
        ("list", "x"),
        _extend,
        "The list of one element, with the rows of x behind those that it has.",
    ),
    OpRow("list.widen", "lists", ("list",), ListWiden),
    OpRow("list.get", "lists", ("list",), ListGet),
    OpRow("list.length", "lists", ("list",), ListLength),
    OpRow("list.argument", "lists", ("argument",), ListArgument),
    OpRow("list.result", "lists", ("list",), ListResult),
)

LIST_OPS = frozenset(row.name for row in _ROWS)
"""The names of all ops on lists."""

for _row in _ROWS:
    register(_row)
