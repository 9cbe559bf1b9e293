"""Products of a matrix and a vector, neither of which is a weight, as sums along the matrix.

A kernel for products would first put the matrix into panels, of which a vector uses each once;
or, where the vector is on the right, compute a panel of columns for the one there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import DotGeneral
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dims import product
from ingot.hal.spec import dtype

__all__ = ["multiply_vector"]

_F32 = dtype("f32")


def multiply_vector(op: Op, builder: Builder) -> Value | None:
    """A dot_general of floats one of whose sides has one row as `mul` and `reduce`; else None."""
    dot = DotGeneral.of(op)
    sides = [
        (op.operands[0], dot.lhs_batch, dot.lhs_contract),
        (op.operands[1], dot.rhs_batch, dot.rhs_contract),
    ]
    free = [_free(tensor_type(x).rank, batch, contract) for x, batch, contract in sides]
    rows = [
        product(tensor_type(side[0]).shape[axis] for axis in axes)
        for side, axes in zip(sides, free, strict=True)
    ]
    if 1 not in rows or not dot.lhs_contract or not dot.dtype.is_float:
        return None
    at = rows.index(1)
    x, batch, contract = sides[1 - at]
    order = [axis for axis in range(tensor_type(x).rank) if axis not in free[1 - at]]
    v = _vector(sides[at], [(*batch, *contract).index(axis) for axis in order], builder)
    x, v = (_wide(each, builder) for each in (x, v))
    v = builder.value("broadcast", v, shape=tensor_type(x).shape, dimensions=tuple(order))
    y = builder.value("mul", x, v)
    y = builder.value("reduce", y, axes=tuple(sorted(contract)), kind="add")
    left = [axis for axis in range(tensor_type(x).rank) if axis not in contract]
    moved = tuple(left.index(axis) for axis in (*batch, *free[1 - at]))
    y = builder.value("transpose", y, permutation=moved)
    if tensor_type(y).dtype is not dot.dtype:
        y = builder.value("convert", y, dtype=dot.dtype)
    return builder.value("reshape", y, shape=tensor_type(op.result).shape)


def _free(rank: int, batch: Sequence[int], contract: Sequence[int]) -> list[int]:
    return [axis for axis in range(rank) if axis not in (*batch, *contract)]


def _vector(
    side: tuple[Value, Sequence[int], Sequence[int]], order: Sequence[int], builder: Builder
) -> Value:
    """Its batch and contracted dims, taken in this order, without those of one row."""
    x, batch, contract = side
    axes = [(*batch, *contract)[place] for place in order]
    shape = [tensor_type(x).shape[axis] for axis in axes]
    x = builder.value("transpose", x, permutation=(*axes, *_free(tensor_type(x).rank, axes, ())))
    return builder.value("reshape", x, shape=tuple(shape))


def _wide(x: Value, builder: Builder) -> Value:
    """Floats in which products add up."""
    if tensor_type(x).dtype.bytes >= _F32.bytes:
        return x
    return builder.value("convert", x, dtype=_F32)
