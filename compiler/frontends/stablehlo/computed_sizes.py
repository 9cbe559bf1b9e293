"""Sizes that a program computes from data: each element becomes a fresh symbol.

`sizes.py` folds what follows from the shapes of the arguments; this file is for the rest.
Elements that are known beside such ones stay known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.symbols import Symbols
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops.sizing import GREATEST_SIZE
from ingot.compiler.ir import Literal, Op, Value, dims
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["parts_of", "sizes_of_data"]

_GREATEST_COUNT = 64


def sizes_of_data(
    builder: Builder, symbols: Symbols, value: Value, what: str, low: int | None
) -> tuple[Dim, ...]:
    """The elements of an integer value of rank 0 or 1 as dims; the call refuses one below `low`.
    None is for amounts that may be negative.

    CompileError: there are too many.
    """
    result: list[Dim] = []
    for axis, part in enumerate(parts_of(builder, value, what)):
        if isinstance(part, Value):
            part = _define(builder, symbols, part, f"element {axis} of {what}", low)
        result.append(part)
    return tuple(result)


def parts_of(builder: Builder, value: Value, what: str) -> Sequence[Dim | Value]:
    """The elements of a small integer value of rank 0 or 1: dims where they stand in the
    program, else values of rank 0. CompileError: there are too many."""
    type, owner = tensor_type(value), value.owner
    count = dims.product(type.shape)
    if not isinstance(count, int) or count > _GREATEST_COUNT:
        raise CompileError(
            f"{what} is {type}: how many sizes it has must be known, at most {_GREATEST_COUNT}"
        )
    if isinstance(owner, Op):
        if owner.name == "constant":
            literal = owner.attributes["value"]
            assert isinstance(literal, Literal)
            return [int(element) for element in literal.array.reshape(-1)]
        if owner.name == "dim":
            dim = owner.attributes["value"]
            assert isinstance(dim, (int, dims.Expr))
            return [dim]
        if owner.name == "reshape" or (owner.name == "broadcast" and count == 1):
            return parts_of(builder, owner.operands[0], what)
        if owner.name == "concatenate":
            return [part for each in owner.operands for part in parts_of(builder, each, what)]
    if not type.shape:
        return [value]
    places = [builder.constant(np.int64(place)) for place in range(count)]
    return [builder.value("take", value, place, axis=0, mode="clamp") for place in places]


def _define(builder: Builder, symbols: Symbols, part: Value, what: str, low: int | None) -> Dim:
    if low is None:  # no symbol is negative: one is what is above zero, another what is below
        # The value is made no less than what is refused, so that its negative is no overflow.
        part = builder.value("convert", part, dtype=dtype("i64"))
        part = builder.value("max", part, builder.constant(np.int64(-GREATEST_SIZE - 1)))
        zero = builder.constant(np.int64(0))
        above, below = (
            builder.value("max", each, zero) for each in (part, builder.value("neg", part))
        )
        return _define(builder, symbols, above, what, 0) - _define(builder, symbols, below, what, 0)
    name = symbols.fresh("size")
    known = symbols.resolve(symbol(name))
    limits = {"low": low} if known == symbol(name) else {"low": known, "high": known}
    builder.append("size", (part,), (), {"symbols": (name,), "what": what, **limits})
    return known
