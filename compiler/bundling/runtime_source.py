"""The runtime as two files, ingot.c and ingot.h, and the configuration that cuts it down."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ingot.compiler.targets.target import KERNEL_HEADERS
from ingot.hal.header import INCLUDE_FOLDER
from ingot.hal.spec import opcode_of_code

__all__ = ["configuration", "expand", "public_header", "runtime_source"]

_SOURCES = Path(__file__).resolve().parents[2] / "csrc"
_BARE = _SOURCES / "platform" / "freestanding"
_INCLUDE = re.compile(r'^#include (?:"([^"]+)"|<([^>]+)>)[^\n]*$', re.M)
_GUARD = re.compile(r"^#ifndef (INGOT_\w+_H_)$", re.M)
_PUBLIC = ("ingot/ingot.h", "ingot/kernel_abi.h")
_SYSTEMS = tuple(f"platform/{each}.c" for each in ("cgroup", "posix", "wasm", "windows"))
_LEFT_OUT = ("hal/opencl/", *_SYSTEMS)
"""What a runtime that asks nothing of a system has no use for."""


def runtime_source() -> str:
    """ingot.c: all files of the runtime, in the order in which csrc/ingot.c includes them."""
    text = (_SOURCES / "ingot.c").read_text(encoding="utf-8")
    body = expand(text, {*_PUBLIC}, is_bare=True)
    unused = '#pragma GCC diagnostic ignored "-Wunused-function"'  # of headers that lie in a file
    return f'{unused}\n#include "ingot_config.h"\n#include "ingot.h"\n\n{body}'


def public_header() -> str:
    """ingot.h: the interface of the runtime, and what a linked kernel is."""
    return expand((INCLUDE_FOLDER / "ingot" / "ingot.h").read_text(encoding="utf-8"), set())


def expand(text: str, seen: set[str], is_bare: bool = False) -> str:
    """The text with the project's own headers in it, without those in `seen`, which gets those that
    are there for all that follows; `is_bare`: and with headers of its own in place of the C
    library's."""
    lines = text.split("\n")
    guarded = _GUARD.search(text) is not None
    depth = -int(guarded)  # of conditions
    for place, line in enumerate(lines):
        if line.startswith("#if"):
            depth += 1
        elif line.startswith("#endif"):
            depth -= 1
        elif match := _INCLUDE.fullmatch(line):
            lines[place] = _included(match, seen if depth == 0 else set(seen), is_bare)
    return "\n".join(lines)


def _included(match: re.Match[str], seen: set[str], is_bare: bool) -> str:
    quoted, standard = match.groups()
    name = quoted or f"<{standard}>"
    if name in seen or (quoted and quoted.startswith(_LEFT_OUT)):
        return ""
    path = _find(quoted, standard, is_bare)
    if path is None:
        return match[0]
    text = path.read_text(encoding="utf-8")
    if _GUARD.search(text):
        seen.add(name)
    return expand(text, seen, is_bare)


def _find(quoted: str | None, standard: str | None, is_bare: bool) -> Path | None:
    """The file of an include; None: it is the compiler's, and stays."""
    if standard is not None:
        path = _BARE / standard
        return path if is_bare and path.is_file() else None
    assert quoted is not None
    places = (folder / quoted for folder in (_SOURCES, INCLUDE_FOLDER, KERNEL_HEADERS))
    return next(path for path in places if path.is_file())


def configuration(crc: int, codes: Collection[int], strip_messages: bool) -> str:
    """ingot_config.h: what the runtime has for one module (csrc/base/parts.h). `codes` are those of
    the module's instructions."""
    names = []
    for code in sorted(codes):
        found = opcode_of_code(code)
        assert found is not None  # the module was read
        names.append(f"(code) == INGOT_OP_{found.enum}")
    lines = [
        "/* What of the runtime is built: for this module, and for no system. */",
        "#define INGOT_BARE 1",
        f"#define INGOT_ONLY_MODULE 0x{crc:08x}u",
        *["#define INGOT_STRIP_MESSAGES 1"] * strip_messages,
        "#define INGOT_WITH_OP(code) \\",
        "  (" + " || \\\n   ".join(names) + ")",
    ]
    return "\n".join(lines) + "\n"
