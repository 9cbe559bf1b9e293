"""Element indices as affine sums over iteration axes, so that kernels need no division.

`Index` is `offset + sum(coefficient * term)`. A term is an `Axis` of the iteration space,
or something that is no affine function of it: a quotient, a remainder, an index read from
memory. Reshapes divide; where the divisor cuts an axis evenly, `NeedsSplit` asks the
kernel class for two axes instead, and the division is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from ingot.compiler.ir import dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Bounds, Dim

__all__ = [
    "Axis",
    "Index",
    "NeedsSplit",
    "Quotient",
    "Remainder",
    "Term",
    "delinearize",
    "linearize",
    "strides_of",
]

_ordinals = count()


class Term:
    """What an index is a sum of; its value is in [0, extent). Compared by identity."""

    def __init__(self, extent: Dim) -> None:
        self.extent = extent
        self.ordinal = next(_ordinals)

    def parts(self) -> Sequence[Index]:
        """The indices that this term is computed from."""
        return ()


class Axis(Term):
    """An axis of the iteration space."""

    def __repr__(self) -> str:
        return "Axis()"  # schedules are printed: equal programs give equal texts


class NeedsSplit(Exception):
    """The axis must be iterated as two: extent / factor outside, factor inside."""

    def __init__(self, axis: Axis, factor: Dim) -> None:
        super().__init__()
        self.axis = axis
        self.factor = factor


@dataclass(frozen=True)
class Index:
    """offset + sum of coefficient * term, terms in the order of their making."""

    terms: tuple[tuple[Term, Dim], ...] = ()
    offset: Dim = 0

    @staticmethod
    def of(term: Term) -> Index:
        """The index that is one term."""
        return Index(((term, 1),))

    def __add__(self, other: Index | Dim) -> Index:
        if not isinstance(other, Index):
            return Index(self.terms, self.offset + other)
        sums = dict(self.terms)
        for term, coefficient in other.terms:
            sums[term] = sums.get(term, 0) + coefficient
        kept = [(term, value) for term, value in sums.items() if value != 0]
        kept.sort(key=lambda item: item[0].ordinal)
        return Index(tuple(kept), self.offset + other.offset)

    def scale(self, factor: Dim) -> Index:
        """factor * self"""
        if factor == 0:
            return Index()
        terms = tuple((term, coefficient * factor) for term, coefficient in self.terms)
        return Index(terms, self.offset * factor)

    def coefficient(self, term: Term) -> Dim:
        """The factor of a term, 0 if it is absent."""
        return next((value for each, value in self.terms if each is term), 0)

    def all_terms(self) -> Iterator[Term]:
        """The terms, and those they are computed from."""
        for term, _ in self.terms:
            yield term
            for part in term.parts():
                yield from part.all_terms()

    def is_affine(self) -> bool:
        """True if all terms are axes."""
        return all(isinstance(term, Axis) for term, _ in self.terms)

    def upper(self) -> Dim:
        """The greatest value; coefficients of unknown sign are taken to be positive."""
        return self.offset + sum_dims(
            coefficient * (term.extent - 1)
            for term, coefficient in self.terms
            if not _is_negative(coefficient)
        )

    def lower(self) -> Dim:
        """The least value; coefficients of unknown sign are taken to be positive."""
        return self.offset + sum_dims(
            coefficient * (term.extent - 1)
            for term, coefficient in self.terms
            if _is_negative(coefficient)
        )

    def divide(self, divisor: Dim, known: Bounds, may_split: bool) -> tuple[Index, Index]:
        """Quotient and remainder by `divisor`; NeedsSplit where two axes avoid a division."""
        whole = [(t, c) for t, c in self.terms if dims.modulo(c, divisor) == 0]
        rest = [(t, c) for t, c in self.terms if dims.modulo(c, divisor) != 0]
        quotient = Index(tuple((t, dims.floordiv(c, divisor)) for t, c in whole))
        offset = self.offset
        shift: Dim = 0  # whole divisors in the offset, where what is left stays not negative
        if dims.modulo(offset, divisor) == 0:
            shift = dims.floordiv(offset, divisor)
        elif isinstance(offset, int) and isinstance(divisor, int):
            shift = offset // divisor
        left = Index(tuple(rest), offset - shift * divisor)
        if not any(_is_negative(c) for _, c in rest) or dims.prove_le(0, left.lower(), known):
            quotient, offset = quotient + shift, left.offset
        remainder = Index(tuple(rest), offset)
        if not rest and offset == 0:
            return quotient, remainder
        if _not_negative(remainder, known) and dims.prove_le(remainder.upper(), divisor - 1, known):
            return quotient, remainder
        if may_split:
            _ask_for_split(rest, divisor)
        return quotient + Index.of(Quotient(remainder, divisor)), Index.of(
            Remainder(remainder, divisor)
        )


class Quotient(Term):
    """index / divisor, computed while the kernel runs."""

    def __init__(self, index: Index, divisor: Dim) -> None:
        super().__init__(dims.floordiv(index.upper(), divisor) + 1)
        self.index = index
        self.divisor = divisor

    def parts(self) -> Sequence[Index]:
        return (self.index,)


class Remainder(Term):
    """index % divisor, computed while the kernel runs."""

    def __init__(self, index: Index, divisor: Dim) -> None:
        super().__init__(divisor)
        self.index = index
        self.divisor = divisor

    def parts(self) -> Sequence[Index]:
        return (self.index,)


def sum_dims(values: Iterator[Dim]) -> Dim:
    """The sum of dims."""
    total: Dim = 0
    for value in values:
        total = total + value
    return total


def strides_of(shape: Sequence[Dim]) -> list[Dim]:
    """Elements from one index to the next, per dim of a dense row-major array."""
    return [dims.product(shape[place + 1 :]) for place in range(len(shape))]


def linearize(indices: Sequence[Index], shape: Sequence[Dim]) -> Index:
    """The element index in a dense row-major array."""
    total = Index()
    for index, stride in zip(indices, strides_of(shape), strict=True):
        total = total + index.scale(stride)
    return total


def delinearize(
    flat: Index, shape: Sequence[Dim], known: Bounds, may_split: bool
) -> tuple[Index, ...]:
    """The indices of the element `flat` of an array; NeedsSplit as `Index.divide`."""
    indices: list[Index] = []
    for place in range(len(shape) - 1, -1, -1):
        if shape[place] == 1:
            indices.append(Index())
            continue
        if all(dim == 1 for dim in shape[:place]):
            indices.append(flat)
            flat = Index()
            continue
        flat, remainder = flat.divide(shape[place], known, may_split)
        indices.append(remainder)
    return tuple(reversed(indices))


def _not_negative(index: Index, known: Bounds) -> bool:
    values = [index.lower(), *(c for _, c in index.terms if not _is_negative(c))]
    return all(dims.prove_le(0, value, known) for value in values)


def _is_negative(coefficient: Dim) -> bool:
    """Whether it is below zero for sure; symbols are not negative."""
    if isinstance(coefficient, int):
        return coefficient < 0
    return all(factor < 0 for _, factor in coefficient.terms)


def _ask_for_split(terms: Sequence[tuple[Term, Dim]], divisor: Dim) -> None:
    """Raise NeedsSplit if an axis is cut evenly by the divisor."""
    for term, coefficient in terms:
        if not isinstance(term, Axis) or dims.modulo(divisor, coefficient) != 0:
            continue
        factor = dims.floordiv(divisor, -coefficient if _is_negative(coefficient) else coefficient)
        if factor not in (1, term.extent) and dims.modulo(term.extent, factor) == 0:
            raise NeedsSplit(term, factor)
