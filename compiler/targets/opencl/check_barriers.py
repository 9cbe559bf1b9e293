"""Refuses kernels in which some work items of a group may miss a barrier that others reach.

A device hangs then, or goes on with half of the data. A value is *divided* if it may differ
between the work items of a group: a local id, what is made of one, an element that is read
at a divided index. A barrier may stand in no loop whose bounds, and in no branch whose
condition, is divided. Elements read at equal indices count as equal: schedules that write
them in between put a barrier there.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.compiler.ir import Block, Function, MemoryType, Op, Value, walk
from ingot.hal.errors import CompileError

__all__ = ["check_barriers"]


def check_barriers(function: Function) -> None:
    """CompileError: a barrier stands where not all work items need come."""
    if not any(op.name == "loop.barrier" for op in walk(function)):
        return
    divided: set[Value] = set()
    before = -1
    while before != len(divided):  # values carried by loops may turn out divided later
        before = len(divided)
        _mark_block(function.block, divided)
    _check_block(function.name, function.block, divided)


def _mark_block(block: Block, divided: set[Value]) -> None:
    for op in block.ops:
        if op.name == "loop.for":
            _mark_for(op, divided)
        elif op.name == "loop.if":
            _mark_if(op, divided)
        elif op.name == "loop.local_id" or _any_divided(op.operands, divided):
            divided.update(op.results)


def _any_divided(values: Iterable[Value], divided: set[Value]) -> bool:
    return any(value in divided for value in values if not isinstance(value.type, MemoryType))


def _mark_for(op: Op, divided: set[Value]) -> None:
    body = op.regions[0].block
    index, carried = body.arguments[0], body.arguments[1:]
    is_divided = _any_divided(op.operands[:3], divided)
    if is_divided:
        divided.update([index, *carried])
    for argument, initial in zip(carried, op.operands[3:], strict=True):
        if initial in divided:
            divided.add(argument)
    _mark_block(body, divided)
    for argument, value, result in zip(carried, body.terminator.operands, op.results, strict=True):
        if is_divided or argument in divided or value in divided:
            divided.update([argument, result])


def _mark_if(op: Op, divided: set[Value]) -> None:
    is_divided = op.operands[0] in divided
    for region in op.regions:
        _mark_block(region.block, divided)
        for result, value in zip(op.results, region.block.terminator.operands, strict=True):
            if is_divided or value in divided:
                divided.add(result)


def _check_block(name: str, block: Block, divided: set[Value]) -> None:
    for op in block.ops:
        for region in op.regions:
            bounds = op.operands[:3] if op.name == "loop.for" else op.operands[:1]
            if _any_divided(bounds, divided) and any(
                inner.name == "loop.barrier" for inner in walk(region)
            ):
                raise CompileError(
                    f"kernel '{name}' has a barrier in a {op.name} that work items of a group "
                    "may take differently: please report it"
                )
            _check_block(name, region.block, divided)
