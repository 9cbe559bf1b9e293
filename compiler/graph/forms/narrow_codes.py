"""Codes of dtypes below 16 bits as numbers, and back: what kernels do with f8, f4, i4, u2 ...

A narrow element lies in memory as a byte, its code: the bits of a float, the low bits of an
integer. `decode` and `encode` are the conversions from and to a dtype that kernels compute
with, as ops on bytes. Rounding is the standard's, to nearest and ties to even, once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Unpack
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.ir import Literal, Op, Value
from ingot.hal.spec import DType, dtype

__all__ = ["CODE", "codes_of", "decode", "encode", "is_narrow", "packed", "wide_dtype"]

CODE = dtype("u8")
_F32, _F64, _I8, _I32 = dtype("f32"), dtype("f64"), dtype("i8"), dtype("i32")


def is_narrow(element: DType) -> bool:
    """Whether kernels have the dtype only as codes."""
    return not element.is_boolean and (element.bits < 8 or (element.is_float and element.bits == 8))


def wide_dtype(element: DType) -> DType:
    """The dtype in which ops of a narrow one are computed: exact for each of its numbers."""
    if element.is_float:
        return _F32
    return _I8 if element.kind == "i" else CODE


def codes_of(literal: Literal) -> Literal:
    """A narrow constant as codes."""
    codes = literal.array.view(np.uint8) & np.uint8((1 << literal.dtype.bits) - 1)
    return Literal(codes, CODE)


def packed(codes: Array, bits: int) -> Array:
    """A line of codes of `bits` bits, as many in a byte as fit, the first in its low bits."""
    per = 8 // bits
    rows = np.zeros((-(-codes.size // per), per), np.uint8)
    rows.reshape(-1)[: codes.size] = codes
    return np.asarray(np.bitwise_or.reduce(rows << np.arange(0, 8, bits, dtype=np.uint8), axis=1))


def decode(builder: Builder, codes: Value, element: DType) -> Value:
    """The numbers of codes, in `wide_dtype`."""
    if element.is_float:
        numbers = np.arange(1 << element.bits, dtype=np.uint8).view(element.numpy)
        table = builder.constant(numbers.astype(np.float32), _F32)
        index = builder.value("convert", codes, dtype=_I32)
        return builder.value("take", table, index, axis=0, mode="clamp")
    if element.kind == "u":
        return codes
    owner = codes.owner
    if isinstance(owner, Op) and isinstance(owner.attributes, Unpack):  # which knows signs, too
        unpacked = replace(owner.attributes, dtype=element)
        return builder.like(owner, *owner.operands, attributes=unpacked)
    shape = tensor_type(codes).shape
    places = builder.full(8 - element.bits, CODE, shape)
    high = builder.value("bitcast", builder.value("shift_left", codes, places), dtype=_I8)
    places = builder.full(8 - element.bits, _I8, shape)
    return builder.value("shift_right_arithmetic", high, places)


def encode(builder: Builder, x: Value, element: DType) -> Value:
    """Numbers of any dtype that kernels have, as codes."""
    source, shape = tensor_type(x).dtype, tensor_type(x).shape
    if element.is_float:
        exact = (source.is_float and source.bits <= 32) or source.bits <= 16
        wide = _F32 if exact else _F64
        x = x if source is wide else builder.value("convert", x, dtype=wide)
        return _encode_float(builder, x, element)
    if source.is_float:
        limits = [builder.full(each, source, shape) for each in element.limits]
        x = builder.value("clamp", limits[0], x, limits[1])
        x = builder.value("convert", x, dtype=wide_dtype(element))
    if tensor_type(x).dtype is not CODE:
        x = builder.value("convert", x, dtype=CODE)
    return builder.value("and", x, builder.full((1 << element.bits) - 1, CODE, shape))


class _Format:
    """What a float dtype does with numbers that it does not hold, by ml_dtypes."""

    def __init__(self, element: DType) -> None:
        import ml_dtypes  # optional: `element.numpy` says so where it is missing

        info: Any = ml_dtypes.finfo(element.numpy)
        self.mantissa = int(info.nmant)
        self.has_sign = element.name != "f8e8m0fnu"  # that one is an exponent alone
        least = float(info.smallest_normal)
        self.bias = int(1 - np.log2(least)) if self.has_sign else 127
        self.sign = 1 << (element.bits - 1)
        numbers = np.array([np.inf, np.nan, -0.0, float(info.max)], np.float32)
        codes = numbers.astype(element.numpy).view(np.uint8)
        self.over, self.nan, self.minus_zero, self.greatest = map(int, codes)


def _encode_float(builder: Builder, x: Value, element: DType) -> Value:
    """f32 or f64 as the code of the nearest number."""
    rule, type = _Format(element), tensor_type(x)
    wide = type.dtype is _F64
    bits_dtype = dtype("u64" if wide else "u32")
    fraction, bias, width = (52, 1023, 64) if wide else (23, 127, 32)

    def op(name: str, *operands: Value, **attributes: Any) -> Value:
        return builder.value(name, *operands, **attributes)

    def number(value: int) -> Value:
        return builder.full(value, bits_dtype, type.shape)

    bits = op("bitcast", x, dtype=bits_dtype)
    magnitude = op("and", bits, number((1 << (width - 1)) - 1))
    drop = fraction - rule.mantissa
    half = number(1 << (drop - 1))
    if rule.has_sign:  # ties to even; an exponent alone takes them up
        last = op("and", op("shift_right_logical", magnitude, number(drop)), number(1))
        half = op("add", last, number((1 << (drop - 1)) - 1))
    rounded = op("add", magnitude, half)
    rounded = op("shift_right_logical", rounded, number(drop))
    code = op("sub", rounded, number((bias - rule.bias) << rule.mantissa))
    if rule.has_sign:  # numbers below the least normal one are multiples of the least of all
        step = builder.full(2.0 ** (rule.bias - 1 + rule.mantissa), type.dtype, type.shape)
        size = op("mul", op("abs", x), step)
        small = op("convert", op("round_even", size), dtype=bits_dtype)
        least = number((bias - rule.bias + 1) << fraction)
        code = op("select", op("compare", magnitude, least, direction="lt"), small, code)
    beyond = op("compare", code, number(rule.greatest), direction="gt")
    code = op("select", beyond, number(rule.over & ~(rule.sign if rule.has_sign else 0)), code)
    negative = op("compare", bits, number(1 << (width - 1)), direction="ge")
    is_nan = op(
        "compare",
        magnitude,
        number(((1 << (width - fraction - 1)) - 1) << fraction),
        direction="gt",
    )
    zero = op("compare", magnitude, number(0), direction="eq")
    if rule.has_sign:
        signed = op("or", code, number(rule.sign))
        code = op("select", negative, signed, code)
        if rule.minus_zero == 0:  # a minus sign alone is NaN here
            minus = op("compare", code, number(rule.sign), direction="eq")
            code = op("select", minus, number(0), code)
            unsigned = op("and", beyond, op("not", is_nan))
            code = op("select", unsigned, number(rule.over), code)
    else:
        code = op("select", op("or", negative, zero), number(rule.nan), code)
    code = op("select", is_nan, number(rule.nan), code)
    return op("convert", code, dtype=CODE)
