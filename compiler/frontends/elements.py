"""What graph ops make of the elements of small tensors that are numbers or dims.

One rule per op that shape arithmetic uses; there is none for all others. Integers wrap to the
dtype; sizes are taken not to. `amounts.py` follows values through the ops with these rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.symbols import Atom, Symbols
from ingot.compiler.graph.ops import (
    AlongAxis,
    Broadcast,
    Compare,
    Constant,
    DimValue,
    Iota,
    Reduce,
    Reverse,
    Slice,
    Take,
    Transpose,
)
from ingot.compiler.ir import Op, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr
from ingot.hal.spec import DType

__all__ = ["RULES", "Claim", "Elements", "UnknownElement"]

Elements = np.ndarray[Any, Any]  # dtype object: int, bool, float, Expr or Claim
Rule = Callable[..., Elements]  # of what is known of symbols, the op, and the elements it reads


class UnknownElement(Exception):
    """The elements cannot be known before the program runs."""


@dataclass(frozen=True)
class Claim:
    """A truth value that only the call knows: whether all atoms hold."""

    atoms: tuple[Atom, ...]


def _mapped(op: Op, function: Callable[..., Any], *operands: Elements) -> Elements:
    """The function of each element, as the op's dtype holds it."""
    dtype = _dtype(op)
    result = np.empty(operands[0].shape, object)
    for index in np.ndindex(result.shape):
        result[index] = _round(function(*(operand[index] for operand in operands)), dtype)
    return result


def _elementwise(function: Callable[..., Any]) -> Rule:
    """The rule of an op on numbers and dims; truth values that are not known make it unknown."""

    def rule(symbols: Symbols, op: Op, *operands: Elements) -> Elements:
        for operand in operands:
            _refuse(operand, Claim)
        return _mapped(op, lambda *elements: function(symbols, *elements), *operands)

    return rule


def _numeric(function: Callable[..., float]) -> Rule:
    """As `_elementwise`, of numbers; dims make it unknown, too."""

    def checked(symbols: Symbols, *elements: Any) -> float:
        if any(isinstance(element, Expr) for element in elements):
            raise UnknownElement
        try:
            return function(*elements)
        except (ValueError, OverflowError):
            raise UnknownElement from None

    return _elementwise(checked)


def _refuse(operand: Elements, *kinds: type) -> None:
    if any(isinstance(element, kinds) for element in operand.flat):
        raise UnknownElement


def _dtype(op: Op) -> DType:
    type = tensor_type(op.result)
    return type.dtype


def _round(element: Any, dtype: DType) -> Any:
    """The element as the dtype holds it. Sizes of 32 bits are taken to be below 2^31."""
    if isinstance(element, Claim):
        return element
    if isinstance(element, Expr):
        wraps = dtype.kind == "u" and dims.bounds(element)[0] < 0
        if not dtype.is_integer or dtype.bits < 32 or wraps:
            raise UnknownElement
        return element
    if dtype.is_boolean:
        return bool(element)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return float(dtype.numpy.type(element))
    low = dtype.limits[0]
    return (int(element) - low) % 2**dtype.bits + low


def _constant(symbols: Symbols, op: Op) -> Elements:
    array = Constant.of(op).value.array  # once: large ones are read from their file
    result = np.empty(array.shape, object)
    for index in np.ndindex(result.shape):
        result[index] = array[index].item()
    return result


def _dim(symbols: Symbols, op: Op) -> Elements:
    result = np.empty((), object)
    result[()] = DimValue.of(op).value
    return result


def _add(symbols: Symbols, a: Dim, b: Dim) -> Dim:
    return a + b


def _multiply(symbols: Symbols, a: Dim, b: Dim) -> Dim:
    return a * b


