"""Names of arguments and results, each once."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["distinct_names"]


def distinct_names(names: Iterable[str]) -> list[str]:
    """The names, with numbers behind those that stand there already."""
    result: dict[str, None] = {}
    for name in names:
        unique, number = name, 1
        while unique in result:
            unique, number = f"{name}_{number}", number + 1
        result[unique] = None
    return list(result)
