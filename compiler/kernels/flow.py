"""One walk of facts through loop IR, forwards: which values are made of marked ones."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.ir import Block, Function, MemoryType, Op, Value

__all__ = ["made_of"]


def made_of(function: Function, starts: Callable[[Op], bool]) -> set[Value]:
    """The results of ops that `starts` tells, and all that depends on them: what ops make of
    them, what loops carry, what a loop or a branch gives whose bounds or condition do. Memory
    hands nothing on.
    """
    walk = _Walk(starts)
    before = -1
    while before != len(walk.marked):  # what loops carry may turn out to be marked later
        before = len(walk.marked)
        walk.block(function.block)
    return walk.marked


class _Walk:
    def __init__(self, starts: Callable[[Op], bool]) -> None:
        self.starts = starts
        self.marked: set[Value] = set()

    def any(self, values: list[Value]) -> bool:
        return any(each in self.marked for each in values if not isinstance(each.type, MemoryType))

    def block(self, block: Block) -> None:
        for op in block.ops:
            if op.name == "loop.for":
                self.loop(op)
            elif op.name == "loop.if":
                chosen = self.any(op.operands)
                for region in op.regions:
                    self.block(region.block)
                    self.hand_on(region.block.terminator.operands, op.results, chosen)
            elif self.starts(op) or self.any(op.operands):
                self.marked.update(op.results)

    def loop(self, op: Op) -> None:
        body = op.regions[0].block
        index, carried = body.arguments[0], body.arguments[1:]
        bounded = self.any(op.operands[:3])
        if bounded:
            self.marked.add(index)
        self.hand_on(op.operands[3:], carried, bounded)
        self.block(body)
        self.hand_on(body.terminator.operands, carried, bounded)
        self.hand_on(carried, op.results, bounded)

    def hand_on(self, values: list[Value], targets: list[Value], always: bool) -> None:
        for value, target in zip(values, targets, strict=True):
            if always or value in self.marked:
                self.marked.add(target)
