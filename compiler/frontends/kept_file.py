"""Bytes of a source of which parts are read whenever they are used.

A file is read, not mapped: a mapped file that is cut meanwhile kills the process. Each time it is
opened anew, and must be what it was at first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from math import prod
from typing import Any

import numpy as np

from ingot.compiler.graph.ops import Constant
from ingot.compiler.ir import Later, Literal, Module, walk
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.literals import literal_from_bytes
from ingot.hal.errors import CompileError, Error
from ingot.hal.spec import DType

__all__ = ["LARGE", "Kept", "KeptBytes", "KeptFile", "import_whole"]

LARGE = 1 << 16
"""Bytes of the longest tensor that is read when it is seen, once."""


_PART, _FIRST = 1 << 18, 1 << 12
"""Bytes that are read at a time of what is written as it is. The first ones are fewer: they tell
nearly all weights from those whose elements are equal."""


class Kept:
    """What `read` reads: `length` bytes in all."""

    length: int

    def read(self, offset: int, length: int) -> np.ndarray[Any, Any]:
        """`length` bytes at `offset`. CompileError: they are there no more."""
        raise NotImplementedError

    @contextmanager
    def opened(self) -> Iterator[None]:
        """What is read within is read of a file that is opened once. CompileError: as `read`."""
        yield

    def literal(self, offset: int, shape: tuple[int, ...], dtype: DType) -> Literal:
        """The elements that lie there, each in whole bytes; many are read when they are used."""
        span = _Span(self, offset, dtype, shape)
        return Literal(span, dtype) if span.length > LARGE else span.literal()


class KeptFile(Kept):
    """What `open` opens, whose name in messages is `name`. OSError: it cannot be opened.
    CompileError: it is no regular file."""

    def __init__(self, open: Callable[[], Any], name: str) -> None:
        self._open, self.name = open, name
        self._opened: Any = None
        with open() as file:
            facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise CompileError("which is no regular file: put the data itself there")
        self.length, self._facts = facts.st_size, _facts(facts)

    def read(self, offset: int, length: int) -> np.ndarray[Any, Any]:
        data = np.empty(length, np.uint8)
        done = 0
        try:
            with nullcontext(self._opened) if self._opened else self._open() as file:
                file.seek(offset)
                while done < length and (count := file.readinto(data.data[done:])):
                    done += count
                facts = _facts(os.fstat(file.fileno()))
        except (OSError, Error) as error:
            raise self._unreadable(error) from None
        self._require(done == length and facts == self._facts)
        return data

    @contextmanager
    def opened(self) -> Iterator[None]:
        try:
            self._opened = self._open()
        except (OSError, Error) as error:
            raise self._unreadable(error) from None
        try:
            yield
        finally:
            self._opened.close()
            self._opened = None

    def check(self, file: Any) -> None:
        """CompileError: the open file is not the one that there was at first, or was changed."""
        self._require(_facts(os.fstat(file.fileno())) == self._facts)

    def _unreadable(self, error: Exception) -> CompileError:
        return CompileError(f"{self.name} cannot be read any more: {error}")

    def _require(self, is_same: bool) -> None:
        if not is_same:
            raise CompileError(
                f"{self.name} was changed or cut while it was read: wait until it is complete"
            )


class KeptBytes(Kept):
    """Bytes in memory, which are not copied."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self.length = data, len(data)

    def read(self, offset: int, length: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._data, np.uint8, length, offset)


def import_whole(file: KeptFile, read: Callable[[memoryview], Module]) -> Module:
    """What `read` makes of all bytes of the file, whose large constants may lie in them: they are
    read again when they are used."""
    data = file.read(0, file.length)
    module = read(data.data)
    for op in walk(module):
        literal = Constant.of(op).value if op.name == "constant" else None
        if literal is None or isinstance(literal.stored, Later) or literal.nbytes <= LARGE:
            continue
        offset = literal.stored.ctypes.data - data.ctypes.data
        if 0 <= offset <= file.length - literal.nbytes:
            op.attributes = Constant(file.literal(offset, literal.shape, literal.dtype))
    return module


@dataclass(frozen=True)
class _Span(Later):
    file: Kept
    offset: int
    dtype: DType
    shape: tuple[int, ...]

    @property
    def is_own(self) -> bool:  # type: ignore[override]
        return isinstance(self.file, KeptFile)

    @property
    def length(self) -> int:
        return prod(self.shape) * self.dtype.bytes

    def literal(self) -> Literal:
        data = self.file.read(self.offset, self.length)
        return literal_from_bytes(data.data, self.shape, self.dtype)

    def make(self) -> np.ndarray[Any, Any]:
        return self.literal().array

    def parts(self) -> Iterator[np.ndarray[Any, Any]]:
        count, first, length = prod(self.shape), 0, _FIRST
        while first < count:
            shape = (min(length // self.dtype.bytes, count - first),)
            yield _Span(self.file, self.offset + first * self.dtype.bytes, self.dtype, shape).make()
            first, length = first + shape[0], _PART


def _facts(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
