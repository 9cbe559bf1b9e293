"""Makes the dims in which branches differ known in front of the branch.

Where each branch's dim follows from what is known outside, the one that will be taken is
picked there, so that the result has its memory before a branch runs. Dims that only the
inside of a branch or the steps of a loop can tell are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import CONTROL, defined_symbols
from ingot.compiler.graph.symbols import inner_symbols
from ingot.compiler.ir import Block, Module, Op, Value
from ingot.compiler.ir.dims import Dim, symbol, symbols_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["settle_branches"]


def settle_branches(module: Module) -> Module:
    """Define the symbols of branches in front of them; returns the module. CompileError: one
    cannot be known there."""
    for function in module.functions.values():
        _settle(function.block)
    return module


def _settle(block: Block) -> None:
    ops: list[Op] = []
    for op in block.ops:
        if op.name in CONTROL:
            for region in op.regions:
                _settle(region.block)
            if defined_symbols(op):
                _define(op, Builder(ops, op.location))
        ops.append(op)
    block.ops = ops


def _define(op: Op, builder: Builder) -> None:
    """Put sizes for the symbols of `op` in front of it."""
    place = f" at '{op.location}'" if op.location else ""
    if op.name == "while":
        raise CompileError(
            f"op 'while'{place} carries values whose size changes from step to step: carry a "
            "value of the greatest size and how much of it is used"
        )
    inner = {name for region in op.regions for name in inner_symbols(region)}
    for name in defined_symbols(op):
        dims = _dims_of_branches(op, name)
        if any(symbols_of(dim) & inner for dim in dims):
            texts = ", ".join(map(str, dims))
            raise CompileError(
                f"op '{op.name}'{place}: dim '{name}' of its result is one of {texts}, which is "
                "known only inside a branch: compute the size in front of the branch"
            )
        values = [_number(builder, dim) for dim in dims]
        size = _picked(builder, op, values)
        what = f"the size of a result of '{op.name}'"
        builder.op("size", size, symbols=(name,), what=what)
    op.attributes["symbols"] = ()


def _dims_of_branches(op: Op, name: str) -> list[Dim]:
    """What the dim that is symbol `name` in the result is in each branch."""
    for ordinal, result in enumerate(op.results):
        shape = tensor_type(result).shape
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
