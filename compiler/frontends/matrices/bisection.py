"""Eigenvalues and eigenvectors of Hermitian matrices: a tridiagonal form, cut where nothing stands
beside its diagonal; the eigenvalues of its blocks by bisection, all at once; and a vector for each
by a twisted factorisation. Vectors of different blocks are orthogonal, those of one block are made
so by QR. Where eigenvalues of a block agree nearly to the last place, vectors come from steps of
inverse iteration, each of which ends with that QR."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.matrices.arrays import I64, Array
from ingot.compiler.frontends.matrices.reflectors import product, qr, scaled, tridiagonal
from ingot.hal.spec import dtype

__all__ = ["eigh", "failed", "ordered"]

_F64 = dtype("f64")
_PIVOT = 1e-200  # what stands for a pivot of 0; the greatest numbers of the matrix are about 1
_LEAST = 2.0**-54  # and for what a twisted factorisation leaves
_CLOSE = 2.0**-40
_ASIDE = 2.0**-49  # of all eigenvalues' range: how far beside close ones their vectors are sought
_STEPS = 3
_HALVINGS = {"f32": 44, "f64": 55}


def eigh(x: Array) -> tuple[Array, Array, Array]:
    """Hermitian [b, n, n], of which the lower half is read: eigenvalues in ascending order [b, n],
    their vectors as columns, and i64[b], 1 where nothing was found."""
    scope, (batch, size, _) = x.scope, x.shape
    rows, columns = scope.count((1, size, 1), 1), scope.count((1, 1, size), 2)
    x, scale = scaled(scope.where(rows >= columns, x, 0))
    if size in (0, 1):
        values = x.diagonal().real
        return values * scale, scope.identity(batch, size, x), failed(values)
    packed, diagonal, beside, taus = tridiagonal(x)
    d, e = diagonal.convert(_F64), beside.convert(_F64)
    e = scope.where(e.abs() <= x.epsilon, 0, e)
    values, basis = _of_blocks(d, e, _HALVINGS[x.dtype.name])
    values, order = ordered(values.convert(x.dtype), largest=False)
    basis = basis.convert(x.dtype)
    inner = basis.as_complex() if x.is_complex else basis
    below = product(packed.cut(1, 1, size), taus, inner.cut(1, 1, size))
    vectors = scope.concatenate([inner.cut(1, 0, 1), below], 1)
    return values * scale, vectors.T.rows(order).T, failed(values)


def ordered(values: Array, *, largest: bool) -> tuple[Array, Array]:
    """[b, n] in descending or ascending order, and which each was."""
    scope = values.scope
    found, order = scope.builder.op(
        "top_k", values.value, k=values.shape[1], axis=1, largest=largest, dtype=I64
    )
    return scope.real(found), scope.real(order)


def failed(values: Array) -> Array:
    """i64[b]: 1 where something of [b, n] is not finite."""
    return (~values.is_finite().reduce("and", 1)).convert(I64)


def _of_blocks(d: Array, e: Array, halvings: int) -> tuple[Array, Array]:
    """Of tridiagonal matrices, [b, n] and [b, n - 1], the eigenvalues, those of a block in rising
    order where it stands, and orthonormal vectors of them as columns."""
    scope, (batch, size) = d.scope, d.shape
    behind = e.padded(size)
    before = _moved(behind)
    at = scope.count((1, size), 1)
    cut = before.equals(0)
    first = scope.where(cut, at, 0).each("cumulative", axis=1, kind="max")
    radius = before.abs() + behind.abs()
    low = (-(-(d - radius)).max(1)).unsqueeze(1)
    high = (d + radius).max(1).unsqueeze(1)
    values = _eigenvalues(d, before.square(), first, low, high, halvings)
    close = (values - _moved(values) < _CLOSE) & ~cut
    close = close | (close.convert(I64).cut(1, 1, size).padded(size) > 0)
    points = scope.where(close, values + (high - low) * _ASIDE, values)
    rows = at.reshape(1, size, 1)
    inside = first.unsqueeze(2).equals(first.unsqueeze(1))
    down, up, left = _twisted(d, before.square(), behind.square(), points)
    middle = scope.where(inside, -left.abs(), -1e300).arg_max(1).unsqueeze(1)
    start = rows.equals(middle).convert(_F64)
    share = scope.where(inside, _LEAST / left, 0)
    ratios = -before.unsqueeze(2) / up, -behind.unsqueeze(2) / down

    def improve(index: Array, basis: Array) -> list[Array]:
        right = scope.where(close.unsqueeze(1), share * basis, start)
        factors, taus = qr(_solved(*ratios, right))
        return [product(factors, taus, scope.identity(batch, size, factors))]

    steps = scope.where(close.reduce("or", 1).reduce("or", 0), scope.index(_STEPS), 1)
    (basis,) = scope.loop(steps, [_scattered(start)], improve)
    return values, basis


def _moved(x: Array) -> Array:
    """[b, n] with a 0 in front, without the last."""
    return x.each("pad", x.scope.full(0, x.dtype).value, low=(0, 1), high=(0, -1))


def _scattered(x: Array) -> Array:
    """Numbers from -1 to 1 without a pattern, in the shape of x."""
    scope, (_, size, _) = x.scope, x.shape
    seed = scope.count((1, size, 1), 1) * 40503 + scope.count((1, 1, size), 2) * 30011 + 1
    square = seed * seed
    rest = square.each("rem", scope.full(65537, I64, square.shape).value)
    return (rest.convert(_F64) * 2.0**-15 - 1).broadcast_to(x.shape)


def _pivots(
    d: Array, squares: Array, points: Array, carried: Array, use: Callable[..., Array]
) -> Array:
    """`use(index, pivot, carried)` for each row of T - p, at all points [b, k] at once, where T has
    the diagonal `d` and the numbers of `squares` are those beside it, squared, [b, n]."""
    scope = d.scope

    def step(index: Array, before: Array, carried: Array) -> list[Array]:
        pivot = d.at(index, 1).unsqueeze(1) - points - squares.at(index, 1).unsqueeze(1) / before
        pivot = scope.where(pivot.abs() < _PIVOT, scope.full(-_PIVOT, _F64), pivot)
        return [pivot, use(index, pivot, carried)]

    return scope.loop(d.shape[1], [scope.like(1, points), carried], step)[1]


def _eigenvalues(
    d: Array, squares: Array, first: Array, low: Array, high: Array, halvings: int
) -> Array:
    """The eigenvalues, which are between `low` and `high`, of blocks that start at `first`, by how
    many pivots of a block are negative: as many as there are eigenvalues below."""
    scope, (_, size) = d.scope, d.shape
    place = (scope.count((1, size), 1) - first).convert(_F64)

    def count(index: Array, pivot: Array, below: Array) -> Array:
        return below + ((pivot < 0) & first.at(index, 1).unsqueeze(1).equals(first)).convert(_F64)

    def halve(index: Array, low: Array, high: Array) -> list[Array]:
        middle = (low + high) * 0.5
        is_below = _pivots(d, squares, middle, scope.like(0, middle), count) > place
        return [scope.where(is_below, low, middle), scope.where(is_below, middle, high)]

    both = [each.broadcast_to(d.shape) for each in (low, high)]
    low, high = scope.loop(halvings, both, halve)
    return (low + high) * 0.5


def _twisted(d: Array, before: Array, behind: Array, points: Array) -> tuple[Array, Array, Array]:
    """The pivots of T - p for each point from above and from below, [b, n, points], and what they
    leave where they meet: the inverse has 1 by that on its diagonal. `before` and `behind` are the
    squares in front of the diagonal and after it."""
    scope, (batch, size) = d.scope, d.shape

    def keep(index: Array, pivot: Array, rows: Array) -> Array:
        return rows.put(1, index, pivot.unsqueeze(1))

    none = scope.full(0, _F64, (batch, size, points.shape[1]))
    down = _pivots(d, before, points, none, keep)
    up = _pivots(d.reverse(1), behind.reverse(1), points, none, keep).reverse(1)
    left = down + up - (d.unsqueeze(2) - points.unsqueeze(1))
    return down, up, scope.where(left.abs() < _LEAST, scope.full(_LEAST, _F64), left)


def _solved(down: Array, up: Array, right: Array) -> Array:
    """Columns of length 1 in the direction of (T - p)^-1 b: each number of `right`, [b, n, n], is
    spread to the rows below and above by these ratios of neighbours."""
    scope = right.scope

    def along(ratio: Array, right: Array) -> Array:
        def step(index: Array, rows: Array, before: Array) -> list[Array]:
            row = ratio.at(index, 1) * before + right.at(index, 1)
            return [rows.put(1, index, row.unsqueeze(1)), row]

        start = scope.full(0, _F64, (right.shape[0], right.shape[2]))
        return scope.loop(right.shape[1], [scope.like(0, right), start], step)[0]

    found = along(down, right) + along(up.reverse(1), right.reverse(1)).reverse(1) - right
    return found / found.square().sum(1).sqrt().unsqueeze(1)
