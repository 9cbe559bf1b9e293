"""Makes a concatenate of many operands one of few, of which some are concatenates of others.

A kernel takes a bounded number of operands, and has code for each. Only as many elements as must be
are moved twice: the first operands are joined until few enough are left.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import AlongAxis
from ingot.compiler.graph.rewriter import rewrite
from ingot.compiler.ir import Module, Op, Value

__all__ = ["nest_concatenates"]

_MOST = 32
"""Operands of one kernel: its code takes 10 ms of a C compiler for each."""


def nest_concatenates(module: Module) -> Module:
    """Nest those of every function; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _nest)
    return module


def _nest(op: Op, builder: Builder) -> Sequence[Value] | None:
    if op.name != "concatenate" or len(op.operands) <= _MOST:
        return None
    axis, values = AlongAxis.of(op).axis, list(op.operands)
    while (excess := len(values) - _MOST) > 0:
        joined: list[Value] = []
        while excess > 0 and len(values) > 1:
            count = min(excess + 1, _MOST, len(values))
            joined.append(builder.value("concatenate", *values[:count], axis=axis))
            values = values[count:]
            excess -= count - 1
        values = [*joined, *values]
    return [builder.value("concatenate", *values, axis=axis)]
