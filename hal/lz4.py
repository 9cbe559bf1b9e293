"""Blocks of LZ4 behind their length: code and texts of module files."""

from __future__ import annotations

from ingot.hal import spec
from ingot.hal.errors import DataLoss
from ingot.hal.native import ffi, lib

__all__ = ["MOST_BEFORE", "compress", "continued_mark", "decompress", "variant_mark"]

MOST_BEFORE = (1 << 16) - 1
"""Bytes in front of a block that it can repeat."""

_HEAD = 8  # bytes of the length, as in the file


def variant_mark() -> str:
    """What begins the format of a variant whose object is compressed."""
    mark: bytes = spec.layout().constants["INGOT_VARIANT_COMPRESSED"]
    return mark.decode()


def continued_mark() -> str:
    """The same of one whose block repeats objects of variants in front of it."""
    mark: bytes = spec.layout().constants["INGOT_VARIANT_CONTINUED"]
    return mark.decode()


def compress(data: bytes | bytearray | memoryview, before: bytes = b"") -> bytes | None:
    """The length of `data` as u64, and a block that holds it, and may repeat what stands `before`
    it; None: together they are no shorter, or memory ran out."""
    length = len(data)
    source = ffi.from_buffer(before + bytes(data) if before else data)
    room = bytearray(max(length - _HEAD, 0))
    made = lib.ingot_python_lz4_compress(
        source, len(before), len(source), ffi.from_buffer(room), len(room)
    )
    if made == 0:
        return None
    return length.to_bytes(_HEAD, "little") + bytes(memoryview(room)[:made])


def decompress(data: bytes | memoryview, before: bytes = b"") -> bytes:
    """What `compress` was given. DataLoss: these are not such bytes."""
    length = int.from_bytes(data[:_HEAD], "little")
    block = ffi.from_buffer(data[_HEAD:])
    # a byte of a block makes 255 bytes at most
    if len(data) >= _HEAD and length <= 255 * len(block):
        room = bytearray(before) + bytearray(length)
        out = ffi.from_buffer(room) + len(before)
        if lib.ingot_python_lz4_decompress(block, len(block), out, length, len(before)):
            return bytes(memoryview(room)[len(before) :])
    raise DataLoss(f"{len(data)} compressed bytes of the module file are damaged")
