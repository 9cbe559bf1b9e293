"""The string section of a module: UTF-8 texts that everything else refers to by offset."""

from __future__ import annotations

__all__ = ["StringTable", "encoded"]


def encoded(text: str) -> bytes:
    """UTF-8 without NUL; what a file cannot hold is shown by escapes."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace")


class StringTable:
    """Texts in order of first use, each once; offset 0 is the empty string."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {"": 0}
        self._parts: list[bytes] = [b"\0"]
        self._length = 1

    def offset(self, text: str) -> int:
        """The byte offset of `text`, which is added if it is new."""
        found = self._offsets.get(text)
        if found is None:
            data = encoded(text) + b"\0"
            found = self._offsets[text] = self._length
            self._parts.append(data)
            self._length += len(data)
        return found

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)
