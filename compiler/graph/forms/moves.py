"""Ops that only move elements: seen through, and done again on another tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import lookup
from ingot.compiler.graph.rewriter import defined_by, splat_of
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dims import product

__all__ = ["moved", "moved_from", "moved_last"]


def moved_from(x: Value) -> tuple[Value, list[Op]]:
    """What the value is with its elements moved, and the ops that move them, the last one first."""
    moves: list[Op] = []
    while (op := defined_by(x, "transpose", "reshape", "reverse")) is not None:
        moves.append(op)
        x = op.operands[0]
    return x, moves


def moved(x: Value, moves: Sequence[Op], builder: Builder) -> Value:
    """A tensor of the same shape, moved in the same way."""
    for op in reversed(moves):
        x = builder.like(op, x)
    return x


def moved_last(x: Value, builder: Builder) -> Value:
    """The same, with element-wise ops on one tensor and numbers done before its elements move."""
    source, moves = _moved_last(x, builder)
    return moved(source, moves, builder)


def _moved_last(x: Value, builder: Builder) -> tuple[Value, list[Op]]:
    x, moves = moved_from(x)
    op = x.owner
    if not isinstance(op, Op) or op.regions or lookup(op.name).family != "elementwise":
        return x, moves
    tensors = [each for each in op.operands if not _is_number(each)]
    if len(tensors) != 1:
        return x, moves
    source, inner = _moved_last(tensors[0], builder)
    if not inner:
        return x, moves
    shape = tensor_type(source).shape
    operands = (
        source if each is tensors[0] else builder.broadcast_to(_number(each, builder), shape)
        for each in op.operands
    )
    return builder.like(op, *operands), moves + inner


def _is_number(x: Value) -> bool:
    """Whether all elements are one number, which may be known only at the call."""
    op = x.owner
    if splat_of(x) is not None or not isinstance(op, Op) or op.regions:
        return splat_of(x) is not None
    if op.name == "broadcast":
        return product(tensor_type(op.operands[0]).shape) == 1
    return lookup(op.name).family == "elementwise" and all(map(_is_number, op.operands))


def _number(x: Value, builder: Builder) -> Value:
    """That number, of rank 0."""
    known, op = splat_of(x), x.op
    if known is not None:
        return builder.full(known, tensor_type(x).dtype)
    if op.name == "broadcast":
        return builder.value("reshape", op.operands[0], shape=())
    return builder.like(op, *(_number(each, builder) for each in op.operands))
