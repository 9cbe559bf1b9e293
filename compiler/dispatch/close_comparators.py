"""Brings the numbers that comparators use from outside into them.

Passes share equal constants across regions; a kernel, which is a function of its own, needs
those of a comparator inside it.
"""

from __future__ import annotations

from ingot.compiler.ir import Block, Module, Op, Value, clone_op, defined_by, walk
from ingot.hal.errors import CompileError

__all__ = ["close_comparators"]


def close_comparators(module: Module) -> Module:
    """Close the region of every sort; returns the module. CompileError: one uses a value that
    is no constant."""
    for op in walk(module):
        if op.name == "sort":
            _close(op, op.regions[0].block)
    return module


def _close(sort: Op, block: Block) -> None:
    known = {*block.arguments, *(value for op in block.ops for value in op.results)}
    values: dict[Value, Value] = {}
    inside: list[Op] = []
    for operand in dict.fromkeys(value for op in block.ops for value in op.operands):
        if operand in known:
            continue
        if (constant := defined_by(operand, "constant")) is None:
            place = f" at '{sort.location}'" if sort.location else ""
            raise CompileError(
                f"sort{place}: its comparator uses {operand} from outside; only constants may be"
            )
        inside.append(clone_op(constant, values))
    for op in block.ops:
        op.operands = [values.get(operand, operand) for operand in op.operands]
    block.ops = inside + block.ops
