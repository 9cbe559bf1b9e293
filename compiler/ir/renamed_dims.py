"""Names of dims that a program's import replaced: n, where every size is 2*n_by_2 or 384.

Users know the names of their source. What they say of such a name is taken as what follows
from it for the symbol that stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from ingot.compiler.ir.attributes import LEFT_OUT, Attributes, declare
from ingot.compiler.ir.core import Function
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, linear_in, symbols_of

__all__ = ["FunctionAttributes", "renamed_dims", "sizes_of_symbols"]


@dataclass(frozen=True)
class FunctionAttributes(Attributes):
    """What a function says beside its signature: replaced names of dims, each with its dim."""

    renamed_dims: tuple[tuple[str, Dim], ...] = field(default=(), metadata=LEFT_OUT)


declare(FunctionAttributes, "func")


def renamed_dims(functions: Iterable[Function]) -> dict[str, Dim]:
    """The replaced names of these functions, each with its dim."""
    found: dict[str, Dim] = {}
    for function in functions:
        if isinstance(function.attributes, FunctionAttributes):
            for name, dim in function.attributes.renamed_dims:
                found.setdefault(name, dim)
    return found


def sizes_of_symbols(sizes: Mapping[str, int], renamed: Mapping[str, Dim]) -> dict[str, int]:
    """Sizes by names of dims as sizes by symbol. ValueError: a dim never has its size, or two
    of them give a symbol two sizes."""
    found: dict[str, int] = {}
    for name, size in sizes.items():
        symbol, value = _solve(name, size, renamed[name]) if name in renamed else (name, size)
        if symbol is not None and found.setdefault(symbol, value) != value:
            raise ValueError(f"{symbol} is {found[symbol]}, but {name} = {size} makes it {value}")
    return found


def _solve(name: str, size: int, dim: Dim) -> tuple[str | None, int]:
    """The symbol in the dim and its value where the dim has this size; None without one."""
    names = symbols_of(dim)
    linear = linear_in(dim, next(iter(names))) if len(names) == 1 else None
    if not names and dim == size:
        return None, size
    if linear is not None and isinstance(linear[1], int):
        value, rest = divmod(size - linear[1], linear[0])
        if rest == 0 and value >= 0:
            return next(iter(names)), value
    advice = f": give sizes to {', '.join(sorted(names))}" if linear is None and names else ""
    raise ValueError(f"{name} is {dim} in this program, which {size} is not{advice}")
