"""Singular values, by Jacobi's rotations.

A round rotates n / 2 pairs of rows at once, and n - 1 rounds, a sweep, meet every pair: rows i and
i + n / 2 are a pair, and after a round all rows but the first move on by one place, as players of a
tournament do. After a sweep all are where they were. Sweeps end when a whole one found nothing
that is worth a rotation; after quadratic convergence that is the eighth or so. Large matrices are
turned by eigenvectors of x x^H first: most then need no sweep, or one.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.matrices.arrays import Array, Scope
from ingot.compiler.frontends.matrices.bisection import eigh, failed, ordered
from ingot.compiler.frontends.matrices.reflectors import product, qr, scaled
from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Dim

__all__ = ["svd"]

_SWEEPS = 40
_MANY = 48  # rows, from which on rotations start with nearly diagonal matrices


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


def _rotated(x: Array, less: Array, sine: Array, tournament: _Tournament) -> Array:
    """The rows of [b, n, m] after a round, each where it stands in the next one. What small angles
    change is summed before it is added, so that rows keep their lengths."""
    scope, order = x.scope, tournament.order
    of_self = scope.concatenate([less, less], 1).take(order, 1).unsqueeze(2)
    of_other = scope.concatenate([-sine, sine.conj()], 1).take(order, 1).unsqueeze(2)
    stays, comes = x.take(order, 1), x.take(tournament.partner, 1)
    return stays + (stays * of_self + comes * of_other)


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
    values, order = ordered(lengths, largest=True)
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
    return u, values * scale, v.H, scope.where(converged, failed(values), 1)


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
        basis = eigh(x @ x.H)[1].H
        x, rotation = basis @ x, basis.padded(even, even)
    start, angle = [x.padded(even, length), rotation], scope.full(2, x.dtype, (batch,))
    (x, product), converged = _sweeps(scope, angle, start, sweep)
    return x.cut(1, 0, size), product.cut(1, 0, size).cut(2, 0, size), converged
