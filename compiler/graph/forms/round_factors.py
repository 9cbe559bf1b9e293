"""Products of f32 as products of bf16, with `precision="bf16"`.

Both sides are rounded to the nearest bf16, ties to even, and products are added in f32, as f32: a
result is off by less than 2^-7 of the sum of its absolute terms, beside the rounding of that sum.
The weight is stored so, in half the bytes, where its rows are looked up, too. What is small, what
does not multiply pairs, for an odd count of terms or features, and convolutions of which Winograd's
way leaves a quarter, stay f32. So do what a program asks for in high precision, and the products
that FFTs and decompositions are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.forms.moves import moved, moved_from
from ingot.compiler.graph.forms.pack_weights import IN_BF16
from ingot.compiler.graph.forms.round_rows import precision_of
from ingot.compiler.graph.ops import Convolution, DotGeneral, Take, parse_layout
from ingot.compiler.graph.rewriter import defined_by, is_static, rewrite, weights_of
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dims import known_dim, product
from ingot.hal.spec import dtype

__all__ = ["CHOSEN", "round_factors"]

CHOSEN = "chosen_for_bf16"
"""Attribute of a module: the layers whose products alone are to be of bf16."""

_LEAST = 1 << 12
"""Elements of a weight from which on rounding what it meets pays."""

_LEAST_SIDE = 32
"""The same of rows, columns and terms of products of two activations."""

_F32, _BF16 = dtype("f32"), dtype("bf16")


def round_factors(module: Module) -> Module:
    """Round the factors of the products of every function; returns the module."""
    if precision_of(module) != _BF16.name:
        return module
    layers, chosen = list[str](), cast(tuple[str, ...] | None, module.attributes.get(CHOSEN))
    for function in module.functions.values():
        weights, rounded = weights_of(function), set[Value]()

        def rule(
            op: Op, builder: Builder, weights: set[Value] = weights, rounded: set[Value] = rounded
        ) -> Sequence[Value] | None:
            if not (chosen is None or op.location in chosen) or not _is_large(op, weights):
                return None
            layers.append(op.location)
            rounded.update(moved_from(each)[0] for each in weights.intersection(op.operands))
            factors = [_rounded(each, builder) for each in op.operands]
            return None if factors == op.operands else [builder.like(op, *factors)]

        def look_up(
            op: Op, builder: Builder, rounded: set[Value] = rounded
        ) -> Sequence[Value] | None:
            if op.name != "take" or Take.of(op).axis != 0 or op.operands[0] not in rounded:
                return None
            layers.append(op.location)
            row = builder.like(op, _rounded(op.operands[0], builder), op.operands[1])
            return [builder.value("convert", row, dtype=_F32)]

        if rewrite(function.block, rule):
            rewrite(function.block, look_up)
    if layers:
        eliminate_common_subexpressions(module)  # one table for lookups and products
    module.attributes[IN_BF16] = tuple(dict.fromkeys(layers))
    return module


def _is_large(op: Op, weights: set[Value]) -> bool:
    """Whether it is a product of f32 or bf16 in pairs, of which a weight has many elements."""
    if not isinstance(op.attributes, (DotGeneral, Convolution)) or op.attributes.exact:
        return False
    types = {tensor_type(each).dtype for each in (*op.operands, op.result)}
    if types != {_F32} and {tensor_type(each).dtype for each in op.operands} != {_BF16}:
        return False
    sides = [place for place, each in enumerate(op.operands) if each in weights]
    if not sides and isinstance(op.attributes, DotGeneral):
        return _is_large_everywhere(op)
    if len(sides) != 1 or not is_static(tensor_type(op.operands[sides[0]]).shape):
        return False
    shape = tensor_type(op.operands[sides[0]]).shape
    if isinstance(op.attributes, DotGeneral):
        terms = product(
            shape[axis] for axis in op.attributes.contract("rhs" if sides[0] else "lhs")
        )
    else:
        convolution = Convolution.of(op)
        if convolution.groups != 1 or sides != [1]:
            return False
        terms = shape[parse_layout(convolution.layout).weight_input]
    return known_dim(terms) % 2 == 0 and known_dim(product(shape)) >= _LEAST


def _is_large_everywhere(op: Op) -> bool:
    """Whether a product of two activations has many rows, columns and terms."""
    dot = DotGeneral.of(op)
    free, terms = [], product(tensor_type(op.operands[0]).shape[axis] for axis in dot.lhs_contract)
    for x, side in zip(op.operands, ("lhs", "rhs"), strict=True):
        inner = {*dot.contract(side), *dot.batch(side)}
        shape = tensor_type(x).shape
        free.append(product(dim for axis, dim in enumerate(shape) if axis not in inner))
    is_even = isinstance(terms, int) and terms % 2 == 0
    return is_even and all(not isinstance(n, int) or n >= _LEAST_SIDE for n in (*free, terms))


def _rounded(x: Value, builder: Builder) -> Value:
    """Rounded before it is moved: where others read what is moved, they read the same."""
    x, moves = moved_from(x)
    stored = defined_by(x, "convert")
    if stored is not None and tensor_type(stored.operands[0]).dtype is _BF16:
        x = stored.operands[0]
    elif tensor_type(x).dtype is not _BF16:
        x = builder.value("convert", x, dtype=_BF16)
    return moved(x, moves, builder)
