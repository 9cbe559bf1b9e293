"""Lets products of f32 be made of products of bf16, with `precision="bf16x3"` or "bf16x6".

Nothing is rounded here, and no value gets another dtype: an op says that its factors may be taken
as sums of two or three bf16, and kernels for processors that multiply tiles of these do so where it
is faster (`kernels/split.py`). All others multiply f32. What is small, what a program asks for in
high precision, and the products that FFTs and decompositions are made of stay as they are; what a
program says of one product is left to it. Weights that are stored as f16 or bf16 are read so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.choose_winograd import choose_form
from ingot.compiler.graph.forms.pack_weights import (
    IN_PARTS,
    PARTS,
    is_channels_last,
    is_pointwise,
    is_stored_narrow,
)
from ingot.compiler.graph.forms.round_rows import has_tiles, precision_of
from ingot.compiler.graph.ops import Convolution, DotGeneral, parse_layout
from ingot.compiler.graph.rewriter import rewrite, tensor_ops, weights_of
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, product

__all__ = ["LEAST_CHANNELS", "MOST_PIXELS", "MOST_UNROLLED", "split_factors"]

_LEAST_PRODUCTS, _LEAST_TERMS = 1 << 18, 16
"""Products in all, and of a sum, from which on splitting what is multiplied pays."""

MOST_PIXELS = 256
"""Whose sums lie in scratch, some 64 KB, where kernels of f32 go tap by tap
(`kernels/lanes/taps.py`)."""

LEAST_CHANNELS = 32
"""For which a tap's sums are read and written. With AVX-512 a 3 x 3 with strides of 2 takes as long
as with rows in scratch with 32 channels, .77 of that with 64, .72 with 512."""

MOST_UNROLLED = 8
"""Places of a window along the last axis, each of which has code of its own."""


def split_factors(module: Module) -> Module:
    """Mark the products of every function; returns the module."""
    parts = PARTS.get(precision_of(module), 0)
    weights: set[Value] = set()

    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        if not isinstance(op.attributes, (DotGeneral, Convolution)) or not _is_large(op):
            return None
        if isinstance(op.attributes, Convolution):
            if not _pays(op, module, parts):
                return None
        elif any(each in weights and is_stored_narrow(each) for each in op.operands):
            return None
        if op.attributes.exact or op.attributes.bf16_parts:
            return None
        marked = replace(op.attributes, bf16_parts=parts)
        return [builder.like(op, *op.operands, attributes=marked)]

    layers: dict[str, dict[str, None]] = {name: {} for name in PARTS}
    names = {count: name for name, count in PARTS.items()}
    for function in module.functions.values():
        if parts:
            weights = weights_of(function)
            rewrite(function.block, rule)
        for op in tensor_ops(function.block):
            count = getattr(op.attributes, "bf16_parts", 0)
            if count and _is_large(op):
                layers[names[count]][op.location] = None
    for name, found in layers.items():
        if found:
            module.attributes[IN_PARTS[name]] = tuple(found)
    return module


def _is_large(op: Op) -> bool:
    """Whether it is a product of f32 of many terms."""
    if not isinstance(op.attributes, (DotGeneral, Convolution)):
        return False
    types, taps = [tensor_type(each) for each in (*op.operands, op.result)], list[Dim]()
    if {type.dtype.name for type in types} != {"f32"}:
        return False
    if isinstance(op.attributes, DotGeneral):
        depth = product(types[0].shape[axis] for axis in op.attributes.lhs_contract)
    else:
        convolution = Convolution.of(op)
        if convolution.groups != 1 or not is_channels_last(op):
            return False
        if any(step != 1 for step in convolution.lhs_dilation):
            return False
        axes = parse_layout(convolution.layout)
        depth = types[1].shape[axes.weight_input]
        taps = [types[1].shape[axis] for axis in axes.weight_spatial]
    if not isinstance(depth, int) or depth < _LEAST_TERMS:
        return False
    products = product((*types[2].shape, *taps, depth))
    return not isinstance(products, int) or products >= _LEAST_PRODUCTS


def _pays(op: Op, module: Module, parts: int) -> bool:
    """Whether a convolution takes less time as products of parts. All variants of a module have it
    the same way: of windows only where one has tiles, and not six products of bf16 for one where
    Winograd's way leaves a third of those of f32. Long lines stay f32: kernels that go tap by tap
    make them in pieces, and all variants share a grid."""
    if is_pointwise(op):
        return True
    if _has_long_lines(op):
        return False
    return has_tiles(module) and (parts == PARTS["bf16x3"] or choose_form(op) is None)


def _has_long_lines(op: Op) -> bool:
    """Whether kernels of f32 go tap by tap, and make a line in several pieces."""
    x, w, result = map(tensor_type, (*op.operands, op.result))
    padding = Convolution.of(op).padding
    dims = (*x.shape[1:], *result.shape[1:], *(pad for pair in padding for pad in pair))
    if not all(isinstance(dim, int) for dim in dims):
        return False
    *_, taps, channels, _ = known_dims(w.shape)
    is_copied = x.rank != 4 or any(pad != 0 for pair in padding for pad in pair)
    is_long = known_dim(result.shape[-2]) > MOST_PIXELS
    return is_long and is_copied and channels >= LEAST_CHANNELS and taps <= MOST_UNROLLED
