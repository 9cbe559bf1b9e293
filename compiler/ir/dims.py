"""Symbolic dims: integers and expressions over named symbols, in canonical form.

A dim is an `int` or an `Expr`. An expression is a polynomial with integer coefficients
over atoms; an atom is a symbol or a call of floordiv, mod, min, max or broadcast on
canonical dims. Two dims are proven equal when their canonical forms are the same object
value, so `==` is the proof. Symbols are non-negative; tighter bounds are passed in where
they are known. This file knows nothing of tensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from ingot.hal.errors import CompileError

__all__ = [
    "Bounds",
    "Call",
    "Dim",
    "Expr",
    "Symbol",
    "bounds",
    "broadcast",
    "ceildiv",
    "evaluate",
    "floordiv",
    "linear_in",
    "maximum",
    "minimum",
    "modulo",
    "parse_dim",
    "product",
    "prove_le",
    "row_major_strides",
    "signs",
    "substitute",
    "symbol",
    "symbols_of",
]

Dim = Union[int, "Expr"]
Bounds = Mapping[str, tuple[int, "int | None"]]
"""Per symbol its least and greatest value (None: no greatest)."""

# What a source program can make dims grow to; sizes that programs need stay far below.
_GREATEST_WEIGHT = 50_000  # terms and atoms, nested ones included
_GREATEST_DEPTH = 100  # calls in calls
_GREATEST_DEGREE = 128
_GREATEST_COEFFICIENT = 1 << 127
_GREATEST_PRODUCT = 1 << 15  # pairs of terms to multiply


@dataclass(frozen=True)
class Symbol:
    """A named non-negative integer that is known at the call."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """An atom that is no polynomial: floordiv, mod, min, max or broadcast of dims."""

    function: str
    operands: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.operands))})"

    @property
    def growth(self) -> tuple[int, int]:
        """Weight and depth, as of an `Expr`."""
        weights, depths = zip(*map(_growth, self.operands), strict=True)
        return 1 + sum(weights), 1 + max(depths)


Atom = Symbol | Call
Monomial = tuple[tuple[Atom, int], ...]


@dataclass(frozen=True, eq=False)
class Expr:
    """A non-constant polynomial: sorted pairs of monomial and non-zero coefficient."""

    terms: tuple[tuple[Monomial, int], ...]

    growth: tuple[int, int] = field(init=False)  # weight and depth

    def __post_init__(self) -> None:
        object.__setattr__(self, "growth", _limited(self.terms))
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    def __add__(self, other: Dim) -> Dim:
        return _from_terms([*_terms(self), *_terms(other)])

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + (other * -1)

    def __rsub__(self, other: Dim) -> Dim:
        return (self * -1) + other

    def __mul__(self, other: Dim) -> Dim:
        if len(_terms(self)) * len(_terms(other)) > _GREATEST_PRODUCT:
            raise _too_large("a product of sums")
        pairs = ((a, b) for a in _terms(self) for b in _terms(other))
        return _from_terms([(_times(a[0], b[0]), a[1] * b[1]) for a, b in pairs])

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return modulo(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return modulo(other, self)

    def __str__(self) -> str:
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [str(atom) for atom, power in monomial for _ in range(power)]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(sign + "*".join(factors))
        return "".join(parts).removeprefix("+")

    __repr__ = __str__


def _growth(dim: Dim) -> tuple[int, int]:
    return dim.growth if isinstance(dim, Expr) else (1, 0)


def _limited(terms: Sequence[tuple[Monomial, int]]) -> tuple[int, int]:
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
    return Expr(((((Symbol(name), 1),), 1),))


def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b); exact where every term divides."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if a == b:
        return 1
    if isinstance(b, int):
        divided = [(m, c) for m, c in _terms(a) if c % b == 0]
        rest = [(m, c) for m, c in _terms(a) if c % b != 0]
        whole = _from_terms([(m, c // b) for m, c in divided])
        remainder = _from_terms(rest)
        return whole + (
            remainder // b if isinstance(remainder, int) else _call("floordiv", remainder, b)
        )
    quotient = _divide_exactly(a, b)
    return _call("floordiv", a, b) if quotient is None else quotient


def ceildiv(a: Dim, b: Dim) -> Dim:
    """ceil(a / b) for positive b."""
    return floordiv(a + (b - 1), b)


def modulo(a: Dim, b: Dim) -> Dim:
    """a - b * floor(a / b)."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 1 or a == b or _divide_exactly(a, b) is not None:
        return 0
    if isinstance(b, int):
        a = _from_terms([(m, c % b) for m, c in _terms(a)])
        if isinstance(a, int):
            return a % b
    return _call("mod", a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    """min(a, b), folded where one is known to be the smaller."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if prove_le(a, b):
        return a
    return b if prove_le(b, a) else _call("min", *_sorted_dims(a, b))


def maximum(a: Dim, b: Dim) -> Dim:
    """max(a, b), folded where one is known to be the larger."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if prove_le(a, b):
        return b
    return a if prove_le(b, a) else _call("max", *_sorted_dims(a, b))


def broadcast(a: Dim, b: Dim) -> Dim:
    """The common dim of two that broadcast: b if a = 1, else a."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int):
        return a  # b is 1 or a: the check at the call proves it
    return b if isinstance(b, int) else _call("broadcast", *_sorted_dims(a, b))


def product(dims: Iterable[Dim]) -> Dim:
    """The product of `dims`; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def row_major_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Elements from one index to the next, per dim of a dense row-major array."""
    strides: list[Dim] = []
    stride: Dim = 1
    for dim in reversed(shape):
        strides.append(stride)
        stride = stride * dim
    return tuple(reversed(strides))


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The dim's number for these symbol values. Raises KeyError for a missing symbol."""
    result = substitute(dim, values)
    if not isinstance(result, int):
        raise KeyError(", ".join(sorted(symbols_of(result))))
    return result


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dim with symbols replaced; symbols that are not in `values` stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        term: Dim = coefficient
        for atom, power in monomial:
            value = _substitute_atom(atom, values)
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def symbols_of(dim: Dim) -> set[str]:
    """The names of the symbols in `dim`."""
    if isinstance(dim, int):
        return set()
    names: set[str] = set()
    for monomial, _ in dim.terms:
        for atom, _ in monomial:
            if isinstance(atom, Symbol):
                names.add(atom.name)
            else:
                names.update(*(symbols_of(operand) for operand in atom.operands))
    return names


def linear_in(dim: Dim, name: str) -> tuple[int, Dim] | None:
    """(factor, rest) with dim = factor * symbol + rest and no such symbol in the rest, or None."""
    factor = dict(_terms(dim)).get(((Symbol(name), 1),), 0)
    rest = dim - symbol(name) * factor
    return None if factor == 0 or name in symbols_of(rest) else (factor, rest)


def signs(dim: Dim) -> tuple[Dim, Dim]:
    """(a, b) with dim = b - a, of the terms with a minus and a plus; "b >= a" is how people
    say that the dim is not negative."""
    minus = _from_terms((monomial, -factor) for monomial, factor in _terms(dim) if factor < 0)
    return minus, dim + minus


def bounds(dim: Dim, known: Bounds | None = None) -> tuple[float, float]:
    """Least and greatest value of `dim` (with infinities), given bounds of symbols."""
    if isinstance(dim, int):
        return dim, dim
    low: float = 0
    high: float = 0
    for monomial, coefficient in dim.terms:
        term = (1.0, 1.0)
        for atom, power in monomial:
            for _ in range(power):
                term = _multiply_bounds(term, _atom_bounds(atom, known or {}))
        ends = [0.0 if end == 0 else end * coefficient for end in term]
        low, high = low + min(ends), high + max(ends)
    return low, high


def prove_le(a: Dim, b: Dim, known: Bounds | None = None) -> bool:
    """True where a <= b holds for every value of the symbols within their bounds."""
    difference = b - a
    if bounds(difference, known)[0] >= 0:
        return True
    # b*s - b >= 0 for b, s >= 1 shows only in what b and s have beyond their least values.
    beyond: dict[str, Dim] = {
        name: symbol(name) + low for name, (low, _) in (known or {}).items() if low > 0
    }
    if beyond and bounds(substitute(difference, beyond))[0] >= 0:
        return True
    if not isinstance(difference, Expr):
        return False
    depth = 3 if len(difference.terms) <= 8 else 1  # the time is exponential in it
    return _prove_with_ends(difference, known or {}, depth)


def _prove_with_ends(dim: Expr, known: Bounds, depth: int) -> bool:
    """Whether dim >= 0 shows once some min, max or mod in it is one of its ends: what is taken
    away is at most its upper ends, what is added at least its lower ones."""
    for monomial, factor in dim.terms:
        if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], Call):
            continue
        term = Expr(((monomial, factor),))
        for end in _ends(monomial[0][0], factor < 0, known):
            rest = dim - term + end * factor
            if bounds(rest, known)[0] >= 0:
                return True
            if depth > 1 and isinstance(rest, Expr) and _prove_with_ends(rest, known, depth - 1):
                return True
    return False


