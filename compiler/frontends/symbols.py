"""What an import knows about symbolic dims: equalities, bounds, names.

Each dynamic dim of an argument starts as a symbol of its own. Shape assertions, ops that
need equal shapes, and the exporter's names then tell more. A new equality replaces a symbol,
which changes types that are already built, so it raises `Restart`: the import begins again
with the replacement in place. That happens once per symbol at most, mostly in the first ops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ingot.compiler.ir import dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Call, Dim, Expr, Symbol, symbol
from ingot.hal.errors import CompileError

__all__ = ["Atom", "Names", "Restart", "Symbols", "Truth"]


class Restart(Exception):
    """A symbol was replaced; types built so far are out of date."""


@dataclass(frozen=True)
class Atom:
    """`difference` compared with zero: eq, ne, lt, le, gt or ge."""

    direction: str
    difference: Dim

    def decide(self, known: dims.Bounds) -> bool | None:
        """Whether it holds for all values within the bounds, for none, or neither."""
        low, high = dims.bounds(self.difference, known)
        always, never = {
            "eq": (low == high == 0, low > 0 or high < 0),
            "ne": (low > 0 or high < 0, low == high == 0),
            "lt": (high < 0, low >= 0),
            "le": (high <= 0, low > 0),
            "gt": (low > 0, high <= 0),
            "ge": (low >= 0, high < 0),
        }[self.direction]
        return True if always else False if never else None


class Names:
    """Names of symbols that ops define, each once. `taken` are those that others have."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._counts: dict[str, int] = {}  # of names with a number at the end, by what is before

    def fresh(self, hint: str) -> str:
        """A new name, like `hint`."""
        base = re.sub(r"\W", "_", hint) or "size"
        base = base if re.match(r"[A-Za-z_]", base) else f"_{base}"
        name = base
        while name in self.taken:
            self._counts[base] = self._counts.get(base, 1) + 1
            name = f"{base}_{self._counts[base]}"
        self.taken.add(name)
        return name


Truth = bool | tuple[Atom, ...]
"""A truth value over dims: known, or the conjunction of atoms."""


