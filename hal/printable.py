"""Names and numbers as people read them, on a terminal or in a message.

Names come from source programs. What cannot be printed - control characters, ends of lines,
marks that turn text around - is shown by its escape, so that no name can act on a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable

__all__ = ["json_escape", "printable", "size_text"]


def _python_escape(character: str) -> str:
    """As in a literal of Python."""
    return character.encode("unicode_escape").decode()


def json_escape(character: str) -> str:
    """As in a string of JSON."""
    return json.dumps(character)[1:-1]


def printable(
    text: str, longest: int | None = None, escape: Callable[[str], str] = _python_escape
) -> str:
    """One line of `text` that can be printed, with an ellipsis where it is longer."""
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 3]}..."
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else escape(each) for each in text)


def size_text(length: int) -> str:
    """Bytes for people."""
    if length < 10_000:
        return f"{length} B"
    return f"{length / 1e3:.1f} KB" if length < 10_000_000 else f"{length / 1e6:.1f} MB"
