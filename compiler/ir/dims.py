"""Symbolic dims: integers and expressions over named symbols, in canonical form.

A dim is an `int` or an `Expr` (`polynomials.py`). Two dims are proven equal when their canonical
forms are the same object, so `==` is the proof. Symbols are non-negative; tighter bounds are
passed in where they are known. This file knows nothing of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from ingot.compiler.ir.dim_bounds import Bounds, bounds, prove_le
from ingot.compiler.ir.polynomials import (
    FUNCTIONS,
    Atom,
    Call,
    Dim,
    Expr,
    Symbol,
    Term,
    call_of,
    divide_exactly,
    divide_term,
    expr_of,
    from_terms,
    key_of,
    of_atom,
    single_call,
    substitute,
    symbol,
    symbols_of,
    terms_of,
)
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
    "from_terms",
    "known_dim",
    "known_dims",
    "linear_in",
    "maximum",
    "minimum",
    "modulo",
    "product",
    "prove_le",
    "row_major_strides",
    "signs",
    "substitute",
    "symbol",
    "symbols_of",
]


def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b); exact where every term divides."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if b == 0:
        raise ZeroDivisionError(f"{a} is divided by 0")
    if a == b:
        return 1
    if isinstance(b, int) and b < 0:
        return floordiv(-a, -b)
    if isinstance(a, Expr) and isinstance(b, int) and b > 0:
        return _divide_by_number(a, b)
    quotient, rest, is_last = _divide(a, b)
    return quotient if is_last else quotient + call_of("floordiv", rest, b)


def _divide_by_number(a: Expr, b: int) -> Dim:
    """floordiv(a, b) for b > 0: whole multiples of b leave it, and so does a common factor; of a
    quotient it is one quotient."""
    constant = 0
    whole: list[Term] = []
    rest: list[Term] = []
    for monomial, factor in a.terms:
        if not monomial:
            constant = factor
            continue
        count = factor // b if factor > 0 else -(-factor // b)
        whole.append((monomial, count))
        rest.append((monomial, factor - count * b))
    shift, constant = divmod(constant, b)
    quotient = from_terms(whole) + shift
    left = from_terms(rest)
    if isinstance(left, int):
        return quotient
    common = math.gcd(b, *(factor for _, factor in left.terms))
    left, constant, b = _absorbed(_divided(left, common)), constant // common, b // common
    inner = single_call(left)
    if b == 1:
        return quotient + left
    if inner is not None and inner.function == "floordiv" and _is_positive(inner.operands[1]):
        divided, divisor = inner.operands
        return quotient + floordiv(divided + divisor * constant, divisor * b)
    if inner is not None and inner.function in ("min", "max"):  # floor keeps the order
        parts = (floordiv(each + constant, b) for each in inner.operands)
        return quotient + reduce(FUNCTIONS[inner.function], parts)
    left = left + constant
    period = _only_period(left, b)
    return quotient + (call_of("floordiv", left, b) if period is None else period)


def _absorbed(dim: Dim) -> Dim:
    """x + max(y - x, 0), as padding makes it, as max(y, x)."""
    for monomial, factor in terms_of(dim):
        call = single_call(expr_of(((monomial, 1),))) if monomial and factor == 1 else None
        if call is not None and call.function in ("min", "max"):
            rest = dim - of_atom(call)
            parts = [each + rest for each in call.operands]
            if sum(len(terms_of(each)) for each in parts) <= len(terms_of(rest)) + 1:
                return reduce(FUNCTIONS[call.function], parts)
    return dim


def ceildiv(a: Dim, b: Dim) -> Dim:
    """ceil(a / b) for positive b."""
    return floordiv(a + (b - 1), b)


def modulo(a: Dim, b: Dim) -> Dim:
    """a - b * floor(a / b)."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 0:
        raise ZeroDivisionError(f"{a} is divided by 0")
    if b == 1 or a == b:
        return 0
    if isinstance(b, int) and b < 0:
        return -modulo(-a, -b)
    if isinstance(a, Expr) and isinstance(b, int) and b > 0:
        return _modulo_number(a, b)
    _, rest, is_last = _divide(a, b)
    return rest if is_last else call_of("mod", rest, b)


