"""Einsum: any number of operands, letters that repeat, and an ellipsis.

The ellipsis becomes letters of its own. A letter twice in one operand takes its diagonal;
then operands are multiplied from the left, pair by pair, and summed over each letter as soon
as nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode, shape_of, type_of
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["contract_letters"]

_ELLIPSIS = "0123456789"  # letters of the dims that "..." stands for, the last one last
_Term = tuple[Value, str]


def contract_letters(c: Emitter, equation: str, values: Sequence[Value]) -> Value:
    """The values contracted as an equation such as "bij,bjk->bik" says. UnsupportedNode: it does
    not fit them."""
    inputs, result = _letters(c, equation, [type_of(each).rank for each in values])
    terms = [_diagonal(c, value, term) for value, term in zip(values, inputs, strict=True)]
    terms = _same_dims(c, terms)
    product = terms[0]
    for place, term in enumerate(terms[1:], 1):
        needed = result + "".join(letters for _, letters in terms[place + 1 :])
        product = _pair(c, _sum(c, product, term[1] + needed), term, needed)
    value, order = _sum(c, product, result)
    return c.transpose(value, [order.index(letter) for letter in result])


def _letters(c: Emitter, equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, an ellipsis written out."""
    text = equation.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise UnsupportedNode(
            f"equation '{equation}' has {len(terms)} terms for {len(ranks)} inputs: {c.advice}"
        )
    written: list[str] = []
    most = 0
    for term, rank in zip(terms, ranks, strict=True):
        hidden = rank - len(term.replace("...", ""))
        if hidden < 0 or hidden > len(_ELLIPSIS) or (hidden and "..." not in term):
            raise UnsupportedNode(
                f"equation '{equation}': '{term}' does not fit an input of rank {rank}: {c.advice}"
            )
        most = max(most, hidden)
        written.append(term.replace("...", _ELLIPSIS[len(_ELLIPSIS) - hidden :]))
    letters = "".join(written)
    every = _ELLIPSIS[len(_ELLIPSIS) - most :]
    if not arrow:
        single = sorted({each for each in letters if letters.count(each) == 1} - set(every))
        return written, every + "".join(single)
    result = result.replace("...", every)
    if len(set(result)) < len(result) or not set(result) <= set(letters):
        raise UnsupportedNode(
            f"equation '{equation}': a letter of the result is there twice, or in no input: "
            f"{c.advice}"
        )
    return written, result


def _diagonal(c: Emitter, value: Value, term: str) -> _Term:
    """The operand where letters that it has twice are equal, once each."""
    while len(set(term)) < len(term):
        letter = next(each for each in term if term.count(each) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        shape = shape_of(value)
        rows, columns = (
            c.op("iota", dtype=dtype("i64"), shape=shape, axis=axis) for axis in (first, second)
        )
        on = c.compare("eq", rows, columns)
        value = c.op("select", on, value, 0)
        value = c.reduce(value, [second], "add")
        term = term[:second] + term[second + 1 :]
    return value, term


def _same_dims(c: Emitter, terms: Sequence[_Term]) -> list[_Term]:
    """Operands whose dims of 1 under an ellipsis or letter of a larger dim are repeated."""
    greatest: dict[str, Dim] = {}
    for value, letters in terms:
        for dim, letter in zip(shape_of(value), letters, strict=True):
            if letter not in greatest or greatest[letter] == 1:
                greatest[letter] = dim
    return [
        (c.broadcast_to(value, [greatest[letter] for letter in letters]), letters)
        for value, letters in terms
    ]


def _sum(c: Emitter, term: _Term, needed: str) -> _Term:
    """Summed over the letters that nothing else needs."""
    value, letters = term
    axes = [axis for axis, letter in enumerate(letters) if letter not in needed]
    return c.reduce(value, axes, "add"), "".join(each for each in letters if each in needed)


def _pair(c: Emitter, first: _Term, second: _Term, needed: str) -> _Term:
    """The contraction of two operands and the letters of its axes."""
    (a, left), (b, right) = first, _sum(c, second, first[1] + needed)
    batch = [letter for letter in left if letter in right and letter in needed]
    contract = [letter for letter in left if letter in right and letter not in needed]
    product = c.op(
        "dot_general",
        a,
        b,
        lhs_batch=tuple(left.index(letter) for letter in batch),
        rhs_batch=tuple(right.index(letter) for letter in batch),
        lhs_contract=tuple(left.index(letter) for letter in contract),
        rhs_contract=tuple(right.index(letter) for letter in contract),
        dtype=type_of(a).dtype,
    )
    free = [letter for letter in left + right if letter not in {*batch, *contract}]
    return product, "".join([*batch, *free])
