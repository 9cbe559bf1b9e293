"""What an import knows about symbolic dims: equalities, bounds, names.

Each dynamic dim of an argument starts as a symbol of its own. Shape assertions, ops that
need equal shapes, and the exporter's names then tell more. A new equality replaces a symbol,
which changes types that are already built, so it raises `Restart`: the import begins again
with the replacement in place. That happens once per symbol at most, mostly in the first ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Call, Dim, Expr, Symbol, symbol
from ingot.hal.errors import CompileError

__all__ = ["Atom", "Restart", "Symbols", "Truth"]


class Restart(Exception):
    """A symbol was replaced; types built so far are out of date."""


@dataclass(frozen=True)
class Atom:
    """`difference` compared with zero: eq, ne, lt, le, gt or ge."""

    direction: str
    difference: Dim


Truth = bool | tuple[Atom, ...]
"""A truth value over dims: known, or the conjunction of atoms."""


class Symbols:
    """Replacements outlive a restart; bounds are found anew each time."""

    def __init__(self) -> None:
        self.replacements: dict[str, Dim] = {}
        self.named: set[str] = set()  # symbols with a name from the exporter
        self.start()

    def start(self) -> None:
        """Begin an import, the first or another one."""
        self.bounds: dict[str, tuple[int, int | None]] = {}
        self.pending: list[tuple[Dim, str]] = []  # dims that must not be negative
        self.defined = 0  # symbols that ops define

    def finish(self) -> None:
        """Raise CompileError unless the bounds imply every condition taken as given."""
        for dim, what in self.pending:
            if not dims.prove_le(0, dim, self.bounds):
                raise CompileError(
                    f"{what}: the condition {dim} >= 0 relates several symbolic dims, which "
                    "cannot be checked at the call; export without it"
                )

    def fresh(self, prefix: str) -> str:
        """The name of a new symbol that an op defines, the same one in every import."""
        self.defined += 1
        return f"{prefix}_{self.defined}"

    def resolve(self, dim: Dim) -> Dim:
        """The dim with all replacements done."""
        while dims.symbols_of(dim) & self.replacements.keys():
            dim = dims.substitute(dim, self.replacements)
        return dim

    def name(self, dim: Dim, name: str) -> None:
        """Give a dim that is one symbol the exporter's name, unless that is in use."""
        old = _single_symbol(dim)
        if old is None or old == name or not name.isidentifier():
            return
        in_use = set(self.replacements).union(
            *(dims.symbols_of(each) for each in self.replacements.values())
        )
        if name not in in_use:
            self.named.add(name)
            self._replace(old, symbol(name))

    def equate(self, a: Dim, b: Dim, what: str) -> None:
        """Make two dims equal: nothing if they are, else Restart. CompileError: they cannot."""
        difference = a - b
        if difference == 0:
            return
        if isinstance(difference, Expr):
            for name, coefficient, rest in self._linear_symbols(difference):
                if abs(coefficient) == 1:
                    self._replace_unless_negative(name, rest * -coefficient)
                elif isinstance(rest, int) and rest % coefficient == 0:
                    self._replace_unless_negative(name, -rest // coefficient)
            self._use_divisibility(difference)
        raise CompileError(f"{what}: the dims {a} and {b} cannot be equal; give both one size")

    def decide(self, truth: Truth) -> bool | None:
        """Whether a conjunction holds for all values of the symbols, for none, or neither."""
        if isinstance(truth, bool):
            return truth
        known = [self._decide(atom, self.bounds) for atom in truth]
        if all(known):
            return True
        if False in known or any(self._is_split_false(truth, name) for name in _zeros(truth, self)):
            return False
        return None

    def assume(self, truth: Truth, what: str) -> None:
        """Take a conjunction as given. CompileError: it cannot hold, or not be checked."""
        if self.decide(truth) is False:
            raise CompileError(f"{what}: the assertion can never hold")
        for atom in truth if isinstance(truth, tuple) else ():
            if self._decide(atom, self.bounds) is not True:
                self._assume(atom, what)

    def limit(self, dim: Dim, low: int, high: int | None) -> None:
        """Take low <= dim <= high (None: no limit) as given, for a dim that is one symbol."""
        name = _single_symbol(dim)
        if name is not None:
            old_low, old_high = self.bounds.get(name, (0, None))
            highs = [each for each in (old_high, high) if each is not None]
            self.bounds[name] = (max(low, old_low), min(highs, default=None))

    def _linear_symbols(self, dim: Expr) -> list[tuple[str, int, Dim]]:
        """(symbol, coefficient, rest) for each symbol that stands in one linear term only.

        Those to replace come first: the ones without a name from the exporter, and of these
        the later ones.
        """
        found = []
        for monomial, coefficient in dim.terms[::-1]:
            if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Symbol):
                name = monomial[0][0].name
                rest = dim - symbol(name) * coefficient
                if name not in dims.symbols_of(rest):
                    found.append((name, coefficient, rest))
        return sorted(found, key=lambda item: item[0] in self.named)

    def _replace_unless_negative(self, name: str, value: Dim) -> None:
        if not isinstance(value, int) or value >= 0:
            self._replace(name, value)

    def _replace(self, name: str, value: Dim) -> None:
        self.replacements[name] = value
        raise Restart

    def _use_divisibility(self, difference: Expr) -> None:
        """Replace s by k * t where that is what makes floordiv(s, k) or mod(s, k) fit."""
        if len(difference.terms) > 2:
            return
        for monomial, _ in difference.terms:
            for atom, _ in monomial:
                if not isinstance(atom, Call) or atom.function not in ("floordiv", "mod"):
                    continue
                name, divisor = _single_symbol(atom.operands[0]), atom.operands[1]
                if name is None or not isinstance(divisor, int):
                    continue
                multiple = symbol(f"{name}_by_{divisor}") * divisor
                if dims.substitute(difference, {name: multiple}) == 0:
                    self._replace(name, multiple)

    def _is_split_false(self, truth: Sequence[Atom], name: str) -> bool:
        """Whether some atom fails if the symbol is 0, and some atom fails if it is not."""
        high = self.bounds.get(name, (0, None))[1]
        positive = {**self.bounds, name: (1, high)}
        zero = [Atom(a.direction, dims.substitute(a.difference, {name: 0})) for a in truth]
        return any(self._decide(atom, self.bounds) is False for atom in zero) and any(
            self._decide(atom, positive) is False for atom in truth
        )

    @staticmethod
    def _decide(atom: Atom, known: dims.Bounds) -> bool | None:
        low, high = dims.bounds(atom.difference, known)
        always, never = {
            "eq": (low == high == 0, low > 0 or high < 0),
            "ne": (low > 0 or high < 0, low == high == 0),
            "lt": (high < 0, low >= 0),
            "le": (high <= 0, low > 0),
            "gt": (low > 0, high <= 0),
            "ge": (low >= 0, high < 0),
        }[atom.direction]
        return True if always else False if never else None

    def _assume(self, atom: Atom, what: str) -> None:
        if atom.direction == "eq":
            self.equate(atom.difference, 0, what)
        if atom.direction == "ne":
            self._assume_at_least(atom.difference - 1, what)
            return
        sign = 1 if atom.direction in ("ge", "gt") else -1
        least = 1 if atom.direction in ("gt", "lt") else 0
        self._assume_at_least(atom.difference * sign - least, what)

    def _assume_at_least(self, dim: Dim, what: str) -> None:
        """Take dim >= 0 as given: a bound of its one symbol, else to be proven at the end."""
        if isinstance(dim, Expr):
            for name, coefficient, rest in self._linear_symbols(dim):
                if isinstance(rest, int) and coefficient > 0:
                    return self.limit(symbol(name), -(rest // coefficient), None)
                if isinstance(rest, int):
                    return self.limit(symbol(name), 0, rest // -coefficient)
        self.pending.append((dim, what))
        return None


def _single_symbol(dim: Dim) -> str | None:
    """The name of a dim that is just one symbol."""
    if isinstance(dim, Expr) and len(dim.terms) == 1:
        ((monomial, coefficient),) = dim.terms
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            return atom.name if isinstance(atom, Symbol) else None
    return None


def _zeros(truth: Sequence[Atom], symbols: Symbols) -> set[str]:
    """The symbols of the atoms that may be zero."""
    names: set[str] = set().union(*(dims.symbols_of(atom.difference) for atom in truth))
    return {name for name in names if symbols.bounds.get(name, (0, None))[0] == 0}
