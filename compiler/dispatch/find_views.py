"""Finds rows of tensors in memory that need no kernel: their place is known to the VM.

    view(x){offset}        rows of x from byte `offset` on, where they lie
    update(x, u){offset}   x with u written at byte `offset`

A loop that reads row i of a sequence, or writes it, is where this counts: i is a register
of the VM, so the row is a range of bytes. The work on it then reads it like any tensor,
and the result's row is copied into its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.dispatch.group import shape_of
from ingot.compiler.dispatch.ops import Rows, SymbolOfScalar
from ingot.compiler.graph.ops import CONTROL, Constant, DimValue, Take, defined_symbols
from ingot.compiler.ir import (
    Block,
    Function,
    Literal,
    Module,
    Op,
    ScalarType,
    Value,
    tensor_type,
    walk,
)
from ingot.compiler.ir.dims import Dim, maximum, minimum, product, symbol, symbols_of

__all__ = ["find_views"]

_IN_MEMORY = frozenset({*CONTROL, "variable.load", "slot.get", "update", "global"})
"""Ops whose results lie in memory in any case."""


def find_views(module: Module) -> Module:
    """The module with views and updates in functions with scalars; changes it."""
    for function in module.functions.values():
        finder = _Finder(function)
        if finder.registers or finder.read:
            finder.find(function.block)
    return module


class _Finder:
    """Rewrites the blocks of one function."""

    def __init__(self, function: Function) -> None:
        # The registers behind symbols. They may be negative, which no dim is.
        self.registers = {
            name: op.operands[0]
            for op in walk(function)
            if op.name == "scalar.symbol"
            for name in defined_symbols(op)
        }
        self.read = {op.operands[0]: op.result for op in walk(function) if op.name == "scalar.read"}
        self.rows: dict[Value, Dim] = {}  # in this block, by register: it, but at least 0
        self.names = {*function.symbols, *(n for op in walk(function) for n in defined_symbols(op))}
        self.done: list[Op] = []

    def find(self, block: Block) -> None:
        """Rewrite the ops of the block and the blocks in it."""
        inside = {result for op in block.ops for result in op.results if op.name not in _IN_MEMORY}
        outer = self.done, self.rows
        self.done, self.rows = [], {}
        for op in block.ops:
            for region in op.regions if op.name in CONTROL else ():
                self.find(region.block)
            if op.name in ("take", "dynamic_slice") and op.operands[0] not in inside:
                self._make_view(op)
            elif op.name == "dynamic_update_slice":
                self._make_update(op)
            self.done.append(op)
        block.ops = self.done
        self.done, self.rows = outer

    def _make_view(self, op: Op) -> None:
        x, *starts = op.operands
        sizes = shape_of(op.result)
        if op.name == "take":
            if Take.of(op) != Take(0, "clamp"):
                return
            sizes = (1, *sizes)
        self._become(op, "view", [x], starts, sizes)

    def _make_update(self, op: Op) -> None:
        x, update, *starts = op.operands
        self._become(op, "update", [x, update], starts, shape_of(update))

    def _become(
        self,
        op: Op,
        name: str,
        operands: Sequence[Value],
        starts: Sequence[Value],
        sizes: Sequence[Dim],
    ) -> None:
        """Make `op` a view or update if it is about whole rows from a known one on."""
        type = tensor_type(operands[0])
        if not sizes or tuple(sizes[1:]) != type.shape[1:] or shape_of(starts[0]):
            return
        start = self._row(starts[0])
        if start is not None:
            row = product(type.shape[1:]) * type.dtype.bytes
            # The sizes fit, so rows from the first on need no clamping.
            offset = minimum(start, type.shape[0] - sizes[0]) * row if start != 0 else 0
            op.name, op.operands, op.attributes = name, list(operands), Rows(offset)

    def _row(self, value: Value) -> Dim | None:
        """The index that a value is, as a dim of at least 0, if the VM knows it."""
        op = value.owner
        if value in self.read and tensor_type(value).dtype.is_integer:
            return self._at_least_zero(self.read[value])
        if not isinstance(op, Op):
            return None
        if op.name == "constant":
            literal = Constant.of(op).value
            return max(int(np.asarray(literal.array)), 0) if literal.dtype.is_integer else None
        if op.name != "dim":
            return None
        dim = DimValue.of(op).value
        registers = [name for name in symbols_of(dim) if name in self.registers]
        if not registers:
            return maximum(dim, 0)
        (name,) = registers
        return self._at_least_zero(self.registers[name]) if dim == symbol(name) else None

    def _at_least_zero(self, register: Value) -> Dim:
        if register not in self.rows:
            dtype = register.typed(ScalarType).dtype
            literal = Literal(np.zeros((), dtype.numpy), dtype)
            zero = Op("constant", [], [register.type], Constant(literal))
            row = Op("max", [register, zero.result], [register.type])
            name = f"row_{len(self.names)}"
            while name in self.names:
                name += "_"
            self.names.add(name)
            define = Op("scalar.symbol", [row.result], [], SymbolOfScalar((name,)))
            self.done += [zero, row, define]
            self.rows[register] = symbol(name)
        return self.rows[register]
