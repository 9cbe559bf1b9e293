"""Householder reflectors H = I - tau v v^H: QR factors, products with Q, and the forms that
similar matrices take, Hessenberg and tridiagonal. All as LAPACK stores them."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.matrices.arrays import Array
from ingot.compiler.frontends.matrices.blocks import Panels
from ingot.compiler.ir import dims

__all__ = [
    "hessenberg",
    "outer",
    "pivoted_qr",
    "product",
    "projected",
    "qr",
    "reflector",
    "scaled",
    "tridiagonal",
]


def norm(column: Array) -> Array:
    """[b, n] -> [b, 1]: the length, without a square that overflows."""
    size = column.size().max(1).unsqueeze(1)
    scale = column.scope.where(size.equals(0), 1, size)
    return (column / scale).square().sum(1).sqrt().unsqueeze(1) * size


def scaled(x: Array) -> tuple[Array, Array]:
    """Matrices whose greatest number is about 1, and what they were divided by, [b, 1]."""
    scope = x.scope
    greatest = x.size().max(2).max(1)
    usual = (greatest > 0) & (greatest < float(np.finfo(x.dtype.numpy).max))
    scale = scope.where(usual, greatest, 1).unsqueeze(1)
    return x / scale.unsqueeze(2), scale


def reflector(column: Array, here: Array) -> tuple[Array, Array, Array]:
    """For [b, n] the reflector whose adjoint makes a column 0 below row `here`: v, which is 1 there
    and 0 above, tau [b, 1], and the real number [b, 1] that the column has there then."""
    scope, rows = column.scope, column.scope.count((1, column.shape[1]), 1)
    first = column.at(here, 1).unsqueeze(1)
    below = scope.where(rows > here, column, 0)
    rest = norm(below)
    nothing = rest.equals(0)
    if column.is_complex:
        nothing = nothing & first.imaginary.equals(0)
    length = scope.joined(first.abs(), rest).abs()
    beta = scope.where(first.real >= 0, -length, length)
    beta = scope.where(nothing, first.real, beta)
    safe = scope.where(nothing, 1, beta)
    tau = scope.where(nothing, 0, (safe - first) / safe)
    divisor = scope.where(nothing, 1, first - beta)
    v = scope.where(nothing, 0, below / divisor)
    return scope.where(rows.equals(here), 1, v), tau, beta


def _stored(column: Array, v: Array, beta: Array, here: Array) -> Array:
    """The column as LAPACK leaves it: above as it was, then the number, then v."""
    scope, rows = column.scope, column.scope.count((1, column.shape[1]), 1)
    column = scope.where(rows.equals(here), beta, column)
    return scope.where(rows > here, v, column)


def qr(x: Array) -> tuple[Array, Array]:
    """[b, m, n] -> R with the reflectors below its diagonal, and their tau [b, min(m, n)]."""
    scope, (batch, m, n) = x.scope, x.shape
    count = dims.minimum(m, n)
    panels = Panels(count)
    rows, columns = dims.maximum(m, panels.covered), dims.maximum(n, panels.covered)
    width = panels.width
    along = scope.count((1, 1, columns), 2)

    def eliminate(start: Array, matrix: Array, taus: Array) -> list[Array]:
        panel, tau = _qr_panel(matrix.window(2, start, width), start)
        taus = taus.put(1, start, tau)
        if panels.count == 1 and width == columns:
            return [panel, taus]
        v = _unit_lower(panel, start)
        less = v @ (_triangle(v, tau).H @ (v.H @ matrix))
        matrix = scope.where(along >= start + width, matrix - less, matrix)
        return [matrix.put(2, start, panel), taus]

    taus = scope.zeros(x, (batch, panels.covered))
    matrix, taus = panels.each(scope, [x.padded(rows, columns), taus], eliminate)
    return matrix.cut(1, 0, m).cut(2, 0, n), taus.cut(1, 0, count)


def _qr_panel(panel: Array, start: Array) -> tuple[Array, Array]:
    scope, (batch, _, width) = panel.scope, panel.shape
    columns = scope.count((1, 1, width), 2)

    def step(index: Array, panel: Array, taus: Array) -> list[Array]:
        here = start + index
        column = panel.at(index, 2)
        v, tau, beta = reflector(column, here)
        less = outer(v * tau.conj(), projected(v, panel))
        panel = scope.where(columns > index, panel - less, panel)
        stored = _stored(column, v, beta, here)
        panel = scope.where(columns.equals(index), stored.unsqueeze(2), panel)
        return [panel, taus.put(1, index, tau)]

    result, taus = scope.loop(width, [panel, scope.zeros(panel, (batch, width))], step)
    return result, taus


def projected(v: Array, matrix: Array) -> Array:
    """v^H A: [b, m] and [b, m, n] -> [b, n]."""
    return (v.conj().unsqueeze(2) * matrix).sum(1)


def outer(column: Array, row: Array) -> Array:
    return column.unsqueeze(2) * row.unsqueeze(1)


def _unit_lower(panel: Array, start: Array) -> Array:
    """The vectors of reflectors that stand in a panel from row `start` on."""
    scope = panel.scope
    rows, columns = scope.count((1, panel.shape[1], 1), 1), scope.count((1, 1, panel.shape[2]), 2)
    v = scope.where(rows > start + columns, panel, 0)
    return scope.where(rows.equals(start + columns), 1, v)


def _triangle(v: Array, taus: Array) -> Array:
    """T with H_1 H_2 ... = I - V T V^H, for [b, m, w] and [b, w]."""
    scope, (batch, width) = v.scope, taus.shape
    products = v.H @ v
    rows, columns = scope.count((1, width), 1), scope.count((1, 1, width), 2)

    def step(index: Array, triangle: Array) -> list[Array]:
        tau = taus.at(index, 1).unsqueeze(1)
        before = scope.where(rows < index, products.at(index, 2), 0)
        column = -(triangle * before.unsqueeze(1)).sum(2) * tau
        column = scope.where(rows.equals(index), tau, column)
        return [scope.where(columns.equals(index), column.unsqueeze(2), triangle)]

    (result,) = scope.loop(width, [scope.zeros(v, (batch, width, width))], step)
    return result


def product(factors: Array, taus: Array, c: Array, *, adjoint: bool = False) -> Array:
    """Q C or Q^H C, for the Q of reflectors that stand below the diagonal of [b, m, k]."""
    scope, (_, rows, free) = c.scope, c.shape
    panels = Panels(taus.shape[1])
    size, width = dims.maximum(rows, panels.covered), panels.width
    factors = factors.cut(2, 0, taus.shape[1]).padded(size, panels.covered)
    taus = taus.padded(panels.covered)

    def apply(start: Array, c: Array) -> list[Array]:
        v = _unit_lower(factors.window(2, start, width), start)
        triangle = _triangle(v, taus.window(1, start, width))
        return [c - v @ ((triangle.H if adjoint else triangle) @ (v.H @ c))]

    (result,) = panels.each(scope, [c.padded(size, free)], apply, backward=not adjoint)
    return result.cut(1, 0, rows)


def pivoted_qr(x: Array) -> tuple[Array, Array, Array]:
    """QR of A P: the next column is the longest of what is left. The factors, tau, and from which
    column, i64[b, n] from 1, each came."""
    scope, (batch, m, n) = x.scope, x.shape
    count = dims.minimum(m, n)
    rows, columns = scope.count((1, m, 1), 1), scope.count((1, n), 1)

    def step(index: Array, matrix: Array, order: Array, taus: Array) -> list[Array]:
        left = scope.where(rows >= index, matrix, 0).square().sum(1)
        best = scope.where(columns >= index, left, -1).arg_max(1).unsqueeze(1)
        swap = scope.where(columns.equals(index), best, columns)
        swap = scope.where(columns.equals(best) & ~columns.equals(index), index, swap)
        matrix, order = matrix.T.rows(swap).T, order.rows(swap)
        column = matrix.at(index, 2)
        v, tau, beta = reflector(column, index)
        less = matrix - outer(v * tau.conj(), projected(v, matrix))
        matrix = scope.where(columns.unsqueeze(1) > index, less, matrix)
        stored = _stored(column, v, beta, index)
        on = columns.unsqueeze(1).equals(index)
        return [scope.where(on, stored.unsqueeze(2), matrix), order, taus.put(1, index, tau)]

    taus = scope.zeros(x, (batch, count))
    start = scope.count((batch, n), 1)
    matrix, order, taus = scope.loop(count, [x, start, taus], step)
    return matrix, taus, order + 1


def hessenberg(x: Array) -> tuple[Array, Array]:
    """Q^H A Q that is 0 below its first subdiagonal, where the reflectors of Q stand from row 2
    on, and their tau [b, n - 1]."""
    scope, (batch, size, _) = x.scope, x.shape
    columns = scope.count((1, 1, size), 2)
    steps = dims.maximum(size - 1, 0)

    def step(index: Array, matrix: Array, taus: Array) -> list[Array]:
        here = index + 1
        column = matrix.at(index, 2)
        v, tau, beta = reflector(column, here)
        right = matrix - outer((matrix * v.unsqueeze(1)).sum(2), v.conj() * tau)
        both = right - outer(v * tau.conj(), projected(v, right))
        matrix = scope.where(columns > index, both, matrix)
        stored = _stored(column, v, beta, here)
        matrix = scope.where(columns.equals(index), stored.unsqueeze(2), matrix)
        return [matrix, taus.put(1, index, tau)]

    taus = scope.zeros(x, (batch, steps))
    if steps == 0:
        return x, taus
    result, taus = scope.loop(steps, [x, taus], step)
    return result, taus


def tridiagonal(x: Array) -> tuple[Array, Array, Array, Array]:
    """For Hermitian matrices, of which the lower half is read, as `hessenberg`: the matrix with the
    reflectors, its diagonal [b, n] and subdiagonal [b, n - 1], which are real, and tau."""
    scope, (batch, size, _) = x.scope, x.shape
    rows, columns = scope.count((1, size, 1), 1), scope.count((1, 1, size), 2)
    steps = dims.maximum(size - 1, 0)
    whole = scope.where(rows > columns, x, x.H)
    on = rows.equals(columns)
    if x.is_complex:
        whole = scope.where(on, x.real, whole)

    def step(index: Array, matrix: Array, taus: Array, below: Array) -> list[Array]:
        here = index + 1
        column = matrix.at(index, 2)
        v, tau, beta = reflector(column, here)
        p = (matrix * v.unsqueeze(1)).sum(2) * tau
        p = scope.where(columns.reshape(1, size) > index, p, 0)
        half = (p.conj() * v).sum(1).unsqueeze(1) * tau * -0.5
        w = p + v * half
        inside = (columns > index) & (rows > index)
        less = matrix - outer(v, w.conj()) - outer(w, v.conj())
        matrix = scope.where(inside, less, matrix)
        stored = _stored(column, v, beta, here)
        matrix = scope.where(columns.equals(index), stored.unsqueeze(2), matrix)
        return [matrix, taus.put(1, index, tau), below.put(1, index, beta)]

    taus, below = scope.zeros(x, (batch, steps)), scope.full(0, x.dtype, (batch, steps))
    if steps == 0:
        return x, x.diagonal().real, below, taus
    matrix, taus, below = scope.loop(steps, [whole, taus, below], step)
    stored = scope.where(rows >= columns, matrix, x)
    return stored, matrix.diagonal().real, below, taus
