"""Dataclasses that are cheap to define.

The standard decorator compiles six methods for each frozen class, which was 40 % of the time that
importing the compiler took. Here all classes share five of them, and `__init__` is compiled for the
first object: a small program makes objects of half the classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]


class _Methods:
    """What all frozen classes have."""

    _field_values: Callable[[Any], object]

    def __eq__(self, other: object) -> bool:
        cls = type(self)
        if type(other) is not cls:
            return NotImplemented
        return bool(cls._field_values(self) == cls._field_values(other))

    def __hash__(self) -> int:
        return hash(type(self)._field_values(self))

    def __repr__(self) -> str:
        names = [each.name for each in fields(self)]  # type: ignore[arg-type]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field '{name}'")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field '{name}'")


_COMPARE = ("__eq__", "__hash__")
_OTHERS = ("__repr__", "__setattr__", "__delattr__")


def _frozen(cls: type[Any], eq: bool, kw_only: bool) -> type[Any]:
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    names = [each.name for each in fields(cls)]
    cls._field_values = attrgetter(*names) if names else lambda self: ()
    for name in (*_OTHERS, *(_COMPARE if eq else ())):
        if vars(cls).get(name) is None:  # the class has none of its own
            setattr(cls, name, getattr(_Methods, name))

    def make_first(self: Any, *values: Any, **named: Any) -> None:
        cls.__init__ = _initializer(cls)
        cls.__init__(self, *values, **named)

    cls.__init__ = make_first
    return cls


def _initializer(cls: type[Any]) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    parameters, named, lines = ["self"], ["*"], []
    for each in fields(cls):
        if not each.init:
            continue
        (named if each.kw_only else parameters).append(each.name + _default(each, scope))
        value = each.name
        if each.default_factory is not MISSING:
            value = f"_of_{each.name}() if {each.name} is _MISSING else {each.name}"
        lines.append(f" _set(self, '{each.name}', {value})")
    parameters += named[1:] and named
    lines.append(" self.__post_init__()" if hasattr(cls, "__post_init__") else " pass")
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *lines]), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _default(field: Field[Any], scope: dict[str, Any]) -> str:
    """The default of a parameter, which `scope` learns."""
    has_factory = field.default_factory is not MISSING
    scope[f"_of_{field.name}"] = field.default_factory if has_factory else field.default
    if has_factory:
        return "=_MISSING"
    return "" if field.default is MISSING else f"=_of_{field.name}"


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, kw_only=False):
        """As the standard decorator, for the options that the compiler uses."""

        def define(cls):
            if frozen:
                return _frozen(cls, eq, kw_only)
            return dataclasses.dataclass(eq=eq, kw_only=kw_only)(cls)

        return define if cls is None else define(cls)