def _ends(call: Call, upper: bool, known: Bounds) -> list[Dim]:
    """Dims that the call is never above (`upper`) or never below."""
    a, b = call.operands
    match call.function, upper:
        case ("min", True) | ("max", False):
            return [a, b]
        case ("mod", True) if bounds(b, known)[0] > 0:
            return [b - 1]
        case ("floordiv", True) if bounds(a, known)[0] >= 0 and bounds(b, known)[0] > 0:
            return [a]
    return []


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, Expr):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def _times(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    kept = [(m, c) for m, c in sums.items() if c != 0]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=lambda item: (-sum(p for _, p in item[0]), [(str(a), p) for a, p in item[0]]))
    return Expr(tuple(kept))


def _call(function: str, *operands: Dim) -> Expr:
    return Expr(((((Call(function, operands), 1),), 1),))


def _sorted_dims(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    return (a, b) if str(a) <= str(b) else (b, a)


def _divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b as polynomials, None unless b divides a: long division by the leading term."""
    atoms = sorted({atom for m, _ in (*_terms(a), *_terms(b)) for atom, _ in m}, key=str)

    def order(term: tuple[Monomial, int]) -> tuple[int, ...]:
        powers = dict(term[0])
        return sum(powers.values()), *(powers.get(atom, 0) for atom in atoms)

    if not isinstance(b, Expr):
        return None
    divisor = max(b.terms, key=order)
    quotient: Dim = 0
    for _ in range(_GREATEST_DEGREE):
        if a == 0:
            return quotient
        term = _divide_term(max(_terms(a), key=order), divisor)
        if term is None:
            return None
        quotient, a = quotient + term, a - b * term
    return None


def _divide_term(a: tuple[Monomial, int], b: tuple[Monomial, int]) -> Dim | None:
    """The quotient of two terms, None if it is no term."""
    powers = dict(a[0])
    for atom, power in b[0]:
        powers[atom] = powers.get(atom, 0) - power
    if a[1] % b[1] or any(power < 0 for power in powers.values()):
        return None
    left = tuple((atom, power) for atom, power in powers.items() if power)
    return _from_terms([(left, a[1] // b[1])])


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return values.get(atom.name, Expr(((((atom, 1),), 1),)))
    a, b = (substitute(operand, values) for operand in atom.operands)
    return _FUNCTIONS[atom.function](a, b)


def _multiply_bounds(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    ends = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(ends), max(ends)


def _atom_bounds(atom: Atom, known: Bounds) -> tuple[float, float]:
    if isinstance(atom, Symbol):
        least, greatest = known.get(atom.name, (0, None))
        return least, math.inf if greatest is None else greatest
    (a_low, a_high), (b_low, b_high) = (bounds(operand, known) for operand in atom.operands)
    match atom.function:
        case "min":
            return min(a_low, b_low), min(a_high, b_high)
        case "max":
            return max(a_low, b_low), max(a_high, b_high)
        case "broadcast":
            return min(a_low, b_low), max(a_high, b_high)
        case "mod" if b_low > 0:
            return 0, b_high - 1
        case "floordiv" if a_low >= 0 and b_low > 0:
            high = a_high if math.isinf(a_high) else a_high // b_low
            return (0 if math.isinf(b_high) else a_low // b_high), high
    return -math.inf, math.inf


_TOKEN = re.compile(r"\s*([A-Za-z_][\w.']*|\d+|[-+*(),])")


_GREATEST_TEXT = 1 << 20
_GREATEST_DIGITS = 39  # of 127 bits


def parse_dim(text: str) -> Dim:
    """Read what `str(dim)` wrote. Raises ValueError that quotes the text."""
    if len(text) > _GREATEST_TEXT:
        raise ValueError(f"a dim expression has {len(text)} characters, at most {_GREATEST_TEXT}")
    try:
        return _parse(text)
    except ZeroDivisionError:
        raise ValueError(f"dim expression {text[:80]!r} divides by 0") from None
    except RecursionError:
        raise ValueError(f"dim expression {text[:80]!r} is nested too deep") from None


def _parse(text: str) -> Dim:
    tokens: list[str] = []
    position = 0
    stripped = text.strip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ValueError(f"dim expression {text!r} is not readable at column {position}")
        tokens.append(match.group(1))
        position = match.end()
    result, end = _parse_sum(tokens, 0, text)
    if end != len(tokens):
        raise ValueError(f"dim expression {text!r} goes on after its end with {tokens[end]!r}")
    return result


def _parse_sum(tokens: list[str], at: int, text: str) -> tuple[Dim, int]:
    total: Dim = 0
    sign = 1
    if at < len(tokens) and tokens[at] in "+-":
        sign, at = (-1 if tokens[at] == "-" else 1), at + 1
    while True:
        term, at = _parse_factor(tokens, at, text)
        while at < len(tokens) and tokens[at] == "*":
            factor, at = _parse_factor(tokens, at + 1, text)
            term = term * factor
        total = total + term * sign
        if at >= len(tokens) or tokens[at] not in "+-":
            return total, at
        sign, at = (-1 if tokens[at] == "-" else 1), at + 1


_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": floordiv,
    "mod": modulo,
    "min": minimum,
    "max": maximum,
    "broadcast": broadcast,
}


def _parse_factor(tokens: list[str], at: int, text: str) -> tuple[Dim, int]:
    if at >= len(tokens) or tokens[at] in "+*,)":
        raise ValueError(f"dim expression {text!r} ends where an operand was expected")
    token = tokens[at]
    if token == "(":
        inner, at = _parse_sum(tokens, at + 1, text)
        return inner, _expect(tokens, at, ")", text)
    if token.isdigit():
        if len(token) > _GREATEST_DIGITS:
            raise ValueError(f"dim expression {text[:80]!r} has a number of {len(token)} digits")
        return int(token), at + 1
    if token in _FUNCTIONS and at + 1 < len(tokens) and tokens[at + 1] == "(":
        a, at = _parse_sum(tokens, at + 2, text)
        b, at = _parse_sum(tokens, _expect(tokens, at, ",", text), text)
        return _FUNCTIONS[token](a, b), _expect(tokens, at, ")", text)
    return symbol(token), at + 1


def _expect(tokens: list[str], at: int, token: str, text: str) -> int:
    if at >= len(tokens) or tokens[at] != token:
        got = tokens[at] if at < len(tokens) else "the end"
        raise ValueError(f"dim expression {text!r}: expected {token!r}, got {got!r}")
    return at + 1
