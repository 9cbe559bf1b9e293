"""Gives the parameters of every scope a function `init` of their own.

A swap of parameters runs the functions that read them, so what takes long to prepare - the weights
of a model - is left alone when a small adapter is exchanged. Scopes that meet in one result stay
together. What depends on no parameter goes with the first scope.
"""

from __future__ import annotations

from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.init_functions import INIT
from ingot.compiler.graph.ops import Global, Parameter
from ingot.compiler.ir import Function, Module, Op, Region, Value, clone_region, walk

__all__ = ["separate_scopes"]


def separate_scopes(module: Module) -> Module:
    """Split `init` where it reads parameters of several scopes; returns the module."""
    init = module.functions.get(INIT)
    if init is None:
        return module
    scopes = _scopes(init)
    groups = _groups(init, scopes)
    if len(groups) < 2:
        return module
    results = [scopes[each] for each in init.block.terminator.operands]
    owners = [next(g for g, group in enumerate(groups) if each <= group) for each in results]
    module.functions.pop(INIT)
    numbers: dict[int, int] = {}  # of globals
    others = list(module.functions.values())
    module.functions.clear()
    for group in range(len(groups)):
        places = [place for place, owner in enumerate(owners) if owner == group]
        numbers.update((place, len(numbers)) for place in places)
        module.add(_part(init, places, f"{INIT}.{group}" if group else INIT))
    for function in others:
        module.add(function)
        for op in walk(function):
            if op.name == "global":
                found = Global.of(op)
                op.attributes = Global(numbers[found.index], found.dtype, found.shape)
    return module


def _scopes(init: Function) -> dict[Value, frozenset[str]]:
    """Of which scopes the values of `init` read parameters."""
    found: dict[Value, frozenset[str]] = {}
    for op in init.block.ops:
        inner = [each for each in walk(op) if each.name == "parameter"]
        scopes = frozenset(Parameter.of(each).scope for each in inner)
        read = (operand for each in walk(op) for operand in each.operands)
        scopes = scopes.union(*(found.get(each, frozenset()) for each in read))
        found.update(dict.fromkeys(op.results, scopes))
    return found


def _groups(init: Function, scopes: dict[Value, frozenset[str]]) -> list[frozenset[str]]:
    """Scopes that meet in a result, that of "" first, which owns what reads no parameter."""
    groups: list[frozenset[str]] = []
    for each in init.block.terminator.operands:
        own = scopes[each]
        if own:
            meeting = [group for group in groups if group & own]
            groups = [group for group in groups if not group & own]
            groups.append(own.union(*meeting))
    groups.sort(key=min)
    return groups


def _part(init: Function, places: list[int], name: str) -> Function:
    """The function that makes these results."""
    block = clone_region(init.body, {}).block
    end = block.ops.pop()
    block.append(Op("return", [end.operands[place] for place in places], location=end.location))
    part = Function(name, Region([block]), exported=False)
    eliminate_dead_code(Module({name: part}))
    return part
