"""The exponential of matrices: a Taylor series of what is halved until its norm is at most 1, and
squares of that."""

from __future__ import annotations

import math

from ingot.compiler.frontends.matrices.arrays import I64, Array

__all__ = ["exponential"]

_TERMS = {"f32": 11, "f64": 20}  # the next one is below the last place
_LOG_2 = math.log(2)


def exponential(x: Array) -> Array:
    """exp of [b, n, n]."""
    scope, (batch, size, _) = x.scope, x.shape
    if size == 0:
        return x
    norm = x.size().sum(1).max(1)
    known = scope.where((norm > 1) & norm.is_finite(), norm, 1)
    halvings = (known.each("log") / _LOG_2).each("ceil").convert(I64)
    half = scope.full(0.5, x.dtype, (batch,))
    scale = half.each("pow", halvings.convert(x.dtype).value).reshape(batch, 1, 1)
    x = x * scale
    unit = scope.identity(batch, size, x)
    count = _TERMS[x.dtype.name]

    def term(index: Array, total: Array) -> list[Array]:
        return [x @ total / (count - index).convert(x.dtype) + unit]

    (total,) = scope.loop(count, [unit], term)

    def square(index: Array, total: Array) -> list[Array]:
        goes_on = (halvings > index).reshape(batch, 1, 1)
        return [scope.where(goes_on, total @ total, total)]

    (total,) = scope.loop(halvings.max(0), [total], square)
    return total
