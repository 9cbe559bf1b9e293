"""Options of functions, held against the annotations of these: what does not fit is one error,
which says which option it is, what was given and what is expected."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from reprlib import Repr
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from ingot.hal.errors import Error

__all__ = ["check_options", "checked_options", "shown"]

P = ParamSpec("P")
R = TypeVar("R")

_UNIONS = (Union, types.UnionType)
_NAMES: Mapping[Any, tuple[str, str]] = {
    types.NoneType: ("None", "None"),
    bool: ("True or False", "flags"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    os.PathLike: ("a path", "paths"),
    Callable: ("a function", "functions"),
    Any: ("anything", "anything"),
}
"""What one of a kind is called, and several are."""

_NUMBERS: Mapping[Any, Any] = {int: Integral, float: Real}
_hints = cache(get_type_hints)
_repr = Repr()
_repr.maxstring = _repr.maxother = 60


def checked_options(error: type[Error]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function whose arguments are held against its annotations, but for those of * and **;
    `error` is raised of what does not fit."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            placed = dict(zip(_places(function), arguments, strict=False))
            check_options(function, placed | options, error)
            return function(*arguments, **options)

        return call

    return decorate


@cache
def _places(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of arguments by their places."""
    found = inspect.signature(function).parameters.values()
    return tuple(each.name for each in found if each.kind is each.POSITIONAL_OR_KEYWORD)


def check_options(
    function: Callable[..., Any], options: Mapping[str, Any], error: type[Error]
) -> None:
    """Hold values against what a function says of its arguments of these names."""
    kinds = _hints(function)
    for name, value in options.items():
        kind = kinds.get(name, Any) if name != "return" else Any
        if not _fits(value, kind):
            raise error(f"{name} is {shown(value)}, expected {_name(kind)}")


def shown(value: Any) -> str:
    """A value, short enough for a message, whatever its own representation does."""
    try:
        return _repr.repr(value)
    except Exception:  # of a class of the caller, or of a number with too many digits
        return f"a {type(value).__name__}"


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Any:
        return True
    if origin in _UNIONS:
        return any(_fits(value, each) for each in inner)
    if origin is bool:
        return isinstance(value, (bool, np.bool_)) or (_fits(value, int) and value in (0, 1))
    if origin in _NUMBERS:
        return isinstance(value, _NUMBERS[origin]) and not isinstance(value, bool)
    if origin is Mapping:
        key, item = inner
        return isinstance(value, Mapping) and all(
            _fits(each, key) and _fits(value[each], item) for each in value
        )
    if origin is Sequence:
        return _is_list(value) and all(_fits(each, inner[0]) for each in value)
    return isinstance(value, origin)


def _is_list(value: Any) -> bool:
    """Whether a value has elements that can be counted, and is no text and no dict."""
    is_one = isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0
    return isinstance(value, Collection) and not is_one


def _name(kind: Any, several: bool = False) -> str:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in _UNIONS:
        *first, last = (_name(each, several) for each in inner)
        return f"{', '.join(first)} or {last}"
    if origin is Mapping:
        of = f"from {_name(inner[0], True)} to {_name(inner[1], True)}"
        return f"dicts {of}" if several else f"a dict {of}"
    if origin is Sequence:
        return f"{'lists' if several else 'a list'} of {_name(inner[0], True)}"
    if origin in _NAMES:
        return _NAMES[origin][several]
    return f"{origin.__name__} objects" if several else f"a {origin.__name__}"
