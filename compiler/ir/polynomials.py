"""The polynomials that symbolic dims are: integer coefficients over atoms, in canonical form.

An atom is a symbol or a call of floordiv, mod, min, max or broadcast on canonical dims. Every
atom and every expression exists once, so equal ones are the same object, a hash costs nothing,
and what is found out about one is remembered. `dims.py` has the functions and their rules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from functools import cached_property, lru_cache, reduce
from hashlib import blake2b
from threading import RLock
from typing import Any, Union, cast
from weakref import WeakValueDictionary

from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError

__all__ = [
    "CACHE_LENGTH",
    "FUNCTIONS",
    "Atom",
    "Call",
    "Dim",
    "Expr",
    "Monomial",
    "Symbol",
    "Term",
    "call_of",
    "divide_exactly",
    "divide_term",
    "divisor_of",
    "expr_of",
    "from_terms",
    "key_of",
    "of_atom",
    "single_call",
    "substitute",
    "symbol",
    "symbols_of",
    "terms_of",
]

Dim = Union[int, "Expr"]
FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {}
"""What makes a call canonical, by name: filled by `dims.py`."""

CACHE_LENGTH = 1 << 15
# What a source program can make dims grow to; sizes that programs need stay far below.
_GREATEST_WEIGHT = 50_000  # terms and atoms, nested ones included
_GREATEST_DEPTH = 100  # calls in calls
_GREATEST_DEGREE = 128
_GREATEST_COEFFICIENT = 1 << 127
_GREATEST_PRODUCT = 1 << 15  # pairs of terms to multiply

_LONGEST_KEY = 256  # characters: a longer key is its beginning and a digest

_existing: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
_lock = RLock()


def _unique(kind: Callable[..., Any], *parts: Hashable) -> Any:
    """The one object of a kind that has these parts."""
    key = kind, *parts
    found = _existing.get(key)
    if found is None:
        with _lock:
            found = _existing.get(key)
            if found is None:
                found = _existing[key] = kind(*parts)
    return found


class _Unique:
    """What exists once: a copy is the object itself, and a pickle is read as the object of its
    parts."""

    def __deepcopy__(self, memo: object) -> object:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (getattr(self, each.name) for each in fields(cast(Any, self)) if each.init)
        return _unique, (type(self), *parts)


@dataclass(frozen=True, eq=False)
class Symbol(_Unique):
    """A named non-negative integer that is known at the call."""

    name: str

    @property
    def key(self) -> str:
        """What it is sorted by."""
        return self.name

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset((self.name,))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Call(_Unique):
    """An atom that is no polynomial: floordiv or mod of two dims, min, max or broadcast of two
    or more."""

    function: str
    operands: tuple[Dim, ...]

    @cached_property
    def key(self) -> str:
        """What it is sorted by: the text, unless that is long."""
        return _shortened(f"{self.function}({', '.join(map(key_of, self.operands))})")

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*map(symbols_of, self.operands))

    @cached_property
    def growth(self) -> tuple[int, int]:
        """Weight and depth, as of an `Expr`."""
        weights, depths = zip(*map(_growth, self.operands), strict=True)
        return 1 + sum(weights), 1 + max(depths)

    def __str__(self) -> str:
        if len(self.key) < _LONGEST_KEY:
            return self.key
        return f"{self.function}({', '.join(map(str, self.operands))})"


Atom = Symbol | Call
Monomial = tuple[tuple[Atom, int], ...]
Term = tuple[Monomial, int]


@dataclass(frozen=True, eq=False)
class Expr(_Unique):
    """A non-constant polynomial: sorted pairs of monomial and non-zero coefficient. Made by
    `from_terms` and `expr_of` only."""

    terms: tuple[Term, ...]
    growth: tuple[int, int] = field(init=False)  # weight and depth

    def __post_init__(self) -> None:
        object.__setattr__(self, "growth", _limited(self.terms))

    @cached_property
    def key(self) -> str:
        """What it is sorted by: the text, unless that is long."""
        return _shortened(self._text(lambda atom: atom.key))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(a.names for monomial, _ in self.terms for a, _ in monomial))

    def __add__(self, other: Dim) -> Dim:
        return from_terms((*self.terms, *terms_of(other))) if other != 0 else self

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + (other * -1)

    def __rsub__(self, other: Dim) -> Dim:
        return (self * -1) + other

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, Expr):
            factor = int(other)
            return self if factor == 1 else _scaled(self, factor)
        return from_terms(_multiplied(self.terms, other.terms))

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return FUNCTIONS["floordiv"](self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return FUNCTIONS["floordiv"](other, self)

    def __mod__(self, other: Dim) -> Dim:
        return FUNCTIONS["mod"](self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return FUNCTIONS["mod"](other, self)

    def _text(self, text: Callable[[Atom], str]) -> str:
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [text(atom) for atom, power in monomial for _ in range(power)]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(sign + "*".join(factors))
        return "".join(parts).removeprefix("+")

    def __str__(self) -> str:
        return self.key if len(self.key) < _LONGEST_KEY else self._text(str)

    __repr__ = __str__


def _growth(dim: Dim) -> tuple[int, int]:
    return dim.growth if isinstance(dim, Expr) else (1, 0)


def _limited(terms: Sequence[Term]) -> tuple[int, int]:
    """The weight and the depth of a sum. CompileError: it is larger than a program needs."""
    weight, depth = len(terms), 0
    for monomial, coefficient in terms:
        degree = 0
        for atom, power in monomial:
            degree += power
            inner = atom.growth if isinstance(atom, Call) else (1, 0)
            weight, depth = weight + power * inner[0], max(depth, inner[1])
        if degree > _GREATEST_DEGREE:
            raise _too_large(f"a power of degree {degree}")
        if abs(coefficient) > _GREATEST_COEFFICIENT:
            raise _too_large("a number of more than 127 bits")
    if weight > _GREATEST_WEIGHT or depth > _GREATEST_DEPTH:
        raise _too_large(f"{weight} terms, nested {depth} deep")
    return weight, depth


def _too_large(what: str) -> CompileError:
    return CompileError(
        f"a size of the program grows to an expression with {what}, which is more than Ingot "
        "follows: give some of the dims fixed sizes"
    )


def symbol(name: str) -> Expr:
    """The dim that is the symbol `name`."""
    return of_atom(_unique(Symbol, name))


def from_terms(terms: Iterable[Term]) -> Dim:
    """The sum of products of a monomial (as in `Expr.terms`) and a coefficient."""
    kept = _collected(terms)
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=lambda item: _order(item[0]))
    return expr_of(tuple(kept))


def _collected(terms: Iterable[Term]) -> list[Term]:
    """The terms with each monomial once, and only where its coefficients do not cancel."""
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return [item for item in sums.items() if item[1] != 0]


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dim with symbols replaced; symbols that are not in `values` stay."""
    return _substitute(dim, values, {})


