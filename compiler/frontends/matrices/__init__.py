"""Linear algebra as loops over columns, panels and sweeps, each step on all matrices of a batch.

Matrices stand in the last two axes of tensors; algorithms see them as `Array`s [b, m, n].
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.matrices.arrays import Array, Scope
from ingot.compiler.frontends.matrices.elimination import Factors, lu, solve_triangular
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.hal.errors import CompileError

__all__ = [
    "Array",
    "Scope",
    "batched",
    "determinant",
    "inverse",
    "product_of",
    "signed_pivots",
    "solve",
]


def batched(scope: Scope, parts: Sequence[Value], rank: int = 2) -> Array:
    """A tensor, as its parts, with one axis in front of its last `rank` ones."""
    x = Array(scope, tuple(parts))
    before = len(x.shape) - rank
    return x.reshape(dims.product(x.shape[:before]), *x.shape[before:])


def _square(builder: Builder, x: Value) -> Array:
    shape = tensor_type(x).shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise CompileError(f"expected square matrices [..., n, n], got {x.type}")
    return batched(Scope(builder), [x])


def determinant(builder: Builder, x: Value) -> Value:
    """[..., n, n] -> [...]."""
    pivots = signed_pivots(lu(_square(builder, x)))
    return product_of(pivots).reshape(*tensor_type(x).shape[:-2]).value


def signed_pivots(factors: Factors) -> Array:
    """Of [b, n, n] -> [b, n]: numbers whose product is the determinant."""
    both, scope = factors.both, factors.both.scope
    stays = factors.pivots.equals(scope.count(factors.pivots.shape, 1))
    return scope.where(stays, both.diagonal(), -both.diagonal())


def product_of(x: Array) -> Array:
    """[b, n] -> [b]."""
    if not x.is_complex:
        return x.reduce("mul", 1)
    one = x.scope.full(1, x.dtype, x.shape[:1]).as_complex()
    return x.scope.loop(x.shape[1], [one], lambda index, made: [made * x.at(index, 1)])[0]


def solve(a: Array | Factors, b: Array) -> Array:
    """A^-1 B for [b, n, n], or its factors, and [b, n, m]; inf or NaN where there is none."""
    factors = lu(a) if isinstance(a, Array) else a
    plain = {"left": True, "transposed": False, "conjugated": False}
    part = solve_triangular(factors.both, b.rows(factors.order), lower=True, unit=True, **plain)
    return solve_triangular(factors.both, part, lower=False, unit=False, **plain)


def inverse(builder: Builder, x: Value) -> Value:
    """[..., n, n] -> [..., n, n]; inf or NaN where there is none."""
    matrices = _square(builder, x)
    unit = matrices.scope.identity(matrices.shape[0], matrices.shape[1], matrices)
    return solve(matrices, unit).reshape(*tensor_type(x).shape).value
