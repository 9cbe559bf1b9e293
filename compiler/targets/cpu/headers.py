"""The headers of C kernels, with those parts only that one file uses.

To read all of them takes longer than to compile a small kernel. In a header, INGOT_IF(part, text)
at the start of a line is text for files whose kernels use that part: an element type, or a word
in names of functions. INGOT_IF(N(part), text), or IF(part, text), is for those that use it with
the number of lanes that the header is read for. A compiler sees the texts that are used, and no
IF; where there is much text, a header has `#if INGOT_USES(part)` instead.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import lru_cache
from pathlib import Path

__all__ = ["HEADER_FOLDER", "read_header", "with_needed"]

HEADER_FOLDER = Path(__file__).parent

_IF = re.compile(r"^(?:IF\(|INGOT_IF\(N\()(\w+)\)?,\s*|^INGOT_IF\((\w+),\s*", re.M)
_PARENTHESIS = re.compile(r"[()]")


def read_header(name: str, used: Container[str], lanes: int | None = None) -> str:
    """The text of a header for a file that uses these parts, such as "i8" and "i8x4"."""
    return "".join(text for text, part in _pieces(name, lanes) if part is None or part in used)


@lru_cache(maxsize=64)
def _pieces(name: str, lanes: int | None) -> tuple[tuple[str, str | None], ...]:
    """The header in pieces, each for files that use a part; None: for all."""
    text = (HEADER_FOLDER / name).read_text(encoding="utf-8").replace('#include "kernel.h"\n', "")
    pieces: list[tuple[str, str | None]] = []
    place = 0
    while (start := _IF.search(text, place)) is not None:
        end = _closing(text, start.end())
        part = start[2] or f"{start[1]}x{lanes}"
        pieces += [(text[place : start.start()], None), (text[start.end() : end], part)]
        place = end + 1
    return (*pieces, (text[place:], None))


def _closing(text: str, place: int) -> int:
    """Where the parenthesis that is open at `place` closes."""
    depth = 1
    for each in _PARENTHESIS.finditer(text, place):
        depth += 1 if each[0] == "(" else -1
        if depth == 0:
            return each.start()
    raise AssertionError(f"a header has an open parenthesis: {text[place : place + 40]}")


def with_needed(parts: set[str]) -> frozenset[str]:
    """The parts of a kernel, and those that they are made of."""
    parts = parts | {re.sub("^b?f16", "u16", re.sub("^i1(?=x|$)", "u8", part)) for part in parts}
    parts |= {part.partition("x")[0] for part in parts}  # lane by lane
    return frozenset(parts | {part.replace("u", "i") for part in parts})
