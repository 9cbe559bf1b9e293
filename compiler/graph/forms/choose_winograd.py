"""Gives 3x3 convolutions to Winograd's F(4, 3) where that takes far fewer products.

Only with stride 1 and a weight that is known before the first call. Images whose size is known
only at the call are taken to be large. The weight is transformed and packed by plain ops, f32[36,
panels, features, 16], four times as many numbers as before: `split_init` moves that to load
time. Narrow floats are widened first, products summed in f32, so that a result is rounded once,
as by the direct sum. Errors stay near those of that: tests gate them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.pack_weights import is_channels_last
from ingot.compiler.graph.forms.round_rows import precision_of
from ingot.compiler.graph.forms.winograd import INPUT, OUTPUT, WINDOW, weight_matrix
from ingot.compiler.graph.ops import PANEL, Convolution
from ingot.compiler.graph.rewriter import rewrite, weights_of
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dims import Dim, known_dims
from ingot.hal.spec import dtype

__all__ = ["choose_winograd"]

_FEATURES = 32
"""Input and output features from which the transforms pay. With 32 a 3 x 3 of 56 x 56 takes 120 us
with AVX-512, the direct sum 261; with 16, 42 and 81, left to the direct sum, which rounds less."""

_TILES = {"f32": 1, "f16": 16, "bf16": 16}
"""Tiles that share the weights, at least, per dtype: transformed, narrow ones are eight times as
long, and read from memory that often."""

_GAIN = {"f32": 0.5, "int8": 0.5, "bf16": 0.25}
"""Products that may be left of the direct sum's, by precision: edges of small images waste tiles.
64 features of 7 x 7 take 10 us, the direct sum 20; of 56 x 56, 350 and 1069. Sums of bf16 take half
as long, and read an eighth of the weights: 512 of 7 x 7 take 740 us, Winograd's way 1450."""


def choose_winograd(module: Module) -> Module:
    """Rewrite the convolutions of every function; returns the module."""
    gain = _GAIN[precision_of(module)]
    for function in module.functions.values():
        weights = weights_of(function)

        def rule(op: Op, builder: Builder, weights: set[Value] = weights) -> Sequence[Value] | None:
            if op.name != "convolution" or op.operands[1] not in weights or not _pays(op, gain):
                return None
            return [_winograd(op, builder)]

        rewrite(function.block, rule)
    return module


def _pays(op: Op, gain: float) -> bool:
    x, w = (tensor_type(operand) for operand in op.operands)
    result = tensor_type(op.result)
    if x.dtype.name not in _TILES or w.dtype is not x.dtype or result.dtype is not x.dtype:
        return False
    convolution = Convolution.of(op)
    if x.rank != 4 or not is_channels_last(op) or convolution.groups != 1:
        return False
    steps = (*convolution.strides, *convolution.lhs_dilation, *convolution.rhs_dilation)
    if any(step != 1 for step in steps) or w.shape[:2] != (WINDOW, WINDOW):
        return False
    for features in w.shape[2:]:
        if not isinstance(features, int) or features < _FEATURES or features % PANEL:
            return False
    left: float = 1.0
    tiles: Dim = result.shape[0]
    for size, out, pair in zip(x.shape[1:3], result.shape[1:3], convolution.padding, strict=True):
        pads = [pad for pad in pair if isinstance(pad, int) and pad >= 0]
        if len(pads) != len(pair):
            return False
        if isinstance(size, int) and isinstance(out, int):
            if size <= 0 or out <= 0:
                return False
            left *= -(-out // OUTPUT) * INPUT / (out * WINDOW)
            tiles *= -(-out // OUTPUT)
            continue
        if sum(pads) >= WINDOW:
            return False  # an image without rows would give some
        left *= INPUT / (OUTPUT * WINDOW)
        tiles *= out
    few = isinstance(tiles, int) and tiles < _TILES[x.dtype.name]
    return left <= gain and not few


def _winograd(op: Op, builder: Builder) -> Value:
    x, w = op.operands
    features, n = known_dims(tensor_type(w).shape[-2:])
    if tensor_type(w).dtype is not dtype("f32"):
        w = builder.value("convert", w, dtype=dtype("f32"))
    # In panels before the transform: it reads a quarter of what it writes.
    panels = builder.value("reshape", w, shape=(WINDOW * WINDOW, features, n // PANEL, PANEL))
    panels = builder.value("transpose", panels, permutation=(0, 2, 1, 3))
    flat = builder.value("reshape", panels, shape=(WINDOW * WINDOW, features * n))
    ahead = weight_matrix()
    both = builder.constant(np.kron(ahead, ahead).astype(np.float32))
    u = builder.value(
        "dot_general",
        both,
        flat,
        lhs_batch=(),
        rhs_batch=(),
        lhs_contract=(1,),
        rhs_contract=(0,),
        dtype=dtype("f32"),
    )
    u = builder.value("reshape", u, shape=(INPUT * INPUT, n // PANEL, features, PANEL))
    return builder.value("conv_winograd", x, u, padding=Convolution.of(op).padding, n=n)
