"""The attributes of ops: a frozen dataclass per kind of op, and the codec that goes by its fields.

The table of a level declares the class beside the op (`declare`). The type of a field says which
values are right and what their text is: int, float, bool, str, DType, a dim, a constant tensor, a
type, one of some words (`typing.Literal`), a tuple of these, or a `Record`: named values again.
`Reduce.of(op).axes` reads an attribute with its type.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr
from ingot.compiler.ir.types import Type
from ingot.hal.spec import DType

if TYPE_CHECKING:
    from ingot.compiler.ir.core import Function, Op

__all__ = [
    "LEFT_OUT",
    "NO_ATTRIBUTES",
    "Attributes",
    "Dims",
    "Ints",
    "Names",
    "Number",
    "Pairs",
    "Record",
    "RuleError",
    "attributes_of",
    "by_operands",
    "declare",
    "leaves_of",
    "map_leaves",
    "rows_of",
    "shown",
]

Ints = tuple[int, ...]
Dims = tuple[Dim, ...]
Pairs = tuple[tuple[Dim, Dim], ...]
Names = tuple[str, ...]
Number = bool | int | float

LEFT_OUT: Mapping[str, Any] = {"left out": True}
"""Metadata of a field that has no text where it has its default."""

_T = TypeVar("_T")
_Record = TypeVar("_Record", bound="Record")
_Attributes = TypeVar("_Attributes", bound="Attributes")


def by_operands(default: Callable[..., Any]) -> Mapping[str, Any]:
    """Metadata of a field that may be left out: its value is made from the operands' types."""
    return {"by operands": default}


class RuleError(ValueError):
    """Operands or attributes break the rule of an op; the message says which and how."""