def _divide(symbols: Symbols, a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        if isinstance(a, Expr) or isinstance(b, Expr) or b == 0:
            raise UnknownElement
        return a / b
    if isinstance(a, int) and isinstance(b, int) and b != 0:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if _are_sizes(symbols, a, b):
        return dims.floordiv(a, b)
    exact = dims.divide_exactly(a, b)  # by what may be 0 only where no element depends on it
    if exact is not None:
        return exact
    if isinstance(b, int) and b > 0:  # toward zero: the floor above it and the ceiling below
        return dims.maximum(dims.floordiv(a, b), dims.minimum(dims.ceildiv(a, b), 0))
    raise UnknownElement


def _remainder(symbols: Symbols, a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        raise UnknownElement
    return dims.modulo(a, b) if _are_sizes(symbols, a, b) else a - b * _divide(symbols, a, b)


def _are_sizes(symbols: Symbols, a: Dim, b: Dim) -> bool:
    return dims.prove_le(0, a, symbols.bounds) and dims.prove_le(1, b, symbols.bounds)


def _maximum(symbols: Symbols, a: Any, b: Any) -> Any:
    """Of NaN and of zeros with different signs it is unknown."""
    if isinstance(a, float):
        return _extreme_float(max, a, b)
    if dims.prove_le(a, b, symbols.bounds):
        return b
    return a if dims.prove_le(b, a, symbols.bounds) else dims.maximum(a, b)


def _minimum(symbols: Symbols, a: Any, b: Any) -> Any:
    if isinstance(a, float):
        return _extreme_float(min, a, b)
    if dims.prove_le(a, b, symbols.bounds):
        return a
    return b if dims.prove_le(b, a, symbols.bounds) else dims.minimum(a, b)


def _extreme_float(ordered: Callable[..., float], a: float, b: float) -> float:
    if math.isnan(a + b) or a == 0 == b:
        raise UnknownElement
    return ordered(a, b)


def _absolute(symbols: Symbols, a: Any) -> Any:
    if not isinstance(a, Expr):
        return abs(a)
    return a if dims.prove_le(0, a, symbols.bounds) else _maximum(symbols, a, a * -1)


def _sign(symbols: Symbols, a: Any) -> Any:
    if isinstance(a, float):
        raise UnknownElement
    return _maximum(symbols, -1, _minimum(symbols, 1, a))


def _clamp(symbols: Symbols, op: Op, low: Elements, x: Elements, high: Elements) -> Elements:
    """low and high may have rank 0."""
    ends = (np.broadcast_to(end, x.shape) for end in (low, high))
    _refuse(x, float)
    return _elementwise(lambda symbols, x, a, b: _minimum(symbols, _maximum(symbols, x, a), b))(
        symbols, op, x, *ends
    )


def _compare(symbols: Symbols, op: Op, a: Elements, b: Elements) -> Elements:
    direction = Compare.of(op).direction
    return _elementwise(lambda symbols, a, b: _order(symbols, direction, a, b))(symbols, op, a, b)


def _order(symbols: Symbols, direction: str, a: Any, b: Any) -> bool | Claim:
    """a `direction` b, a claim where the bounds of the symbols do not decide it."""
    difference = a - b
    if isinstance(difference, float):
        if math.isnan(difference):
            raise UnknownElement
        difference = (difference > 0) - (difference < 0)
    return _settled(symbols, (Atom(direction, difference),))


def _settled(symbols: Symbols, atoms: tuple[Atom, ...]) -> bool | Claim:
    """Whether all atoms hold."""
    decided = symbols.decide(atoms)
    if decided is not None:
        return decided
    return Claim(tuple(dict.fromkeys(_plain(symbols, atom) for atom in atoms)))


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_OF_POSITIVE = {"gt": "ne", "le": "eq"}


def _plain(symbols: Symbols, atom: Atom) -> Atom:
    """The atom, of the other sign if its difference is never above 0; of one that is never below
    0 it says no more than whether that is 0."""
    if dims.prove_le(atom.difference, 0, symbols.bounds):
        atom = Atom(_MIRRORED[atom.direction], atom.difference * -1)
    if dims.prove_le(0, atom.difference, symbols.bounds):
        atom = Atom(_OF_POSITIVE.get(atom.direction, atom.direction), atom.difference)
    return atom


def _and(symbols: Symbols, op: Op, *operands: Elements) -> Elements:
    def both(a: Any, b: Any) -> Any:
        claims = [each for each in (a, b) if isinstance(each, Claim)]
        if not claims:
            return _both_known(a, b) & b
        if a is False or b is False:
            return False
        return _settled(symbols, tuple(atom for each in claims for atom in each.atoms))

    return _mapped(op, both, *operands)


def _or(symbols: Symbols, op: Op, *operands: Elements) -> Elements:
    def either(a: Any, b: Any) -> Any:
        if isinstance(a, Claim) or isinstance(b, Claim):
            if a is True or b is True:
                return True
            if a is not False and b is not False:
                raise UnknownElement
            return b if a is False else a
        return _both_known(a, b) | b

    return _mapped(op, either, *operands)


def _xor(symbols: Symbols, op: Op, *operands: Elements) -> Elements:
    def either(a: Any, b: Any) -> Any:
        if a is False or b is False:
            return b if a is False else a
        if isinstance(a, Claim) or isinstance(b, Claim):
            raise UnknownElement
        return _both_known(a, b) ^ b

    return _mapped(op, either, *operands)


def _both_known(a: Any, b: Any) -> Any:
    """The bits a; unknown if it or b is a dim."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        raise UnknownElement
    return a


def _not(a: bool | int) -> int:
    return not a if isinstance(a, bool) else ~a


def _select(symbols: Symbols, op: Op, *operands: Elements) -> Elements:
    def chosen(condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, Claim):
            return a if condition else b
        for each in (a, b):
            if not isinstance(each, (int, Expr)) or isinstance(each, bool):
                raise UnknownElement
        if [each.direction for each in condition.atoms] in (["eq"], ["ne"]):
            (atom,) = condition.atoms
            return _one_of(symbols, atom, *((b, a) if atom.direction == "ne" else (a, b)))
        return b + (a - b) * _one_if(symbols, condition)

    return _mapped(op, chosen, *operands)


def _one_of(symbols: Symbols, atom: Atom, a: Dim, b: Dim) -> Dim:
    """a where the atom's difference is 0, else b. What b has of the difference needs no choice,
    for it is 0 there."""
    difference, further = atom.difference, b - a
    lead = max(dims.terms_of(difference), key=lambda term: len(term[0]))
    whole = dict(dims.terms_of(further)).get(lead[0], 0) // lead[1]
    rest = further - difference * whole
    return a + difference * whole + rest * _one_if_atom(symbols, Atom("ne", difference))


def _one_if(symbols: Symbols, claim: Claim) -> Dim:
    """1 if the claim holds, else 0."""
    return dims.product(_one_if_atom(symbols, atom) for atom in claim.atoms)


def _one_if_atom(symbols: Symbols, atom: Atom) -> Dim:
    difference = atom.difference
    if atom.direction in ("eq", "ne"):
        left = dims.any_left(difference)
        if left is not None:
            return left if atom.direction == "ne" else 1 - left
        above, below = (_maximum(symbols, each, 0) for each in (difference, difference * -1))
        unequal: Dim = _minimum(symbols, above + below, 1)
        return unequal if atom.direction == "ne" else 1 - unequal
    if atom.direction in ("lt", "le"):
        difference = difference * -1
    least = 1 if atom.direction in ("lt", "gt") else 0
    held: Dim = _minimum(symbols, _maximum(symbols, difference + (1 - least), 0), 1)
    return held


def _convert(symbols: Symbols, op: Op, operand: Elements) -> Elements:
    dtype = _dtype(op)

    def convert(element: Any) -> Any:
        if isinstance(element, Claim):
            return element if dtype.is_boolean else _one_if(symbols, element)
        if isinstance(element, float) and dtype.is_boolean:
            return element != 0
        if isinstance(element, float) and not dtype.is_float:
            if not math.isfinite(element) or _round(int(element), dtype) != int(element):
                raise UnknownElement
            return int(element)
        return element

    return _mapped(op, convert, operand)


def _broadcast(symbols: Symbols, op: Op, operand: Elements) -> Elements:
    shape = _integers(Broadcast.of(op).shape)
    spread = [1] * len(shape)
    for axis, target in enumerate(Broadcast.of(op).dimensions):
        spread[target] = operand.shape[axis]
    return np.broadcast_to(operand.reshape(spread), shape)


def _integers(dims: Sequence[Dim]) -> tuple[int, ...]:
    known = tuple(dim for dim in dims if isinstance(dim, int))
    if len(known) != len(dims):
        raise UnknownElement
    return known


def _slice(symbols: Symbols, op: Op, operand: Elements) -> Elements:
    ranges = zip(*map(_integers, vars(Slice.of(op)).values()), strict=True)
    return operand[tuple(slice(*bounds) for bounds in ranges)]


def _take(symbols: Symbols, op: Op, operand: Elements, indices: Elements) -> Elements:
    axis = Take.of(op).axis
    bound = operand.shape[axis]
    for index in indices.flat:
        if isinstance(index, Expr) or not -bound <= index < bound:
            raise UnknownElement
    return np.take(operand, indices.astype(np.int64), axis)


def _reduce(symbols: Symbols, op: Op, operand: Elements) -> Elements:
    kind, dtype = Reduce.of(op).kind, _dtype(op)
    combine = _REDUCTIONS.get(kind)
    rounded = dtype.is_float and kind in ("add", "mul")  # in an order of its own
    if combine is None or rounded or not operand.size:
        raise UnknownElement
    _refuse(operand, Claim)
    result = operand
    for axis in sorted(Reduce.of(op).axes, reverse=True):
        slices = [result.take(index, axis) for index in range(result.shape[axis])]
        total = np.asarray(slices[0], object)
        for item in slices[1:]:
            other = np.asarray(item, object)
            merged = np.empty(total.shape, object)
            for index in np.ndindex(total.shape):
                merged[index] = _round(combine(symbols, total[index], other[index]), dtype)
            total = merged
        result = total
    return result


def _iota(symbols: Symbols, op: Op) -> Elements:
    shape, axis = _integers(Iota.of(op).shape), Iota.of(op).axis
    result = np.empty(shape, object)
    for index in np.ndindex(shape):
        result[index] = index[axis]
    return result


def _moved(move: Callable[..., Elements]) -> Rule:
    """The rule of an op that moves elements and makes none."""
    return lambda symbols, op, *operands: move(op, *operands)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "mul": _multiply,
    "max": _maximum,
    "min": _minimum,
}

RULES: dict[str, Rule] = {
    "constant": _constant,
    "dim": _dim,
    "iota": _iota,
    "add": _elementwise(_add),
    "sub": _elementwise(lambda symbols, a, b: a - b),
    "mul": _elementwise(_multiply),
    "div": _elementwise(_divide),
    "rem": _elementwise(_remainder),
    "neg": _elementwise(lambda symbols, a: -a),
    "abs": _elementwise(_absolute),
    "sign": _elementwise(_sign),
    "clamp": _clamp,
    "max": _elementwise(_maximum),
    "min": _elementwise(_minimum),
    "floor": _numeric(np.floor),
    "ceil": _numeric(np.ceil),
    "sqrt": _numeric(math.sqrt),
    "not": _numeric(_not),
    "and": _and,
    "or": _or,
    "xor": _xor,
    "compare": _compare,
    "convert": _convert,
    "select": _select,
    "broadcast": _broadcast,
    "reshape": _moved(lambda op, operand: operand),
    "transpose": _moved(lambda op, operand: operand.transpose(Transpose.of(op).permutation)),
    "slice": _slice,
    "concatenate": _moved(lambda op, *operands: np.concatenate(operands, AlongAxis.of(op).axis)),
    "reverse": _moved(lambda op, operand: np.flip(operand, Reverse.of(op).axes)),
    "take": _take,
    "reduce": _reduce,
}
