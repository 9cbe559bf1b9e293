"""Types, dims and ranges that a program of torch.export notes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingot.compiler.frontends.symbols import Symbols
from ingot.compiler.frontends.torch.archive import element_type
from ingot.compiler.frontends.torch.expressions import parse_dim, symbol_dim
from ingot.compiler.ir import TensorType, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError

__all__ = ["Types", "single_symbol"]

_GREATEST = 1 << 48  # torch writes greater numbers for "no limit"


class Types:
    """Reads them, with the symbols of the program, which `names` gives other names."""

    def __init__(self, program: Any, symbols: Symbols, names: Mapping[str, str]) -> None:
        ranges = program.get("range_constraints") or {}
        self._names = names
        self._ranges = {names.get(name, name): limits for name, limits in ranges.items()}
        self._symbols = symbols
        self._dims: dict[str, Dim] = {}  # by their texts
        self._defined: dict[str, Dim] = {}  # what symbols of torch's are that stand for others

    def tensor(self, meta: Any) -> TensorType:
        """The type of an entry of `tensor_values`."""
        sizes = [self.dim(size) for size in meta["sizes"]]
        return TensorType(element_type(meta["dtype"]), tuple(sizes))

    def layout(self, meta: Any) -> tuple[list[Dim], Dim]:
        """The strides and the offset of an entry of `tensor_values`, in elements."""
        return [self.dim(size) for size in meta["strides"]], self.dim(meta["storage_offset"])

    def dim(self, size: Any) -> Dim:
        """A size: {"as_int": 3} or {"as_expr": {"expr_str": ...}}."""
        if "as_int" in size:
            number = size["as_int"]
            if type(number) is not int or abs(number) >= 1 << 63:
                raise CompileError(f"a size is {str(number)[:40]}, expected an integer")
            return number
        text = size["as_expr"]["expr_str"]
        if text not in self._dims:
            self._dims[text] = parse_dim(text, self._symbol)
        return self._dims[text]

    def define(self, name: str, dim: Dim) -> None:
        """A symbol that torch made for a size stands for what an op computed."""
        self._defined[name] = dim
        self._dims.clear()

    def learnt(self, type: TensorType) -> TensorType:
        """The type by what is known now."""
        if not self._defined:
            return type
        shape = (dims.substitute(dim, self._defined) for dim in type.shape)
        return TensorType(type.dtype, tuple(shape))

    def may_be_negative(self, name: str) -> bool:
        """Whether a number with this symbol has no sign that is known."""
        low = (self._ranges.get(name) or {}).get("min_val")
        return self.is_unbacked(name) and not (isinstance(low, int) and low >= 0)

    def limits(self, name: str) -> tuple[int, int | None]:
        """The least and the greatest number that a symbol may be; None: no limit.

        A least size of 2 that has no user's name is taken for what torch assumes of all sizes, and
        does not ask of those of a call: 0 and 1 are allowed, as torch allows them.
        """
        entry = self._ranges.get(name) or {}
        low, high = entry.get("min_val"), entry.get("max_val")
        low = max(low, 0) if isinstance(low, int) else 0
        if low == 2 and name not in self._names.values() and not self.is_unbacked(name):
            low = 0
        return low, high if isinstance(high, int) and low <= high < _GREATEST else None

    def _symbol(self, name: str) -> Dim:
        name = self._names.get(name, name)
        if name in self._defined:
            return self._defined[name]
        dim = symbol_dim(name)
        if name not in self._symbols.order:
            self._symbols.order[name] = 0
            self._symbols.limit(dim, *self.limits(name))
        return dim

    @staticmethod
    def is_unbacked(name: str) -> bool:
        """Whether torch made the symbol for a size that depends on data."""
        return re.fullmatch(r"u\d+", name) is not None


def single_symbol(dim: Dim) -> str | None:
    """The name of a dim that is one symbol."""
    if isinstance(dim, int):
        return None
    names = dims.symbols_of(dim)
    if len(names) == 1 and dim == dims.symbol(next(iter(names))):
        return next(iter(names))
    return None