@dataclass(frozen=True)
class Record:
    """Named values of an attribute."""

    __slots__ = ("__dict__", "_key", "_symbols")  # the latter are no values, so not in `vars`

    @property
    def symbols_used(self) -> frozenset[str]:
        """The symbols in all values."""
        found: frozenset[str] | None = getattr(self, "_symbols", None)
        if found is None:
            names = [leaf.names for leaf in leaves_of(self) if isinstance(leaf, Expr)]
            found = frozenset[str]().union(*names)
            object.__setattr__(self, "_symbols", found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def read(
        cls: type[_Record], given: Mapping[str, Any], operands: Sequence[Type] = ()
    ) -> _Record:
        """The record with these values, and defaults for others. RuleError: one is wrong."""
        rows = rows_of(cls)
        if len(given) > len(rows) or not all(map(rows.__contains__, given)):
            unknown = next(name for name in given if name not in rows)
            raise RuleError(f"has no attribute '{unknown}'; its attributes are: {_list(rows)}")
        values: dict[str, Any] = {}
        for name, row in rows.items():
            if name in given:
                try:
                    values[name] = row.kind.read(given[name])
                except RuleError as error:
                    raise RuleError(f"attribute '{name}' {error}") from None
                except TypeError:
                    value = f"{given[name]!r}"[:200]
                    wanted = row.kind.wanted
                    raise RuleError(f"attribute '{name}' must be {wanted}, not {value}") from None
            elif row.by_operands is not None:
                values[name] = row.by_operands(*operands)
            elif row.default is MISSING:
                raise RuleError(f"needs the attribute '{name}', {row.kind.wanted}")
        return cls(**values) if values else cls()


@dataclass(frozen=True)
class Attributes(Record):
    """What an op says beside its operands. Without fields: of an op that says nothing."""

    @classmethod
    def of(cls: type[_Attributes], op: Op | Function) -> _Attributes:
        """The attributes of an op or function of this kind. TypeError: it is of another kind."""
        found = op.attributes
        if not isinstance(found, cls):
            raise TypeError(f"'{op.name}' has {type(found).__name__}, not {cls.__name__}")
        return found


NO_ATTRIBUTES = Attributes()


# What the type of a field says.


class _Kind(NamedTuple):
    name: str  # in the page of ops
    wanted: str  # in a message
    several: str
    read: Callable[[Any], Any]  # the value that a field holds; TypeError: none of this kind


class _Row(NamedTuple):
    """One attribute."""

    kind: _Kind
    default: Any
    by_operands: Callable[..., Any] | None
    is_left_out: bool

    @property
    def is_required(self) -> bool:
        return self.default is MISSING and self.by_operands is None


_ROWS: dict[type[Any], Mapping[str, _Row]] = {}


def rows_of(cls: type[Record]) -> Mapping[str, _Row]:
    """The attributes that a class declares, by name and in order."""
    if cls not in _ROWS:
        hints = typing.get_type_hints(cls, None, {"Expr": Expr})
        _ROWS[cls] = {
            each.name: _Row(
                _kind_of(hints[each.name]),
                each.default,
                each.metadata.get("by operands"),
                "left out" in each.metadata,
            )
            for each in fields(cls)
        }
    return _ROWS[cls]


_WORDS: dict[object, tuple[str, str, str]] = {
    bool: ("bool", "true or false", "booleans"),
    int: ("int", "an integer", "integers"),
    float: ("float", "a number", "numbers"),
    str: ("string", "a string", "strings"),
    DType: ("dtype", "a dtype", "dtypes"),
    type(None): ("none", "none", "nones"),
    frozenset((int, Expr)): ("dim", "a dim", "dims"),
    frozenset((bool, int, float)): ("scalar", "a number or a boolean", "numbers or booleans"),
}


@cache
def _kind_of(hint: Any) -> _Kind:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return _Kind(" | ".join(inner), f"one of: {_list(inner)}", "words", _reads_choice(inner))
    if origin is tuple and inner[1:] == (...,):
        element = _kind_of(inner[0])
        wanted, read = f"a tuple of {element.several}", _reads_tuple(element.read)
        return _Kind(f"{element.name}s", wanted, f"tuples of {element.several}", read)
    if origin is tuple:
        each = _kind_of(inner[0])
        kinds = f" of {each.several}" if len(set(inner)) == 1 else ""
        name = "pair" if len(inner) == 2 else f"{len(inner)}-tuple"
        return _Kind(name, f"a {name}{kinds}", f"{name}s{kinds}", _reads_fixed(inner))
    if origin in (typing.Union, types.UnionType):
        parts = [_kind_of(each) for each in inner]
        joined = [" or ".join(each) for each in list(zip(*parts, strict=True))[:3]]
        name, wanted, several = _WORDS.get(frozenset(inner), joined)
        return _Kind(name, wanted, several, _reads_any([each.read for each in parts]))
    if issubclass(hint, Record):
        names = f"{{{_list(rows_of(hint))}}}"
        return _Kind(hint.__name__, names, names, _reads_record(hint))
    plain = hint.__name__.removesuffix("Type").lower()
    name, wanted, several = _WORDS.get(hint, (plain, f"a {plain}", f"{plain}s"))
    return _Kind(name, wanted, several, _reads_instance(hint))


def _plain(value: Any) -> Any:
    """The Python number that a NumPy scalar is; anything else as it is."""
    is_scalar = hasattr(value, "item") and getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value


def _reads_instance(cls: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is cls:
            return value
        value = _plain(value)
        is_number = cls is float and type(value) is int
        if is_number or (isinstance(value, cls) and (cls is not int or type(value) is not bool)):
            return value
        raise TypeError

    return read


def _reads_choice(choices: tuple[str, ...]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, str) and value in choices:
            return value
        raise TypeError

    return read


def _reads_tuple(element: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, (tuple, list)):
            raise TypeError
        return tuple([element(item) for item in value])

    return read


def _reads_fixed(hints: Sequence[Any]) -> Callable[[Any], Any]:
    elements = [_kind_of(each).read for each in hints]

    def read(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(elements):
            raise TypeError
        return tuple([element(item) for element, item in zip(elements, value, strict=True)])

    return read


def _reads_any(readers: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        for each in readers:
            try:
                return each(value)
            except (TypeError, RuleError):
                pass
        raise TypeError

    return read


def _reads_record(cls: type[Record]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise TypeError
        return cls.read(value)

    return read


def _list(names: Iterator[str] | Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(names) or "none"


# The kinds of ops by name.

_DECLARED: dict[str, list[type[Attributes]]] = {}


def declare(attributes: type[Attributes], *names: str) -> None:
    """Say what the text of ops of these names may hold. An op that has more at a deeper level is
    declared there again; which level is declared first does not matter."""
    for name in names:
        known = _DECLARED.setdefault(name, [])
        if attributes not in known:
            known.append(attributes)


def attributes_of(name: str, given: Mapping[str, Any], operands: Sequence[Type] = ()) -> Attributes:
    """The attributes of an op from its text. RuleError: one is unknown, missing or wrong."""
    declared = _DECLARED.get(name)
    if declared is None:
        if given:
            raise RuleError("is no op of any level, so its attributes cannot be read")
        return NO_ATTRIBUTES
    fitting = [each for each in declared if rows_of(each).keys() >= given.keys()]
    fewest = min(fitting or declared, key=lambda each: len(rows_of(each)))
    return fewest.read(given, operands)


# Questions to any record.


def shown(attributes: Record) -> list[tuple[str, Any]]:
    """The values that the text of a record has."""
    if type(attributes) is Attributes:
        return []
    rows = rows_of(type(attributes))
    return [
        (name, value)
        for name, value in vars(attributes).items()
        if not (rows[name].is_left_out and value == rows[name].default)
    ]


def leaves_of(value: Any) -> list[Any]:
    """The values in a record or an attribute that are no tuples and no records."""
    if isinstance(value, Record):
        value = vars(value).values()
    elif not isinstance(value, tuple):
        return [value]
    found = []
    for each in value:
        if isinstance(each, (tuple, Record)):
            found += leaves_of(each)
        else:
            found.append(each)
    return found


def map_leaves(value: _T, change: Callable[[Any], Any]) -> _T:
    """The record or attribute with `change` made of all values in it."""
    changed: Any = value
    if isinstance(value, tuple):
        changed = tuple([map_leaves(each, change) for each in value])
    elif not isinstance(value, Record):
        changed = change(value)
    elif vars(value):
        changed = type(value)(**{k: map_leaves(v, change) for k, v in vars(value).items()})
    return changed  # type: ignore[no-any-return]
