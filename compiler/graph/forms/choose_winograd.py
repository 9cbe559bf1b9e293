"""Gives 3x3 and 3x3x3 convolutions to Winograd's F(4, 3) where that takes far fewer products, or to
F(2, 3) where few tiles share long weights.

Of a window with a depth, of any size, these are the last two dims. Only with stride 1 and a weight
that is known before the first call. Images whose size is known only at the call are taken to be
large. The weight is transformed and packed by plain ops, f32[36, panels, depth * features, 16],
four times as many numbers as before, or [16, ...], 16/9 as many: `split_init` moves that to load
time. Narrow floats are widened first, products summed in f32, so that a result is rounded once, as
by the direct sum. Errors stay near those of that: tests gate them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.pack_weights import is_channels_last
from ingot.compiler.graph.forms.round_rows import has_tiles, precision_of
from ingot.compiler.graph.forms.winograd import FORMS, MOST_TILES, WINDOW, Winograd
from ingot.compiler.graph.ops import PANEL, Convolution
from ingot.compiler.graph.rewriter import rewrite, weights_of
from ingot.compiler.ir import Module, Op, TensorType, Value
from ingot.compiler.ir.dims import Dim, ceildiv, known_dim, known_dims, product
from ingot.hal.spec import dtype

__all__ = ["choose_form", "choose_winograd", "is_left_to_winograd"]

_FEATURES = 32
"""Input and output features from which the transforms pay. With 32 a 3 x 3 of 56 x 56 takes 120 us
with AVX-512, the direct sum 261; with 16, 42 and 81, left to the direct sum, which rounds less."""

_TILES = {"f32": 1, "f16": 16, "bf16": 16}
"""Tiles that share the weights, at least, per dtype: transformed, narrow ones are eight times as
long, and read from memory that often."""

_TILES_OF_FRAMES = 16
"""The same with a depth, whose taps are as many weights again: 256 features of 4 x 14 x 14, 64
tiles, are worth it, 512 of 2 x 7 x 7 are not."""

_DEPTH = 4096
"""Terms of a product, at most: transformed inputs of a tile fit a worker's scratch."""

_GAIN = 0.5
"""Products that may be left of the direct sum's: edges of small images waste tiles. 64 features of
7 x 7 take 10 us, the direct sum 20; of 56 x 56, 350 and 1069."""

_GAIN_OF_HALVES = 0.25
"""The same of a direct sum of bf16 or f16, which takes half as long, and reads an eighth of the
weights: 512 features of 7 x 7 take 740 us, Winograd's way 1450. In tiles it always takes less: 64
of 56 x 56 take 165 us, Winograd's way, of which a quarter is left, 470."""

_LONG = 1 << 20
"""Bytes of weights transformed for F(4, 3) from which they are read from L3 or memory by every
call."""

_READ = 12
"""Products in whose time one of these is read: a core with AVX-512 makes 60 to 120 products a ns,
and reads 3 to 8 weights. One thread, in ResNet-50, with F(4, 3) and F(2, 3): 256 features of
14 x 14 take 1050 and 880 us, 512 of 7 x 7 2950 and 1650, the direct sum 2070."""

_LONG_GAIN = 0.9
"""What may be left of the direct sum's products and reads."""


def choose_winograd(module: Module) -> Module:
    """Rewrite the convolutions of every function; returns the module."""
    for function in module.functions.values():
        weights = weights_of(function)

        def rule(op: Op, builder: Builder, weights: set[Value] = weights) -> Sequence[Value] | None:
            if op.name != "convolution" or op.operands[1] not in weights:
                return None
            if Convolution.of(op).bf16_parts:
                return None
            if tensor_type(op.operands[0]).dtype.name == precision_of(module) != "f32":
                form = FORMS[0] if is_left_to_winograd(op, module) else None
            else:
                form = choose_form(op)
            return None if form is None else [_winograd(op, builder, form)]

        rewrite(function.block, rule)
    return module


def is_left_to_winograd(op: Op, module: Module) -> bool:
    """Whether Winograd's way with f32 takes less time than a direct sum of the halves that are the
    module's precision."""
    if has_tiles(module) or not _can_be_tiled(op):
        return False
    result = tensor_type(op.result)
    return _shares_weights(op, FORMS[0]) and _share(result, FORMS[0], 0) <= _GAIN_OF_HALVES


