"""The members of a zip that stores them as they are, and where their bytes lie."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends.kept_file import Kept
from ingot.hal.errors import CompileError

__all__ = ["WRONG", "Members"]

WRONG = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError)
"""What `zipfile` raises of a zip that is none."""


class _Window(io.RawIOBase):
    """A part of what is kept, as a file."""

    def __init__(self, kept: Kept, start: int, length: int) -> None:
        self._kept, self._start, self._length, self._at = kept, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._length)[whence]
        if self._at < 0:
            raise ValueError("it is shorter than it says")
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = max(min(len(buffer), self._length - self._at), 0)
        buffer[:count] = self._kept.read(self._start + self._at, count).data
        self._at += count
        return count


class Members:
    """`damaged` makes the error for what it is told to be wrong."""

    def __init__(
        self,
        zip: zipfile.ZipFile,
        kept: Kept,
        damaged: Callable[[str], CompileError],
        start: int = 0,
    ) -> None:
        self._zip, self._kept, self._damaged, self._start = zip, kept, damaged, start
        self.names = zip.namelist()

    def inner(self, name: str) -> Members:
        """Those of a member that is such a zip itself."""
        start, length = self.span(name)
        try:
            window = io.BufferedReader(_Window(self._kept, start, length))
            return Members(zipfile.ZipFile(window), self._kept, self._damaged, start)
        except WRONG as error:
            raise self._damaged(f"'{name}': {error}") from None

    def read(self, name: str) -> bytes:
        info = self._info(name)
        try:
            return self._zip.read(info)
        except WRONG as error:
            raise self._damaged(f"'{name}': {error}") from None

    def span(self, name: str) -> tuple[int, int]:
        """Where the bytes of a member lie in what is kept, and how many they are. They are not
        read: checksums, for which all of them would be, are not asked for."""
        info = self._info(name)
        own = info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437")
        head, at = 30 + len(own), self._start + info.header_offset
        if at < 0 or at + head > self._kept.length:
            raise self._damaged(f"'{name}' begins behind its end")
        header = self._kept.read(at, head).tobytes()
        lengths = struct.unpack_from("<2H", header, 26)  # of the name and of what follows it
        start = at + 30 + sum(lengths)
        if start + info.file_size > self._kept.length or header[30:] != own:
            raise self._damaged(f"'{name}' is not where it should be")
        return start, info.file_size

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            raise self._damaged(f"'{name}' is missing") from None
        if info.compress_type != zipfile.ZIP_STORED:
            raise self._damaged(f"'{name}' is compressed")
        return info
