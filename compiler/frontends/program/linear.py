"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends import products
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.program.elementwise import common_dtype
from ingot.compiler.frontends.program.manipulation import axes_of
from ingot.compiler.frontends.program.tensor import Tensor, current, given, public, value_of
from ingot.compiler.ir import Value

__all__: list[str] = []


def _operands(x1: Any, x2: Any) -> list[Value]:
    """Both in the dtype to which they promote, which holds numbers."""
    element = common_dtype(x1, x2)
    if element.is_boolean:
        raise UnsupportedNode("its operands are booleans: convert them with ops.astype")
    return [current().convert(value_of(each, element), element) for each in (x1, x2)]


@public
def matmul(x1: Any, x2: Any, /) -> Tensor:
    """[..., m, k] x [..., k, n] -> [..., m, n]; an operand of rank 1 is a row or a column."""
    a, b = _operands(x1, x2)
    return given(products.matmul(current(), a, b, type_of(a).dtype))


@public
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over axes: the last ones of x1 with the first ones of x2, as many as
    `axes` says, or those of two sequences."""
    a, b = _operands(x1, x2)
    if isinstance(axes, int):
        ranks = type_of(a).rank, type_of(b).rank
        if not 0 <= axes <= min(ranks):
            raise UnsupportedNode(f"axes is {axes}, but the operands have the ranks {ranks}")
        left, right = list(range(ranks[0] - axes, ranks[0])), list(range(axes))
    else:
        left, right = (
            axes_of(tuple(each) if isinstance(each, Sequence) else each, type_of(value).rank)
            for each, value in zip(axes, (a, b), strict=True)
        )
    return given(_contracted(a, b, [], [], left, right))


def _contracted(
    a: Value, b: Value, lhs_batch: list[int], rhs_batch: list[int], left: list[int],
    right: list[int],
) -> Value:  # fmt: skip
    trace = current()
    if len(left) != len(right):
        raise UnsupportedNode(f"{len(left)} axes of x1 meet {len(right)} of x2")
    for at, other in zip(left, right, strict=True):
        b = trace.agree_on(b, other, shape_of(a)[at])
    return trace.op(
        "dot_general",
        a,
        b,
        lhs_batch=tuple(lhs_batch),
        rhs_batch=tuple(rhs_batch),
        lhs_contract=tuple(left),
        rhs_contract=tuple(right),
        dtype=type_of(a).dtype,
    )


@public
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Sums of products over one axis, which is counted from the end in both."""
    a, b = _operands(x1, x2)
    if not -min(type_of(a).rank, type_of(b).rank) <= axis < 0:
        raise UnsupportedNode(f"axis is {axis}, expected a negative one that both operands have")
    a, b = current().broadcast(a, b)
    rank = type_of(a).rank
    batch = [at for at in range(rank) if at != rank + axis]
    return given(_contracted(a, b, batch, batch, [rank + axis], [rank + axis]))


@public
def outer(x1: Any, x2: Any, /) -> Tensor:
    """The products of all elements of x1 [m] with all of x2 [n]: [m, n]."""
    a, b = _operands(x1, x2)
    if type_of(a).rank != 1 or type_of(b).rank != 1:
        raise UnsupportedNode(f"its operands are {a.type} and {b.type}, expected rank 1")
    column = current().reshape(a, (*shape_of(a), 1))
    return given(current().op("mul", *current().broadcast(column, b)))
