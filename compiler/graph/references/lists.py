"""References of ops on lists, which are tuples of arrays here.

`list.length` gives nothing: the interpreter knows the length of a tuple. An argument or result is
None, a tuple, or an array if it is an optional tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.graph.references.numbers import Array
from ingot.hal.errors import OutOfRange
from ingot.hal.spec import DType

__all__ = ["REFERENCES"]

Elements = tuple[Array, ...]
Result = tuple[Elements]
"""One result that is a tuple itself."""


def _check(index: int, limit: int, length: int) -> None:
    if not 0 <= index < limit:
        raise OutOfRange(f"position {index} in a sequence of {length} elements")


def _empty(*, dtype: DType, shape: tuple[int, ...]) -> Result:
    return ((),)


def _of(x: Array, *, shape: tuple[int, ...]) -> Result:
    return ((x,),)


def _insert(list: Elements, x: Array, *, index: int) -> Result:
    _check(index, len(list) + 1, len(list))
    return ((*list[:index], x, *list[index:]),)


def _erase(list: Elements, *, index: int) -> Result:
    _check(index, len(list), len(list))
    return ((*list[:index], *list[index + 1 :]),)


def _extend(list: Elements, x: Array) -> Result:
    (element,) = list
    return ((np.concatenate([element, x]),),)


def _widen(list: Elements, *, shape: tuple[int, ...]) -> Result:
    return (list,)


def _get(
    list: Elements, *, index: int, shape: tuple[int, ...], symbols: tuple[str, ...]
) -> tuple[Array]:
    _check(index, len(list), len(list))
    return (list[index],)


def _length(list: Elements, *, symbols: tuple[str, ...]) -> tuple[()]:
    return ()


def _argument(argument: Elements | Array | None, *, symbols: tuple[str, ...]) -> Result:
    if argument is None:
        return ((),)
    return (argument if isinstance(argument, tuple) else (argument,),)


def _result(list: Elements, *, kind: str, given: int) -> tuple[Elements | Array | None]:
    if kind == "sequence" or (kind == "optional_sequence" and given):
        return (list,)
    return (list[0] if given and list and kind == "optional" else None,)


REFERENCES: dict[str, Callable[..., Any]] = {
    "list.empty": _empty,
    "list.of": _of,
    "list.insert": _insert,
    "list.erase": _erase,
    "list.extend": _extend,
    "list.widen": _widen,
    "list.get": _get,
    "list.length": _length,
    "list.argument": _argument,
    "list.result": _result,
}
