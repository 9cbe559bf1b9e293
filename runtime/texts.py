"""Functions with strings or maps: Python's values for what a module has as tensors.

A string tensor is two values: `NAME`, i64, says where each string ends in the bytes of all, one
behind another, and `NAME.utf8`, u8[n], is these bytes. A sequence of them is two sequences, an
optional two optionals.
Rows of a result whose doc says so are maps, and so is an argument. docs/design/0016-strings.md has
the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument
from ingot.runtime.signature import Signature, Value

__all__ = ["Texts", "has_texts"]

_SUFFIX = ".utf8"
_KEYS = {1: "map of ", 2: "maps of "}
"""How the doc of a map, or of rows that are maps, begins, by rank."""

_INTEGERS = "map of integers"
"""The doc of a map whose keys count from 0, or, if its length is open, are any."""


def has_texts(signature: Signature) -> bool:
    """Whether any of its values is of strings or maps."""
    hidden = _hidden(signature.arguments) | _hidden(signature.results)
    sides = ((1, signature.arguments), (2, signature.results))
    maps = (_keys(each, rank) for rank, values in sides for each in values)
    return bool(hidden) or any(keys is not None for keys in maps)


def _hidden(values: Sequence[Value]) -> set[str]:
    """The names of values that are the bytes of the string tensor in front of them. A doc may also
    be the text of a source, which says so of something else."""
    return {
        data.name
        for ends, data in pairwise(values)
        if data.doc == f"UTF-8 of '{ends.name}'"
        and data.name == ends.name + _SUFFIX
        and (data.dtype.name, len(data.shape), ends.dtype.name) == ("u8", 1, "i64")
        and ends.kind == data.kind
    }


def _keys(value: Value, rank: int) -> Sequence[Any] | None:
    """Of what its columns are, empty if they are all that a map has, in their order; None: it is
    no map, or its rows are none."""
    begin = _KEYS[rank]
    if value.kind != "tensor" or len(value.shape) != rank or not value.doc.startswith(begin):
        return None
    if value.doc == _INTEGERS:
        (length,) = value.shape
        return range(length if isinstance(length, int) else 0)
    try:
        keys = json.loads(value.doc[len(begin) :])
    except (RecursionError, ValueError):
        return None
    fits = isinstance(keys, list) and len(keys) == value.shape[-1]
    return keys if fits and all(isinstance(each, (int, str)) for each in keys) else None


class Texts:
    """Makes arguments and results of the ones that Python has, which have these names; those of
    `string_names` are arguments of strings."""

    def __init__(self, signature: Signature) -> None:
        self._arguments = [each.name for each in signature.arguments]
        hidden = _hidden(signature.arguments)
        self.string_names = {name.removesuffix(_SUFFIX) for name in hidden}
        self._kinds = {each.name: each.kind for each in signature.arguments}
        self.argument_names = [name for name in self._arguments if name not in hidden]
        self._bytes = _hidden(signature.results)
        self._maps = {
            each.name: (keys, each.dtype.numpy)
            for each in signature.arguments
            if (keys := _keys(each, 1)) is not None
        }
        self._results = [(each.name, _keys(each, 2)) for each in signature.results]
        self.result_names = [name for name, _ in self._results if name not in self._bytes]

    def bind(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Arguments as the module takes them; those that are so already as they are."""
        count = len(arguments) + len(named)
        if self._maps:
            names = self._arguments if count == len(self._arguments) else self.argument_names
            rows = [self._row(*each) for each in zip(names, arguments, strict=False)]
            arguments = (*rows, *arguments[len(rows) :])
            named = {name: self._row(name, value) for name, value in named.items()}
        twice = named.keys() & set(self.argument_names[: len(arguments)])
        if not self.string_names or count == len(self._arguments) or twice:
            return arguments, named
        if len(arguments) > len(self.argument_names):
            raise InvalidArgument(
                f"{len(arguments)} arguments, but the function takes "
                f"{', '.join(self.argument_names)}"
            )
        packed: dict[str, Any] = {}
        for name, value in {
            **dict(zip(self.argument_names, arguments, strict=False)),
            **named,
        }.items():
            if name in self.string_names and name + _SUFFIX not in named:
                packed[name], packed[name + _SUFFIX] = _pack_as(self._kinds[name], value, name)
            else:
                packed[name] = value
        return (), packed

    def _row(self, name: str, value: Any) -> Any:
        """What a map has for its keys, 0 where it has none; other keys do not count."""
        if name not in self._maps or not isinstance(value, Mapping):
            return value
        keys, element = self._maps[name]
        try:
            keys = sorted(value) if keys == range(0) else keys
            return np.array([value.get(key, 0) for key in keys], element)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgument(f"argument '{name}': a map must have numbers: {error}") from None

    def unpack(self, results: Sequence[Any]) -> Any:
        """Results, of which string tensors are one object array, and maps lists of dicts."""
        made: list[Any] = []
        for (name, keys), result in zip(self._results, results, strict=True):
            if name in self._bytes:
                made[-1] = _unpack_any(made[-1], result)
            elif keys is not None:
                rows = np.asarray(result).tolist()
                made.append([dict(zip(keys, row, strict=True)) for row in rows])
            else:
                made.append(result)
        return made[0] if len(made) == 1 else tuple(made)


def _pack_as(kind: str, value: Any, name: str) -> tuple[Any, Any]:
    """As `_pack`, of a sequence or an optional, too."""
    if value is None and kind.startswith("optional"):
        return None, None
    if not kind.endswith("sequence"):
        return _pack(value, name)
    if not isinstance(value, (list, tuple)):
        raise InvalidArgument(f"argument '{name}': must be a list of arrays of strings")
    pairs = [_pack(each, name) for each in value]
    return [ends for ends, _ in pairs], [data for _, data in pairs]


def _pack(value: Any, name: str) -> tuple[Any, Any]:
    """Where each string ends, and the bytes of all."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
    if not all(isinstance(x, (str, bytes)) for x in array.flat):
        raise InvalidArgument(
            f"argument '{name}': is of {array.dtype}, but must be of strings, as a list of str is"
        )
    try:
        encoded = [x if isinstance(x, bytes) else x.encode("utf-8") for x in array.flat]
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"argument '{name}': a string is no Unicode text: {error}") from None
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64).reshape(array.shape)
    return ends, np.frombuffer(b"".join(encoded), np.uint8)


def _unpack_any(ends: Any, data: Any) -> Any:
    """As `_unpack`, of a sequence or an optional, too."""
    if ends is None or data is None:
        return None
    if isinstance(ends, (list, tuple)):
        return [_unpack(*each) for each in zip(ends, data, strict=True)]
    return _unpack(ends, data)


def _unpack(given_ends: Any, data: Any) -> np.ndarray[Any, Any]:
    ends, whole, start = np.asarray(given_ends), np.asarray(data).tobytes(), 0
    result = np.empty(ends.shape, object)
    for place, end in zip(np.ndindex(ends.shape), ends.reshape(-1).tolist(), strict=True):
        result[place] = whole[start:end].decode("utf-8", "replace")
        start = end
    return result
