"""Triangles of a chunk of tokens: what token i takes of each token j before it.

They are made, and inverted, by halves: blocks of two rows on the diagonal first, then the quarter
that makes one twice as large of two. No power of a triangle is needed, so rounding does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dims
from ingot.hal.spec import dtype

__all__ = ["LEAST_SHARE", "below", "halves", "inverse", "product", "quarters", "share"]

F32 = dtype("f32")
_LEAST = -60.0
LEAST_SHARE = math.exp(_LEAST)
"""What is less is far below the rounding of what it is added to, and counts as 0: products of
subnormal numbers are slow."""


def halves(length: int) -> Iterator[int]:
    """Tokens of the blocks of which two make the next larger one: 1, 2, 4 ... half of `length`."""
    return (1 << place for place in range(length.bit_length() - 1))


def product(b: Builder, x: Value, y: Value, lhs: int, rhs: int) -> Value:
    """That of matrices x[batch, ...] and y[batch, ...] over these axes."""
    return b.value(
        "dot_general", x, y, lhs_batch=(0,), rhs_batch=(0,), lhs_contract=(lhs,),
        rhs_contract=(rhs,),
    )  # fmt: skip


def share(b: Builder, sums: Value) -> Value:
    """exp(sums), or 0 where that is less than LEAST_SHARE."""
    type = tensor_type(sums)
    least, zero = (b.full(x, F32, type.shape) for x in (_LEAST, 0.0))
    is_much = b.value("compare", sums, least, direction="gt")
    return b.value("select", is_much, b.value("exp", sums), zero)


def inverse(b: Builder, x: Value) -> Value:
    """(I + x)^-1 of x[heads, length, length], which is 0 but below the diagonal."""
    shape = _, length, _ = known_dims(tensor_type(x).shape)
    zero = b.full(0.0, F32, shape)
    unit = b.constant(np.eye(length, dtype=np.float32))
    pairs = b.value("select", quarters(b, shape, 1), x, zero)
    made = b.value("sub", b.broadcast_to(unit, shape), pairs)
    for size in islice(halves(length), 1, None):
        own = b.value("select", quarters(b, shape, size), x, zero)
        added = product(b, product(b, made, own, 2, 1), made, 2, 1)
        made = b.value("sub", made, added)
    return made


def below(b: Builder, shape: tuple[Dim, ...], with_diagonal: bool = False) -> Value:
    """Whether elements of matrices lie below the diagonal."""
    i, j = np.indices(known_dims(shape[1:]))
    mask = b.constant(i >= j if with_diagonal else i > j)
    return b.value("broadcast", mask, shape=shape, dimensions=(1, 2))


def quarters(b: Builder, shape: tuple[Dim, ...], size: int) -> Value:
    """Whether elements lie in the lower left quarter of a block of 2 * size on the diagonal; of one
    triangle, or of several below each other."""
    rows, columns = known_dims(shape[1:])
    i, j = np.indices((rows, columns)) // size
    i %= columns // size
    mask = b.constant((i % 2 == 1) & (j == i - 1))
    return b.value("broadcast", mask, shape=shape, dimensions=(1, 2))
