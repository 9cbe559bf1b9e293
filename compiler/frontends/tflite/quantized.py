"""Quantised tensors as ops on integers and floats: see docs/design/0013-integer-arithmetic.md."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.tflite.model import Quantization
from ingot.compiler.ir import Value
from ingot.hal.spec import DType

__all__ = ["as_codes_of_rows", "dequantize", "quantize"]


def _spread(c: Emitter, x: Value, numbers: tuple[float, ...], axis: int) -> Value:
    """One number, or one per index of an axis, in the shape and dtype of x."""
    if len(numbers) == 1:
        return c.fill(numbers[0], like=x)
    column = c.constant(numbers, type_of(x).dtype)
    return c.op("broadcast", column, shape=shape_of(x), dimensions=(axis,))


def dequantize(c: Emitter, codes: Value, q: Quantization) -> Value:
    """(codes - zero) * scale, in f32."""
    x = c.convert(codes, "f32")
    if any(q.zeros):
        x = c.op("sub", x, _spread(c, x, q.zeros, q.axis))
    return c.op("mul", x, _spread(c, x, q.scales, q.axis))


def quantize(c: Emitter, x: Value, q: Quantization, element: DType) -> Value:
    """round(x / scale) + zero, halves to even, as far as the dtype reaches."""
    x = c.convert(x, "f32" if element.bits <= 16 else "f64")
    x = c.op("round_even", c.op("div", x, _spread(c, x, q.scales, q.axis)))
    if any(q.zeros):
        x = c.op("add", x, _spread(c, x, q.zeros, q.axis))
    limits = [c.fill(limit, like=x) for limit in element.limits]
    return c.convert(c.op("clamp", limits[0], x, limits[1]), element)


def as_codes_of_rows(c: Emitter, x: Value, axes: Sequence[int], is_symmetric: bool) -> Value:
    """What x is as codes of 8 bits with a scale of its own along all but these axes, as LiteRT's
    default kernels have it where the weights are quantised and x is not. With a zero point, too,
    0 and the least and greatest number are codes; without, 0 and the one that is farthest from it.
    """
    if is_symmetric:
        return _as_symmetric_codes(c, x, axes)
    low, high = (c.op(kind, c.reduce(x, axes, kind, keep=True), 0) for kind in ("min", "max"))
    span = c.op("sub", high, low)
    empty = c.compare("eq", span, 0)
    factor = c.op("select", empty, c.fill(1, like=span), c.op("div", 255, span))
    ends = [c.op("mul", end, factor) for end in (low, high)]
    # the end that a rounded zero point moves less stays where it is
    error = c.op("sub", c.op("add", *ends), 1)
    zeros = c.op("sub", -128, ends[0]), c.op("sub", 127, ends[1])
    zero = c.op("select", c.compare("gt", error, 0), *zeros)
    zero = c.op("clamp", -128, zero, 127)
    zero = c.convert(c.convert(c.op("round_even", zero), "i8"), "f32")
    zero = c.broadcast_to(zero, shape_of(x))
    codes = c.op("round_even", c.op("mul", x, c.broadcast_to(factor, shape_of(x))))
    codes = c.op("add", codes, zero)
    limits = c.fill(-128, like=x), c.fill(127, like=x)
    codes = c.convert(c.op("clamp", limits[0], codes, limits[1]), "i8")
    numbers = c.op("sub", c.convert(codes, "f32"), zero)
    return c.op("mul", numbers, c.broadcast_to(c.op("div", 1, factor), shape_of(x)))


def _as_symmetric_codes(c: Emitter, x: Value, axes: Sequence[int]) -> Value:
    farthest = c.reduce(c.op("abs", x), axes, "max", keep=True)
    empty = c.compare("eq", farthest, 0)
    farthest = c.op("select", empty, c.fill(127, like=farthest), farthest)
    factor = c.broadcast_to(c.op("div", 127, farthest), shape_of(x))
    codes = c.convert(c.op("round_away", c.op("mul", x, factor)), "i8")
    scale = c.broadcast_to(c.op("div", farthest, 127), shape_of(x))
    return c.op("mul", c.convert(codes, "f32"), scale)
