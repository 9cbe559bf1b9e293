"""Evaluates ops on small constants with the NumPy references.

Only small results: what is large and constant (packed weights) is the business of
`split_init`. A tensor whose elements are all equal becomes a broadcast of a scalar, which
kernels take as an immediate. What is made of no elements is folded in `fold_empty.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.effects import has_effect
from ingot.compiler.graph.folding.fold_empty import fold_empty
from ingot.compiler.graph.forms.narrow_codes import is_narrow
from ingot.compiler.graph.interpreter import evaluate_op, padded_count
from ingot.compiler.graph.ops import lookup
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.graph.rewriter import (
    defined_by,
    is_static,
    literal_of_value,
    rewrite,
    splat_of,
    uses_symbols,
)
from ingot.compiler.ir import Literal, Module, Op, TensorType, Value, tensor_type
from ingot.compiler.ir.dims import product
from ingot.hal.errors import Error

__all__ = ["fold_constants"]

_GREATEST_COUNT = 4096
"""Elements of the largest operand or result that is folded: sizes and indices have fewer, and
what is longer is left to `split_init`."""

_GREATEST_PADDED = 1 << 22
"""Elements that the reference makes on its way to as few."""

_KEPT = frozenset({"constant", "broadcast", "iota"})
"""Ops that are as good as a constant; they are evaluated for their users, but stay."""


def fold_constants(module: Module) -> Module:
    """Fold every function of the module; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, partial(_fold, known=_Known()))
    return module


class _Known:
    """The elements of small values that are constant. Those of ops that stay are made when they are
    asked for, since few are."""

    def __init__(self) -> None:
        self.arrays: dict[Value, Array] = {}
        self.waiting: dict[Value, Op] = {}

    def __contains__(self, value: Value) -> bool:
        return value in self.arrays or value in self.waiting

    def array(self, value: Value) -> Array:
        if value not in self.arrays:
            self.arrays[value] = self.evaluated(self.waiting.pop(value))[0]
        return self.arrays[value]

    def evaluated(self, op: Op) -> Sequence[Array]:
        """What the op gives. Error: it fails."""
        return evaluate_op(op, list(map(self.array, op.operands)))


def _fold(op: Op, builder: Builder, known: _Known) -> Sequence[Value] | None:
    if op.name == "constant":
        return _fold_splat(op, builder, known)
    empty = fold_empty(op, builder)
    if empty is not None:
        return empty
    if not _is_foldable(op, known):
        return _fold_splats(op, builder)
    if op.name in _KEPT:
        known.waiting[op.result] = op
        return None
    try:
        arrays = known.evaluated(op)
    except Error:
        return None  # an index out of range stays a fault of the call
    values: list[Value] = []
    for array, result in zip(arrays, op.results, strict=True):
        values.append(builder.constant(Literal(array, tensor_type(result).dtype)))
    return values


def _fold_splats(op: Op, builder: Builder) -> Sequence[Value] | None:
    """An element-wise op on broadcast scalars as a broadcast scalar; dims may be symbolic."""
    if not op.operands or lookup(op.name).family != "elementwise":
        return None
    if any(defined_by(operand, "broadcast") is None for operand in op.operands):
        return None
    scalars = [splat_of(operand) for operand in op.operands]
    type = op.result.type
    if any(scalar is None for scalar in scalars) or not isinstance(type, TensorType):
        return None
    try:
        (array,) = evaluate_op(op, [np.asarray(scalar) for scalar in scalars])
    except Error:
        return None
    scalar = builder.constant(Literal(array, type.dtype))
    return [builder.value("broadcast", scalar, shape=type.shape, dimensions=())]


def _is_foldable(op: Op, known: _Known) -> bool:
    if op.regions or not op.results or not all(map(known.__contains__, op.operands)):
        return False
    if not (op.operands or vars(op.attributes)):
        return False
    unfolded = ("parameter", "global", "unpack", "call", "native_call", "kernel_call")
    if op.name in unfolded or has_effect(op):
        return False
    elements = [each.type.dtype for each in op.results if isinstance(each.type, TensorType)]
    if any(element.is_complex or is_narrow(element) for element in elements):
        return False  # no kernel makes those: complex numbers are pairs, narrow ones bytes
    if uses_symbols(op):
        return False
    if padded_count(op) > _GREATEST_PADDED:
        return False
    return all(_is_small(result) for result in op.results)


def _is_small(value: Value) -> bool:
    type = value.type
    if not isinstance(type, TensorType) or not is_static(type.shape):
        return False
    return product(type.shape) <= _GREATEST_COUNT  # type: ignore[operator]


def _fold_splat(op: Op, builder: Builder, known: _Known) -> Sequence[Value] | None:
    """A constant of equal elements as a broadcast; a small one is noted as known."""
    literal = literal_of_value(op.result)
    assert literal is not None
    if literal.size > 1 and literal.splat is not None:
        scalar = builder.constant(literal.splat)
        return [builder.value("broadcast", scalar, shape=literal.shape, dimensions=())]
    if literal.size <= _GREATEST_COUNT:
        known.arrays[op.result] = array_of(literal)
    return None
