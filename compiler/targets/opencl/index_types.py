"""Which i64 scalars of a kernel are indices, for which a device may take 32 bits.

Loop IR has one type, i64, for both indices and data. An index is what loops, work items,
dims and the ops on indices give, as long as no data goes in; data is what comes from memory
or from an op of the graph, and keeps its 64 bits. This file decides; it prints nothing.
"""

from __future__ import annotations

from ingot.compiler.dispatch.loop import dtype_of, lanes_of
from ingot.compiler.ir import Block, Function, MemoryType, Op, Value

__all__ = ["wide_values"]

_INDICES = {"loop.dim", "loop.workgroup", "loop.workload", "loop.local_id"}
_ARITHMETIC = {f"loop.{name}" for name in ("add", "sub", "mul", "div", "rem", "min", "max")}
_PASSED_ON = _ARITHMETIC | {"select", "min", "max"}


def wide_values(function: Function) -> set[Value]:
    """The i64 scalars that need all their bits."""
    wide: set[Value] = set()
    before = -1
    while before != len(wide):  # values carried by loops may turn out wide later
        before = len(wide)
        _mark_block(function.block, wide)
    return wide


def _is_i64(value: Value) -> bool:
    if isinstance(value.type, MemoryType):
        return False
    return lanes_of(value) == 1 and dtype_of(value).name == "i64"


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
