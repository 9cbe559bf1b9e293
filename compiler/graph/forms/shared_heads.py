"""Keys and values of which several heads of queries share one: what their repeats are made of.

Programs repeat each head by a broadcast and a reshape, with transposes around them. Attention
takes the heads as they are, so that the repeats are never in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Broadcast, Transpose
from ingot.compiler.graph.rewriter import defined_by
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dims import Dim, product

__all__ = ["shared_heads"]

_Part = tuple[Dim, int | None]
"""A size, and which axis of the source it is; None where elements are repeated."""
_Axes = list[list[_Part]]
"""Of each axis the parts that it is made of, the outermost first."""


def shared_heads(value: Value, builder: Builder) -> Value | None:
    """`value` [batch..., n, d] with each run of equal neighbours along a batch axis as one; None
    where there are none, or it is not known."""
    ops: list[Op] = []
    below = value
    while (op := defined_by(below, "broadcast", "reshape", "transpose")) is not None:
        ops.append(op)
        below = op.operands[0]
    while ops and ops[-1].name != "broadcast":
        ops.pop()
    if not ops:
        return None
    source = ops[-1].operands[0]
    axes: _Axes = [[(dim, axis)] for axis, dim in enumerate(tensor_type(source).shape)]
    for op in reversed(ops):
        above = _above(op, axes)
        if above is None:
            return None
        axes = above
    return _without_repeats(source, axes, builder)


def _above(op: Op, axes: _Axes) -> _Axes | None:
    shape = tensor_type(op.result).shape
    if op.name == "transpose":
        return [axes[axis] for axis in Transpose.of(op).permutation]
    if op.name == "reshape":
        return _regrouped(axes, shape)
    found: _Axes = [[(dim, None)] for dim in shape]
    sizes = tensor_type(op.operands[0]).shape
    for parts, size, place in zip(axes, sizes, Broadcast.of(op).dimensions, strict=True):
        if size == shape[place]:
            found[place] = parts
    return found


def _regrouped(axes: _Axes, shape: Sequence[Dim]) -> _Axes | None:
    """The axes of a reshape; None where it takes a part apart."""
    left = [part for parts in axes for part in parts if part[0] != 1][::-1]
    found: _Axes = []
    for dim in shape:
        parts: list[_Part] = []
        while left and product(size for size, _ in parts) != dim:
            parts.append(left.pop())
        if product(size for size, _ in parts) != dim:
            return None
        found.append(parts)
    return found


def _without_repeats(source: Value, axes: _Axes, builder: Builder) -> Value | None:
    kept: _Axes = []
    for parts in axes:
        own = list(takewhile(lambda part: part[1] is not None, parts))
        if any(axis is not None for _, axis in parts[len(own) :]):
            return None  # whole runs are repeated, not single heads
        kept.append(own)
    if kept[-2:] != axes[-2:] or kept == axes:
        return None
    order = [axis for parts in kept for _, axis in parts if axis is not None]
    order += [axis for axis in range(tensor_type(source).rank) if axis not in order]
    moved = builder.transpose(source, order)
    return builder.reshape(moved, [product(size for size, _ in parts) for parts in kept])
