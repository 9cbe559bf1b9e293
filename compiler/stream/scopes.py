"""The slabs of a function: one for what is known at its start, one per later scope.

A scope opens where the function learns sizes from data. Values whose length uses them lie in
the scope's own slab, which starts where those before it end; so their places never move
when the size turns out large. The session's slab is then asked for again, with the length
of all scopes so far. What a branch or the step of a loop learns is forgotten behind it: the
scopes that it opened end there, and later ones begin where they began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, maximum, symbols_of
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
        self._outer: list[int | None] = [None]  # per scope the one that it lies behind
        self._now = 0  # the last scope that is open
        self._first_inside = 0  # the first scope that a body around opened
        self._scope_of: dict[str, int] = {}

    def define(self, names: Iterable[str]) -> None:
        """From here on these symbols are known. Scopes in which nothing lies are reused."""
        # Not one that lies outside, or that others lie behind: there the names are not known.
        is_last = self._now == len(self._slabs) - 1 >= max(self._first_inside, 1)
        if not is_last or self._slabs[self._now].peak() != 0:
            self._outer.append(self._now)
            self._now = len(self._slabs)
            self._slabs.append(Slab(self._bounds))
        self._scope_of.update(dict.fromkeys(names, self._now))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Inside is a body of a branch or loop: scopes that open there end with it."""
        before = self._now, self._first_inside
        self._first_inside = len(self._slabs)
        try:
            yield
        finally:
            self._now, self._first_inside = before

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

    def pack(self, held: Iterable[tuple[ScopedRange, tuple[Dim, int, int]]]) -> None:
        """Move the ranges, with their lengths and times, where that makes a slab shorter."""
        by_scope: list[dict[Range, tuple[Dim, int, int]]] = [{} for _ in self._slabs]
        for range_, times in held:
            by_scope[range_.scope][range_.range] = times
        for slab, ranges in zip(self._slabs, by_scope, strict=True):
            slab.pack(ranges)

    def lengths(self) -> tuple[Dim, ...]:
        """Per scope the length of its slab and of those before it. Final when all is placed."""
        result: list[Dim] = []
        for slab, start in zip(self._slabs, self.starts(), strict=True):
            result.append(start + slab.peak())
        return tuple(result)

    def peak(self) -> Dim:
        """The length of the longest row of slabs, one behind the other."""
        ends = (length for scope, length in enumerate(self.lengths()) if scope not in self._outer)
        return reduce(maximum, ends)

    def starts(self) -> tuple[Dim, ...]:
        """Per scope the length of the slabs before it."""
        result: list[Dim] = []
        for outer in self._outer:
            result.append(0 if outer is None else result[outer] + self._slabs[outer].peak())
        return tuple(result)
