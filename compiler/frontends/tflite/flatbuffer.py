"""Reads tables of a flatbuffer by the numbers of their fields.

A file may come from anybody: every offset and length in it is checked before it is followed.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ingot.hal.errors import CompileError

__all__ = ["Flatbuffer", "Table"]

_MOST_READ = 1 << 27  # bytes of tables, lists and texts: far more than the largest models have
_TABLE_LENGTH = 64
_ELEMENTS = {
    "b": "<i1",
    "B": "<u1",
    "?": "<u1",
    "H": "<u2",
    "i": "<i4",
    "I": "<u4",
    "q": "<i8",
    "Q": "<u8",
    "f": "<f4",
}


class Flatbuffer:
    """The bytes of a file. CompileError, from all that reads: they are damaged."""

    def __init__(self, data: memoryview, what: str) -> None:
        self.data = data
        self._what = what
        self._read = 0

    def root(self) -> Table:
        return self.table(self.number("I", 0))

    def table(self, place: int) -> Table:
        self.count(_TABLE_LENGTH)
        return Table(self, place)

    def count(self, length: int) -> None:
        """Take note of what is copied. CompileError: it is too much, as where many offsets lead to
        the same place."""
        self._read += length
        if self._read > _MOST_READ:
            raise self.damaged("its tables say too much")

    def number(self, format: str, place: int) -> Any:
        """The number at a place, of a format of `struct`."""
        try:
            if place < 0:
                raise struct.error
            return struct.unpack_from("<" + format, self.data, place)[0]
        except struct.error:
            raise self.damaged(f"an offset leads to {place}, outside of the file") from None

    def span(self, place: int, length: int) -> memoryview:
        if not 0 <= place <= place + length <= len(self.data):
            raise self.damaged(f"bytes {place} to {place + length} are outside of the file")
        return self.data[place : place + length]

    def damaged(self, why: str) -> CompileError:
        return CompileError(
            f"{self._what} is damaged ({why}, which has {len(self.data)} bytes): copy it again"
        )


class Table:
    """One table; a field that it leaves out has the default of the schema."""

    def __init__(self, buffer: Flatbuffer, place: int) -> None:
        self._buffer = buffer
        self._place = place
        self._fields = place - buffer.number("i", place)
        self._size = buffer.number("H", self._fields)

    def _find(self, field: int) -> int:
        """Where a field lies; 0 if it is left out."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        offset = self._buffer.number("H", self._fields + entry)
        return self._place + offset if offset else 0

    def number(self, field: int, format: str, default: Any = 0) -> Any:
        place = self._find(field)
        return self._buffer.number(format, place) if place else default

    def table(self, field: int) -> Table | None:
        place = self._find(field)
        return self._buffer.table(self._follow(place)) if place else None

    def tables(self, field: int) -> list[Table]:
        """A vector of tables; empty where it is left out."""
        start, count = self._vector(field, 4)
        places = range(start, start + 4 * count, 4)
        return [self._buffer.table(self._follow(place)) for place in places]

    def numbers(self, field: int, format: str) -> np.ndarray[Any, Any]:
        """A vector of numbers of one format, in place; empty where it is left out."""
        element = np.dtype(_ELEMENTS[format])
        start, count = self._vector(field, element.itemsize)
        return np.frombuffer(self._buffer.span(start, count * element.itemsize), element)

    def listed(self, field: int, format: str) -> list[Any]:
        """A vector of numbers of one format; empty where it is left out."""
        numbers = self.numbers(field, format)
        self._buffer.count(8 * len(numbers))
        made: list[Any] = numbers.tolist()
        return made

    def text(self, field: int) -> str:
        """A string; what is no UTF-8 in it is replaced."""
        start, count = self._vector(field, 1)
        self._buffer.count(count)
        return bytes(self._buffer.span(start, count)).decode("utf-8", "replace")

    @property
    def file_length(self) -> int:
        """Bytes of the file that it is in."""
        return len(self._buffer.data)

    def _follow(self, place: int) -> int:
        return place + int(self._buffer.number("I", place))

    def _vector(self, field: int, width: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        place = self._find(field)
        if not place:
            return 0, 0
        start = self._follow(place)
        count = int(self._buffer.number("I", start))
        self._buffer.span(start + 4, count * width)
        return start + 4, count
