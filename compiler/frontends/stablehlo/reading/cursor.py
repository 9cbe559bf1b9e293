"""A bounds-checked reader of the primitives of MLIR bytecode.

It knows bytes, variable-width integers and blobs, and nothing of what they mean. Every
read past the end raises DataLoss that says what was being read and where, so that the
code above needs no checks of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ingot.hal.errors import DataLoss

__all__ = ["Cursor"]

Item = TypeVar("Item")
_PADDING = 0xCB


class Cursor:
    """A position in a span of bytes; `base` is where the span starts in the file."""

    __slots__ = ("base", "data", "end", "offset", "what")

    def __init__(self, data: memoryview, what: str, base: int = 0) -> None:
        self.data = data
        self.what = what
        self.base = base
        self.offset = 0
        self.end = len(data)

    @property
    def at_end(self) -> bool:
        return self.offset >= self.end

    def fail(self, problem: str) -> DataLoss:
        """The error that this span is broken at the current position."""
        return DataLoss(
            f"the StableHLO artifact is truncated or corrupted: {problem} in its {self.what}, "
            f"at byte {self.base + self.offset}; export the model again"
        )

    def byte(self) -> int:
        if self.offset >= self.end:
            raise self.fail("the data ends early")
        value = self.data[self.offset]
        self.offset += 1
        return value

    def span(self, length: int) -> memoryview:
        """The next `length` bytes, not copied."""
        if length > self.end - self.offset:
            raise self.fail(f"{length} bytes announced, {self.end - self.offset} left")
        start = self.offset
        self.offset += length
        return self.data[start : self.offset]

    def unsigned(self) -> int:
        """A prefix-coded integer: the zero bits below the first one count the extra bytes."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int.from_bytes(self.span(8), "little")
        extra = (first & -first).bit_length() - 1
        rest = int.from_bytes(self.span(extra), "little")
        return (first | rest << 8) >> (extra + 1)

    def signed(self) -> int:
        """A zigzag-coded integer."""
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def flagged(self) -> tuple[int, bool]:
        """An integer whose lowest bit is a flag."""
        value = self.unsigned()
        return value >> 1, bool(value & 1)

    def count(self) -> int:
        """A number of items that follow; each takes a byte at least."""
        value = self.unsigned()
        if value > self.end - self.offset:
            raise self.fail(f"{value} items announced, {self.end - self.offset} bytes left")
        return value

    def list_of(self, read: Callable[[], Item]) -> tuple[Item, ...]:
        """A count, then that many items."""
        return tuple(read() for _ in range(self.count()))

    def blob(self) -> Cursor:
        """A length, then that many bytes."""
        return self.inside(self.unsigned(), self.what)

    def inside(self, length: int, what: str) -> Cursor:
        """A cursor over the next `length` bytes, which this one skips."""
        base = self.base + self.offset
        return Cursor(self.span(length), what, base)

    def text(self) -> str:
        """A string that ends with a zero byte."""
        start = self.offset
        while self.byte():
            pass
        return decode(self.data[start : self.offset - 1])

    def section(self) -> tuple[int, Cursor]:
        """The number of a section and a cursor over its data."""
        head = self.byte()
        length = self.unsigned()
        if head & 0x80:
            alignment = self.unsigned()
            if alignment <= 0 or alignment & (alignment - 1):
                raise self.fail(f"alignment {alignment} is no power of two")
            while (self.base + self.offset) % alignment:
                if self.byte() != _PADDING:
                    raise self.fail("padding is overwritten")
        number = head & 0x7F
        return number, self.inside(length, f"section {number}")


def decode(data: memoryview) -> str:
    """Bytes as text; what is not UTF-8 is shown by escapes."""
    return bytes(data).decode("utf-8", "backslashreplace")
