"""Matrix products of all front ends."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of, unsupported
from ingot.compiler.ir import Value
from ingot.hal.spec import DType

__all__ = ["matmul"]


def matmul(c: Emitter, a: Value, b: Value, result: DType) -> Value:
    """NumPy's matmul: [..., m, k] x [..., k, n] -> [..., m, n], of dtype `result`."""
    unsupported(type_of(a).rank == 0 or type_of(b).rank == 0, "operands must have rank 1 or more")
    if type_of(b).rank <= 2:
        return _dot(c, a, b, 0, result)
    if type_of(a).rank == 1:
        product = matmul(c, c.reshape(a, (1, *shape_of(a))), b, result)
        shape = shape_of(product)
        return c.reshape(product, (*shape[:-2], shape[-1]))
    batch = c.common_shape(shape_of(a)[:-2], shape_of(b)[:-2])
    a = c.broadcast_to(a, (*batch, *shape_of(a)[-2:]))
    b = c.broadcast_to(b, (*batch, *shape_of(b)[-2:]))
    return _dot(c, a, b, len(batch), result)


def _dot(c: Emitter, a: Value, b: Value, batch_count: int, result: DType) -> Value:
    """The last axis of a against the first of b that is no batch axis."""
    batch = tuple(range(batch_count))
    b = c.agree_on(b, batch_count, shape_of(a)[-1])
    return c.op(
        "dot_general",
        a,
        b,
        lhs_batch=batch,
        rhs_batch=batch,
        lhs_contract=(type_of(a).rank - 1,),
        rhs_contract=(batch_count,),
        dtype=result,
    )