def _modulo_number(a: Expr, b: int) -> Dim:
    """modulo(a, b) for b > 0, without multiples of b and without a common factor."""
    sum_: Dim = 0
    for monomial, factor in a.terms:
        inner = single_call(expr_of(((monomial, 1),))) if monomial else None
        term: Dim = from_terms([(monomial, factor % b)])
        if inner is not None and inner.function == "mod":
            divided, divisor = inner.operands
            if isinstance(divisor, int) and divisor > 0 and divisor % b == 0:
                term = divided * factor
        sum_ = sum_ + term
    sum_ = from_terms((monomial, factor % b) for monomial, factor in terms_of(sum_))
    if isinstance(sum_, int):
        return sum_ % b
    common = math.gcd(b, *(factor for monomial, factor in sum_.terms if monomial))
    if common > 1:
        constant = sum(factor for monomial, factor in sum_.terms if not monomial)
        rest = modulo(_divided(sum_ - constant, common) + constant // common, b // common)
        return rest * common + constant % common
    period = _only_period(sum_, b)
    return call_of("mod", sum_, b) if period is None else sum_ - period * b


def minimum(a: Dim, b: Dim) -> Dim:
    """min(a, b), folded where one is known to be the smaller."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return _extreme("min", a, b, prove_le)


def maximum(a: Dim, b: Dim) -> Dim:
    """max(a, b), folded where one is known to be the larger."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return _extreme("max", a, b, lambda x, y: prove_le(y, x))


def _extreme(function: str, a: Dim, b: Dim, wins: Callable[[Dim, Dim], bool]) -> Dim:
    """min or max of the operands of both that no other one always wins against."""
    others = _operands(function, b)
    kept = [x for x in _operands(function, a) if not any(x != y and wins(y, x) for y in others)]
    return _joined(function, [*kept, *(y for y in others if not any(wins(x, y) for x in kept))])


def broadcast(a: Dim, b: Dim) -> Dim:
    """The common dim of dims that broadcast: b if a = 1, else a.

    The result relies on a check, made by whoever broadcasts, that each of the two is 1 or the
    common dim. So a dim that can only be 1 where another one is 1 adds nothing to that one:
    broadcast(min(512, s), s) is s.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    kept: list[Dim] = []
    for each in sorted({*_operands("broadcast", a), *_operands("broadcast", b)}, key=_weight):
        if not any(_implies_one(other, each) for other in kept):
            kept = [other for other in kept if not _implies_one(each, other)]
            kept.append(each)
    return _joined("broadcast", kept)


def _weight(dim: Dim) -> tuple[int, int, int, str]:
    """Of two dims that are equal wherever they broadcast, the lighter one is written."""
    if isinstance(dim, int):
        return 0, 0, 0, str(dim)
    calls = sum(isinstance(atom, Call) for monomial, _ in dim.terms for atom, _ in monomial)
    return 1 + calls, len(dim.terms), len(dim.key), dim.key


def _implies_one(a: Dim, b: Dim) -> bool:
    """Whether b is 1 wherever a is 1, and a and b broadcast."""
    known = _where(a, 1, 1)
    if not known:
        return known is None
    exact: dict[str, Dim] = {name: low for name, (low, high) in known.items() if low == high}
    try:
        return bounds(substitute(b, exact), known) == (1, 1)
    except (ZeroDivisionError, CompileError):  # no number there, or none that is followed
        return False


_Places = dict[str, tuple[int, int | None]]


def _where(dim: Dim, low: int, high: int) -> _Places | None:
    """Bounds of symbols where low <= dim <= high, as far as they are known; None if the dim never
    is that."""
    least, greatest = bounds(dim)
    if least > high or greatest < low:
        return None
    if isinstance(dim, int):
        return {}
    constant = _constant(dim)
    factors = [factor for monomial, factor in dim.terms if monomial]
    if low == high and (low - constant) % math.gcd(*factors) != 0:
        return None
    if len(factors) > 1:
        return {}
    monomial, factor = dim.terms[0]
    first, last = sorted((low, high), key=lambda end: end * factor)
    low, high = -((constant - first) // factor), (last - constant) // factor
    if len(monomial) == 1 and monomial[0][1] == 1:
        return _where_atom(monomial[0][0], low, high)
    if low == high == 1 and all(bounds(of_atom(atom))[0] >= 0 for atom, _ in monomial):
        return _all_of([_where_atom(atom, 1, 1) for atom, _ in monomial])
    return {}


def _where_atom(atom: Atom, low: int, high: int) -> _Places | None:
    if isinstance(atom, Symbol):
        return {atom.name: (max(low, 0), high)} if high >= max(low, 0) else None
    match atom.function, atom.operands:
        case "floordiv", (divided, int(divisor)) if divisor > 0:
            return _where(divided, low * divisor, high * divisor + divisor - 1)
        case "broadcast", operands if low == high == 1:
            return _all_of([_where(each, 1, 1) for each in operands])
        case "min", operands:  # one of them is that
            places = [_where(each, low, high) for each in operands]
            found = [each for each in places if each is not None]
            return (found[0] if len(found) == 1 else {}) if found else None
    return {}


def _all_of(places: Sequence[_Places | None]) -> _Places | None:
    """What holds where all of these hold."""
    result: _Places = {}
    for each in places:
        if each is None:
            return None
        result.update(each)  # of two bounds of one symbol either holds
    return result


FUNCTIONS.update(
    {
        "floordiv": floordiv,
        "mod": modulo,
        "min": minimum,
        "max": maximum,
        "broadcast": broadcast,
    }
)


def known_dims(dims: Iterable[Dim]) -> tuple[int, ...]:
    """The dims, which are integers. Raises ValueError for an expression."""
    return tuple(map(known_dim, dims))


def known_dim(dim: Dim) -> int:
    """The dim, which is an integer. Raises ValueError for an expression."""
    if not isinstance(dim, int):
        raise ValueError(f"the dim {dim} is not known before a call")
    return dim


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


def linear_in(dim: Dim, name: str) -> tuple[int, Dim] | None:
    """(factor, rest) with dim = factor * symbol + rest and no such symbol in the rest, or None."""
    alone = symbol(name)
    (monomial, _), *_ = alone.terms
    factor = next((factor for each, factor in terms_of(dim) if each == monomial), 0)
    rest = dim - alone * factor
    return None if factor == 0 or name in symbols_of(rest) else (factor, rest)


def signs(dim: Dim) -> tuple[Dim, Dim]:
    """(a, b) with dim = b - a, of the terms with a minus and a plus; "b >= a" is how people
    say that the dim is not negative."""
    minus = from_terms((monomial, -factor) for monomial, factor in terms_of(dim) if factor < 0)
    return minus, dim + minus


def _divided(dim: Dim, factor: int) -> Dim:
    """dim / factor, which divides every coefficient."""
    return from_terms((monomial, value // factor) for monomial, value in terms_of(dim))


def _joined(function: str, operands: Sequence[Dim]) -> Dim:
    """The call of a function that has any number of operands, in any order. The least number
    that is added to an operand of min and max is added to the result instead."""
    if len(operands) == 1:
        return operands[0]
    shift = 0
    if function != "broadcast":
        shift = min(_constant(each) for each in operands if isinstance(each, Expr))
    return call_of(function, *sorted((each - shift for each in operands), key=key_of)) + shift


def _operands(function: str, dim: Dim) -> tuple[Dim, ...]:
    """The operands if the dim is just a call of the function, else the dim itself. What
    `_joined` moved out of min and max is in the operands again."""
    if isinstance(dim, int):
        return (dim,)
    shift = 0 if function == "broadcast" else _constant(dim)
    call = single_call(dim - shift)
    if call is None or call.function != function:
        return (dim,)
    return tuple(each + shift for each in call.operands)


def _constant(dim: Expr) -> int:
    """The number in a sum."""
    return next((factor for monomial, factor in dim.terms if not monomial), 0)


def _is_positive(dim: Dim) -> bool:
    return isinstance(dim, int) and dim > 0


def _only_period(dim: Dim, length: int) -> int | None:
    """The quotient by a number, if it is the same for all values of the symbols."""
    low, high = bounds(dim)
    if math.isinf(low) or math.isinf(high) or low // length != high // length:
        return None
    return int(low // length)


def _divide(a: Dim, b: Dim) -> tuple[Dim, Dim, bool]:
    """(q, r, whether 0 <= r < b) with a = q * b + r: exact if b divides a, else with the terms of
    a that do not divide by b in r, where b is one term."""
    exact = divide_exactly(a, b)
    if exact is not None:
        return exact, 0, True
    quotient: Dim = 0
    if isinstance(b, Expr) and len(b.terms) == 1:
        for term in terms_of(a):
            quotient = quotient + (divide_term(term, b.terms[0]) or 0)
    rest = a - quotient * b
    if _is_remainder(rest + b, b):
        return quotient - 1, rest + b, True
    return quotient, rest, _is_remainder(rest, b)


def _is_remainder(rest: Dim, b: Dim) -> bool:
    """Whether 0 <= rest < b wherever the symbols that b is a product of are not 0."""
    if isinstance(b, int) or len(b.terms) != 1:
        return False
    monomial, factor = b.terms[0]
    known = {atom.name: (1, None) for atom, _ in monomial if isinstance(atom, Symbol)}
    if factor < 1 or len(known) != len(monomial):
        return False
    return prove_le(0, rest, known) and prove_le(rest, b - 1, known)
