"""Tridiagonal systems, by elimination with the greater pivot of two rows."""

from __future__ import annotations

from ingot.compiler.frontends.matrices.arrays import Array
from ingot.compiler.frontends.matrices.elimination import first_of
from ingot.compiler.ir.dims import Dim

__all__ = ["solve_tridiagonal"]


def solve_tridiagonal(
    below: Array, diagonal: Array, above: Array, right: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """What stands in row i below, on and above the diagonal, [b, n], and [b, n, m] on the right. Of
    the factor U, the second, the first and the diagonal above that stands in each row, in the
    operands' order; the solution; and the number of the first row, from 1, without a pivot or 0."""
    scope, (_, size) = diagonal.scope, diagonal.shape
    last = scope.count((1, size), 1).equals(size - 1)
    above = scope.where(last, 0, above)

    def eliminate(here: Array, d: Array, e: Array, f: Array, b: Array) -> list[Array]:
        after = here + 1
        upper = [d.at(here, 1), e.at(here, 1), scope.zeros(d.at(here, 1))]
        lower = [below.at(after, 1), d.at(after, 1), e.at(after, 1)]
        swap = lower[0].size() > upper[0].size()
        both = list(zip(upper, lower, strict=True))
        top = [scope.where(swap, y, x) for x, y in both]
        bottom = [scope.where(swap, x, y) for x, y in both]
        none = top[0].size().equals(0)
        factor = scope.where(none, 0, bottom[0] / scope.where(none, 1, top[0]))
        row, other = b.at(here, 1), b.at(after, 1)
        wide = swap.unsqueeze(1)
        first, second = scope.where(wide, other, row), scope.where(wide, row, other)
        second = second - factor.unsqueeze(1) * first

        def put(x: Array, at_here: Array, at_after: Array) -> Array:
            return x.put(1, here, at_here.unsqueeze(1)).put(1, after, at_after.unsqueeze(1))

        return [
            put(d, top[0], bottom[1] - factor * top[1]),
            put(e, top[1], bottom[2] - factor * top[2]),
            f.put(1, here, top[2].unsqueeze(1)),
            put(b, first, second),
        ]

    start = [diagonal, above, scope.zeros(diagonal), right]
    d, e, f, b = scope.loop(size - 1, start, eliminate)
    return f, d, e, _substituted(d, e, f, b, size), first_of(d.size().equals(0))


def _substituted(d: Array, e: Array, f: Array, b: Array, size: Dim) -> Array:
    """X of U X = B for the three diagonals of U."""
    scope = d.scope

    def step(index: Array, x: Array) -> list[Array]:
        here = scope.index(size - 1) - index
        total = x.at(here, 1)
        for offset, each in ((1, e), (2, f)):
            total = total - each.at(here, 1).unsqueeze(1) * x.at(here + offset, 1)
        return [x.put(1, here, (total / d.at(here, 1).unsqueeze(1)).unsqueeze(1))]

    (x,) = scope.loop(size, [b.padded(size + 2, b.shape[2])], step)
    return x.cut(1, 0, size)
