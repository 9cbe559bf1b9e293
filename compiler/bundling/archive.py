"""Static libraries: the archive format that ar writes, with the index that linkers ask for."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

__all__ = ["write_archive"]


def write_archive(members: Mapping[str, bytes], symbols: Mapping[str, Sequence[str]]) -> bytes:
    """The library of these objects, with names of at most 15 characters; `symbols` are what each
    defines for others."""
    names = [name for each in symbols.values() for name in each]
    text = b"".join(name.encode() + b"\0" for name in names)
    index_length = 4 + 4 * len(names) + len(text)
    position = 8 + 60 + index_length + index_length % 2
    starts = {}
    for name, data in members.items():
        starts[name] = position
        position += 60 + len(data) + len(data) % 2
    places = [starts[member] for member, defined in symbols.items() for _ in defined]
    index = struct.pack(f">I{len(places)}I", len(places), *places) + text
    parts = [b"!<arch>\n", *_member("/", index)]
    for name, data in members.items():
        parts += _member(f"{name}/", data)
    return b"".join(parts)


def _member(name: str, data: bytes) -> list[bytes]:
    """A head of 60 bytes without owner and time, so that equal bundles are equal."""
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
    return [head, data, b"\n" * (len(data) % 2)]
