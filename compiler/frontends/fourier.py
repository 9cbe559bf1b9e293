"""Discrete Fourier transforms as products with constant matrices, real and imaginary apart.

A length that is a product of small factors is split (Cooley and Tukey): transforms of the
factors, with rotations between them. The factors themselves are products with a matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.hal.errors import CompileError

__all__ = ["Pair", "both_sides", "transform"]

Pair = tuple[Value, Value | None]
"""The real and the imaginary parts of a tensor; None where all are 0."""

_Angles = np.ndarray[Any, Any]

_LARGEST_MATRIX = 64
_LARGEST_PRIME = 4096


def transform(builder: Builder, x: Pair, inverse: bool = False) -> tuple[Value, Value]:
    """The transform along the last axis, whose length is known, without a factor.

    CompileError: the length is symbolic, or has a prime factor above 4096.
    """
    length = tensor_type(x[0]).shape[-1]
    if not isinstance(length, int):
        raise CompileError(
            f"a Fourier transform of the symbolic length {length}: export the model with a "
            "fixed one"
        )
    factor = _factor(length)
    if factor == length:
        return _by_matrix(builder, x, inverse)
    shape = tensor_type(x[0]).shape
    rows = (*shape[:-1], factor, length // factor)
    inner = transform(builder, _each(builder, x, rows, swapped=True), inverse)  # [..., j, k]
    step = 2 * np.pi / length
    angles: _Angles = np.outer(np.arange(length // factor), np.arange(factor)) * step
    rotated = _rotate(builder, inner, angles, inverse)
    last = tensor_type(rotated[0]).shape
    outer = transform(builder, _each(builder, rotated, last, swapped=True), inverse)
    wide = tensor_type(outer[0]).shape
    a, b = _each(builder, outer, wide, swapped=True)
    assert b is not None
    return builder.value("reshape", a, shape=shape), builder.value("reshape", b, shape=shape)


def both_sides(builder: Builder, x: tuple[Value, Value], length: int) -> tuple[Value, Value]:
    """Frequencies 0 ... length / 2 along the last axis, and behind them those that mirror them."""
    real, imaginary = x
    shape = tensor_type(real).shape
    half, axis = length // 2 + 1, len(shape) - 1
    alone = {0, length // 2} if length % 2 == 0 else {0}  # these are real
    mask = builder.constant(np.array([place not in alone for place in range(half)]), "i1")
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


def _each(builder: Builder, x: Pair, shape: tuple[object, ...], *, swapped: bool) -> Pair:
    """Both parts reshaped, with the last two axes swapped."""

    def one(value: Value) -> Value:
        value = builder.value("reshape", value, shape=shape)
        rank = len(shape)
        order = (*range(rank - 2), rank - 1, rank - 2) if swapped else tuple(range(rank))
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
    length = type.shape[-1]
    assert isinstance(length, int)
    places = np.outer(np.arange(length), np.arange(length)) % max(length, 1)
    angles = places * (2 * np.pi / max(length, 1))
    cosine = builder.constant(np.cos(angles), type.dtype)
    sine = builder.constant(np.sin(angles) * (1 if inverse else -1), type.dtype)

    def product(value: Value, matrix: Value) -> Value:
        return builder.value(
            "dot_general",
            value,
            matrix,
            lhs_contract=(type.rank - 1,),
            rhs_contract=(0,),
            dtype=type.dtype,
        )

    if imaginary is None:
        return product(real, cosine), product(real, sine)
    return (
        builder.value("sub", product(real, cosine), product(imaginary, sine)),
        builder.value("add", product(real, sine), product(imaginary, cosine)),
    )
