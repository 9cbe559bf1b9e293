"""How much a program may grow where calls become what they call."""

from __future__ import annotations

from ingot.hal.errors import CompileError

__all__ = ["Inlined"]

_MOST = 1 << 18  # far more than models have, which call few functions often


class Inlined:
    """Counts ops of functions, anew for each call: small files can hold calls without end, where
    each function calls the next one twice."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int) -> None:
        """So many more. CompileError: they are too many."""
        self._count += count
        if self._count > _MOST:
            raise CompileError(
                f"calls of functions become more than {_MOST} ops: inline less, or use loops"
            )
