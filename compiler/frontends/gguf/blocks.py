"""Weights of a GGUF file as graph values: numbers made of the bytes of their blocks.

A block holds elements of one row. What is written here - codes, less a zero or with a minimum,
times scales - is what `fuse_scales` keeps packed in panels; nothing is decoded in this file.
The layouts are those of ggml's `block_*` structures.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingot.compiler.frontends.gguf.codebooks import CODEBOOK_BLOCKS
from ingot.compiler.frontends.gguf.fields import Blocks
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim
from ingot.hal.gguf import BLOCK_TYPES, GgufTensor
from ingot.hal.spec import dtype

__all__ = ["DECODED", "TWICE_F4", "decode", "parameter"]

U8 = "u8"


def parameter(tensor: GgufTensor, builder: Builder) -> Value:
    """The tensor as it lies in the file: elements, or bytes of rows."""
    name = {"F32": "f32", "F16": "f16", "BF16": "u16"}.get(tensor.type.name, U8)
    return builder.value(
        "parameter", scope="", key=tensor.name, dtype=dtype(name), shape=tensor.row_shape
    )


def decode(type: str, rows: Value, builder: Builder) -> Value:
    """The numbers of rows as they lie in a file, f32[..., elements]; `type` is one of DECODED."""
    if type == "BF16":
        rows = builder.value("bitcast", rows, dtype=dtype("bf16"))
    if type not in _BLOCKS:
        return builder.value("convert", rows, dtype=dtype("f32")) if type != "F32" else rows
    bytes = Blocks(rows, builder)
    bytes.blocks(next(row.length for row in BLOCK_TYPES.values() if row.name == type))
    return _BLOCKS[type](bytes)


def _q8_0(x: Blocks) -> Value:
    scale = x.half()
    return x.numbers(x.signed(x.take(32)), scale)


def _q4_0(x: Blocks) -> Value:
    scale = x.half()
    return x.numbers(x.ends(x.fields(x.take(16), 2, 4), 32), scale, zero=8)


def _q4_1(x: Blocks) -> Value:
    scale, least = x.half(), x.half()
    codes = x.ends(x.fields(x.take(16), 2, 4), 32)
    return x.numbers(codes, scale, minima=x.b.value("neg", least))


def _five_bits(x: Blocks) -> Value:
    """Their highest bits stand together, in front."""
    high = x.fields(x.ends(x.take(4), 4, 1), 8, 1)
    return x.joined(x.ends(x.fields(x.take(16), 2, 4), 32), x.ends(high, 32), 4)


def _q5_0(x: Blocks) -> Value:
    scale = x.half()
    return x.numbers(_five_bits(x), scale, zero=16)


def _q5_1(x: Blocks) -> Value:
    scale, least = x.half(), x.half()
    return x.numbers(_five_bits(x), scale, minima=x.b.value("neg", least))


_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
TWICE_F4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the numbers of f4e2m1fn, by their bits."""


def _iq4_nl(x: Blocks) -> Value:
    scale = x.half()
    return x.looked_up(x.ends(x.fields(x.take(16), 2, 4), 32), scale, _IQ4)


def _iq4_xs(x: Blocks) -> Value:
    """Scales of 6 bits, 32 more than they are: the upper 2 bits of all, then the lower 4."""
    factor, high, low = x.half(), x.stream(x.take(2), 2), x.stream(x.take(4), 4)
    scales = x.signed(x.apply("sub", x.joined(low, high, 4), 32))
    codes = x.ends(x.fields(x.take(8, 16), 2, 4), 8, 32)
    return x.looked_up(codes, x.times(scales, factor), _IQ4)


def _nvfp4(x: Blocks) -> Value:
    """Scales are half of f8e4m3 without a sign, whose bits are those of f16 less 8 in the exponent;
    NaN counts as 0."""
    bytes = x.take(4)
    is_nan, bits = x.compared(bytes, 127, "eq"), x.apply("and", bytes, 127)
    wide = x.apply("shift_left", x.b.value("convert", bits, dtype=dtype("u16")), 7)
    scale = x.float(x.b.value("bitcast", wide, dtype=dtype("f16")))
    scale = x.apply("mul", scale, 128.0)
    zero = x.b.full(0.0, "f32", tensor_type(scale).shape)
    scale = x.b.value("select", is_nan, zero, scale)
    scale = x.float(x.b.value("convert", scale, dtype=dtype("f16")))
    return x.looked_up(x.ends(x.fields(x.take(4, 8), 2, 4), 4, 16), scale, TWICE_F4)


