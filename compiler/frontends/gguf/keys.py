"""Reads what metadata says of a language model, and notes all that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["GREATEST", "Keys", "shown"]

GREATEST = 1 << 24
"""Of a size."""
_LARGEST = 1e30  # of a number
_OF_ALL = "xielu."  # keys that have no prefix in GGUF files


class Keys:
    """Reads keys below a prefix, or by the names that stand for them, and notes what is wrong."""

    def __init__(
        self, metadata: Mapping[str, Any], prefix: str, names: Mapping[str, str] | None = None
    ) -> None:
        self.metadata, self.prefix, self.names = metadata, prefix, names
        self.problems: list[str] = []

    def name_of(self, key: str) -> str:
        """What the file calls a key."""
        if self.names is None:
            return key if key.startswith(_OF_ALL) else f"{self.prefix}.{key}"
        return self.names.get(key, key)

    def has(self, key: str) -> bool:
        return self.metadata.get(self.name_of(key)) is not None

    def value(self, key: str, default: Any) -> Any:
        value = self.metadata.get(self.name_of(key))
        return default if value is None else value

    def size(self, key: str, default: int | None = None) -> int:
        """A count; 1 with a note where it is missing or wrong."""
        value = self.value(key, default)
        least = 1 if default is None else min(default, 1)
        if type(value) is int and least <= value <= GREATEST:
            return value
        what = "is missing" if value is None else f"is {shown(value)}, expected a positive integer"
        self.problems.append(f"the key '{self.name_of(key)}' {what}")
        return 1

    def number(self, key: str, default: float | None = None) -> float:
        value = self.value(key, default)
        if isinstance(value, (int, float)) and (0 < value < _LARGEST or value == default):
            return float(value)
        what = "is missing" if value is None else f"is {shown(value)}, expected a positive number"
        self.problems.append(f"the key '{self.name_of(key)}' {what}")
        return 1.0

    def numbers(self, key: str, length: int) -> Sequence[float] | None:
        """A list of so many numbers; None where it is missing, with a note where it is wrong."""
        value = self.value(key, None)
        if value is None:
            return None
        is_list = isinstance(value, list) and len(value) == length
        if is_list and all(isinstance(x, (int, float)) and 0 < x < _LARGEST for x in value):
            return [float(x) for x in value]
        self.problems.append(
            f"the key '{self.name_of(key)}' is {shown(value)}, expected {length} positive numbers"
        )
        return None

    def flag(self, key: str, default: bool) -> bool:
        """Whether something holds; the default with a note where it is wrong."""
        value = self.value(key, default)
        if isinstance(value, bool):
            return value
        self.problems.append(
            f"the key '{self.name_of(key)}' is {shown(value)}, expected true or false"
        )
        return default

    def text(self, key: str) -> str:
        """A word; none where it is missing, with a note where it is wrong."""
        value = self.value(key, "none")
        if isinstance(value, str):
            return value
        self.problems.append(f"the key '{self.name_of(key)}' is {shown(value)}, expected a text")
        return "none"


def shown(value: Any) -> str:
    """A value of a file, short enough for a message."""
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
