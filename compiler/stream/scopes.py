"""The slabs of a function: one for what is known at its start, one per later scope.

A scope opens where the function learns sizes from data. Values whose length uses them lie in
the scope's own slab, which starts where those before it end; so their places never move
when the size turns out large. The session's slab is then asked for again, with the length
of all scopes so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.compiler.stream.slab import Range, Slab

__all__ = ["ScopedRange", "Scopes"]


@dataclass(frozen=True)
class ScopedRange:
    """A range of the slab of scope number `scope`."""

    scope: int
    range: Range


class Scopes:
    """Hands out ranges of the scope that knows their length."""

    def __init__(self, symbols: Mapping[str, tuple[int, int | None]]) -> None:
        self._bounds = symbols
        self._slabs = [Slab(symbols)]
        self._scope_of: dict[str, int] = {}

    def define(self, names: Iterable[str]) -> None:
        """From here on these symbols are known. Scopes in which nothing lies are reused."""
        if len(self._slabs) == 1 or self._slabs[-1].peak() != 0:
            self._slabs.append(Slab(self._bounds))
        self._scope_of.update(dict.fromkeys(names, len(self._slabs) - 1))

    def allocate(self, length: Dim) -> ScopedRange:
        """A range of at least `length` bytes on a 64-byte boundary."""
        scope = max((self._scope_of.get(name, 0) for name in symbols_of(length)), default=0)
        return ScopedRange(scope, self._slabs[scope].allocate(length))

    def free(self, range_: ScopedRange) -> None:
        """Give a range back."""
        self._slabs[range_.scope].free(range_.range)

    def fits(self, length: Dim, range_: ScopedRange) -> bool:
        """Whether `length` bytes are proven to fit into the range."""
        return self._slabs[range_.scope].fits(length, range_.range)

    def lengths(self) -> tuple[Dim, ...]:
        """Per scope the length of its slab and of those before it. Final when all is placed."""
        total: Dim = 0
        result: list[Dim] = []
        for slab in self._slabs:
            total = total + slab.peak()
            result.append(total)
        return tuple(result)
