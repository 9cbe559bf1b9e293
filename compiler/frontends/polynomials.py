"""Orthogonal polynomials of a degree for each element, by the recurrence of three terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from ingot.compiler.frontends.matrices.arrays import I64, Array

__all__ = ["POLYNOMIALS"]

_Next = Callable[[Array, Array, Array, Array], Array]
"""Of the index k from 1 on, x and the polynomials of degrees k and k - 1: that of degree k + 1."""


def _by_recurrence(x: Array, n: Array, first: Array, follow: _Next) -> Array:
    """1 for degree 0, `first` for degree 1; 0 for those below 0."""
    scope = x.scope
    rounds = n
    for _ in n.shape:
        rounds = rounds.max(0)

    def step(index: Array, now: Array, before: Array) -> list[Array]:
        k = index + 1
        grows = k.broadcast_to(n.shape) < n
        value = follow(k.convert(x.dtype).broadcast_to(x.shape), x, now, before)
        return [scope.where(grows, value, now), scope.where(grows, now, before)]

    one = scope.like(1, x)
    found = scope.loop((rounds - 1).each("max", scope.index(0).value), [first, one], step)[0]
    return scope.where(n < 0, 0, scope.where(n < 1, one, found))


def _chebyshev(x: Array, n: Array, *, kind: str, shifted: bool = False) -> Array:
    """Of the first to the fourth kind (t, u, v, w), which have closed forms within -1 to 1."""
    scope = x.scope
    x = x * 2 - 1 if shifted else x
    degree = n.convert(x.dtype)
    angle = scope.where(x.abs() < 1, x, 0).each("acos")
    half = angle * 0.5
    inside, first = {
        "t": lambda: ((angle * degree).each("cos"), x),
        "u": lambda: ((angle * (degree + 1)).each("sin") / angle.each("sin"), x * 2),
        "v": lambda: ((angle * (degree + 0.5)).each("cos") / half.each("cos"), x * 2 - 1),
        "w": lambda: ((angle * (degree + 0.5)).each("sin") / half.each("sin"), x * 2 + 1),
    }[kind]()
    is_closed = (x.abs() < 1) & (n > 6)
    found = _by_recurrence(
        x, scope.where(is_closed, 0, n), first, lambda _, x, now, before: x * now * 2 - before
    )
    return scope.where(is_closed, inside, found)


def _hermite(x: Array, n: Array, *, factor: int) -> Array:
    """Those of physics (2) or of probability (1), which are no numbers for degrees that overflow
    between."""
    limit = 128 if x.dtype.bits == 32 else 512
    known = x.scope.where(n < limit, n, 0)
    found = _by_recurrence(
        x, known, x * factor, lambda k, x, now, before: (x * now - k * before) * factor
    )
    return x.scope.where(n < limit, found, math.nan)


def _laguerre(x: Array, n: Array) -> Array:
    return _by_recurrence(
        x, n, 1 - x, lambda k, x, now, before: ((k * 2 + 1 - x) * now - k * before) / (k + 1)
    )


def _legendre(x: Array, n: Array) -> Array:
    return _by_recurrence(
        x, n, x, lambda k, x, now, before: ((k * 2 + 1) * x * now - k * before) / (k + 1)
    )


def _of_whole_degree(function: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    return lambda x, n: function(x, n.each("trunc").convert(I64))


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{f"chebyshev_polynomial_{kind}": partial(_chebyshev, kind=kind) for kind in "tuvw"},
    **{
        f"shifted_chebyshev_polynomial_{kind}": partial(_chebyshev, kind=kind, shifted=True)
        for kind in "tuvw"
    },
    "hermite_polynomial_h": partial(_hermite, factor=2),
    "hermite_polynomial_he": partial(_hermite, factor=1),
    "laguerre_polynomial_l": _laguerre,
    "legendre_polynomial_p": _legendre,
}
POLYNOMIALS = {name: _of_whole_degree(each) for name, each in _FUNCTIONS.items()}
"""Functions of x and of a degree n, of which what follows the point is cut off."""
