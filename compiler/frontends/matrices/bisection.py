"""Approximate eigenvectors of Hermitian matrices: a tridiagonal form, its eigenvalues by bisection,
all at once, and a vector for each by a twisted factorisation. Where eigenvalues are so close that
vectors are not independent, another orthonormal basis of what is left stands in their place."""

from __future__ import annotations

from ingot.compiler.frontends.matrices.arrays import I64, Array
from ingot.compiler.frontends.matrices.reflectors import product, qr, tridiagonal
from ingot.hal.spec import dtype

__all__ = ["approximate_basis"]

_F64 = dtype("f64")
_PIVOT = 1e-200  # what stands for a pivot of 0; the greatest numbers of the matrix are about 1
_CLOSE = 2.0**-40
_HALVINGS = {"f32": 44, "f64": 55}


def approximate_basis(x: Array) -> Array:
    """[b, n, n] -> unitary [b, n, n] whose columns are nearly eigenvectors."""
    scope, (batch, size, _) = x.scope, x.shape
    packed, diagonal, beside, taus = tridiagonal(x)
    d, e = diagonal.convert(_F64), beside.convert(_F64)
    values = _eigenvalues(d, e, _HALVINGS[x.dtype.name])
    # doubtful vectors come last: QR then finds what is orthogonal to all that are sure
    count = scope.count((1, size), 1)
    gap = values - values.cut(1, 0, size - 1).each(
        "pad", scope.full(-4 * size, _F64).value, low=(0, 1), high=(0, 0)
    )
    close = scope.where(gap < _CLOSE, count + size, count)
    _, order = scope.builder.op("top_k", close.value, k=size, axis=1, largest=False, dtype=I64)
    factors, scales = qr(_vectors(d, e, values.rows(scope.real(order))))
    basis = product(factors, scales, scope.identity(batch, size, factors)).convert(x.dtype)
    inner = basis.as_complex() if x.is_complex else basis
    below = product(packed.cut(1, 1, size), taus, inner.cut(1, 1, size))
    return scope.concatenate([inner.cut(1, 0, 1), below], 1)


def _pivots(d: Array, squares: Array, points: Array, first: Array, keep: bool) -> list[Array]:
    """The pivots of T - p for each point, [b, n, points], if they are kept, and how many are
    negative, [b, points]: as many as there are eigenvalues below."""
    scope = d.scope

    def step(index: Array, before: Array, below: Array, *rows: Array) -> list[Array]:
        pivot = d.at(index, 1).unsqueeze(1) - points - squares.at(index, 1).unsqueeze(1) / before
        pivot = scope.where(pivot.abs() < _PIVOT, scope.full(-_PIVOT, _F64), pivot)
        below = below + (pivot < 0).convert(_F64)
        return [pivot, below, *(each.put(1, index, pivot.unsqueeze(1)) for each in rows)]

    batch, size = d.shape
    rows = [scope.full(0, _F64, (batch, size, points.shape[1]))] if keep else []
    return scope.loop(size, [first, scope.like(0, points), *rows], step)[1:]


def _squares(e: Array) -> Array:
    """What stands beside the diagonal, squared, with a 0 in front: [b, n - 1] -> [b, n]."""
    zero = e.scope.full(0, _F64).value
    return e.square().each("pad", zero, low=(0, 1), high=(0, 0))


def _eigenvalues(d: Array, e: Array, halvings: int) -> Array:
    """Those of tridiagonal matrices in rising order: [b, n] and [b, n - 1] -> [b, n]."""
    scope, (_, size) = d.scope, d.shape
    squares, place = _squares(e), scope.count((1, size), 1).convert(_F64)
    radius = squares.sqrt() + e.abs().padded(size)
    low = (-(-(d - radius)).max(1)).unsqueeze(1).broadcast_to(d.shape)
    high = (d + radius).max(1).unsqueeze(1).broadcast_to(d.shape)

    def halve(index: Array, low: Array, high: Array) -> list[Array]:
        middle = (low + high) * 0.5
        (below,) = _pivots(d, squares, middle, scope.like(1, middle), keep=False)
        is_below = below > place
        return [scope.where(is_below, low, middle), scope.where(is_below, middle, high)]

    low, high = scope.loop(halvings, [low, high], halve)
    return (low + high) * 0.5


def _vectors(d: Array, e: Array, values: Array) -> Array:
    """Of eigenvalues [b, n], as columns of length 1: each is 1 where the factorisations from both
    ends leave least, and follows from there by their factors."""
    scope, (_, size) = d.scope, d.shape
    one = scope.like(1, values)
    _, down = _pivots(d, _squares(e), values, one, keep=True)
    _, up = _pivots(d.reverse(1), _squares(e.reverse(1)), values, one, keep=True)
    up = up.reverse(1)
    left = down + up - (d.unsqueeze(2) - values.unsqueeze(1))
    middle = (-left.abs()).arg_max(1).unsqueeze(1)
    at = scope.count((1, size, 1), 1)
    start = at.equals(middle).convert(_F64)

    def along(ratio: Array, start: Array) -> Array:
        def step(index: Array, rows: Array, before: Array) -> list[Array]:
            row = ratio.at(index, 1) * before + start.at(index, 1)
            return [rows.put(1, index, row.unsqueeze(1)), row]

        return scope.loop(size, [scope.like(0, start), scope.like(0, values)], step)[0]

    zero = scope.full(0, _F64).value
    before = e.each("pad", zero, low=(0, 1), high=(0, 0)).unsqueeze(2)
    behind = e.padded(size).unsqueeze(2)
    low = along(scope.where(at > middle, -before / up, 0), start)
    high = along(scope.where(at < middle, -behind / down, 0).reverse(1), start.reverse(1))
    found = low + high.reverse(1) - start
    return found / found.square().sum(1).sqrt().unsqueeze(1)
