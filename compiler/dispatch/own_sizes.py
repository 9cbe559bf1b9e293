"""Names the sizes of an entry, whatever they are made of in the program.

A network of images of any height halves it from stage to stage: (h + 1)//2, (h + 3)//4, .... An
entry whose dims have h only in one such size does not depend on how it is made, and is that of
other stages, too, once a symbol stands for the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd
from typing import Any

from ingot.compiler.ir import Function, Region, TensorType, Type, clone_region
from ingot.compiler.ir.attributes import leaves_of, map_leaves
from ingot.compiler.ir.dims import Dim, Expr, from_terms, symbol
from ingot.compiler.ir.polynomials import Atom, of_atom, terms_of

__all__ = ["own_sizes"]


def own_sizes(entry: Function) -> tuple[Function, list[Dim]]:
    """An entry without inner regions, and what its symbols are, in those that it had: the size that
    a symbol was in, where no other one had it. Such a size is a multiple of the symbol, or of one
    quotient, maximum or the like; nothing is known of its bounds."""
    named: dict[Any, Dim] = {dim: dim for dim in _expressions(entry.body)}
    sizes: dict[str, Dim] = {}
    for name in entry.symbols:
        terms = [term for dim in named.values() for term in terms_of(dim)]
        powers = {each for monomial, _ in terms for each in monomial if name in each[0].names}
        if len(powers) != 1:
            continue
        ((atom, power),) = powers
        if power == 1 and atom.names == {name}:
            factor = gcd(*(value for monomial, value in terms if (atom, 1) in monomial))
            sizes[name] = of_atom(atom) * factor
            named = {dim: _named(made, name, atom, factor) for dim, made in named.items()}
    symbols = {name: (0, None) if name in sizes else each for name, each in entry.symbols.items()}
    made = replace(entry, body=_with_names(entry.body, named), symbols=symbols)
    return made, [sizes.get(name, symbol(name)) for name in symbols]


def _expressions(region: Region) -> Iterator[Expr]:
    """The dims of its types and attributes that are no numbers."""
    values = [*region.block.arguments, *(each for op in region.block.ops for each in op.results)]
    for value in values:
        if isinstance(value.type, TensorType):
            yield from (dim for dim in value.type.shape if isinstance(dim, Expr))
    for op in region.block.ops:
        yield from (leaf for leaf in leaves_of(op.attributes) if isinstance(leaf, Expr))


def _with_names(region: Region, named: dict[Any, Dim]) -> Region:
    """A copy of the region with other dims."""

    def change(leaf: Any) -> Any:
        return named[leaf] if isinstance(leaf, Expr) else leaf

    def type_of(type: Type) -> Type:
        if not isinstance(type, TensorType):
            return type
        return replace(type, shape=tuple(map(change, type.shape)))

    copy = clone_region(region, {}, type_of)
    for op in copy.block.ops:
        if op.attributes.symbols_used:
            op.attributes = map_leaves(op.attributes, change)
    return copy


def _named(dim: Dim, name: str, atom: Atom, factor: int) -> Dim:
    """The dim with a symbol in place of factor * atom."""
    result: Dim = 0
    for monomial, value in terms_of(dim):
        others = tuple(each for each in monomial if each[0] is not atom)
        if len(others) == len(monomial):
            result = result + from_terms([(monomial, value)])
        else:
            result = result + symbol(name) * from_terms([(others, value // factor)])
    return result
