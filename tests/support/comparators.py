"""Comparators of sorts, which tests of several schedules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType
from ingot.hal.spec import dtype

__all__ = ["by", "sorter"]


def by(dtypes: Sequence[str], direction: str = "lt", key: int = 0, name: str = "") -> Region:
    """A comparator of operand `key`, or of a function of it."""
    block = Block(ScalarType(dtype(each)) for each in dtypes for _ in (0, 1))
    b = Builder(block)
    pair = block.arguments[2 * key : 2 * key + 2]
    a, c = (b.op(name, each) if name else each for each in pair)
    b.yield_(b.op("compare", a, c, direction=direction))
    return Region([block])


def sorter(axis: int, dtypes: Sequence[str], **comparator: Any) -> Any:
    return lambda b, *xs: b.op("sort", *xs, regions=[by(dtypes, **comparator)], axis=axis)
