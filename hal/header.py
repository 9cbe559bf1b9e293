"""The C headers of Ingot as text: where they lie, their tables, declarations and constants.

Opcodes, dtypes, status codes and the module layout are written once, in C headers.
This file reads them with a few regular expressions; it is no C parser, and it knows
nothing of what the tables mean (that is `hal.spec`). It imports only the standard
library, because the script that builds the extension uses it too.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

__all__ = ["INCLUDE_FOLDER", "constants", "declarations", "read", "table"]


INCLUDE_FOLDER = Path(__file__).resolve().parents[1] / "csrc" / "include"
"""The folder to pass to a C compiler as `-I`; it holds `ingot/`."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", re.M)
_NOT_FOR_CFFI = re.compile(r"^#ifndef INGOT_CDEF\n.*?^#endif /\* INGOT_CDEF \*/$", re.M | re.S)
_ANNOTATION = re.compile(r"\b(?:INGOT_API|INGOT_KERNEL_CALL)\b")
_ROW = re.compile(r"^[A-Z]+\((.*)\)$", re.M)
_CELL = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^,\s]+')
_INTEGER = r"\(?((?:0x[0-9A-Fa-f]+|\d+))u?(?: << (\d+)\))?"
_DEFINED_INTEGER = re.compile(rf"^#define (INGOT_\w+) {_INTEGER}[ \t]*$", re.M)
_DEFINED_STRING = re.compile(r'^#define (INGOT_\w+) ("(?:[^"\\]|\\.)*")[ \t]*$', re.M)
_ENUMERATOR = re.compile(rf"^\s*(INGOT_\w+) = {_INTEGER},?[ \t]*$", re.M)


def read(name: str) -> str:
    """The text of the header `name`, such as "module_layout.h" or "spec/op.def"."""
    return (INCLUDE_FOLDER / "ingot" / name).read_text(encoding="utf-8")


def table(name: str) -> list[tuple[int | str, ...]]:
    """The rows of the X-macro table `spec/<name>.def`; numbers become int, the rest str."""
    text = _COMMENT.sub("", read(f"spec/{name}.def"))
    return [tuple(map(_cell, _CELL.findall(row))) for row in _ROW.findall(text)]


def declarations(text: str) -> str:
    """The declarations of a header, as `cffi.FFI.cdef` takes them: without comments,
    preprocessor lines, annotations, and what stands inside `#ifndef INGOT_CDEF`."""
    for pattern in (_NOT_FOR_CFFI, _COMMENT, _DIRECTIVE, _ANNOTATION):
        text = pattern.sub("", text)
    return text


def constants(text: str) -> dict[str, int | bytes]:
    """The integer and string `#define`s and the numbered enumerators of a header."""
    text = _COMMENT.sub("", text)
    integers = [*_DEFINED_INTEGER.findall(text), *_ENUMERATOR.findall(text)]
    found: dict[str, int | bytes] = {
        name: int(value, 0) << int(shift or 0) for name, value, shift in integers
    }
    found |= {name: ast.literal_eval("b" + value) for name, value in _DEFINED_STRING.findall(text)}
    return found


def _cell(text: str) -> int | str:
    if text[0] in "\"'":
        return str(ast.literal_eval(text))
    return int(text, 0) if text[0].isdigit() else text