def choose_form(op: Op) -> Winograd | None:
    """The form that takes the least time, None where that is the direct sum."""
    if not _can_be_tiled(op):
        return None
    x, w, result = map(tensor_type, (*op.operands, op.result))
    sizes = (*x.shape, *result.shape)
    length = FORMS[0].places * product((*w.shape[:-4], *w.shape[-2:])) * dtype("f32").bytes
    is_long = isinstance(length, int) and length >= _LONG and x.dtype is dtype("f32")
    if not is_long or not all(isinstance(size, int) for size in sizes):
        form, read, gain = FORMS[0], 0, _GAIN
    else:
        read, gain = _READ, _LONG_GAIN
        form = min(FORMS, key=lambda form: _share(result, form, _READ))
    is_less = _shares_weights(op, form) and _share(result, form, read) <= gain
    return form if is_less else None


def _shares_weights(op: Op, form: Winograd) -> bool:
    """Whether so many tiles share the weights that transforming them pays."""
    x, tiles = tensor_type(op.operands[0]), _tiles(tensor_type(op.result), form.output)
    least = max(_TILES[x.dtype.name], _TILES_OF_FRAMES if x.rank == 5 else 1)
    return not isinstance(tiles, int) or tiles >= least


def _can_be_tiled(op: Op) -> bool:
    x, w, result = map(tensor_type, (*op.operands, op.result))
    if x.dtype.name not in _TILES or w.dtype is not x.dtype or result.dtype is not x.dtype:
        return False
    convolution = Convolution.of(op)
    if x.rank not in (4, 5) or not is_channels_last(op) or convolution.groups != 1:
        return False
    steps = (*convolution.strides, *convolution.lhs_dilation, *convolution.rhs_dilation)
    if any(step != 1 for step in steps) or w.shape[-4:-2] != (WINDOW, WINDOW):
        return False
    for features in w.shape[-2:]:
        if not isinstance(features, int) or features < _FEATURES or features % PANEL:
            return False
    depth = product((*w.shape[:-4], w.shape[-2]))
    if not isinstance(depth, int) or depth > _DEPTH:
        return False
    return _gives_rows(x, result, convolution, w)


def _gives_rows(
    x: TensorType, result: TensorType, convolution: Convolution, window: TensorType
) -> bool:
    """Whether the padding is known, and an image without rows has no results."""
    sizes = zip(x.shape[1:-1], result.shape[1:-1], convolution.padding, window.shape, strict=False)
    for size, out, pair, taps in sizes:
        pads = [pad for pad in pair if isinstance(pad, int) and pad >= 0]
        if len(pads) != len(pair):
            return False
        if isinstance(size, int) and isinstance(out, int):
            if size <= 0 or out <= 0:
                return False
        elif sum(pads) >= known_dim(taps):
            return False
    return True


def _tiles(result: TensorType, output: int) -> Dim:
    """Tiles of all images and frames."""
    rows = [ceildiv(size, output) for size in result.shape[-3:-1]]
    return product((*result.shape[:-3], *rows))


def _share(result: TensorType, form: Winograd, read: int) -> float:
    """Products and reads of weights that are left of the direct sum's. A size that is known only at
    the call is taken to be large."""
    pixels: float = 1.0
    tiles: float = 1.0
    for size in result.shape[-3:-1]:
        out = size if isinstance(size, int) else form.output
        pixels, tiles = pixels * out, tiles * -(-out // form.output)
    images = product(result.shape[:-3])
    count = images if isinstance(images, int) and read else 1
    direct = WINDOW**2 * (count * pixels + read)
    reads = read * math.ceil(count * tiles / MOST_TILES)
    return form.places * (count * tiles + reads) / direct


def _winograd(op: Op, builder: Builder, form: Winograd) -> Value:
    x, w = op.operands
    *taps, _, _, features, n = known_dims(tensor_type(w).shape)
    first = len(taps)
    if tensor_type(w).dtype is not dtype("f32"):
        w = builder.value("convert", w, dtype=dtype("f32"))
    # In panels before the transform: it reads a quarter of what it writes.
    panels = builder.value("reshape", w, shape=(*taps, WINDOW**2, features, n // PANEL, PANEL))
    order = (first, first + 2, *range(first), first + 1, first + 3)
    panels = builder.value("transpose", panels, permutation=order)
    features *= math.prod(taps)
    flat = builder.value("reshape", panels, shape=(WINDOW**2, features * n))
    ahead = form.weight_matrix
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
    u = builder.value("reshape", u, shape=(form.places, n // PANEL, features, PANEL))
    return builder.value("conv_winograd", x, u, padding=Convolution.of(op).padding, n=n)
