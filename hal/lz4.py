"""Blocks of LZ4 behind their length: code and texts of module files."""

from __future__ import annotations

from ingot.hal import spec
from ingot.hal.errors import DataLoss
from ingot.hal.native import ffi, lib

__all__ = ["compress", "decompress", "variant_mark"]

_HEAD = 8  # bytes of the length, as in the file


def variant_mark() -> str:
    """What begins the format of a variant whose object is compressed."""
    mark: bytes = spec.layout().constants["INGOT_VARIANT_COMPRESSED"]
    return mark.decode()


def compress(data: bytes | bytearray | memoryview) -> bytes | None:
    """The length of `data` as u64, and a block that holds it; None: together they are no shorter,
    or memory ran out."""
    source = ffi.from_buffer(data)
    room = bytearray(max(len(source) - _HEAD, 0))
    length = lib.ingot_python_lz4_compress(source, len(source), ffi.from_buffer(room), len(room))
    if length == 0:
        return None
    return len(source).to_bytes(_HEAD, "little") + bytes(memoryview(room)[:length])


def decompress(data: bytes | memoryview) -> bytes:
    """What `compress` was given. DataLoss: these are not such bytes."""
    length = int.from_bytes(data[:_HEAD], "little")
    block = ffi.from_buffer(data[_HEAD:])
    # a byte of a block makes 255 bytes at most
    if len(data) >= _HEAD and length <= 255 * len(block):
        room = bytearray(length)
        if lib.ingot_python_lz4_decompress(block, len(block), ffi.from_buffer(room), length):
            return bytes(room)
    raise DataLoss(f"{len(data)} compressed bytes of the module file are damaged")
