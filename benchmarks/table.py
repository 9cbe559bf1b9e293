"""Prints rows of text as an aligned table, and numbers with units."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["format_seconds", "print_table"]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column stands left, the others right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in (head, ["-" * width for width in widths], *rows):
        first, *rest = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip(), flush=True)


def format_seconds(seconds: float) -> str:
    """With the unit that leaves a readable number: "12.3 us"."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return (
                f"{seconds / scale:.3g} {unit}"
                if seconds < 100 * scale
                else (f"{seconds / scale:.0f} {unit}")
            )
    return f"{seconds / 1e-9:.0f} ns"
