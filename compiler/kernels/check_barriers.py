"""Refuses kernels in which some work items of a group may miss a barrier that others reach.

A device hangs then, or goes on with half of the data. A value is *divided* if it may differ
between the work items of a group: a local id, what is made of one, an element that is read
at a divided index. A barrier may stand in no loop whose bounds, and in no branch whose
condition, is divided. Elements read at equal indices count as equal: schedules that write
them in between put a barrier there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.compiler.ir import Block, Function, Op, Value, walk
from ingot.compiler.kernels.flow import made_of
from ingot.hal.errors import CompileError

__all__ = ["check_barriers"]


def check_barriers(function: Function) -> None:
    """CompileError: a barrier stands where not all work items need come."""
    if not any(op.name == "loop.barrier" for op in walk(function)):
        return
    divided = made_of(function, lambda op: op.name == "loop.local_id")
    for op in _divided_ops(function.block, divided):
        raise CompileError(
            f"kernel '{function.name}' has a barrier in a {op.name} that work items of a group "
            "may take differently: please report it"
        )


def _divided_ops(block: Block, divided: set[Value]) -> Iterator[Op]:
    """Loops and branches that work items may take differently, with a barrier inside."""
    for op in block.ops:
        for region in op.regions:
            bounds = op.operands[:3] if op.name == "loop.for" else op.operands[:1]
            if not divided.isdisjoint(bounds) and any(
                inner.name == "loop.barrier" for inner in walk(region)
            ):
                yield op
            yield from _divided_ops(region.block, divided)
