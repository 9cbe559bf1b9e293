"""A model as protobuf parses it, without the bytes of large tensors.

protobuf would hold a copy of all of a file. Here a token stands in the place of the bytes of each
large tensor, which stay where they are until they are used. Whatever merges, repeats or is unknown,
protobuf sees as it stands. A file with what no exporter writes - groups, lengths that do not fit -
is left to protobuf as a whole.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO

import onnx

from ingot.compiler.frontends.kept_file import Kept
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Cut", "Place"]

_LARGE = 1 << 16
"""Bytes of data, or of what it stands in, that protobuf copies."""

_WINDOW = 1 << 16
"""Bytes that are read to look at tags and lengths."""

_DEEPEST = 100
"""How deep protobuf reads messages in messages."""

_LONGEST = (1 << 31) - 1
"""Bytes of the longest message or field of protobuf."""

_RAW = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"]


@dataclass(frozen=True)
class Place:
    """Where the bytes of a tensor lie."""

    file: Kept
    offset: int
    length: int


class Cut:
    """A serialised model, which is `file`."""

    def __init__(self, file: Kept) -> None:
        self.file = file
        self._key = secrets.token_bytes(16)  # by which nobody's bytes are taken for a token

    def parse(self, stream: BinaryIO) -> onnx.ModelProto:
        """What protobuf makes of the stream, which has the bytes of `file`. DecodeError: it is no
        message."""
        try:
            edits = list(_Walk(stream, self._key).edits(0, self.file.length, _MODEL, 0))
        except _Odd:
            edits = []
        pieces: list[bytes] = []
        position = 0
        for start, end, piece in edits:
            stream.seek(position)
            pieces += [stream.read(start - position), piece]
            position = end
        stream.seek(position)
        pieces.append(stream.read())
        return onnx.ModelProto.FromString(b"".join(pieces))

    def place(self, data: bytes) -> Place | None:
        """Where the bytes lie for which `data` stands, if it is a token."""
        if not data.startswith(self._key):
            return None
        offset, length = (int.from_bytes(data[at : at + 8], "little") for at in (16, 24))
        return Place(self.file, offset, length)


_MODEL = onnx.ModelProto.DESCRIPTOR

_Edit = tuple[int, int, bytes]
"""The bytes from one place to another, and what stands there instead."""


class _Odd(Exception):
    """Something that no exporter writes."""


class _Walk:
    """The tags and lengths of the fields of a stream."""

    def __init__(self, stream: BinaryIO, key: bytes) -> None:
        self.stream, self.key = stream, key
        self.start, self.window = 0, b""

    def edits(self, at: int, end: int, message: Any, depth: int) -> Iterator[_Edit]:
        """What is to be changed in the fields of a message that lies there."""
        if depth > _DEEPEST:
            raise _Odd
        while at < end:
            tag, at = self.number(at, 5)
            kind = tag & 7
            if kind == 0:
                at = self.number(at, 10)[1]
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            elif kind == 2:
                head = at
                length, at = self.number(at, 5)
                field = message.fields_by_number.get(tag >> 3) if length > _LARGE else None
                at += length
                if at > end or length > _LONGEST:
                    raise _Odd
                if field is not None:
                    yield from self.inside(head, at - length, at, field, depth)
            else:
                raise _Odd
        if at > end:
            raise _Odd

    def inside(self, head: int, start: int, end: int, field: Any, depth: int) -> Iterator[_Edit]:
        """What is to be changed in a field whose length stands at `head`."""
        if field.message_type is not None:
            inner = list(self.edits(start, end, field.message_type, depth + 1))
            if inner:
                grown = sum(len(piece) - (last - first) for first, last, piece in inner)
                yield head, start, _number(end - start + grown)
                yield from inner
        elif field.full_name == _RAW.full_name:
            token = self.key + start.to_bytes(8, "little") + (end - start).to_bytes(8, "little")
            yield head, end, _number(len(token)) + token

    def number(self, at: int, most: int) -> tuple[int, int]:
        """The number of at most so many bytes that stands there, and where it ends."""
        first = at - self.start
        if not 0 <= first <= len(self.window) - most:
            self.stream.seek(at)
            self.start, self.window, first = at, self.stream.read(_WINDOW), 0
        number = 0
        for place, byte in enumerate(self.window[first : first + most]):
            number |= (byte & 127) << 7 * place
            if byte < 128:
                return number, at + place + 1
        raise _Odd


def _number(number: int) -> bytes:
    """The number as protobuf writes it."""
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])
