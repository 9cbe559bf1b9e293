"""Spectra. A complex tensor is a pair of values until it is made real again."""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.fourier import transform
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass

__all__: list[str] = []


@dataclass(frozen=True)
class _Complex:
    real: Value
    imaginary: Value


@lowering("RFFT2D", raw=True)
def rfft2d(c: Context, x: Value, lengths: Value) -> _Complex:
    """Over the last two axes, cut or padded to these lengths."""
    rank = type_of(x).rank
    sizes = c.known(lengths, "length")
    for axis, size in zip((rank - 2, rank - 1), sizes, strict=True):
        own = shape_of(x)[axis]
        if not isinstance(own, int) or size < 1:
            raise UnsupportedNode(f"it transforms {own} elements as {size}: fix the lengths")
        x = c.sliced(x, axis, 0, min(own, size))
        if own < size:
            pairs = [(0, size - own if at == axis else 0) for at in range(rank)]
            x = c.padded(x, c.full(0, type_of(x).dtype, ()), pairs)
    half = sizes[1] // 2 + 1
    parts = [c.sliced(each, rank - 1, 0, half) for each in transform(c.builder, (x, None))]
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    turned = [c.transpose(each, swapped) for each in parts]
    real, imaginary = transform(c.builder, (turned[0], turned[1]))
    return _Complex(c.transpose(real, swapped), c.transpose(imaginary, swapped))


def _parts(x: Any) -> _Complex:
    if not isinstance(x, _Complex):
        raise UnsupportedNode("complex numbers are supported as what RFFT2D gives only")
    return x


@lowering("REAL", raw=True)
def real(c: Context, x: Any) -> Value:
    return _parts(x).real


@lowering("IMAG", raw=True)
def imaginary(c: Context, x: Any) -> Value:
    return _parts(x).imaginary


@lowering("COMPLEX_ABS", raw=True)
def absolute(c: Context, x: Any) -> Value:
    x = _parts(x)
    squares = [c.op("mul", each, each) for each in (x.real, x.imaginary)]
    return c.op("sqrt", c.op("add", *squares))
