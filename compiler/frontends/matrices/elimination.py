"""LU factors, Cholesky factors and triangular systems, panel by panel."""

from __future__ import annotations

from ingot.compiler.frontends.matrices.arrays import I64, Array
from ingot.compiler.frontends.matrices.blocks import Panels
from ingot.compiler.ir import dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = ["Factors", "cholesky", "first_of", "lu", "order_of", "solve_lower", "solve_triangular"]


@dataclass(frozen=True)
class Factors:
    """P A = L U of [b, m, n]: `both` holds U and below its diagonal L, whose own is 1. In step i,
    rows i and `pivots[b, i]` changed places; in the end row i is that of `order[b, i]`. `info` is
    the number of the first step, from 1, whose pivot was 0, or 0."""

    both: Array
    pivots: Array
    order: Array
    info: Array


def lu(x: Array) -> Factors:
    """The factors by elimination with the greatest pivot of each column."""
    scope, (batch, m, n) = x.scope, x.shape
    count = dims.minimum(m, n)
    panels = Panels(count)
    rows, columns = dims.maximum(m, panels.covered), dims.maximum(n, panels.covered)
    width = panels.width
    at = scope.count((1, rows, columns), 1)
    along = scope.count((1, rows, columns), 2)
    start_order = scope.count((batch, rows), 1)

    def eliminate(start: Array, matrix: Array, order: Array, pivots: Array) -> list[Array]:
        panel = matrix.window(2, start, width)
        panel, swapped, picked = _eliminate_panel(panel, start)
        pivots = pivots.put(1, start, picked)
        if panels.count == 1 and width == columns:
            return [panel, swapped, pivots]
        matrix = matrix.rows(swapped).put(2, start, panel)
        corner = panel.window(1, start, width)
        upper = _substitute(corner, matrix.window(1, start, width), unit=True)
        right = along.cut(1, 0, 1) >= start + width
        upper = scope.where(right, upper, matrix.window(1, start, width))
        matrix = matrix.put(1, start, upper)
        below = at.cut(2, 0, 1) >= start + width
        less = scope.where(below, panel, 0) @ scope.where(right, upper, 0)
        return [matrix - less, order.rows(swapped), pivots]

    pivots = scope.full(0, I64, (batch, panels.covered))
    padded = x.padded(rows, columns)
    matrix, order, pivots = panels.each(scope, [padded, start_order, pivots], eliminate)
    both, order = matrix.cut(1, 0, m).cut(2, 0, n), order.cut(1, 0, m)
    diagonal = both.cut(1, 0, count).cut(2, 0, count).diagonal()
    return Factors(both, pivots.cut(1, 0, count), order, first_of(diagonal.size().equals(0)))


def order_of(pivots: Array, rows: Dim) -> Array:
    """i64[b, k], as `Factors` has them -> i64[b, rows]: which row comes to stand in each place."""
    scope, (batch, count) = pivots.scope, pivots.shape
    places = scope.count((1, rows), 1)

    def step(index: Array, order: Array) -> list[Array]:
        other = pivots.at(index, 1).unsqueeze(1)
        swap = scope.where(places.equals(index), other, places)
        swap = scope.where(places.equals(other) & ~places.equals(index), index, swap)
        return [order.rows(swap)]

    (order,) = scope.loop(count, [scope.count((batch, rows), 1)], step)
    return order


def first_of(wrong: Array) -> Array:
    """i1[b, n] -> i64[b]: the number of the first true element, from 1; 0 if there is none."""
    scope = wrong.scope
    numbers = scope.count(wrong.shape, 1) + 1
    none = wrong.shape[1] + 1
    least = scope.where(wrong, numbers, none).reduce("min", 1)
    return scope.where(least >= none, 0, least)


def _eliminate_panel(panel: Array, start: Array) -> tuple[Array, Array, Array]:
    """The columns [b, m, w] that stand from `start` of a matrix; the order of rows that it takes,
    and with which row each changed places."""
    scope, (batch, size, width) = panel.scope, panel.shape
    rows, columns = scope.count((1, size), 1), scope.count((1, 1, width), 2)

    def step(index: Array, panel: Array, order: Array, pivots: Array) -> list[Array]:
        here = start + index
        column = panel.at(index, 2)
        best = scope.where(rows >= here, column.size(), -1).arg_max(1)
        swap = scope.where(rows.equals(here), best.unsqueeze(1), rows)
        swap = scope.where(rows.equals(best.unsqueeze(1)) & ~rows.equals(here), here, swap)
        panel, order = panel.rows(swap), order.rows(swap)
        row = panel.at(here, 1)
        pivot = row.at(index, 1).unsqueeze(1)
        used = (rows > here) & ~pivot.size().equals(0)
        factors = scope.where(used, panel.at(index, 2) / pivot, 0)
        behind = (columns > index) & used.unsqueeze(2)
        less = panel - factors.unsqueeze(2) * row.unsqueeze(1)
        panel = scope.where(behind, less, panel)
        on = columns.equals(index) & used.unsqueeze(2)
        panel = scope.where(on, factors.unsqueeze(2), panel)
        return [panel, order, pivots.put(1, index, best.unsqueeze(1))]

    order = scope.count((batch, size), 1)
    pivots = scope.full(0, I64, (batch, width))
    result, order, pivots = scope.loop(width, [panel, order, pivots], step)
    return result, order, pivots


