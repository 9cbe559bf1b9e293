"""Makes the dims in which branches differ known in front of the branch, where that is possible.

Where each branch's dim follows from what is known outside, the one that will be taken is
picked there, so that the result has its memory before a branch runs. What only the inside of a
branch or the steps of a loop can tell, or what divides by a size that may be 0 if the branch
is not taken, is carried in lists (`carry_sizes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.carry_sizes import carry_branch_sizes, carry_loop_sizes
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.ops import CONTROL, Control, defined_symbols
from ingot.compiler.graph.relations import may_fail
from ingot.compiler.graph.symbols import fresh_names, inner_symbols
from ingot.compiler.ir import Block, Module, Op, TensorType, Value, walk
from ingot.compiler.ir.dims import Dim, symbol, symbols_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["settle_branches"]


def settle_branches(module: Module) -> Module:
    """Define the symbols of branches in front of them, and let no branch or loop define one;
    returns the module."""
    if not any(op.name in CONTROL and defined_symbols(op) for op in walk(module)):
        return module
    for function in module.functions.values():
        names = fresh_names(function, "carried")
        _settle(function.block, names)
    return eliminate_dead_code(module)  # elements that only their own extension read


def _settle(block: Block, names: Iterator[str]) -> None:
    ops: list[Op] = []
    for op in block.ops:
        for region in op.regions if op.name in CONTROL else ():
            _settle(region.block, names)
        if op.name not in CONTROL or not defined_symbols(op):
            ops.append(op)
        elif op.name == "while":
            carry_loop_sizes(op, names, ops)
        else:
            _settle_branch(op, ops)
    block.ops = ops


def _settle_branch(op: Op, ops: list[Op]) -> None:
    """Append the branch, with sizes in front of it for those of its symbols that can be known
    there, and lists for the others."""
    builder = Builder(ops, op.location)
    inner = {name for region in op.regions for name in inner_symbols(region)}
    unknown: set[str] = set()
    for name in defined_symbols(op):
        dims = _dims_of_branches(op, name)
        if any(symbols_of(dim) & inner or may_fail(dim) for dim in dims):
            unknown.add(name)
            continue
        values = [_number(builder, dim) for dim in dims]
        size = _picked(builder, op, values)
        what = f"the size of a result of '{op.name}'"
        builder.op("size", size, symbols=(name,), what=what)
    kept = tuple(name for name in defined_symbols(op) if name in unknown)
    op.attributes = replace(Control.of(op), symbols=kept)
    if unknown:
        carry_branch_sizes(op, unknown, ops)
    else:
        ops.append(op)


def _dims_of_branches(op: Op, name: str) -> list[Dim]:
    """What the dim that is symbol `name` in the result is in each branch."""
    for ordinal, result in enumerate(op.results):
        if not isinstance(result.type, TensorType):
            continue
        shape = result.type.shape
        if symbol(name) in shape:
            axis = shape.index(symbol(name))
            yields = [region.block.terminator.operands[ordinal] for region in op.regions]
            return [tensor_type(each).shape[axis] for each in yields]
    raise CompileError(f"op '{op.name}' defines the symbol '{name}', which no result has")


def _number(builder: Builder, dim: Dim) -> Value:
    if isinstance(dim, int):
        return builder.constant(dim, "i64")
    return builder.value("dim", value=dim, dtype=dtype("i64"))


def _picked(builder: Builder, op: Op, values: Sequence[Value]) -> Value:
    """The value of the branch that will be taken; an index out of range takes the last."""
    (selector,) = op.operands
    if op.name == "if":
        return builder.value("select", selector, *values)
    picked = values[-1]
    for number, value in reversed(list(enumerate(values[:-1]))):
        wanted = builder.constant(number, tensor_type(selector).dtype)
        taken = builder.value("compare", selector, wanted, direction="eq")
        picked = builder.value("select", taken, value, picked)
    return picked
