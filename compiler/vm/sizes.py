"""Symbolic dims as instructions: overflow-checked size arithmetic, each expression once."""

from __future__ import annotations

from functools import reduce

from ingot.compiler.graph.relations import may_fail
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Call, Dim, Expr, Symbol, symbols_of
from ingot.compiler.ir.polynomials import Atom, Monomial
from ingot.compiler.vm.code import CodeBuilder

__all__ = ["Sizes"]

_INSTRUCTIONS = {
    "floordiv": "floordiv.size",
    "mod": "mod.size",
    "min": "min.i64",
    "max": "max.i64",
    "broadcast": "broadcast.size",
}


class Sizes:
    """The registers of dims; a symbol must be defined before a dim that uses it.

    A dim is computed in the outermost scope that knows its symbols: in front of a loop.
    """

    def __init__(self, code: CodeBuilder) -> None:
        self._code = code
        self._symbols: dict[str, Value] = {}
        self._levels: dict[str, int] = {}

    def define(self, name: str, value: Value) -> None:
        """Symbol `name` is in register `value` from here on, in this scope."""
        self._symbols[name] = value
        self._levels[name] = self._code.level

    def is_known(self, dim: Dim) -> bool:
        """Whether all symbols of `dim` are defined."""
        return symbols_of(dim) <= self._symbols.keys()

    def unknown(self, dim: Dim) -> frozenset[str]:
        """The symbols of `dim` that are not defined."""
        return symbols_of(dim) - self._symbols.keys()

    def level(self, dim: Dim) -> int:
        """The outermost scope that knows all symbols of `dim`."""
        return max((self._levels[name] for name in symbols_of(dim)), default=0)

    def value(self, dim: Dim) -> Value:
        """The register that holds `dim`."""
        if isinstance(dim, int):
            return self._code.constant(dim)
        level = self._code.level if may_fail(dim) else self.level(dim)
        made = self._code.once(dim, level, lambda: self._sum(dim))
        assert isinstance(made, Value)
        return made

    def _sum(self, dim: Expr) -> Value:
        total: Value | None = None
        constant = 0
        for monomial, coefficient in dim.terms:
            if not monomial:
                constant = coefficient
                continue
            term = self._monomial(monomial, coefficient)
            total = term if total is None else self._op("add.size", total, term)
        assert total is not None
        if constant:
            total = self._op("add.size", total, self._code.constant(constant))
        return total

    def _monomial(self, monomial: Monomial, coefficient: int) -> Value:
        product: Value | None = None
        for atom, power in monomial:
            for _ in range(power):
                factor = self._atom(atom)
                product = factor if product is None else self._op("mul.size", product, factor)
        assert product is not None
        if coefficient == 1:
            return product
        return self._op("mul.size", product, self._code.constant(coefficient))

    def _atom(self, atom: Atom) -> Value:
        if isinstance(atom, Symbol):
            return self._symbols[atom.name]
        made = self._code.once(atom, self._code.level, lambda: self._call(atom))
        assert isinstance(made, Value)
        return made

    def _call(self, call: Call) -> Value:
        name = _INSTRUCTIONS[call.function]
        return reduce(lambda a, b: self._op(name, a, b), map(self.value, call.operands))

    def _op(self, name: str, a: Value, b: Value) -> Value:
        return self._code.op(name, a, b)[0]