def _substitute(dim: Dim, values: Mapping[str, Dim], done: dict[Atom, Dim]) -> Dim:
    if isinstance(dim, int) or not any(name in values for name in dim.names):
        return dim
    terms: list[Term] = []
    for monomial, coefficient in dim.terms:
        expanded: Sequence[Term] = (((), coefficient),)
        for atom, power in monomial:
            value = done.get(atom)
            if value is None:
                value = done[atom] = _substitute_atom(atom, values, done)
            for _ in range(power):
                expanded = _collected(_multiplied(expanded, terms_of(value)))
        terms += expanded
    return from_terms(terms)


def _substitute_atom(atom: Atom, values: Mapping[str, Dim], done: dict[Atom, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return values.get(atom.name, of_atom(atom))
    operands = (_substitute(operand, values, done) for operand in atom.operands)
    return reduce(FUNCTIONS[atom.function], operands)


def symbols_of(dim: Dim) -> frozenset[str]:
    """The names of the symbols in `dim`."""
    return frozenset() if isinstance(dim, int) else dim.names


def expr_of(terms: tuple[Term, ...]) -> Expr:
    """The one expression with these terms, which are sorted."""
    found: Expr = _unique(Expr, terms)
    return found


def of_atom(atom: Atom) -> Expr:
    return expr_of(((((atom, 1),), 1),))


def call_of(function: str, *operands: Dim) -> Expr:
    return of_atom(_unique(Call, function, operands))


def terms_of(dim: Dim) -> tuple[Term, ...]:
    if isinstance(dim, Expr):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def key_of(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else dim.key


def single_call(dim: Dim) -> Call | None:
    """The call that the dim is, or None."""
    if isinstance(dim, int) or len(dim.terms) != 1:
        return None
    monomial, coefficient = dim.terms[0]
    if coefficient != 1 or len(monomial) != 1 or monomial[0][1] != 1:
        return None
    atom = monomial[0][0]
    return atom if isinstance(atom, Call) else None


def divisor_of(atom: Atom) -> int | None:
    """The number of a quotient by a positive number, else None."""
    if isinstance(atom, Call) and atom.function == "floordiv":
        divisor = atom.operands[1]
        return divisor if isinstance(divisor, int) and divisor > 0 else None
    return None


def _shortened(text: str) -> str:
    if len(text) < _LONGEST_KEY:
        return text
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return text[: _LONGEST_KEY - len(digest)] + digest


def _multiplied(a: Sequence[Term], b: Sequence[Term]) -> list[Term]:
    if len(a) * len(b) > _GREATEST_PRODUCT:
        raise _too_large("a product of sums")
    return [(_times(m, n), x * y) for m, x in a for n, y in b]


@lru_cache(maxsize=CACHE_LENGTH)
def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].key))


@lru_cache(maxsize=CACHE_LENGTH)
def _order(monomial: Monomial) -> tuple[int, tuple[tuple[str, int], ...]]:
    """What monomials are sorted by: the degree, then the names."""
    degree = sum(power for _, power in monomial)
    return -degree, tuple((atom.key, power) for atom, power in monomial)


def _scaled(dim: Expr, factor: int) -> Dim:
    if factor == 0:
        return 0
    return expr_of(tuple((monomial, value * factor) for monomial, value in dim.terms))


def divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b as polynomials, None unless b divides a: long division by the leading term."""
    atoms = sorted(
        {atom for m, _ in (*terms_of(a), *terms_of(b)) for atom, _ in m}, key=lambda atom: atom.key
    )

    def order(term: Term) -> tuple[int, ...]:
        powers = dict(term[0])
        return sum(powers.values()), *(powers.get(atom, 0) for atom in atoms)

    if not isinstance(b, Expr):
        return None
    divisor = max(b.terms, key=order)
    quotient: Dim = 0
    for _ in range(_GREATEST_DEGREE):
        if a == 0:
            return quotient
        term = divide_term(max(terms_of(a), key=order), divisor)
        if term is None:
            return None
        quotient, a = quotient + term, a - b * term
    return None


def divide_term(a: Term, b: Term) -> Dim | None:
    """The quotient of two terms, None if it is no term."""
    powers = dict(a[0])
    for atom, power in b[0]:
        powers[atom] = powers.get(atom, 0) - power
    if a[1] % b[1] or any(power < 0 for power in powers.values()):
        return None
    left = tuple((atom, power) for atom, power in powers.items() if power)
    return from_terms([(left, a[1] // b[1])])
