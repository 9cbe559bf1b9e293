"""How much a program may grow where calls become what they call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from ingot.hal.errors import CompileError

__all__ = ["Inlined", "check_calls"]

_MOST = 1 << 18  # far more than models have, which call few functions often
K = TypeVar("K", bound=Hashable)


class Inlined:
    """Counts ops of functions, anew for each call: small files can hold calls without end, where
    each function calls the next one twice."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int) -> None:
        """So many more. CompileError: they are too many."""
        self._count += count
        if self._count > _MOST:
            raise _too_many()


def _too_many() -> CompileError:
    return CompileError(
        f"calls of functions become more than {_MOST} ops: inline less, or use loops"
    )


def check_calls(
    calls: Iterable[K], body: Callable[[K], tuple[int, Iterable[K]]], name: Callable[[K], str] = str
) -> None:
    """CompileError: these calls become too many ops, or are of functions that call themselves. It
    takes no longer than reading all functions once. `body` gives how many ops a function has, and
    what they call."""
    counts: dict[K, int] = {}
    begun: set[K] = set()
    roots = list(calls)
    waiting = [(each, False) for each in roots]
    inner: dict[K, list[K]] = {}
    while waiting:
        function, is_behind = waiting.pop()
        if is_behind:
            counts[function] += sum(counts[each] for each in inner[function])
            counts[function] = min(counts[function], _MOST + 1)
            begun.discard(function)
        elif function in begun:
            raise CompileError(f"function '{name(function)}' calls itself, through others or not")
        elif function not in counts:
            counts[function], called = body(function)
            inner[function] = list(called)
            begun.add(function)
            waiting += [(function, True), *((each, False) for each in set(inner[function]))]
    if sum(counts[each] for each in roots) > _MOST:
        raise _too_many()
