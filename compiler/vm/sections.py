"""The sections of a module file: their table, their places, and tables that stand compressed.

Tables and texts of a module are a tenth of a small one, and get a third as long: all that the
runtime reads once, when it loads the module, is one section then. Constants and native code stay
where they can be used in place or by one variant.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.stream.data import Bytes
from ingot.hal import spec
from ingot.hal.errors import DataLoss
from ingot.hal.freed_memory import return_freed_memory
from ingot.hal.lz4 import compress, decompress
from ingot.hal.module_bytes import ModuleBytes

__all__ = ["Section", "compressed_tables", "module_file", "section_kind", "table_sections"]

_APART = ("CONSTANTS", "OBJECTS", "REGIONS", "COMPRESSED_REGIONS", "DEBUG", "COMPRESSED_TABLES")
"""Sections that are used in place, or that the runtime does not read."""

_COUNT = 8  # bytes of the count of rows
_ALIGNMENT = 8  # of tables in what is compressed


@dataclass(frozen=True)
class Section:
    """Its kind, its length in bytes, and these in pieces."""

    kind: int
    length: int
    pieces: Iterable[Bytes]

    @staticmethod
    def of(name: str, length: int, pieces: Iterable[Bytes]) -> Section:
        """The section of a kind of this name."""
        return Section(section_kind(name), length, pieces)


def section_kind(name: str) -> int:
    """The number of a kind in the file."""
    kind: int = spec.layout().constants[f"INGOT_SECTION_{name}"]
    return kind


def compressed_tables(sections: Sequence[Section]) -> list[Section] | None:
    """The same with one section in place of all tables; None: the file gets no shorter."""
    apart = set(map(section_kind, _APART))
    tables = [each for each in sections if each.kind not in apart]
    head = _COUNT + len(tables) * spec.layout().size("ingot_layout_section_t")
    starts, end = _places(tables, head, _ALIGNMENT)
    room = bytearray(end)
    rows = [
        {"kind": each.kind, "offset": start, "length": each.length}
        for each, start in zip(tables, starts, strict=True)
    ]
    room[:_COUNT] = len(tables).to_bytes(_COUNT, "little")
    room[_COUNT:head] = spec.layout().pack("ingot_layout_section_t", rows)
    for section, start in zip(tables, starts, strict=True):
        room[start : start + section.length] = b"".join(section.pieces)
    packed = compress(room)
    if packed is None:
        return None
    made = Section.of("COMPRESSED_TABLES", len(packed), [packed])
    others = [each for each in sections if each.kind in apart]
    result = sorted([*others, made], key=lambda each: each.kind)
    return result if _file_places(result)[1] < _file_places(sections)[1] else None


def table_sections(packed: Bytes) -> Iterator[tuple[int, memoryview]]:
    """The kinds and bytes of the sections that a section of compressed tables holds. DataLoss: it
    is damaged."""
    layout = spec.layout()
    data = memoryview(decompress(packed))
    head = _COUNT + int.from_bytes(data[:_COUNT], "little") * layout.size("ingot_layout_section_t")
    if not _COUNT <= len(data) >= head:
        raise DataLoss("the compressed tables of the module file are damaged: they have no rows")
    for row in layout.unpack("ingot_layout_section_t", data[_COUNT:head]):
        yield row["kind"], data[row["offset"] : row["offset"] + row["length"]]


def module_file(sections: Sequence[Section], fields: Mapping[str, Any]) -> ModuleBytes:
    """The file of these sections, whose header has these fields. Pieces are asked for one by one:
    the file is the only copy of them all."""
    starts, end = _file_places(sections)
    return_freed_memory()  # the file is the largest piece of it
    return ModuleBytes.filled(end, lambda room: _fill(room, sections, starts, fields))


def _file_places(sections: Sequence[Section]) -> tuple[list[int], int]:
    layout = spec.layout()
    head = layout.size("ingot_layout_header_t")
    head += len(sections) * layout.size("ingot_layout_section_t")
    return _places(sections, head, layout.constants["INGOT_MODULE_ALIGNMENT"])


def _places(sections: Sequence[Section], end: int, alignment: int) -> tuple[list[int], int]:
    """Where sections start behind `end` bytes, and where the last one ends."""
    starts: list[int] = []
    for section in sections:
        starts.append(-(-end // alignment) * alignment)
        end = starts[-1] + section.length
    return starts, end


def _fill(
    room: memoryview,
    sections: Sequence[Section],
    starts: Sequence[int],
    fields: Mapping[str, Any],
) -> None:
    """Write the file into zeros of its length."""
    layout = spec.layout()
    rows: list[dict[str, Any]] = []
    for section, start in zip(sections, starts, strict=True):
        crc, place = 0, start
        for piece in section.pieces:
            crc = zlib.crc32(piece, crc)
            room[place : place + len(piece)] = piece
            place += len(piece)
        row = {"kind": section.kind, "crc": crc, "offset": start, "length": section.length}
        rows.append(row)
    table = layout.pack("ingot_layout_section_t", rows)
    header = {
        **fields,
        "magic": list(layout.constants["INGOT_MODULE_MAGIC"]),
        "file_length": len(room),
        "section_count": len(sections),
    }
    front = layout.pack("ingot_layout_header_t", [header]) + table
    front = layout.pack("ingot_layout_header_t", [{**header, "crc": zlib.crc32(front)}]) + table
    room[: len(front)] = front
