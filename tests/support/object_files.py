"""What object files of other systems say of themselves: symbols of Mach-O, exports of a DLL."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple


class MachoSymbol(NamedTuple):
    """A symbol that other files see, or come from."""

    name: str
    is_undefined: bool
    library: int
    """Of one that is undefined: the number of the library it comes from; 0: of any."""


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _number(data: bytes, start: int) -> int:
    return int.from_bytes(data[start : start + 4], "little")


def macho_commands(data: bytes) -> Iterator[tuple[int, int]]:
    """The numbers of the load commands and where they start."""
    magic, count = struct.unpack_from("<I12xI", data)
    assert magic == 0xFEEDFACF
    start = 32
    for _ in range(count):
        number, length = struct.unpack_from("<II", data, start)
        yield number, start
        start += length


def macho_libraries(data: bytes) -> set[str]:
    """The libraries that a Mach-O file loads."""
    return {
        _text(data, start + _number(data, start + 8))
        for number, start in macho_commands(data)
        if number == 0xC  # LC_LOAD_DYLIB
    }


def macho_symbols(data: bytes) -> Iterator[MachoSymbol]:
    """The external symbols, without the underscore that C names have there."""
    (start,) = (start for number, start in macho_commands(data) if number == 2)  # LC_SYMTAB
    table, count, strings = struct.unpack_from("<III", data, start + 8)
    for each in range(count):
        name, kind, number = struct.unpack_from("<IBxH", data, table + 16 * each)
        if kind & 0x11 == 1:  # external, to more than the file
            yield MachoSymbol(_text(data, strings + name)[1:], kind & 0xE == 0, number >> 8)


def pe_exports(data: bytes) -> set[str]:
    """The names that a DLL exports: its header, its sections, its directory of exports."""
    start = _number(data, 0x3C)
    count, length = struct.unpack_from("<H12xH", data, start + 6)
    table = start + 24 + length
    sections = [struct.unpack_from("<III", data, table + 40 * each + 12) for each in range(count)]

    def at(address: int) -> int:
        for first, size, where in sections:
            if first <= address < first + size:
                return int(where + address - first)
        raise AssertionError(f"no section holds {address:#x}")

    directory = at(_number(data, start + 24 + 112))
    names = at(_number(data, directory + 32))
    total = _number(data, directory + 24)
    return {_text(data, at(_number(data, names + 4 * each))) for each in range(total)}
