"""Rows of ops on lists: tensors of one dtype and rank, whose count and dims only a run tells.

Lists are values like tensors: an op that changes one gives a new one. ONNX sequences whose
length is not known at import are lists, and so is what a loop makes larger step by step.
Positions are dims; one that no element has ends the call. `list.get`, `list.length` and
`list.argument` define symbols.

What callers pass and get has a type of its own (`PassedType`), which only `list.argument` reads
and `list.result` makes.
"""

from __future__ import annotations

from ingot.compiler.graph.ops.table import OpRow, attribute, register, require
from ingot.compiler.ir import ListType, PassedType, TensorType
from ingot.compiler.ir.dims import Dim, symbol, symbols_of
from ingot.hal.spec import DType
from ingot.hal.value_kind import PASSED_KINDS

__all__ = ["ANY", "LIST_OPS", "list_type"]

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


def _empty(*, dtype: DType, shape: tuple[int, ...]) -> ListType:
    return list_type(dtype, shape)


def _of(x: TensorType, *, shape: tuple[int, ...]) -> ListType:
    _require_tensor(x)
    result = list_type(x.dtype, shape)
    _require_element(result, x)
    return result


def _insert(list: ListType, x: TensorType, *, index: Dim) -> ListType:
    _require_list(list)
    _require_element(list, x)
    return list


def _erase(list: ListType, *, index: Dim) -> ListType:
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


def _widen(list: ListType, *, shape: tuple[int, ...]) -> ListType:
    _require_list(list)
    result = list_type(list.dtype, shape)
    fits = result.rank == list.rank and not list.any_rank
    for dim, wanted in zip(list.shape, result.shape, strict=False):
        fits = fits and (wanted is None or dim == wanted)
    require(fits, f"{list} is no {result}")
    return result


def _get(
    list: ListType, *, index: Dim, shape: tuple[Dim, ...], symbols: tuple[str, ...]
) -> TensorType:
    _require_list(list)
    result = TensorType(list.dtype, shape)
    known = len(shape) == list.rank and not list.any_rank
    require(known, f"{result} is no element of {list}")
    for dim, wanted in zip(shape, list.shape, strict=True):
        fits = dim == wanted or (wanted is None and bool(symbols_of(dim) or isinstance(dim, int)))
        require(fits, f"{result} is no element of {list}")
    missing = [name for name in symbols if symbol(name) not in shape]
    require(not missing, f"its symbol '{missing[0] if missing else ''}' is no dim of {result}")
    return result


def _length(list: ListType, *, symbols: tuple[str, ...]) -> tuple[TensorType, ...]:
    _require_list(list)
    require(len(symbols) == 1, f"a length is one symbol, not {len(symbols)}")
    return ()


def _argument(argument: PassedType, *, symbols: tuple[str, ...]) -> ListType:
    require(isinstance(argument, PassedType), f"operand 0 must be an argument, not {argument}")
    require(len(symbols) <= 1, f"whether it is given is one symbol, not {len(symbols)}")
    return argument.list


def _result(list: ListType, *, kind: str, given: Dim) -> PassedType:
    _require_list(list)
    return PassedType(kind, list)


_SHAPE = attribute("ints")
_INDEX = attribute("dim")

_ROWS = (
    OpRow(
        "list.empty",
        "lists",
        (),
        _empty,
        "A list of no elements. `shape` is that of its elements, -1 where they may differ.",
        {"dtype": attribute("dtype"), "shape": _SHAPE},
    ),
    OpRow(
        "list.of",
        "lists",
        ("x",),
        _of,
        "A list of one element. `shape` is as that of `list.empty`.",
        {"shape": _SHAPE},
    ),
    OpRow(
        "list.insert",
        "lists",
        ("list", "x"),
        _insert,
        "The list with x in front of element `index`, at its end where that is its length.",
        {"index": _INDEX},
    ),
    OpRow(
        "list.erase",
        "lists",
        ("list",),
        _erase,
        "The list without element `index`.",
        {"index": _INDEX},
    ),
    OpRow(
        "list.extend",
        "lists",
        ("list", "x"),
        _extend,
        "The list of one element, with the rows of x behind those that it has.",
    ),
    OpRow(
        "list.widen",
        "lists",
        ("list",),
        _widen,
        "The list as one whose elements may differ in more dims: `shape` is as in `list.empty`.",
        {"shape": _SHAPE},
    ),
    OpRow(
        "list.get",
        "lists",
        ("list",),
        _get,
        "Element `index`, which has this `shape`; symbols of it that are in `symbols` are defined "
        "by the op, of the others it is known.",
        {"index": _INDEX, "shape": attribute("dims"), "symbols": attribute("strings", ())},
    ),
    OpRow(
        "list.length",
        "lists",
        ("list",),
        _length,
        "Defines its symbol as the count of elements.",
        {"symbols": attribute("strings")},
    ),
    OpRow(
        "list.argument",
        "lists",
        ("argument",),
        _argument,
        "The list that an argument is; an optional tensor is one of one element, and nothing an "
        "empty one. Its symbol is 1 if the argument was given, else 0.",
        {"symbols": attribute("strings", ())},
    ),
    OpRow(
        "list.result",
        "lists",
        ("list",),
        _result,
        "The list as a result of the function; of an optional nothing where `given` is 0.",
        {"kind": attribute("string", choices=PASSED_KINDS), "given": attribute("dim", 1)},
    ),
)

LIST_OPS = frozenset(row.name for row in _ROWS)
"""The names of all ops on lists."""

for _row in _ROWS:
    register(_row)
