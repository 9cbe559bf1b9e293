"""Symbols of dims in the graph: which ones an op uses and defines, and their substitution.

An op that defines symbols lists them in its attribute `symbols`; all others come from the
arguments of the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from ingot.compiler.graph.ops import defined_symbols, with_symbols
from ingot.compiler.ir import Block, Function, Op, Region, TensorType, Type, Value, walk
from ingot.compiler.ir.attributes import map_leaves
from ingot.compiler.ir.dims import Dim, Expr, substitute, symbol

__all__ = [
    "fresh_names",
    "inner_symbols",
    "rename_symbols",
    "substitute_in",
    "substitute_symbols",
    "symbols_used",
]


def inner_symbols(root: Function | Region | Block | Op) -> set[str]:
    """The symbols that ops at or below `root` define."""
    return {name for op in walk(root) for name in defined_symbols(op)}


def fresh_names(function: Function, hint: str) -> Iterator[str]:
    """Names of symbols that the function does not have yet: hint_0, hint_1, ..."""
    taken = {*function.symbols, *inner_symbols(function)}
    number = 0
    while True:
        name = f"{hint}_{number}"
        number += 1
        if name not in taken:
            yield name


def symbols_used(op: Op) -> Set[str]:
    """The symbols in the attributes and the result and argument types of the op and inside."""
    if not op.regions:  # most
        used = op.attributes.symbols_used
        for value in op.results:
            if isinstance(value.type, TensorType) and (names := value.type.symbols):
                used = used | names
        return used
    found: set[str] = set()
    for each in walk(op):
        found |= each.attributes.symbols_used
        for value in _values(each):
            if isinstance(value.type, TensorType):
                found |= value.type.symbols
    return found


def substitute_symbols(function: Function, values: Mapping[str, Dim]) -> None:
    """Put dims for symbols in all types and attributes; no op defines those symbols any more."""
    for block in function.body.blocks:
        substitute_in(block, values)


def rename_symbols(function: Function, names: Mapping[str, str]) -> None:
    """Give symbols new names, those that ops define, too."""
    if not names:
        return
    values: dict[str, Dim] = {old: symbol(new) for old, new in names.items()}
    substitute_symbols(function, values)
    for op in walk(function):
        defined = defined_symbols(op)
        if defined:
            op.attributes = with_symbols(op, tuple(names.get(name, name) for name in defined))


def substitute_in(block: Block, values: Mapping[str, Dim]) -> None:
    """Put dims for symbols in the types and attributes of a block and of what is inside."""

    def change(leaf: Any) -> Any:
        return substitute(leaf, values) if isinstance(leaf, Expr) else leaf

    for value in block.arguments:
        value.type = _type(value.type, values)
    for op in walk(block):
        op.attributes = map_leaves(op.attributes, change)
        for value in _values(op):
            value.type = _type(value.type, values)


def _values(op: Op) -> Iterator[Value]:
    """Results of the op and arguments of its blocks."""
    yield from op.results
    for region in op.regions:
        for block in region.blocks:
            yield from block.arguments


def _type(type: Type, values: Mapping[str, Dim]) -> Type:
    if not isinstance(type, TensorType) or not type.shape:
        return type
    return TensorType(type.dtype, tuple(substitute(dim, values) for dim in type.shape))