def _mxfp4(x: Blocks) -> Value:
    """Twice the numbers of f4e2m1fn, times 2 to the power of a byte less 128."""
    scale = x.half_power(x.reshape(x.take(1), x.outer))
    return x.looked_up(x.ends(x.fields(x.take(16), 2, 4), 32), scale, TWICE_F4)


def _scales_and_minima(x: Blocks) -> tuple[Value, Value]:
    """What two halves and 12 bytes say of 8 groups, whose numbers have 6 bits each."""
    scale, least = x.half(), x.half()
    a, b, c = x.take(4), x.take(4), x.take(4)
    codes = [
        x.behind(
            x.apply("and", first, 63), x.joined(low, x.apply("shift_right_logical", first, 6), 4)
        )
        for first, low in ((a, x.apply("and", c, 15)), (b, x.apply("shift_right_logical", c, 4)))
    ]
    return x.times(codes[0], scale), x.times(codes[1], least)


def _q4_k(x: Blocks) -> Value:
    scales, minima = _scales_and_minima(x)
    return x.numbers(x.ends(x.fields(x.take(4, 32), 2, 4), 8, 32), scales, minima=minima)


def _q5_k(x: Blocks) -> Value:
    scales, minima = _scales_and_minima(x)
    high = x.fields(x.take(32), 8, 1)
    low = x.ends(x.fields(x.take(4, 32), 2, 4), 8, 32)
    return x.numbers(x.joined(low, high, 4), scales, minima=minima)


def _q6_k(x: Blocks) -> Value:
    low = x.ends(x.fields(x.take(2, 64), 2, 4), 16, 16)
    high = x.ends(x.fields(x.take(2, 32), 4, 2), 16, 16)
    codes = x.signed(x.take(16))
    return x.numbers(x.joined(low, high, 4), x.times(codes, x.half()), zero=32)


def _q3_k(x: Blocks) -> Value:
    high = x.ends(x.fields(x.take(32), 8, 1), 16, 16)
    low = x.ends(x.fields(x.take(2, 32), 4, 2), 16, 16)
    halves = x.ends(x.fields(x.take(1, 8), 2, 4), 16)
    quarters = x.ends(x.fields(x.take(1, 4), 4, 2), 16)
    codes = x.signed(x.apply("sub", x.joined(halves, quarters, 4), 32))
    return x.numbers(x.joined(low, high, 2), x.times(codes, x.half()), zero=4)


def _q2_k(x: Blocks) -> Value:
    pairs = x.take(16)
    codes = x.ends(x.fields(x.take(2, 32), 4, 2), 16, 16)
    scale, least = x.half(), x.half()
    scales = x.times(x.apply("and", pairs, 15), scale)
    minima = x.times(x.apply("shift_right_logical", pairs, 4), least)
    return x.numbers(codes, scales, minima=minima)


def _tq2_0(x: Blocks) -> Value:
    codes = x.ends(x.fields(x.take(2, 32), 4, 2), 256)
    return x.numbers(codes, x.half(), zero=1)


def _tq1_0(x: Blocks) -> Value:
    """Five numbers of three values in a byte, as the digits of a fraction."""
    codes = x.behind(*(_digits(x, x.take(length), count) for length, count in _DIGITS))
    return x.numbers(codes, x.half(), zero=1)


_DIGITS = ((32, 5), (16, 5), (4, 4))
"""Bytes of TQ1_0 and how many digits each of them has."""


def _digits(x: Blocks, bytes: Value, count: int) -> Value:
    """The first digits of each byte / 256 to the base of 3, u8[..., count * bytes]."""
    u16, (*outer, length) = dtype("u16"), tensor_type(bytes).shape
    shape = (*outer, count, length)
    axes = (*range(len(outer)), len(outer) + 1)
    wide = x.b.value("convert", bytes, dtype=u16)
    wide = x.b.value("broadcast", wide, shape=shape, dimensions=axes)
    powers = x.b.constant(3 ** np.arange(count, dtype=np.uint16))
    powers = x.b.value("broadcast", powers, shape=shape, dimensions=(len(outer),))
    rest = x.apply("and", x.b.value("mul", wide, powers), 255)
    digits = x.apply("shift_right_logical", x.apply("mul", rest, 3), 8)
    digits = x.apply("and", x.b.value("convert", digits, dtype=dtype(U8)), 3)
    return x.ends(digits, count * known_dim(length))


_BLOCKS: dict[str, Callable[[Blocks], Value]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    **CODEBOOK_BLOCKS,
}

DECODED = ("F32", "F16", "BF16", *_BLOCKS)
"""The types of tensors that can be compiled."""
