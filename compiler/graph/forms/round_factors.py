"""Products of f32 as products of halves, with `precision="bf16"` or "f16".

Both sides are rounded to the nearest one, ties to even, and products are added in f32, as f32: a
result of bf16 is off by less than 2^-7 of the sum of its absolute terms, of f16 by 2^-10, beside
the rounding of that sum, whose parts are sums of f16 where a target has instructions for these.
The weight is stored so, in half the bytes, where its rows are looked up, too. What is small, what
does not multiply pairs, for an odd count of terms or one feature, stays f32; so do convolutions of
which Winograd's way leaves a quarter, unless the module is also for processors that multiply tiles
of bf16, what a program asks for in high precision, and the products that FFTs and decompositions
are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.forms.choose_winograd import is_left_to_winograd
from ingot.compiler.graph.forms.moves import moved, moved_from
from ingot.compiler.graph.forms.pack_weights import IN_HALVES
from ingot.compiler.graph.forms.round_rows import precision_of
from ingot.compiler.graph.ops import Convolution, DotGeneral, Take, parse_layout
from ingot.compiler.graph.rewriter import defined_by, is_static, rewrite, weights_of
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dims import known_dim, product
from ingot.hal.spec import DType, dtype

__all__ = ["CHOSEN", "HALVES", "round_factors"]

HALVES = ("bf16", "f16")
"""What factors may be rounded to."""

CHOSEN = "chosen_for_halves"
"""Attribute of a module: the layers whose products alone are to be of bf16 or f16."""

_LEAST, _LEAST_PRODUCTS, _LEAST_TERMS = 1 << 12, 1 << 18, 8
"""Elements of a weight from which on rounding what it meets pays; of a shorter one products in all,
and of a sum."""

_LEAST_SIDE = 32
"""The same of rows, columns and terms of products of two activations."""

_F32 = dtype("f32")


def round_factors(module: Module) -> Module:
    """Round the factors of the products of every function; returns the module."""
    if precision_of(module) not in HALVES:
        return module
    half = dtype(precision_of(module))
    layers, chosen = list[str](), cast(tuple[str, ...] | None, module.attributes.get(CHOSEN))
    for function in module.functions.values():
        weights, rounded = weights_of(function), set[Value]()

        def rule(
            op: Op, builder: Builder, weights: set[Value] = weights, rounded: set[Value] = rounded
        ) -> Sequence[Value] | None:
            if not (chosen is None or op.location in chosen) or not _is_large(op, weights, half):
                return None
            if op.name == "convolution" and is_left_to_winograd(op, module):
                return None
            layers.append(op.location)
            rounded.update(moved_from(each)[0] for each in weights.intersection(op.operands))
            factors = [_rounded(each, half, builder) for each in op.operands]
            return None if factors == op.operands else [builder.like(op, *factors)]

        def look_up(
            op: Op, builder: Builder, rounded: set[Value] = rounded
        ) -> Sequence[Value] | None:
            if op.name != "take" or Take.of(op).axis != 0 or op.operands[0] not in rounded:
                return None
            layers.append(op.location)
            row = builder.like(op, _rounded(op.operands[0], half, builder), op.operands[1])
            return [builder.value("convert", row, dtype=_F32)]

        if rewrite(function.block, rule):
            rewrite(function.block, look_up)
    if layers:
        eliminate_common_subexpressions(module)  # one table for lookups and products
    module.attributes[IN_HALVES] = tuple(dict.fromkeys(layers))
    return module


def _is_large(op: Op, weights: set[Value], half: DType) -> bool:
    """Whether it is a product of f32 or halves in pairs, of which a weight has many elements."""
    if not isinstance(op.attributes, (DotGeneral, Convolution)) or op.attributes.exact:
        return False
    if op.attributes.bf16_parts:
        return False
    types = {tensor_type(each).dtype for each in (*op.operands, op.result)}
    if types != {_F32} and {tensor_type(each).dtype for each in op.operands} != {half}:
        return False
    sides = [place for place, each in enumerate(op.operands) if each in weights]
    if not sides and isinstance(op.attributes, DotGeneral):
        return _is_large_everywhere(op)
    if len(sides) != 1 or not is_static(tensor_type(op.operands[sides[0]]).shape):
        return False
    shape = tensor_type(op.operands[sides[0]]).shape
    if isinstance(op.attributes, DotGeneral):
        depth = terms = product(
            shape[axis] for axis in op.attributes.contract("rhs" if sides[0] else "lhs")
        )
    else:
        convolution = Convolution.of(op)
        if convolution.groups != 1 or sides != [1]:
            return False
        layout = parse_layout(convolution.layout)
        features = known_dim(shape[layout.weight_input])
        terms = features + (features % 2 if features > 1 else 0)  # packed with one of zeros
        depth = product(shape) // shape[layout.weight_output]
    if known_dim(terms) % 2:
        return False
    products = product((*tensor_type(op.result).shape, depth))
    are_many = isinstance(products, int) and products >= _LEAST_PRODUCTS
    return known_dim(product(shape)) >= _LEAST or (are_many and known_dim(depth) >= _LEAST_TERMS)


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


def _rounded(x: Value, half: DType, builder: Builder) -> Value:
    """Rounded before it is moved: where others read what is moved, they read the same."""
    x, moves = moved_from(x)
    stored = defined_by(x, "convert")
    if stored is not None and tensor_type(stored.operands[0]).dtype is half:
        x = stored.operands[0]
    elif tensor_type(x).dtype is not half:
        x = builder.value("convert", x, dtype=half)
    return moved(x, moves, builder)
