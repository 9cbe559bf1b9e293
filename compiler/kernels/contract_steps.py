"""A kernel's contract as straight-line steps, which every target writes down in its own way.

A step computes a number from two, or tests two: the dispatch fits its kernel if every test
holds, no number has more than 63 bits, and every division has a divisor. Numbers that are
computed alike are one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Symbol, symbol
from ingot.compiler.ir.polynomials import Atom
from ingot.compiler.kernels.kernel import Kernel
from ingot.hal.errors import CompileError

__all__ = ["Number", "Step", "contract_steps"]


@dataclass(frozen=True)
class Number:
    """An operand of a step: the "literal" itself, or where it stands, among the "length",
    "constant" or "workload" numbers of the dispatch or the results of the "step" list."""

    kind: str
    value: int


@dataclass(frozen=True)
class Step:
    """`function` computes add, mul, floordiv, mod, min, max or broadcast, or tests le (a <= b),
    equal, or fits (a is 1 or b)."""

    function: str
    a: Number
    b: Number

    @property
    def is_test(self) -> bool:
        return self.function in _TESTS.values()


_TESTS = {"le": "le", "equal": "equal", "broadcast": "fits"}  # by kind of relation


def contract_steps(kernel: Kernel) -> Sequence[Step]:
    """The steps of the kernel's contract. CompileError: a number in it is too large."""
    writer = _Writer(kernel)
    for kind, a, b in kernel.contract:
        writer.step(_TESTS[kind], writer.number(a), writer.number(b))
    return tuple(writer.steps)


class _Writer:
    """The steps that compute dims, each once, with their ordinals."""

    def __init__(self, kernel: Kernel) -> None:
        self.ordinals = {dim: ordinal for ordinal, dim in enumerate(kernel.constants)}
        self.steps: dict[Step, int] = {}
        self.atoms: dict[Atom, Number] = {}

    def number(self, dim: Dim) -> Number:
        """Where the dim's value stands after the steps so far."""
        if isinstance(dim, int):
            if not -(1 << 63) <= dim < 1 << 63:
                raise CompileError(
                    f"a size of the program is checked with the number {dim}, which has more "
                    "than 63 bits: give its pads, strides, dilations and dims smaller values"
                )
            return Number("literal", dim)
        total: Number | None = None
        for monomial, coefficient in dim.terms:
            factors = [self._once(atom) for atom, power in monomial for _ in range(power)]
            if coefficient != 1 or not factors:
                factors.append(self.number(coefficient))
            term = reduce(lambda a, b: self.step("mul", a, b), factors)
            total = term if total is None else self.step("add", total, term)
        return Number("literal", 0) if total is None else total

    def _once(self, atom: Atom) -> Number:
        found = self.atoms.get(atom)
        if found is None:
            found = self.atoms[atom] = self._atom(atom)
        return found

    def _atom(self, atom: Atom) -> Number:
        if not isinstance(atom, Symbol):
            values = map(self.number, atom.operands)
            return reduce(lambda a, b: self.step(atom.function, a, b), values)
        kind, _, ordinal = atom.name.partition(".")
        if ordinal:
            return Number(kind, int(ordinal))
        return Number("constant", self.ordinals[symbol(atom.name)])

    def step(self, function: str, a: Number, b: Number) -> Number:
        """The result of a step, which there is once."""
        return Number("step", self.steps.setdefault(Step(function, a, b), len(self.steps)))
