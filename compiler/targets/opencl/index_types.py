"""Which i64 scalars of a kernel are indices, for which a device may take 32 bits.

Loop IR has one type, i64, for both indices and data. An index is what loops, work items,
dims and the ops on indices give; data is what comes from memory or from an op of the graph,
and keeps its 64 bits, as does all that is made of it. Where an index becomes data (a number
that is stored, converted, or goes into an op of the graph), the arithmetic that led to it
has 64 bits too. This file decides; it prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.compiler.ir import Block, Function, MemoryType, Op, Value, walk
from ingot.compiler.kernels.loop import dtype_of, lanes_of

__all__ = ["wide_values"]

_INDICES = {"loop.dim", "loop.workgroup", "loop.workload", "loop.local_id"}
_SMALL = {"loop.workgroup", "loop.local_id", "loop.constant"}
_ARITHMETIC = {f"loop.{name}" for name in ("add", "sub", "mul", "div", "rem", "min", "max")}
_PASSED_ON = _ARITHMETIC | {"select", "min", "max"}
_TAKE_INDICES = {"loop.load", "loop.gather", "loop.prefetch", "loop.fault", "return", "yield"}


def wide_values(function: Function) -> set[Value]:
    """The i64 scalars that need all their bits."""
    made_of_data: set[Value] = set()
    before = -1
    while before != len(made_of_data):  # values carried by loops may turn out wide later
        before = len(made_of_data)
        _mark_block(function.block, made_of_data)
    become_data: set[Value] = set()
    before = -1
    ops = list(walk(function))[::-1]
    while before != len(become_data):
        before = len(become_data)
        for op in ops:
            become_data.update(_demanded(op, become_data, made_of_data))
    return made_of_data | become_data


def _is_i64(value: Value) -> bool:
    if isinstance(value.type, MemoryType):
        return False
    return lanes_of(value) == 1 and dtype_of(value).name == "i64"


def _may_be_large(value: Value) -> bool:
    """An i64 that is no small constant and no count of steps or work items."""
    owner = value.owner
    if isinstance(owner, Block):
        return _is_i64(value) and value is not owner.arguments[0]
    return _is_i64(value) and owner.name not in _SMALL


# Forward: what is made of data.


def _mark_block(block: Block, wide: set[Value]) -> None:
    for op in block.ops:
        if op.name == "loop.for":
            _mark_for(op, wide)
        elif op.name == "loop.if":
            for region in op.regions:
                _mark_block(region.block, wide)
                _mark(op.results, region.block.terminator.operands, wide)
        elif op.results and _is_i64(op.result) and _is_wide(op, wide):
            wide.add(op.result)


def _mark_for(op: Op, wide: set[Value]) -> None:
    body = op.regions[0].block
    index, carried = body.arguments[0], body.arguments[1:]
    if any(bound in wide for bound in op.operands[:3]):
        wide.add(index)
    _mark(carried, op.operands[3:], wide)
    _mark_block(body, wide)
    _mark(carried, body.terminator.operands, wide)
    _mark(op.results, carried, wide)


def _mark(targets: list[Value], values: list[Value], wide: set[Value]) -> None:
    for target, value in zip(targets, values, strict=True):
        if value in wide:
            wide.add(target)


def _is_wide(op: Op, wide: set[Value]) -> bool:
    if op.name == "loop.constant":
        value = op.attributes["value"]
        assert isinstance(value, int)
        return not -(2**31) < value < 2**31
    if op.name in _INDICES:
        return False
    if op.name in _PASSED_ON:
        return any(operand in wide for operand in op.operands)
    return True


# Backward: what becomes data.


def _demanded(op: Op, become_data: set[Value], made_of_data: set[Value]) -> Iterable[Value]:
    """The operands of an op that it takes as data."""
    if op.name == "loop.for":
        body = op.regions[0].block
        carried = zip(
            body.arguments[1:], op.operands[3:], body.terminator.operands, op.results, strict=True
        )
        groups: list[tuple[Value, ...]] = [*carried]
    elif op.name == "loop.if":
        yielded = (region.block.terminator.operands for region in op.regions)
        groups = [*zip(op.results, *yielded, strict=True)]
    else:
        return filter(_may_be_large, _operands_as_data(op, become_data, made_of_data))
    known = become_data | made_of_data
    return [each for group in groups if known & set(group) for each in group if _may_be_large(each)]


def _operands_as_data(op: Op, become_data: set[Value], made_of_data: set[Value]) -> Iterable[Value]:
    if op.name in _PASSED_ON:
        return op.operands if op.result in become_data else ()
    if op.name == "compare":
        return op.operands if any(each in made_of_data for each in op.operands) else ()
    if op.name == "loop.store":
        return op.operands[2:3]
    return () if op.name in _TAKE_INDICES else op.operands
