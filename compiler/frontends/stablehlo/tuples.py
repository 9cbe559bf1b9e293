"""Tuples of values, which the import takes apart: no tuple is left in the graph.

A tuple that is an argument or a result of a function becomes its elements, named `x.0`, `x.1`
and so on. A token, which orders effects that compiled programs do not have, is an empty tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, lowering
from ingot.compiler.frontends.stablehlo.reading.program import (
    OtherType,
    SourceOp,
    SourceType,
    TupleType,
)
from ingot.compiler.ir import Value

__all__ = ["TUPLE_OPS", "elements_of", "gathered", "leaf_names", "leaf_types", "leaves"]

TUPLE_OPS = frozenset(
    {
        *("after_all", "call", "composite", "create_token", "get_tuple_element"),
        *("optimization_barrier", "tuple"),
    }
)
"""Ops that take or give tuples."""


def elements_of(type: SourceType) -> tuple[SourceType, ...] | None:
    """The types in a tuple; None for what is none."""
    if isinstance(type, TupleType):
        return type.elements
    return () if isinstance(type, OtherType) and type.name == "token" else None


def leaf_names(names: Sequence[str], types: Sequence[SourceType]) -> list[str]:
    """The names of all that is no tuple in values of these names."""
    found: list[str] = []
    for name, type in zip(names, types, strict=True):
        elements = elements_of(type)
        if elements is None:
            found.append(name)
        else:
            found += leaf_names([f"{name}.{place}" for place in range(len(elements))], elements)
    return found


def leaf_types(type: SourceType) -> list[SourceType]:
    """What is no tuple in a type, in order."""
    elements = elements_of(type)
    if elements is None:
        return [type]
    return [leaf for each in elements for leaf in leaf_types(each)]


def gathered(type: SourceType, values: Iterator[Value]) -> Lowered:
    """A value of the type, made of the next ones of `values`."""
    elements = elements_of(type)
    if elements is None:
        return Lowered(next(values))
    return Lowered(elements=tuple(gathered(each, values) for each in elements))


def leaves(values: Sequence[Lowered]) -> Iterator[Lowered]:
    """What is no tuple in the values, in order."""
    for each in values:
        if each.elements is None:
            yield each
        else:
            yield from leaves(each.elements)


@lowering("tuple")
def tuple_(context: Context, op: SourceOp) -> Lowered:
    places = range(len(op.operands))
    return Lowered(elements=tuple(context.lowered(op, place) for place in places))


@lowering("get_tuple_element")
def get_tuple_element(context: Context, op: SourceOp) -> Lowered:
    elements = context.lowered(op, 0).elements
    assert elements is not None
    return elements[int(op.attributes["index"])]


@lowering("after_all", "create_token")
def token(context: Context, op: SourceOp) -> Lowered:
    return Lowered(elements=())
