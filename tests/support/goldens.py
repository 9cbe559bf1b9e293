"""Texts that stand in the tree and are what the program gives: compared, or written anew where
INGOT_UPDATE_GOLDENS is set (`make goldens`)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["assert_golden", "with_part"]

UPDATE = "INGOT_UPDATE_GOLDENS"


def assert_golden(path: Path, text: str) -> None:
    """The file holds this text."""
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path.name} is missing; run: make goldens"
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is old; see: make goldens"


def with_part(page: str, start: str, end: str, part: str) -> str:
    """The page with another text between the lines `start` and `end`."""
    head, first, rest = page.partition(f"{start}\n")
    _, last, tail = rest.partition(end)
    assert first, f"there is no line {start!r}"
    assert last, f"there is no line {end!r}"
    return head + first + part + last + tail