def cholesky(x: Array) -> tuple[Array, Array]:
    """L with L L^H = x, of which only the lower half is read; and the number of the first step,
    from 1, whose pivot was not positive, or 0."""
    scope, (batch, size, _) = x.scope, x.shape
    panels = Panels(size)
    width, covered = panels.width, panels.covered
    rows = scope.count((1, covered, 1), 1)
    matrix = x
    if covered != size:
        behind = rows >= size
        matrix = scope.where(
            behind & rows.equals(scope.count((1, 1, covered), 2)), 1, x.padded(covered, covered)
        )

    def eliminate(start: Array, matrix: Array, wrong: Array) -> list[Array]:
        panel, bad = _cholesky_panel(matrix.window(2, start, width), start)
        wrong = wrong.put(1, start, bad)
        if panels.count == 1:
            return [panel, wrong]
        below = scope.where(rows >= start + width, panel, 0)
        return [(matrix - below @ below.H).put(2, start, panel), wrong]

    wrong = scope.full(0, I64, (batch, covered))
    factor, wrong = panels.each(scope, [matrix, wrong], eliminate)
    lower = scope.count((1, size, size), 1) >= scope.count((1, size, size), 2)
    factor = scope.where(lower, factor.cut(1, 0, size).cut(2, 0, size), 0)
    if size == 0:
        return factor, scope.full(0, I64, (batch,))
    return factor, first_of(wrong.cut(1, 0, size) > 0)


def _cholesky_panel(panel: Array, start: Array) -> tuple[Array, Array]:
    """The columns of the factor for [b, n, w], which stand from `start`; i64[b, w]: 1 where the
    pivot was not positive."""
    scope, (batch, size, width) = panel.scope, panel.shape
    rows, columns = scope.count((1, size), 1), scope.count((1, 1, width), 2)

    def step(index: Array, panel: Array, wrong: Array) -> list[Array]:
        here = start + index
        column = panel.at(index, 2)
        pivot = column.real.at(here, 1).unsqueeze(1)
        root = pivot.sqrt()
        below = scope.where(rows > here, column / root, 0)
        column = scope.where(rows.equals(here), root, below)
        row = column.window(1, start, width).conj()
        less = panel - column.unsqueeze(2) * row.unsqueeze(1)
        panel = scope.where(columns > index, less, panel)
        panel = scope.where(columns.equals(index), column.unsqueeze(2), panel)
        return [panel, wrong.put(1, index, (~(pivot > 0)).convert(I64))]

    wrong = scope.full(0, I64, (batch, width))
    result, wrong = scope.loop(width, [panel, wrong], step)
    return result, wrong


def _substitute(corner: Array, right: Array, *, unit: bool) -> Array:
    """L^-1 B for the lower halves of [b, w, w] and [b, w, n], row by row."""
    scope, width = right.scope, right.shape[1]
    rows = scope.count((1, width, 1), 1)

    def step(index: Array, right: Array) -> list[Array]:
        column, row = corner.at(index, 2), right.at(index, 1)
        if not unit:
            row = row / column.at(index, 1).unsqueeze(1)
        less = right - column.unsqueeze(2) * row.unsqueeze(1)
        right = scope.where(rows > index, less, right)
        return [scope.where(rows.equals(index), row.unsqueeze(1), right)]

    (result,) = scope.loop(width, [right], step)
    return result


def solve_lower(matrix: Array, right: Array, *, unit: bool) -> Array:
    """X with L X = B for the lower halves of [b, n, n] and [b, n, m]."""
    scope, (_, size, free) = right.scope, right.shape
    panels = Panels(size)
    width, covered = panels.width, panels.covered
    rows = scope.count((1, covered, 1), 1)
    if covered != size:
        behind = (rows >= size) & rows.equals(scope.count((1, 1, covered), 2))
        matrix = scope.where(behind, 1, matrix.padded(covered, covered))

    def eliminate(start: Array, rest: Array) -> list[Array]:
        panel = matrix.window(2, start, width)
        solved = _substitute(panel.window(1, start, width), rest.window(1, start, width), unit=unit)
        if panels.count == 1:
            return [solved]
        less = scope.where(rows >= start + width, panel, 0) @ solved
        return [(rest - less).put(1, start, solved)]

    (result,) = panels.each(scope, [right.padded(covered, free)], eliminate)
    return result.cut(1, 0, size)


def solve_triangular(
    a: Array, b: Array, *, left: bool, lower: bool, unit: bool, transposed: bool, conjugated: bool
) -> Array:
    """X with op(A) X = B, or X op(A) = B (`left`): op transposes A, or conjugates it, or both. Only
    one half of A is read."""
    if conjugated:
        a = a.conj()
    if transposed == left:
        a, lower = a.T, not lower
    if not left:
        b = b.T
    if not lower:
        a, b = a.reverse(1, 2), b.reverse(1)
    result = solve_lower(a, b, unit=unit)
    if not lower:
        result = result.reverse(1)
    return result if left else result.T
