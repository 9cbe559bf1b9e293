"""Functions with strings or maps: Python's values for what a module has as tensors.

A string tensor is two values: `NAME`, i64, says where each string ends in the bytes of all, one
behind another, and `NAME.utf8`, u8[n], is these bytes. Rows of a result whose doc says so are
maps. docs/design/0016-strings.md has the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument
from ingot.runtime.signature import Signature, Value

__all__ = ["Texts", "has_texts"]

_SUFFIX = ".utf8"
_KEYS = "maps of "


def has_texts(signature: Signature) -> bool:
    """Whether any of its values is of strings or maps."""
    values = (*signature.arguments, *signature.results)
    return any(_is_bytes(each) or each.doc.startswith(_KEYS) for each in values)


def _is_bytes(value: Value) -> bool:
    name = value.name.removesuffix(_SUFFIX)
    return value.doc == f"UTF-8 of '{name}'"


class Texts:
    """Makes arguments and results of the ones that Python has, which have these names; those of
    `string_names` are arguments of strings."""

    def __init__(self, signature: Signature) -> None:
        self._arguments = [each.name for each in signature.arguments]
        texts = [each for each in signature.arguments if _is_bytes(each)]
        self.string_names = {each.name.removesuffix(_SUFFIX) for each in texts}
        hidden = {each.name for each in texts}
        self.argument_names = [name for name in self._arguments if name not in hidden]
        self._results = signature.results
        self.result_names = [each.name for each in signature.results if not _is_bytes(each)]

    def bind(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Arguments as the module takes them; those that are so already as they are."""
        count = len(arguments) + len(named)
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
                packed[name], packed[name + _SUFFIX] = _pack(value, name)
            else:
                packed[name] = value
        return (), packed

    def unpack(self, results: Sequence[Any]) -> Any:
        """Results, of which string tensors are one object array, and maps lists of dicts."""
        made: list[Any] = []
        for value, result in zip(self._results, results, strict=True):
            if _is_bytes(value):
                made[-1] = _unpack(np.asarray(made[-1]), np.asarray(result))
            elif value.doc.startswith(_KEYS):
                keys = json.loads(value.doc[len(_KEYS) :])
                rows = np.asarray(result).tolist()
                made.append([dict(zip(keys, row, strict=True)) for row in rows])
            else:
                made.append(result)
        return made[0] if len(made) == 1 else tuple(made)


def _pack(value: Any, name: str) -> tuple[Any, Any]:
    """Where each string ends, and the bytes of all."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
    if not all(isinstance(x, (str, bytes)) for x in array.flat):
        raise InvalidArgument(
            f"argument '{name}': is of {array.dtype}, but must be of strings, as a list of str is"
        )
    encoded = [x if isinstance(x, bytes) else x.encode("utf-8") for x in array.flat]
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64).reshape(array.shape)
    return ends, np.frombuffer(b"".join(encoded), np.uint8)


def _unpack(ends: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    whole, start = data.tobytes(), 0
    result = np.empty(ends.shape, object)
    for place, end in zip(np.ndindex(ends.shape), ends.reshape(-1).tolist(), strict=True):
        result[place] = whole[start:end].decode("utf-8", "replace")
        start = end
    return result
