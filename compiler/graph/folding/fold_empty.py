"""Ops on tensors without elements: their results are known, and no kernel sees them.

A dim of 0 is seen where it is an integer; a symbolic dim that is 0 at a call is the business
of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.effects import can_fail, has_effect
from ingot.compiler.graph.ops import Reduce, lookup
from ingot.compiler.graph.rewriter import is_static
from ingot.compiler.ir import Op, TensorType, Value

__all__ = ["fold_empty"]

_LEAVES = frozenset({"constant", "parameter", "global"})


def fold_empty(op: Op, builder: Builder) -> Sequence[Value] | None:
    """The results of an op that are empty, or made of nothing; None if neither is so."""
    skipped = (op.regions and op.name != "sort") or op.name in _LEAVES
    rule, is_empty = _RULES.get(op.name), all(map(_is_empty, op.results))
    if skipped or not op.results or not (is_empty or rule) or has_effect(op) or can_fail(op):
        return None
    if is_empty:
        if op.name == "broadcast" and not is_static(tensor_type(op.result).shape):
            return None  # it is in the form that `_empty` gives
        return [_empty(value, builder) for value in op.results]
    value = None if rule is None else rule(op, builder)
    return None if value is None else [value]


def _is_empty(value: Value) -> bool:
    return isinstance(value.type, TensorType) and 0 in value.type.shape


def _empty(value: Value, builder: Builder) -> Value:
    type = tensor_type(value)
    if is_static(type.shape):
        return builder.constant(np.zeros(type.shape), type.dtype)
    return builder.full(0, type.dtype, type.shape)


def _reduce(op: Op, builder: Builder) -> Value | None:
    """A reduction of nothing is the identity of its kind."""
    x = tensor_type(op.operands[0])
    if 0 not in x.shape:
        return None
    nothing = np.zeros((0,), x.dtype.numpy)
    identity = lookup("reduce").reference(nothing, axes=(0,), kind=Reduce.of(op).kind)
    return _full(op, identity, builder)


def _contraction(op: Op, builder: Builder) -> Value | None:
    """A sum of no products is zero."""
    return _full(op, 0, builder) if any(map(_is_empty, op.operands)) else None


def _full(op: Op, value: Any, builder: Builder) -> Value:
    type = tensor_type(op.result)
    return builder.full(np.asarray(value), type.dtype, type.shape)


def _pad(op: Op, builder: Builder) -> Value | None:
    """Nothing with padding around it is padding."""
    x, padding = op.operands
    if not _is_empty(x):
        return None
    shape = tensor_type(op.result).shape
    return builder.value("broadcast", padding, shape=shape, dimensions=())


def _concatenate(op: Op, builder: Builder) -> Value | None:
    """Operands without elements add nothing."""
    kept = [operand for operand in op.operands if not _is_empty(operand)]
    if len(kept) == len(op.operands):
        return None
    return builder.like(op, *kept)


def _update(op: Op, builder: Builder) -> Value | None:
    """An update without elements changes nothing."""
    update = op.operands[1 if op.name == "dynamic_update_slice" else 2]
    return op.operands[0] if _is_empty(update) else None


_RULES: dict[str, Callable[[Op, Builder], Value | None]] = {
    "reduce": _reduce,
    "reduce_window": _reduce,
    "dot_general": _contraction,
    "convolution": _contraction,
    "pad": _pad,
    "concatenate": _concatenate,
    "dynamic_update_slice": _update,
    "scatter": _update,
}
