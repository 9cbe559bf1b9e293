"""Ops that only move elements: seen through, and done again on another tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.rewriter import defined_by
from ingot.compiler.ir import Op, Value

__all__ = ["moved", "moved_from"]


def moved_from(x: Value) -> tuple[Value, list[Op]]:
    """What the value is with its elements moved, and the ops that move them, the last one first."""
    moves: list[Op] = []
    while (op := defined_by(x, "transpose", "reshape")) is not None:
        moves.append(op)
        x = op.operands[0]
    return x, moves


def moved(x: Value, moves: Sequence[Op], builder: Builder) -> Value:
    """A tensor of the same shape, moved in the same way."""
    for op in reversed(moves):
        x = builder.like(op, x)
    return x
