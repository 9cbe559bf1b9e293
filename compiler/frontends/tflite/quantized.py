"""Quantised tensors as ops on integers and floats: see docs/design/0013-integer-arithmetic.md."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import Emitter, shape_of
from ingot.compiler.frontends.tflite.model import Quantization
from ingot.compiler.ir import Value
from ingot.hal.spec import DType

__all__ = ["dequantize", "quantize"]


def _spread(c: Emitter, x: Value, numbers: tuple[float, ...], axis: int) -> Value:
    """One number, or one per index of an axis, in the shape of x, which is f32."""
    if len(numbers) == 1:
        return c.fill(numbers[0], like=x)
    column = c.constant(numbers, "f32")
    return c.op("broadcast", column, shape=shape_of(x), dimensions=(axis,))


def dequantize(c: Emitter, codes: Value, q: Quantization) -> Value:
    """(codes - zero) * scale, in f32."""
    x = c.convert(codes, "f32")
    if any(q.zeros):
        x = c.op("sub", x, _spread(c, x, q.zeros, q.axis))
    return c.op("mul", x, _spread(c, x, q.scales, q.axis))


def quantize(c: Emitter, x: Value, q: Quantization, element: DType) -> Value:
    """round(x / scale) + zero, halves to even, as far as the dtype reaches."""
    x = c.convert(x, "f32")
    x = c.op("round_even", c.op("div", x, _spread(c, x, q.scales, q.axis)))
    if any(q.zeros):
        x = c.op("add", x, _spread(c, x, q.zeros, q.axis))
    limits = [c.fill(limit, like=x) for limit in element.limits]
    return c.convert(c.op("clamp", limits[0], x, limits[1]), element)
