"""Linear algebra as loops over columns, panels and sweeps, each step on all matrices of a batch.

Matrices stand in the last two axes of tensors; algorithms see them as `Array`s [b, m, n].
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.matrices.arrays import Array, Scope
from ingot.compiler.frontends.matrices.elimination import lu, solve_triangular
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.hal.errors import CompileError

__all__ = ["Array", "Scope", "batched", "determinant", "inverse"]


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
    factors = lu(_square(builder, x))
    both, scope = factors.both, factors.both.scope
    stays = factors.pivots.equals(scope.count(factors.pivots.shape, 1))
    signed = scope.where(stays, both.diagonal(), -both.diagonal())
    return signed.reduce("mul", 1).reshape(*tensor_type(x).shape[:-2]).value


def inverse(builder: Builder, x: Value) -> Value:
    """[..., n, n] -> [..., n, n]; inf or NaN where there is none."""
    factors = lu(_square(builder, x))
    both, scope = factors.both, factors.both.scope
    unit = scope.identity(both.shape[0], both.shape[1], both).rows(factors.order)
    plain = {"left": True, "transposed": False, "conjugated": False}
    part = solve_triangular(both, unit, lower=True, unit=True, **plain)
    result = solve_triangular(both, part, lower=False, unit=False, **plain)
    return result.reshape(*tensor_type(x).shape).value
