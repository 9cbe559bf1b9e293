"""What is known of symbolic dims: least and greatest values, and proofs that a <= b."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, reduce

from ingot.compiler.ir.polynomials import (
    CACHE_LENGTH,
    FUNCTIONS,
    Atom,
    Call,
    Dim,
    Expr,
    Monomial,
    Symbol,
    Term,
    divisor_of,
    expr_of,
    from_terms,
    of_atom,
    substitute,
    symbol,
    terms_of,
)
from ingot.hal.errors import CompileError

__all__ = ["Bounds", "bounds", "prove_le"]

Bounds = Mapping[str, tuple[int, "int | None"]]
"""Per symbol its least and greatest value (None: no greatest)."""

_GREATEST = 1 << 127  # ends beyond it are not told apart, so that they are floats as well as ints
_TRIES = 24  # with other ends of min, max and mod; proofs that are found take two or three
_FAR = 1000003  # beyond the least value of a symbol
_GREATEST_WEIGHT = 500  # of a dim whose quotients are looked into
_GREATEST_EXPANSION = 2048  # terms, a twentieth of a second
_Known = tuple[tuple[str, tuple[int, "int | None"]], ...]
_Point = tuple[tuple[str, int], ...]


def _relevant(dim: Expr, known: Bounds | None) -> _Known:
    """The bounds that matter for the dim, to remember results by."""
    return tuple((name, known[name]) for name in dim.names if name in known) if known else ()


def bounds(dim: Dim, known: Bounds | None = None) -> tuple[float, float]:
    """Least and greatest value of `dim` (with infinities), given bounds of symbols."""
    return _outward(dim, dim) if isinstance(dim, int) else _bounds(dim, _relevant(dim, known))


@lru_cache(maxsize=CACHE_LENGTH)
def _bounds(dim: Expr, relevant: _Known) -> tuple[float, float]:
    known = dict(relevant)
    low: float = 0
    high: float = 0
    for monomial, coefficient in dim.terms:
        term: tuple[float, float] = (1, 1)
        for atom, power in monomial:
            for _ in range(power):
                term = _multiply_bounds(term, _atom_bounds(atom, known))
        ends = [0 if end == 0 else end * coefficient for end in term]
        low, high = low + min(ends), high + max(ends)
    if _may_cancel(dim):
        low = max(low, _least_of_quotients(dim.terms, known))
        high = min(high, -_least_of_quotients(terms_of(-dim), known))
    return _outward(low, high)


def _may_cancel(dim: Expr) -> bool:
    """Whether terms of both signs share symbols, some of them inside of a quotient."""
    if dim.growth[0] > _GREATEST_WEIGHT:
        return False
    plus, minus = (
        [m for m, factor in dim.terms if m and (factor > 0) == sign] for sign in (True, False)
    )
    if not plus or not minus or not any(map(_quotient_in, (*plus, *minus))):
        return False
    names = [{name for m in each for atom, _ in m for name in atom.names} for each in (plus, minus)]
    return not names[0].isdisjoint(names[1])


def _quotient_in(monomial: Monomial) -> Call | None:
    """A quotient by a number that the monomial is a multiple of."""
    for atom, power in monomial:
        if power == 1 and isinstance(atom, Call) and divisor_of(atom):
            return atom
    return None


def _least_of_quotients(terms: Sequence[Term], known: Bounds) -> float:
    """What their sum is never below, of (a - n + 1)/n <= floor(a/n) <= a/n: terms that cancel are
    seen only without the floor."""
    constant = next((factor for monomial, factor in terms if not monomial), 0)
    common = math.gcd(*(factor for monomial, factor in terms if monomial))
    scale = math.lcm(*(divisor_of(atom) or 1 for m, _ in terms for atom, _ in m))
    whole = [(m, factor // common * scale) for m, factor in terms if m]
    try:
        fraction = from_terms(
            term for each in whole for term in terms_of(_without_floor(*each, known))
        )
    except CompileError:
        return -math.inf
    least = bounds(fraction, known)[0] if fraction != from_terms(whole) else -math.inf
    return least if math.isinf(least) else -(-int(least) // scale) * common + constant


def _without_floor(monomial: Monomial, factor: int, known: Bounds) -> Dim:
    """A dim that the term is never below, and that has no quotient if the term has one; `factor`
    is a multiple of the divisor."""
    quotient = _quotient_in(monomial)
    whole = expr_of(((monomial, factor),))
    if quotient is None:
        return whole
    others = from_terms([(tuple(each for each in monomial if each[0] is not quotient), 1)])
    divided, divisor = quotient.operands
    assert isinstance(divisor, int)
    least, greatest = bounds(others, known)
    if least < 0 < greatest:
        return whole
    if (factor > 0) == (least >= 0):
        divided = divided - (divisor - 1)
    return divided * others * (factor // divisor)


def _outward(low: float, high: float) -> tuple[float, float]:
    """Bounds that hold where these do, of ends that are infinite or not huge."""
    return (
        -math.inf if low < -_GREATEST else min(low, _GREATEST),
        math.inf if high > _GREATEST else max(high, -_GREATEST),
    )


def prove_le(a: Dim, b: Dim, known: Bounds | None = None, searches: bool = True) -> bool:
    """True where a <= b holds for every value of the symbols within their bounds; False also
    where the proof would need a dim that is too large, or is not seen at once unless it `searches`,
    which takes most of the time."""
    try:
        difference = b - a
    except CompileError:
        return False
    if isinstance(difference, int):
        return difference >= 0
    return _proven(difference, _relevant(difference, known), searches)


@lru_cache(maxsize=CACHE_LENGTH)
def _proven(difference: Expr, relevant: _Known, searches: bool) -> bool:
    """Whether the difference is at least 0."""
    known = dict(relevant)
    if bounds(difference, known)[0] >= 0:
        return True
    common = {
        atom: power
        for atom, power in _common_symbols(difference).items()
        if all(known.get(name, (0, None))[0] >= 0 for name in atom.names)
    }
    if common:  # where one of them is 0, so is the difference
        for name in frozenset().union(*(atom.names for atom in common)):
            low, high = known.get(name, (0, None))
            known[name] = max(low, 1), None if high is None else max(high, 1)
        return prove_le(0, _divided_by(difference, common), known, searches)
    # b*s >= b + s - 1 for b, s >= 1 shows only in what b and s have beyond their least values.
    beyond: dict[str, Dim] = {name: symbol(name) + low for name, (low, _) in relevant if low > 0}
    others = {name: each for name, each in relevant if name not in beyond}
    with suppress(CompileError, ZeroDivisionError):
        small = _expansion(difference, beyond) <= _GREATEST_EXPANSION
        if beyond and small and bounds(substitute(difference, beyond), others)[0] >= 0:
            return True
    with suppress(CompileError):
        return (
            searches
            and not _is_refuted(difference, known)
            and _prove_with_ends(difference, known, 3, [_TRIES])
        )
    return False


def _is_refuted(dim: Expr, known: Bounds) -> bool:
    """Whether the dim is negative where all symbols, or all but one, are large, or small: nearly
    all that has no proof is, and a search for one takes a hundred times as long."""
    for point in _corners(tuple((name, known.get(name, (0, None))) for name in sorted(dim.names))):
        with suppress(ZeroDivisionError):
            value = _value(dim, point)
            if isinstance(value, int) and value < 0:
                return True
    return False


@lru_cache(maxsize=CACHE_LENGTH)
def _corners(known: _Known) -> Sequence[_Point]:
    """Where all symbols, or all but one, are small, or large."""
    low = {name: least for name, (least, _) in known}
    high = {
        name: least + _FAR if greatest is None else min(least + _FAR, greatest)
        for name, (least, greatest) in known
    }
    one_high = [{**low, name: high[name]} for name in low]
    one_low = [{**high, name: low[name]} for name in low]
    return [tuple(each.items()) for each in (low, high, *one_high, *one_low)]


def _value(dim: Dim, point: _Point) -> Dim:
    """The dim at a point, which is a number unless dims do not broadcast there."""
    if isinstance(dim, int):
        return dim
    result: Dim = 0
    for monomial, value in dim.terms:
        term: Dim = value
        for atom, power in monomial:
            for _ in range(power):
                term = term * _value_of_atom(atom, point)
        result = result + term
    return result


@lru_cache(maxsize=CACHE_LENGTH)
def _value_of_atom(atom: Atom, point: _Point) -> Dim:
    if isinstance(atom, Symbol):
        return dict(point)[atom.name]
    return reduce(FUNCTIONS[atom.function], (_value(each, point) for each in atom.operands))


def _common_symbols(dim: Expr) -> dict[Atom, int]:
    """The symbols that every term is a multiple of, with their powers."""
    first, *others = (dict(monomial) for monomial, _ in dim.terms)
    least = {atom: min([first[atom], *(each.get(atom, 0) for each in others)]) for atom in first}
    return {atom: power for atom, power in least.items() if power and isinstance(atom, Symbol)}


def _divided_by(dim: Expr, common: Mapping[Atom, int]) -> Dim:
    """The dim without these powers, which are in all of its terms."""
    return from_terms(
        (tuple((a, p - common.get(a, 0)) for a, p in monomial if p > common.get(a, 0)), factor)
        for monomial, factor in dim.terms
    )


def _expansion(dim: Expr, replaced: Mapping[str, Dim]) -> int:
    """How many terms the dim has, at most, with sums of two terms in place of symbols."""
    return sum(
        math.prod(power + 1 for atom, power in monomial if atom.names & replaced.keys())
        for monomial, _ in dim.terms
    )


def _prove_with_ends(dim: Expr, known: Bounds, depth: int, tries: list[int]) -> bool:
    """Whether dim >= 0 shows once some min, max or mod in it is one of its ends: what is taken
    away is at most its upper ends, what is added at least its lower ones."""
    for rest in _with_an_end(dim, known):
        tries[0] -= 1
        if tries[0] < 0:
            return False
        if bounds(rest, known)[0] >= 0:
            return True
        if depth > 1 and isinstance(rest, Expr) and _prove_with_ends(rest, known, depth - 1, tries):
            return True
    return False


def _with_an_end(dim: Expr, known: Bounds) -> Iterator[Dim]:
    """Dims that are never above this one: with an end in place of a call, which nothing that may
    be negative is multiplied by."""
    for monomial, factor in dim.terms:
        for atom, power in monomial:
            if power != 1 or not isinstance(atom, Call):
                continue
            others = from_terms([(tuple(each for each in monomial if each[0] is not atom), factor)])
            if bounds(others * (1 if factor > 0 else -1), known)[0] >= 0:
                for end in (
                    *_like(atom, dim if factor < 0 else 0),
                    *_ends(atom, factor < 0, known),
                ):
                    yield dim - expr_of(((monomial, factor),)) + end * others


def _like(call: Call, dim: Dim) -> Iterator[Dim]:
    """Dims that a quotient is never above, of other quotients in `dim`: a/n <= b/n - (b - a)/n."""
    a, n = call.operands[0], divisor_of(call)
    if not n:
        return
    atoms = dict.fromkeys(atom for monomial, _ in terms_of(dim) for atom, _ in monomial)
    for other in atoms:
        if isinstance(other, Call) and divisor_of(other) == n:
            distance = other.operands[0] - a
            if isinstance(distance, int) and other is not call:
                yield of_atom(other) - distance // n


def _ends(call: Call, upper: bool, known: Bounds) -> Sequence[Dim]:
    """Dims that the call is never above (`upper`) or never below."""
    a, b = call.operands[:2]
    match call.function, upper:
        case ("min", True) | ("max", False):
            return call.operands
        case ("mod", True) if bounds(b, known)[0] > 0:
            return [b - 1]
        case ("floordiv", True) if bounds(a, known)[0] >= 0 and bounds(b, known)[0] > 0:
            return [a]
    return ()


def _multiply_bounds(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    ends = [0 if 0 in (x, y) else x * y for x in a for y in b]
    return _outward(min(ends), max(ends))


def _atom_bounds(atom: Atom, known: Bounds) -> tuple[float, float]:
    if isinstance(atom, Symbol):
        least, greatest = known.get(atom.name, (0, None))
        return _outward(least, math.inf if greatest is None else greatest)
    lows, highs = zip(*(bounds(operand, known) for operand in atom.operands), strict=True)
    match atom.function:
        case "min":
            return min(lows), min(highs)
        case "max":
            return max(lows), max(highs)
        case "broadcast":
            return min(lows), max(highs)
        case "mod" if lows[1] > 0:
            return 0, min(highs[1] - 1, highs[0]) if lows[0] >= 0 else highs[1] - 1
        case "floordiv" if lows[1] > 0:
            least, greatest = (lows[1], highs[1])
            low = _quotient(lows[0], greatest if lows[0] >= 0 else least)
            return low, _quotient(highs[0], least if highs[0] >= 0 else greatest)
    return -math.inf, math.inf


def _quotient(a: float, b: float) -> float:
    """floor(a / b) for b > 0, of bounds."""
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a if math.isinf(a) else a // b
