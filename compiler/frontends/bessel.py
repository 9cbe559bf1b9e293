"""Functions of Bessel and of Airy, in f64.

There are no tables: near 0 they are power series, further out those of the first two kinds are
found by their recurrence, which is stable towards lower orders, far out by Hankel's expansion.
Those of imaginary arguments are integrals over exp(-x cosh t), of which few points give all digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ingot.compiler.frontends.matrices.arrays import Array
from ingot.hal.spec import dtype

__all__ = ["BESSEL"]

_EULER = 0.5772156649015329
_NEAR, _FAR = 0.5, 25.0  # where the recurrence serves
_ORDER = 64  # from which it starts: functions of higher orders are 0 up to _FAR
_TERMS = 20
_STEP, _POINTS = 0.35, 27  # of the integral, in widths of what is integrated


def _sum(x: Array, numbers: list[float]) -> Array:
    """A polynomial, the constant first."""
    total = x.scope.like(numbers[-1], x)
    for each in numbers[-2::-1]:
        total = total * x + each
    return total


def _harmonic(count: int) -> float:
    return math.fsum(1 / each for each in range(1, count + 1))


def _power_series(order: int, sign: int) -> tuple[list[float], list[float]]:
    """Of (x / 2)^2: those of J (sign -1) or I (1) without (x / 2)^order, and of what the second
    kind adds to them times the logarithm."""
    faculties = [math.factorial(k) * math.factorial(k + order) for k in range(_TERMS)]
    first = [sign**k / each for k, each in enumerate(faculties)]
    second = [(_harmonic(k) + _harmonic(k + order)) / 2 * each for k, each in enumerate(first)]
    return first, second


def _near(x: Array, order: int) -> tuple[Array, Array]:
    """J and Y by power series."""
    square = x * x * 0.25
    first, second = (_sum(square, each) for each in _power_series(order, -1))
    log = (x * 0.5).each("log") + _EULER
    found = (log * first - second) * (2 / math.pi)
    if order:
        return first * x * 0.5, found * x * 0.5 - 2 / (x * math.pi)
    return first, found


def _between(x: Array, order: int) -> tuple[Array, Array]:
    """J and Y by the recurrence; its scale follows from J0 + 2 J2 + 2 J4 + ... = 1, and Y0 is
    Neumann's series of all J, of which Y1 is the derivative."""
    scope, twice = x.scope, 2 / x
    above, now = scope.like(0, x), scope.like(1e-200, x)
    whole, others = scope.like(0, x), scope.like(0, x)
    for k in range(_ORDER, -1, -1):  # `now` is that of order k
        if k % 2 == 0:
            whole = whole + now * (2 if k else 1)
        half, odd = divmod(k, 2)
        if odd == order and half:
            weight = (2 * half + 1) / (half * (half + 1)) if order else 2 / half
            others = others + now * (weight if half % 2 == 0 else -weight)
        if k:
            above, now = now, twice * k * now - above
    first, others = (above if order else now) / whole, others / whole
    log = (x * 0.5).each("log") + (_EULER - order)
    second = log * first - others - (now / whole / x if order else 0)
    return first, second * (2 / math.pi)


