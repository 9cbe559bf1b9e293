"""Collects what the program relies on but the types do not prove: relations of dims.

Each (`graph/relations.py`) becomes one entry of the function's `checks` attribute, with the
layer. They are tested at the call as soon as their symbols are known,
before any work that uses them, so that no kernel leaves its buffers. What an op `assert`
says is collected too, and the op is gone. Checks of branches and
loops stand in an attribute of their op, one list per body, and are tested where the body
begins: in a branch that is not taken anything may be.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.dispatch.ops import Check, CheckedControl, CheckedFunction
from ingot.compiler.graph.ops import CONTROL, defined_symbols
from ingot.compiler.graph.relations import Relation, is_proven, relations_of
from ingot.compiler.ir import Block, Function, Module

__all__ = ["collect_checks"]


def collect_checks(module: Module) -> Module:
    """The module with the `checks` of every function."""
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    for function in module.functions.values():
        rows = _checks_of(function.block, function, set())
        attributes = CheckedFunction(getattr(function.attributes, "renamed_dims", ()), rows)
        result.add(replace(function, attributes=attributes) if rows else function)
    return result


def _checks_of(block: Block, function: Function, known: set[Relation]) -> tuple[Check, ...]:
    """The checks of a block; those of the bodies in it are written into their ops."""
    checks: dict[Relation, str] = {}
    for op in block.ops:
        for relation in relations_of(op):
            if relation not in known and not is_proven(relation, function.symbols):
                checks.setdefault(relation, op.location)
        if op.name in CONTROL:
            inner = tuple(
                _checks_of(region.block, function, known | set(checks)) for region in op.regions
            )
            if any(inner):
                op.attributes = CheckedControl(defined_symbols(op), inner)
    block.ops = [op for op in block.ops if op.name != "assert"]
    return tuple(Check(*relation, layer) for relation, layer in checks.items())
