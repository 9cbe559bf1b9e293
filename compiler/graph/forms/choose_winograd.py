"""Gives 3x3 convolutions to Winograd's F(4, 3) where that takes far fewer products.

Only f32 with stride 1 and a weight that is known before the first call. Images whose size is
known only at the call are taken to be large. The weight is transformed and packed by plain
ops, [36, panels, features, 16], four times as large as before: `split_init` moves that to
load time. Errors stay near those of the direct sum: tests gate them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.simplify import dims
from ingot.compiler.graph.forms.pack_weights import is_channels_last
from ingot.compiler.graph.forms.winograd import INPUT, OUTPUT, WINDOW, weight_matrix
from ingot.compiler.graph.ops import PANEL
from ingot.compiler.graph.rewriter import rewrite, weights_of
from ingot.compiler.ir import Module, Op, Value
from ingot.hal.spec import dtype

__all__ = ["choose_winograd"]

_FEATURES = 32
"""Input and output features from which the transforms pay."""

_GAIN = 0.5
"""Products that may be left of the direct sum's: edges of small images waste tiles."""


def choose_winograd(module: Module) -> Module:
    """Rewrite the convolutions of every function; returns the module."""
    for function in module.functions.values():
        weights = weights_of(function)

        def rule(op: Op, builder: Builder, weights: set[Value] = weights) -> Sequence[Value] | None:
            if op.name != "convolution" or op.operands[1] not in weights or not _pays(op):
                return None
            return [_winograd(op, builder)]

        rewrite(function.block, rule)
    return module


def _pays(op: Op) -> bool:
    x, w = (tensor_type(operand) for operand in op.operands)
    result = tensor_type(op.result)
    if x.dtype is not dtype("f32") or w.dtype is not x.dtype or result.dtype is not x.dtype:
        return False
    if x.rank != 4 or not is_channels_last(op) or op.attributes["groups"] != 1:
        return False
    steps = (*dims(op, "strides"), *dims(op, "lhs_dilation"), *dims(op, "rhs_dilation"))
    if any(step != 1 for step in steps) or w.shape[:2] != (WINDOW, WINDOW):
        return False
    for features in w.shape[2:]:
        if not isinstance(features, int) or features < _FEATURES or features % PANEL:
            return False
    padding = op.attributes["padding"]
    assert isinstance(padding, tuple)
    left = 1.0
    for size, out, pair in zip(x.shape[1:3], result.shape[1:3], padding, strict=True):
        assert isinstance(pair, tuple)
        pads = [pad for pad in pair if isinstance(pad, int) and pad >= 0]
        if len(pads) != len(pair):
            return False
        if isinstance(size, int) and isinstance(out, int):
            if size <= 0 or out <= 0:
                return False
            left *= -(-out // OUTPUT) * INPUT / (out * WINDOW)
            continue
        if sum(pads) >= WINDOW:
            return False  # an image without rows would give some
        left *= INPUT / (OUTPUT * WINDOW)
    return left <= _GAIN


def _winograd(op: Op, builder: Builder) -> Value:
    x, w = op.operands
    *_, features, n = tensor_type(w).shape
    assert isinstance(features, int)
    assert isinstance(n, int)
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
    return builder.value("conv_winograd", x, u, padding=op.attributes["padding"], n=n)
