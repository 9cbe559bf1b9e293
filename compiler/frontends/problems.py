"""What of a program cannot be compiled, told once per cause: a model has many equal layers."""

from __future__ import annotations

from collections.abc import Iterable

from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Problem", "list_problems"]

_NAMED = 5  # layers of one cause that are named


@dataclass(frozen=True)
class Problem:
    """`text` says all of it; problems of one `cause` are told together, with their layers."""

    text: str
    cause: object = None  # None: this one stands alone
    layer: str = ""


def list_problems(problems: Iterable[Problem]) -> list[str]:
    """A line per cause: the first problem, and in which other layers it is found."""
    groups: dict[object, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem if problem.cause is None else problem.cause, []).append(problem)
    return [_describe(*group) for group in groups.values()]


def _describe(first: Problem, *others: Problem) -> str:
    if not others:
        return first.text
    layers = list(dict.fromkeys(f"'{each.layer}'" for each in others if each.layer))
    shown = ", ".join(layers[:_NAMED]) + (", ..." if len(layers) > _NAMED else "")
    more = f"{len(others)} more place{'s' if len(others) > 1 else ''}"
    return f"{first.text} (also in {more}{': ' if shown else ''}{shown})"
