"""What lay in the working memory of a function, and when: what the plan of memory tells."""

from __future__ import annotations

from collections.abc import Mapping

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Bounds, Dim, evaluate, symbols_of
from ingot.hal.errors import InvalidArgument

__all__ = ["GUESS", "Allocation", "likely_size", "likely_value", "value_at"]

GUESS = 64
"""The size of a dim of which nothing else is known."""


@dataclass(frozen=True)
class Allocation:
    """A range of the working memory while it holds a value. Times count allocations: it is number
    `begin`, and free again for number `end`."""

    made_by: str  # the kernel, or the op
    layer: str
    type: str  # of the value: "f32[b,4]"
    offset: Dim
    length: Dim
    begin: int
    end: int
    maker: int = -1  # the place of the op among all of the function, -1 where there is none

    def offset_at(self, sizes: Mapping[str, int]) -> int:
        return value_at(self.offset, sizes)

    def length_at(self, sizes: Mapping[str, int]) -> int:
        return value_at(self.length, sizes)


def likely_size(name: str, symbols: Bounds, size: int = GUESS) -> int:
    """`size`, or the next that the dim may have."""
    low, high = symbols.get(name, (0, None))
    return max(low, size if high is None else min(high, size))


def value_at(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The dim's value, 0 where it would be less, as sizes that do not go together make it.
    InvalidArgument: it divides by zero."""
    try:
        return max(evaluate(dim, sizes), 0)
    except ZeroDivisionError:
        at = ", ".join(f"{name}={sizes[name]}" for name in sorted(symbols_of(dim)))
        raise InvalidArgument(f"{dim} divides by zero at {at}: give other sizes") from None


def likely_value(dim: Dim, symbols: Bounds, size: int = GUESS) -> int:
    """`value_at` where every symbol has its likely size."""
    return value_at(dim, {name: likely_size(name, symbols, size) for name in symbols_of(dim)})
