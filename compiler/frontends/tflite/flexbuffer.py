"""Reads the options of custom ops: a map of texts, numbers and truths as FlexBuffers have it."""

from __future__ import annotations

import struct
from typing import Any

from ingot.hal.errors import CompileError

__all__ = ["count_in", "read_options"]

_INT, _UINT, _FLOAT, _TEXT, _MAP, _TRUTH = 1, 2, 3, 5, 9, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_FORMATS = {_INT: "bhiq", _UINT: "BHIQ", _FLOAT: " efd", _TRUTH: "BHIQ"}
_MOST_KEYS = 1000


def read_options(data: bytes) -> dict[str, Any]:
    """The entries of the map by key, without those of other kinds; {} of no bytes.
    CompileError: it is damaged, or no map."""
    try:
        return _Reader(data).root() if data else {}
    except (LookupError, ValueError, struct.error) as error:
        raise CompileError(f"its options are damaged ({error}): convert the model again") from None


def count_in(options: dict[str, Any], name: str, low: int = 1, high: int = (1 << 31) - 1) -> int:
    """An option that counts. CompileError: it is not there, or not from `low` to `high`."""
    value = options.get(name)
    if type(value) is not int or not low <= value <= high:
        raise CompileError(f"its {name} is {value!r}, expected {low} to {high}: fix the model")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def root(self) -> dict[str, Any]:
        kind, width = self._data[-2], self._data[-1]
        if kind >> 2 != _MAP:
            raise ValueError("they are no map")
        return self._map(self._follow(len(self._data) - 2 - width, width), 1 << (kind & 3))

    def _number(self, kind: int, place: int, width: int) -> Any:
        letter = _FORMATS[kind][width.bit_length() - 1].strip()
        if width not in (1, 2, 4, 8) or not letter or place < 0:
            raise ValueError(f"a number of {width} bytes at {place}")
        return struct.unpack_from("<" + letter, self._data, place)[0]

    def _follow(self, place: int, width: int) -> int:
        """Where an offset, which counts backwards, leads."""
        return place - int(self._number(_UINT, place, width))

    def _map(self, start: int, width: int) -> dict[str, Any]:
        """In front of the values stand where the keys are, the width of these, and the count."""
        keys, key_width = self._follow(start - 3 * width, width), start - 2 * width
        key_width = self._number(_UINT, key_width, width)
        count = self._number(_UINT, start - width, width)
        if count > _MOST_KEYS:
            raise ValueError(f"{count} keys")
        found: dict[str, Any] = {}
        for at in range(count):
            begin = self._follow(keys + at * key_width, key_width)
            key = self._data[begin : self._data.index(0, max(begin, 0))].decode("utf-8", "replace")
            kind = self._data[start + count * width + at]
            value = self._value(kind >> 2, 1 << (kind & 3), start + at * width, width)
            if value is not None:
                found[key] = value
        return found

    def _value(self, kind: int, inner: int, place: int, width: int) -> Any:
        """A value that stands at a place, or where that leads; None for lists and maps."""
        if kind in _INDIRECT:
            return self._number(_INDIRECT[kind], self._follow(place, width), inner)
        if kind == _TEXT:
            begin = self._follow(place, width)
            length = self._number(_UINT, begin - inner, inner)
            return self._data[begin : begin + length].decode("utf-8", "replace")
        if kind not in _FORMATS:
            return None
        value = self._number(kind, place, width)
        return bool(value) if kind == _TRUTH else value
