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
    call_of,
    divide_exactly,
    divide_term,
    divisor_of,
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
    "any_left",
    "bounds",
    "broadcast",
    "ceildiv",
    "divide_exactly",
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
    "terms_of",
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
    """floordiv(a, b) for b > 0: whole multiples of b leave it, and so does a common factor. The
    factors that stay are above -b/2 and at most b/2, and the first of them is positive: what is
    not is minus a ceiling. Where they are all b/2, which is as good as -b/2, the dim tells."""
    period = _only_period(a, b)
    if period is not None:
        return period
    shift, constant = divmod(_constant(a), b)
    whole, left = _whole_and_left(a - _constant(a), b)
    if isinstance(left, int):
        return whole + shift
    common = math.gcd(b, *(factor for _, factor in left.terms))
    is_negative = next(factor < 0 for monomial, factor in a.terms if monomial and factor % b)
    left, constant, b = _absorbed(_divided(left, common)), constant // common, b // common
    if b == 1:
        return whole + shift + left
    if next((factor < 0 for _, factor in terms_of(left) if 2 * factor != b), is_negative):
        turned, left = _whole_and_left(-left, b)
        return whole + shift - turned - _quotient(left, b - 1 - constant, b)
    return whole + shift + _quotient(left, constant, b)


def _whole_and_left(dim: Dim, b: int) -> tuple[Dim, Dim]:
    """(q, r) with dim = q * b + r, and factors in r above -b/2 and at most b/2."""
    whole = from_terms((each, -((b - 2 * factor) // (2 * b))) for each, factor in terms_of(dim))
    return whole, dim - whole * b


def _quotient(left: Dim, constant: int, b: int) -> Dim:
    """floordiv(left + constant, b) where no multiple of b is to be taken out."""
    call = single_call(left)
    if call is not None and call.function in ("min", "max"):  # floor keeps the order
        parts = (floordiv(each + constant, b) for each in call.operands)
        return reduce(FUNCTIONS[call.function], parts)
    inner = [
        (single_call(expr_of(((monomial, 1),))), sign)
        for monomial, sign in terms_of(left)
        if abs(sign) == 1
    ]
    quotients = [(call, sign) for call, sign in inner if call is not None and divisor_of(call)]
    if len(quotients) != 1:
        return call_of("floordiv", left + constant, b)
    ((call, sign),) = quotients
    divided, divisor = call.operands
    others = (left - of_atom(call) * sign + constant) * divisor
    return floordiv(others + divided * sign + (0 if sign > 0 else divisor - 1), divisor * b)


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
    """a - b * floor(a / b), and written like that where b is a number: so a size that is padded
    to a multiple is one dim in all the ways to compute it."""
    if isinstance(b, int):
        common = math.gcd(b, *(factor for monomial, factor in terms_of(a) if monomial))
        if b == 2 * common and isinstance(a, Expr):  # 0 or b/2, as is what a is padded by
            _, half = _whole_and_left(a - _constant(a) % common, b)
            return ceildiv(half, b) * b - half + _constant(a) % common
        return a - floordiv(a, b) * b
    if a == b:
        return 0
    _, rest, is_last = _divide(a, b)
    return rest if is_last else call_of("mod", rest, b)


def any_left(dim: Dim) -> Dim | None:
    """1 where a dim that is modulo(a, n) is not 0, else 0: ceil(a/n) - floor(a/n). None if it is
    no such dim."""
    for monomial, factor in terms_of(dim):
        quotient = expr_of(((monomial, 1),)) if monomial else None
        call = single_call(quotient) if quotient is not None else None
        if quotient is not None and call is not None and divisor_of(call) == abs(factor):
            a, n = dim - quotient * factor, abs(factor)
            if a - floordiv(a, n) * n == dim:
                return ceildiv(a, n) - floordiv(a, n)
    return None


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