def _far(x: Array, order: int) -> tuple[Array, Array]:
    """J and Y by Hankel's expansion."""
    terms = [1.0]
    for k in range(1, _TERMS):
        terms.append(terms[-1] * (4 * order - (2 * k - 1) ** 2) / (k * 8))
    square, signs = 1 / (x * x), [(-1) ** (k // 2) for k in range(_TERMS)]
    signed = [sign * term for sign, term in zip(signs, terms, strict=True)]
    p, q = _sum(square, signed[::2]), _sum(square, signed[1::2]) / x
    cos, sin = x.each("cos"), x.each("sin")
    a, b = cos + sin, sin - cos  # of x - pi/4, times the root of 2
    a, b = (b, -a) if order else (a, b)
    scale = 1 / (x * math.pi).sqrt()
    return (p * a - q * b) * scale, (p * b + q * a) * scale


def _of_real(order: int, kind: int) -> Callable[[Array], Array]:
    """J (kind 0) or Y (1) of order 0 or 1."""

    def function(x: Array) -> Array:
        scope, size = x.scope, x.abs()
        is_near, is_far = size < _NEAR, size > _FAR
        parts = (
            _near(scope.where(is_near, size, _NEAR), order)[kind],
            _between(scope.where(is_near | is_far, 1, size), order)[kind],
            _far(scope.where(is_far, size, _FAR), order)[kind],
        )
        found = scope.where(is_near, parts[0], scope.where(is_far, parts[2], parts[1]))
        if kind:
            found = scope.where(x.equals(0), -math.inf, found)
            return scope.where(x < 0, math.nan, found)
        return scope.where(x < 0, -found, found) if order else found

    return function


def _scaled_k(order: float, x: Array) -> Array:
    """exp(x) K(x), the integral of exp(-x (cosh t - 1)) cosh(order t) from 0 on."""
    step = _STEP / x.sqrt()
    total = x.scope.like(0.5, x)
    for place in range(1, _POINTS):
        t = step * place
        half = (t * 0.5).each("sinh")
        total = total + (x * half * half * -2).each("exp") * (t * order).each("cosh")
    return total * step


def _of_imaginary(order: int, *, scaled: bool) -> Callable[[Array], Array]:
    """K of order 0 or 1, or exp(x) K (`scaled`)."""

    def function(x: Array) -> Array:
        scope = x.scope
        is_near = x < 2
        low = scope.where(is_near & (x > 0), x, 1)
        first, second = (_sum(low * low * 0.25, each) for each in _power_series(order, 1))
        near = second - ((low * 0.5).each("log") + _EULER) * first
        near = 1 / low - near * low * 0.5 if order else near
        high = scope.where((x >= 2) & (x < 1e300), x, 2)
        far = _scaled_k(order, high)
        near, far = (near * low.each("exp"), far) if scaled else (near, far * (-high).each("exp"))
        found = scope.where(is_near, near, scope.where(x < 1e300, far, 0))
        found = scope.where(x.equals(0), math.inf, found)
        return scope.where((x < 0) | ~x.equals(x), math.nan, found)

    return function


def _spherical(x: Array) -> Array:
    """sin(x) / x."""
    is_known = ~x.equals(0) & (x.abs() < math.inf)
    safe = x.scope.where(is_known, x, 1)
    found = x.scope.where(is_known, safe.each("sin") / safe, 1)
    found = x.scope.where(x.abs().equals(math.inf), 0, found)
    return x.scope.where(x.equals(x), found, x)


def _airy(x: Array) -> Array:
    """By K of order 1/3 from 1 on, by an expansion up to -8, and by its power series between."""
    scope = x.scope
    is_high, is_low = x > 1, x < -8
    high = scope.where(is_high, x, 1)
    high = scope.where(high < 110, high, 110)  # from where it is 0
    zeta = high * high.sqrt() * (2 / 3)
    above = _scaled_k(1 / 3, zeta) * (-zeta).each("exp") * (high / 3).sqrt() / math.pi
    middle = scope.where(is_high | is_low, 0, x)
    cube, f, g = middle * middle * middle, [1.0], [1.0]
    for k in range(1, 50):
        f.append(f[-1] / ((3 * k - 1) * 3 * k))
        g.append(g[-1] / (3 * k * (3 * k + 1)))
    between = _sum(cube, f) * 0.3550280538878172 - _sum(cube, g) * middle * 0.2588194037928068
    low = scope.where(is_low, -x, 8)
    zeta, terms = low * low.sqrt() * (2 / 3), [1.0]
    for k in range(1, _TERMS):
        terms.append(terms[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    signed = [(-1) ** (k // 2) * term for k, term in enumerate(terms)]
    square, cos, sin = 1 / (zeta * zeta), zeta.each("cos"), zeta.each("sin")
    p, q = _sum(square, signed[::2]), _sum(square, signed[1::2]) / zeta
    below = (p * (cos + sin) + q * (sin - cos)) / (low.sqrt() * (2 * math.pi)).sqrt()
    found = scope.where(is_high, above, scope.where(is_low, below, between))
    return scope.where(x.abs() < math.inf, found, math.nan)  # as torch, also at the ends


def _in_f64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x.convert(dtype("f64"))).convert(x.dtype)


BESSEL: dict[str, Callable[[Array], Array]] = {
    name: _in_f64(function)
    for name, function in {
        "bessel_j0": _of_real(0, 0),
        "bessel_j1": _of_real(1, 0),
        "bessel_y0": _of_real(0, 1),
        "bessel_y1": _of_real(1, 1),
        "modified_bessel_k0": _of_imaginary(0, scaled=False),
        "modified_bessel_k1": _of_imaginary(1, scaled=False),
        "scaled_modified_bessel_k0": _of_imaginary(0, scaled=True),
        "scaled_modified_bessel_k1": _of_imaginary(1, scaled=True),
        "spherical_bessel_j0": _spherical,
        "airy_ai": _airy,
    }.items()
}
