"""References of branches and loops: regions arrive as Python callables.

`variable.load` and `variable.store` have none: the interpreter holds the variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.graph.references.numbers import Array

__all__ = ["REFERENCES"]

Regions = Sequence[Callable[..., Sequence[Array]]]


def _if(predicate: Array, *, symbols: tuple[str, ...], regions: Regions) -> tuple[Array, ...]:
    return tuple(regions[0 if bool(predicate) else 1]())


def _case(index: Array, *, symbols: tuple[str, ...], regions: Regions) -> tuple[Array, ...]:
    number = int(index)
    return tuple(regions[number if 0 <= number < len(regions) else -1]())


def _while(*initial: Array, symbols: tuple[str, ...], regions: Regions) -> tuple[Array, ...]:
    condition, body = regions
    carried: Sequence[Array] = initial
    while bool(condition(*carried)[0]):
        carried = body(*carried)
    return tuple(carried)


REFERENCES: dict[str, Callable[..., Any]] = {"if": _if, "case": _case, "while": _while}
