"""Discrete Fourier transforms as products with constant matrices, real and imaginary apart.

A length that is a product of small factors is split (Cooley and Tukey): transforms of the
factors, with rotations between them. The factors themselves are products with a matrix. A
symbolic length is not split: its matrix is made at the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = ["Pair", "along", "both_sides", "fitted", "over_axes", "to_real", "transform"]

Pair = tuple[Value, Value | None]
"""The real and the imaginary parts of a tensor; None where all are 0."""

_Angles = np.ndarray[Any, Any]

_LARGEST_MATRIX = 64
_LARGEST_PRIME = 4096


def transform(builder: Builder, x: Pair, inverse: bool = False) -> tuple[Value, Value]:
    """The transform along the last axis without a factor.

    CompileError: the length is known and has a prime factor above 4096.
    """
    length = tensor_type(x[0]).shape[-1]
    if not isinstance(length, int):
        return _by_matrix(builder, x, inverse)
    factor = _factor(length)
    if factor == length:
        return _by_matrix(builder, x, inverse)
    shape = tensor_type(x[0]).shape
    rows = (*shape[:-1], factor, length // factor)
    inner = transform(builder, _swapped(builder, x, rows), inverse)  # [..., j, k]
    step = 2 * np.pi / length
    angles: _Angles = np.outer(np.arange(length // factor), np.arange(factor)) * step
    rotated = _rotate(builder, inner, angles, inverse)
    last = tensor_type(rotated[0]).shape
    outer = transform(builder, _swapped(builder, rotated, last), inverse)
    wide = tensor_type(outer[0]).shape
    a, b = _swapped(builder, outer, wide)
    assert b is not None
    return builder.value("reshape", a, shape=shape), builder.value("reshape", b, shape=shape)


def along(c: Emitter, x: Pair, axis: int, inverse: bool = False) -> tuple[Value, Value]:
    """The transform along one axis without a factor."""
    order = list(range(type_of(x[0]).rank))
    order[axis], order[-1] = order[-1], order[axis]
    other = None if x[1] is None else c.transpose(x[1], order)
    real, imaginary = transform(c.builder, (c.transpose(x[0], order), other), inverse)
    return c.transpose(real, order), c.transpose(imaginary, order)


def over_axes(
    c: Emitter, x: Pair, axes: Sequence[int], *, inverse: bool = False, one_sided: bool = False
) -> tuple[Value, Value]:
    """As `along`, one axis after another, the last one first; of that only the frequencies that
    are no mirrors of others, if `one_sided`."""
    *others, last = axes
    real, imaginary = along(c, x, last, inverse)
    if one_sided:
        half = dims.floordiv(shape_of(real)[last], 2) + 1
        real, imaginary = (c.sliced(part, last, 0, half) for part in (real, imaginary))
    for axis in others:
        real, imaginary = along(c, (real, imaginary), axis, inverse)
    return real, imaginary


def to_real(c: Emitter, x: tuple[Value, Value], axes: Sequence[int], length: Dim) -> Value:
    """The inverse of what is `one_sided`; the last of the axes gets `length` points."""
    *others, last = axes
    for axis in others:
        x = along(c, x, axis, inverse=True)
    half = dims.floordiv(length, 2) + 1
    order = list(range(type_of(x[0]).rank))
    order[last], order[-1] = order[-1], order[last]
    real, imaginary = (c.transpose(c.sliced(part, last, 0, half), order) for part in x)
    whole = both_sides(c.builder, (real, imaginary), length)
    return c.transpose(transform(c.builder, whole, inverse=True)[0], order)


def fitted(c: Emitter, x: Value, axis: int, length: Dim | None) -> Value:
    """An axis cut or filled with zeros to a length."""
    own = shape_of(x)[axis]
    if length is None or length == own:
        return x
    rank = type_of(x).rank
    zeros = (0,) * rank
    axis %= rank
    high = (*zeros[:axis], length - own, *zeros[axis + 1 :])
    return c.padded(x, zeros, high)


def both_sides(builder: Builder, x: tuple[Value, Value], length: Dim) -> tuple[Value, Value]:
    """Frequencies 0 ... length / 2 along the last axis, and behind them those that mirror them."""
    real, imaginary = x
    shape = tensor_type(real).shape
    half, axis = length // 2 + 1, len(shape) - 1
    places = builder.value("iota", dtype=dtype("i64"), shape=(half,), axis=0)
    mirror = builder.value("sub", builder.number(length, "i64", (half,)), places)
    # those that are their own mirror are real: 0, and the middle of an even length
    mask = builder.value("compare", places, mirror, direction="ne")
    zeros = builder.full(0, "i64", (half,))
    mask = builder.value("and", mask, builder.value("compare", places, zeros, direction="ne"))
    mask = builder.value("broadcast", mask, shape=shape, dimensions=(axis,))
    zero = builder.full(0, tensor_type(real).dtype, shape)
    imaginary = builder.value("select", mask, imaginary, zero)

    def mirrored(part: Value) -> Value:
        start = (*(0 for _ in shape[:-1]), 1)
        limit = (*shape[:-1], length - half + 1)
        rest = builder.value("slice", part, start=start, limit=limit)
        return builder.value("reverse", rest, axes=(axis,))

    turned = builder.value("neg", mirrored(imaginary))
    return (
        builder.value("concatenate", real, mirrored(real), axis=axis),
        builder.value("concatenate", imaginary, turned, axis=axis),
    )


def _factor(length: int) -> int:
    """A factor of the length that has a matrix: the length itself where it is small or prime."""
    if length <= _LARGEST_MATRIX:
        return length
    for factor in range(_LARGEST_MATRIX, 1, -1):
        if length % factor == 0:
            return factor
    least = next((each for each in range(3, int(length**0.5) + 1, 2) if length % each == 0), length)
    if least > _LARGEST_PRIME:
        raise CompileError(
            f"a Fourier transform of length {length}, which has the prime factor {least}: pad "
            f"the data to a length with prime factors up to {_LARGEST_PRIME}"
        )
    return least


def _swapped(builder: Builder, x: Pair, shape: tuple[object, ...]) -> Pair:
    """Both parts reshaped, with the last two axes swapped."""

    def one(value: Value) -> Value:
        value = builder.value("reshape", value, shape=shape)
        rank = len(shape)
        order = (*range(rank - 2), rank - 1, rank - 2)
        return builder.value("transpose", value, permutation=order)

    real, imaginary = x
    return one(real), None if imaginary is None else one(imaginary)


def _rotate(
    builder: Builder,
    x: tuple[Value, Value],
    angles: _Angles,
    inverse: bool,
) -> tuple[Value, Value]:
    """Each element times exp(-i angle), or exp(i angle) for an inverse transform."""
    real, imaginary = x
    type = tensor_type(real)
    cosine, sine = (
        builder.broadcast_to(builder.constant(values, type.dtype), type.shape)
        for values in (np.cos(angles), np.sin(angles) * (1 if inverse else -1))
    )
    return _multiply(builder, (real, imaginary), (cosine, sine))


def _multiply(
    builder: Builder, a: tuple[Value, Value], b: tuple[Value, Value]
) -> tuple[Value, Value]:
    op = builder.value
    real = op("sub", op("mul", a[0], b[0]), op("mul", a[1], b[1]))
    return real, op("add", op("mul", a[0], b[1]), op("mul", a[1], b[0]))


def _by_matrix(builder: Builder, x: Pair, inverse: bool) -> tuple[Value, Value]:
    """The transform as a product with the matrix exp(-2 pi i j k / n)."""
    real, imaginary = x
    type = tensor_type(real)
    cosine, sine = _matrix(builder, type.shape[-1], type.dtype, inverse)

    def product(value: Value, matrix: Value) -> Value:
        return builder.value(
            "dot_general",
            value,
            matrix,
            lhs_contract=(type.rank - 1,),
            rhs_contract=(0,),
            dtype=type.dtype,
            exact=True,
        )

    if imaginary is None:
        return product(real, cosine), product(real, sine)
    return (
        builder.value("sub", product(real, cosine), product(imaginary, sine)),
        builder.value("add", product(real, sine), product(imaginary, cosine)),
    )


def _matrix(builder: Builder, length: Dim, element: DType, inverse: bool) -> tuple[Value, Value]:
    """The cosine and the sine of 2 pi j k / n: [n, n]."""
    sign = 1 if inverse else -1
    if isinstance(length, int):
        places = np.outer(np.arange(length), np.arange(length)) % max(length, 1)
        known = places * (2 * np.pi / max(length, 1))
        parts = (np.cos(known), np.sin(known) * sign)
        cosine, sine = (builder.constant(each, element) for each in parts)
        return cosine, sine
    shape = (length, length)
    rows, columns = (
        builder.value("iota", dtype=dtype("i64"), shape=shape, axis=axis) for axis in range(2)
    )
    size = builder.number(length, "i64", shape)
    turns = builder.value("rem", builder.value("mul", rows, columns), size)
    turns, size = (builder.value("convert", each, dtype=dtype("f64")) for each in (turns, size))
    circle = builder.full(2 * np.pi * sign, "f64", shape)
    angles = builder.value("mul", turns, builder.value("div", circle, size))
    wide = (builder.value(name, angles) for name in ("cos", "sin"))
    cosine, sine = (builder.value("convert", each, dtype=element) for each in wide)
    return cosine, sine
