"""Moves what every step of a loop computes anew, to the same result, in front of the loop.

Only pure ops that cannot fail move, and that rely on no relation of dims that the call would
have to test: the loop may run no step. What kernels make from
nothing (constants, broadcasts, iotas) and what costs nothing (reshapes) stays inside
unless an op that moves needs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.compiler.graph.control.loops import FREE
from ingot.compiler.graph.effects import can_fail, is_pure
from ingot.compiler.graph.ops import defined_symbols
from ingot.compiler.graph.relations import Relation, is_proven, may_fail, relations_of
from ingot.compiler.graph.symbols import inner_symbols, symbols_used
from ingot.compiler.ir import Block, Module, Op, TensorType, Value, walk
from ingot.compiler.ir.dims import Bounds

__all__ = ["hoist_invariants"]


def hoist_invariants(module: Module) -> Module:
    """Hoist out of every loop of every function; returns the module."""
    for function in module.functions.values():
        _hoist(function.block, function.symbols, set())
    return module


def _hoist(block: Block, bounds: Bounds, known: set[Relation]) -> None:
    """Hoist out of the loops in the block, inner loops first; `known` holds there already."""
    known = set(known)
    ops: list[Op] = []
    for op in block.ops:
        known.update(_unproven(op, bounds))
        for region in op.regions:
            _hoist(region.block, bounds, known)
        if op.name == "while":
            symbols = inner_symbols(op)
            for region in op.regions:
                ops.extend(_taken(region.block, symbols, bounds, known))
        ops.append(op)
    block.ops = ops


def _unproven(op: Op, bounds: Bounds) -> Iterator[Relation]:
    return (each for each in relations_of(op) if not is_proven(each, bounds))


def _taken(block: Block, symbols: set[str], bounds: Bounds, known: set[Relation]) -> list[Op]:
    """Take the invariant ops out of a block of a loop; `symbols` mean nothing outside it, where
    the relations `known` hold."""
    inside: set[Value] = set(block.arguments)
    movable: dict[Value, Op] = {}
    for op in block.ops:
        if _is_movable(op, inside, symbols) and known.issuperset(
            relation for each in walk(op) for relation in _unproven(each, bounds)
        ):
            movable.update((result, op) for result in op.results)
        else:
            for each in walk(op):
                inside.update(each.results)
    chosen: set[Op] = set()
    for op in reversed(block.ops):
        if op.results and op.results[0] in movable and (op in chosen or op.name not in FREE):
            chosen.add(op)
            chosen.update(movable[each] for each in _reads(op) if each in movable)
    block.ops, taken = (
        [op for op in block.ops if op not in chosen],
        [op for op in block.ops if op in chosen],
    )
    return taken


def _reads(op: Op) -> set[Value]:
    return {operand for each in walk(op) for operand in each.operands}


def _is_movable(op: Op, inside: set[Value], symbols: set[str]) -> bool:
    """Whether the op gives the same in front of the loop, and can do no harm there."""
    if not op.results or not is_pure(op) or can_fail(op) or defined_symbols(op):
        return False
    if any(read in inside for read in _reads(op)):
        return False
    if any(
        may_fail(dim)
        for result in op.results
        if isinstance(result.type, TensorType)
        for dim in result.type.shape
    ):
        return False
    if any(each.name == "while" for each in walk(op)):
        return False  # it may never end
    return not symbols or not symbols_used(op) & symbols