class Symbols:
    """Replacements outlive a restart; bounds are found anew each time."""

    def __init__(self) -> None:
        self.replacements: dict[str, Dim] = {}
        self.named: set[str] = set()  # symbols with a name from the exporter
        # Sequences that leave the rank of their elements open: their dtypes, and what is learnt.
        self.ranks: dict[str, tuple[str, int | None]] = {}
        self.order: dict[str, int] = {}  # of definition: those of arguments 0, the others later
        self.start()

    def start(self) -> None:
        """Begin an import, the first or another one."""
        self.bounds: dict[str, tuple[int, int | None]] = {}
        self.defined = 0  # symbols that ops define

    def argument(self, name: str) -> Dim:
        """The dim of an argument that is a symbol of its own, or what is known of it."""
        self.order[name] = 0
        return self.resolve(symbol(name))

    def fresh(self, prefix: str) -> str:
        """The name of a new symbol that an op defines, the same one in every import."""
        self.defined += 1
        name = f"{prefix}_{self.defined}"
        self.order[name] = self.defined
        return name

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

    def renamed(self) -> tuple[tuple[str, Dim], ...]:
        """The exporter's names that were replaced, each with the dim that stands for it."""
        names = [name for name in self.replacements if name in self.named]
        return tuple((name, self.resolve(symbol(name))) for name in names)

    def equate(self, a: Dim, b: Dim, what: str, kept: Dim = 0) -> bool:
        """Make two dims equal: True if they are, Restart if that replaces a symbol, one of `kept`
        only if no other can be, False if only the call can tell. CompileError: they cannot be
        equal."""
        difference = a - b
        if difference == 0:
            return True
        if isinstance(difference, Expr):
            for name, coefficient, rest in self._linear_symbols(difference, kept):
                if abs(coefficient) == 1:
                    self._replace_unless_negative(name, rest * -coefficient)
                elif isinstance(rest, int) and rest % coefficient == 0:
                    self._replace_unless_negative(name, -rest // coefficient)
            self._use_divisibility(difference)
        low, high = dims.bounds(difference, self.bounds)
        if low > 0 or high < 0:
            raise CompileError(f"{what}: the dims {a} and {b} cannot be equal; give both one size")
        return False

    def decide(self, truth: Truth) -> bool | None:
        """Whether a conjunction holds for all values of the symbols, for none, or neither."""
        if isinstance(truth, bool):
            return truth
        known = [atom.decide(self.bounds) for atom in truth]
        if all(known):
            return True
        if False in known or any(self._is_split_false(truth, name) for name in _zeros(truth, self)):
            return False
        return None

    def assume(self, truth: Truth, what: str) -> list[Atom]:
        """Take a conjunction as given; what of it only the call can tell, as dims equal to zero
        or at least zero. CompileError: it cannot hold."""
        if self.decide(truth) is False:
            raise CompileError(f"{what}: the assertion can never hold")
        left: list[Atom] = []
        for atom in truth if isinstance(truth, tuple) else ():
            if atom.decide(self.bounds) is not True and not self._assume(atom, what):
                left.append(_normalised(atom))
        return left

    def limit(self, dim: Dim, low: int, high: int | None) -> None:
        """Take low <= dim <= high (None: no limit) as given, for a dim that is one symbol."""
        name = _single_symbol(dim)
        if name is not None:
            old_low, old_high = self.bounds.get(name, (0, None))
            highs = [each for each in (old_high, high) if each is not None]
            self.bounds[name] = (max(low, old_low), min(highs, default=None))

    def _linear_symbols(self, dim: Expr, kept: Dim = 0) -> list[tuple[str, int, Dim]]:
        """(symbol, coefficient, rest) for each symbol that stands in one linear term only.

        Those to replace come first: the ones without a name from the exporter, and of these
        the later ones; those of `kept` come last.
        """
        found = []
        for name in [each for each in reversed(self.order) if each in dims.symbols_of(dim)]:
            linear = dims.linear_in(dim, name)
            if linear is not None and self._may_replace(name, dims.symbols_of(linear[1])):
                found.append((name, *linear))
        last = dims.symbols_of(kept)
        return sorted(found, key=lambda item: (item[0] in last, item[0] in self.named))

    def _may_replace(self, name: str, others: frozenset[str]) -> bool:
        """Whether the symbol is one to replace, and the others are known where it is."""
        if name not in self.order:
            return False
        order = self.order[name]
        return all(self.order.get(each, order + 1) <= order for each in others)

    def _replace_unless_negative(self, name: str, value: Dim) -> None:
        if not isinstance(value, int) or value >= 0:
            self._replace(name, value)

    def _replace(self, name: str, value: Dim) -> None:
        self.replacements[name] = value
        for each in dims.symbols_of(value):
            self.order.setdefault(each, self.order.get(name, 0))
        raise Restart

    def _use_divisibility(self, difference: Expr) -> None:
        """Replace s by k * t where that is what makes floordiv(s, k) or mod(s, k) fit."""
        if len(difference.terms) > 2:
            return
        for monomial, _ in difference.terms:
            for atom, _ in monomial:
                if not isinstance(atom, Call) or atom.function not in ("floordiv", "mod"):
                    continue
                names, divisor = dims.symbols_of(atom.operands[0]), atom.operands[1]
                if len(names) != 1 or not isinstance(divisor, int):
                    continue
                (name,) = names
                multiple = symbol(f"{name}_by_{divisor}") * divisor
                if dims.substitute(difference, {name: multiple}) == 0:
                    self._replace(name, multiple)

    def _is_split_false(self, truth: Sequence[Atom], name: str) -> bool:
        """Whether some atom fails if the symbol is 0, and some atom fails if it is not."""
        high = self.bounds.get(name, (0, None))[1]
        positive = {**self.bounds, name: (1, high)}
        zero = [Atom(a.direction, dims.substitute(a.difference, {name: 0})) for a in truth]
        return any(atom.decide(self.bounds) is False for atom in zero) and any(
            atom.decide(positive) is False for atom in truth
        )

    def _assume(self, atom: Atom, what: str) -> bool:
        """Take an atom as given; False if only the call can tell."""
        if atom.direction == "eq":
            return self.equate(atom.difference, 0, what)
        dim = _normalised(atom).difference
        for name, coefficient, rest in self._linear_symbols(dim) if isinstance(dim, Expr) else ():
            if isinstance(rest, int) and self.order[name] == 0:  # the call checks its bounds
                if coefficient > 0:
                    self.limit(symbol(name), -(rest // coefficient), None)
                else:
                    self.limit(symbol(name), 0, rest // -coefficient)
                return True
        return False


def _single_symbol(dim: Dim) -> str | None:
    """The name of a dim that is just one symbol."""
    if isinstance(dim, Expr) and len(dim.terms) == 1:
        ((monomial, coefficient),) = dim.terms
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            return atom.name if isinstance(atom, Symbol) else None
    return None


def _normalised(atom: Atom) -> Atom:
    """The atom as a dim that is zero (eq) or at least zero (ge); one that is not zero is taken
    for a positive one, as dims are."""
    if atom.direction == "eq":
        return atom
    sign = -1 if atom.direction in ("le", "lt") else 1
    least = 0 if atom.direction in ("ge", "le") else 1
    return Atom("ge", atom.difference * sign - least)


def _zeros(truth: Sequence[Atom], symbols: Symbols) -> set[str]:
    """The symbols of the atoms that may be zero."""
    names: set[str] = set().union(*(dims.symbols_of(atom.difference) for atom in truth))
    return {name for name in names if symbols.bounds.get(name, (0, None))[0] == 0}
