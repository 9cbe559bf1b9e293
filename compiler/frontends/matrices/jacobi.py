"""Eigenvalues of Hermitian matrices and singular values, by Jacobi's rotations.

A round rotates n / 2 pairs of rows at once, and n - 1 rounds, a sweep, meet every pair: rows i and
i + n / 2 are a pair, and after a round all rows but the first move on by one place, as players of a
tournament do. After a sweep all are where they were. Sweeps end when a whole one found nothing
that is worth a rotation; after quadratic convergence that is the eighth or so. Large matrices are
turned by approximate eigenvectors first: most then need no sweep, or one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingot.compiler.frontends.matrices.arrays import I64, Array, Scope
from ingot.compiler.frontends.matrices.bisection import approximate_basis
from ingot.compiler.frontends.matrices.reflectors import product, qr
from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Dim

__all__ = ["eigh", "scaled", "svd"]

_SWEEPS = 40
_MANY = 48  # rows, from which on rotations start with nearly diagonal matrices
_ROUNDING = 8.0  # what products with a basis leave beside the diagonal, in units of what is least


class _Tournament:
    """Who meets whom: `order[i]` is the row that moves to place i, `partner[i]` the one that it met
    in the round before."""

    def __init__(self, scope: Scope, size: Dim) -> None:
        self.half = half = dims.floordiv(size, 2)
        self.rounds = size - 1
        at = scope.count((size,), 0)
        order = scope.where(at < half, at - 1, at + 1)
        order = scope.where(at.equals(size - 1), half - 1, order)
        order = scope.where(at.equals(1), half, order)
        self.order = scope.where(at.equals(0), 0, order)
        self.partner = scope.where(self.order < half, self.order + half, self.order - half)


def _rotations(first: Array, second: Array, between: Array) -> tuple[Array, Array]:
    """For [[first, between], [conj(between), second]] of each pair, [b, h]: cos - 1, and sin times
    the phase, with which [[cos, -sin], [conj(sin), cos]] makes the matrix diagonal."""
    scope, size = first.scope, between.abs()
    none = size.equals(0)
    ratio = (second - first) / (scope.where(none, 1, size) * 2)
    root = (ratio.square() + 1).sqrt()
    tangent = 1 / (ratio.abs() + root)
    tangent = scope.where(none, 0, scope.where(ratio < 0, -tangent, tangent))
    cosine = 1 / (tangent.square() + 1).sqrt()
    sine = tangent * cosine
    phase = between / scope.where(none, 1, size)
    return -sine.square() / (cosine + 1), phase * sine


def _rotated(x: Array, less: Array, sine: Array, tournament: _Tournament, axis: int = 1) -> Array:
    """The rows of [b, n, m] after a round, each where it stands in the next one; or columns, by the
    adjoint rotations. What small angles change is summed before it is added, so that rows keep
    their lengths."""
    scope, order = x.scope, tournament.order
    of_self = scope.concatenate([less, less], 1).take(order, 1).unsqueeze(3 - axis)
    of_other = scope.concatenate([-sine, sine.conj()], 1).take(order, 1).unsqueeze(3 - axis)
    stays, comes = x.take(order, axis), x.take(tournament.partner, axis)
    return stays + (stays * of_self + comes * (of_other if axis == 1 else of_other.conj()))


def _sweeps(
    scope: Scope, angle: Array, initial: list[Array], sweep: Callable[..., list[Array]]
) -> tuple[list[Array], Array]:
    """`sweep(*carried)` gives the next values and, in front, the greatest angle that it met, [b]
    and relative to what is worth a rotation, as `angle` is in front of the first one. The last
    values, and i1[b]: it converged."""

    def goes_on(count: Array, angle: Array, *rest: Array) -> Array:
        return (count < _SWEEPS) & (angle.max(0) > 1)

    def step(count: Array, angle: Array, *rest: Array) -> list[Array]:
        return [count + 1, *sweep(*rest)]

    _, angle, *results = scope.repeat([scope.index(0), angle, *initial], goes_on, step)
    return results, angle <= 1


def _known(angle: Array) -> Array:
    """0 where it is not a number: what is not finite keeps no other matrix waiting."""
    return angle.scope.where(angle > 0, angle, 0)


def scaled(x: Array) -> tuple[Array, Array]:
    """Matrices whose greatest number is about 1, and what they were divided by, [b, 1]."""
    scope = x.scope
    greatest = x.size().max(2).max(1)
    usual = (greatest > 0) & (greatest < float(np.finfo(x.dtype.numpy).max))
    scale = scope.where(usual, greatest, 1).unsqueeze(1)
    return x / scale.unsqueeze(2), scale


def eigh(x: Array) -> tuple[Array, Array, Array]:
    """Hermitian [b, n, n], of which the lower half is read: eigenvalues in ascending order [b, n],
    their vectors as columns, and i64[b], 1 where nothing was found."""
    scope, (batch, size, _) = x.scope, x.shape
    rows, columns = scope.count((1, size, 1), 1), scope.count((1, 1, size), 2)
    x = scope.where(rows > columns, x, x.H)
    if x.is_complex:
        x = scope.where(rows.equals(columns), x.real, x)
    x, scale = scaled(x)
    even = dims.ceildiv(size, 2) * 2
    tournament = _Tournament(scope, even)
    half = tournament.half
    length = x.square().sum(2).sum(1).sqrt()
    least = scope.where(length.equals(0), 1, length) * x.epsilon

    def off(matrix: Array) -> Array:
        """The greatest number beside the diagonal, in units of what rounding leaves."""
        at, along = scope.count((1, even, 1), 1), scope.count((1, 1, even), 2)
        beside = scope.where(at.equals(along), 0, matrix.size())
        return _known(beside.max(2).max(1) / least)

    def round(index: Array, matrix: Array, vectors: Array) -> list[Array]:
        diagonal = matrix.diagonal().real
        first, second = diagonal.cut(1, 0, half), diagonal.cut(1, half, even)
        between = matrix.cut(1, 0, half).cut(2, half, even).diagonal()
        less, sine = _rotations(first, second, between)
        matrix = _rotated(matrix, less, sine, tournament)
        matrix = _rotated(matrix, less, sine, tournament, axis=2)
        return [matrix, _rotated(vectors, less, sine, tournament)]

    def sweep(matrix: Array, vectors: Array) -> list[Array]:
        matrix, vectors = scope.loop(tournament.rounds, [matrix, vectors], round)
        return [off(matrix), matrix, vectors]

    start, matrix = scope.identity(batch, even, x), x.padded(even, even)
    angle = scope.full(2, x.dtype, (batch,))
    if isinstance(size, int) and size >= _MANY:
        basis = approximate_basis(x)
        x = basis.H @ (x @ basis)
        x = scope.where(rows > columns, x, x.H)
        start, matrix = basis.H.padded(even, even), x.padded(even, even)
        angle = off(matrix) / _ROUNDING
    (matrix, vectors), converged = _sweeps(scope, angle, [matrix, start], sweep)
    values = matrix.diagonal().real.cut(1, 0, size)
    vectors = vectors.cut(1, 0, size).cut(2, 0, size)
    values, order = _sorted(values, largest=False)
    return values * scale, vectors.rows(order).H, _failed(converged, values)


def _sorted(values: Array, *, largest: bool) -> tuple[Array, Array]:
    """[b, n] in descending or ascending order, and which each was."""
    scope = values.scope
    found, order = scope.builder.op(
        "top_k", values.value, k=values.shape[1], axis=1, largest=largest, dtype=I64
    )
    return scope.real(found), scope.real(order)


def _failed(converged: Array, values: Array) -> Array:
    """i64[b]: 1 where sweeps did not converge, or something is not finite."""
    finite = values.is_finite().reduce("and", 1)
    return (~(finite & converged)).convert(I64)


def svd(x: Array, *, whole: bool) -> tuple[Array, Array, Array, Array]:
    """U, singular values in descending order [b, k], V^H, and i64[b] as `eigh`. U and V^H have
    k = min(m, n) columns and rows, or are square (`whole`).

    x = Q R, and rotations make the rows of R orthogonal: their lengths are the singular values.
    Where a length is 0, V^H has a row that another QR finds.
    """
    scope, (batch, m, n) = x.scope, x.shape
    count = dims.minimum(m, n)
    x, scale = scaled(x)
    factors, taus = qr(x)
    rows, columns = scope.count((1, count, 1), 1), scope.count((1, 1, n), 2)
    upper = scope.where(rows <= columns, factors.cut(1, 0, count), 0)
    upper, rotation, converged = _orthogonal_rows(upper)
    lengths = upper.square().sum(2).sqrt()
    values, order = _sorted(lengths, largest=True)
    upper, rotation = upper.rows(order), rotation.rows(order)
    right, others = qr(upper.H)
    signs = right.cut(1, 0, count).diagonal().real
    signs = scope.where(signs < 0, scope.full(-1, x.dtype), 1)
    unit = scope.identity(batch, n, x, n if whole else count)
    place = scope.count((1, n, 1), 1)
    signs = scope.where(place < count, signs.padded(n).unsqueeze(2), 1)
    v = product(right, others, unit * signs)
    left = rotation.H.padded(m, m if whole else count)
    if whole:
        at = scope.count((1, m, 1), 1)
        rest = at.equals(scope.count((1, 1, m), 2)) & (at >= count)
        left = scope.where(rest, 1, left)
    u = product(factors, taus, left)
    return u, values * scale, v.H, _failed(converged, values)


def _orthogonal_rows(x: Array) -> tuple[Array, Array, Array]:
    """[b, k, n] whose rows are orthogonal after rotations; their product; whether that is so."""
    scope, (batch, size, length) = x.scope, x.shape
    even = dims.ceildiv(size, 2) * 2
    tournament = _Tournament(scope, even)
    half = tournament.half
    least = scope.full(length, x.dtype).sqrt() * (2 * x.epsilon)

    def round(index: Array, angle: Array, x: Array, product: Array) -> list[Array]:
        above, below = x.cut(1, 0, half), x.cut(1, half, even)
        first, second = above.square().sum(2), below.square().sum(2)
        between = (above * below.conj()).sum(2)
        size = first.sqrt() * second.sqrt()
        met = scope.where(size.equals(0), 0, between.size() / size) / least
        less, sine = _rotations(first, second, between)
        x, product = (_rotated(each, less, sine, tournament) for each in (x, product))
        return [angle.greater_of(_known(met.max(1))), x, product]

    def sweep(x: Array, product: Array) -> list[Array]:
        none = scope.full(0, x.dtype, (batch,))
        return scope.loop(tournament.rounds, [none, x, product], round)

    rotation = scope.identity(batch, even, x)
    if isinstance(size, int) and size >= _MANY:
        basis = approximate_basis(x @ x.H).H
        x, rotation = basis @ x, basis.padded(even, even)
    start, angle = [x.padded(even, length), rotation], scope.full(2, x.dtype, (batch,))
    (x, product), converged = _sweeps(scope, angle, start, sweep)
    return x.cut(1, 0, size), product.cut(1, 0, size).cut(2, 0, size), converged
