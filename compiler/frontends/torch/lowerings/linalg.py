"""Linear algebra: what torch.linalg and the ops before it become when torch decomposes them.

Where torch raises an error - a singular matrix, one that is not positive definite - results are
infinite or not numbers, and the infos of ops whose names end in `_ex` say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.matrices import (
    Array,
    Scope,
    batched,
    product_of,
    signed_pivots,
    solve,
)
from ingot.compiler.frontends.matrices.arrays import I64
from ingot.compiler.frontends.matrices.bisection import eigh
from ingot.compiler.frontends.matrices.elimination import (
    Factors,
    cholesky,
    lu,
    order_of,
    solve_triangular,
)
from ingot.compiler.frontends.matrices.exponential import exponential
from ingot.compiler.frontends.matrices.jacobi import svd
from ingot.compiler.frontends.matrices.reflectors import product, qr
from ingot.compiler.frontends.matrices.schur import eigenvectors, schur
from ingot.compiler.frontends.normalizing import widen
from ingot.compiler.frontends.torch.complex_values import ComplexValue, complex_lowering
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, maximum, minimum

__all__: list[str] = []

Operand = Value | ComplexValue
_Found = Sequence[Array | None]
"""Results in order; None: torch gives nothing there, or what programs cannot use."""


def _linalg(*names: str) -> Callable[[Callable[..., _Found]], Callable[..., list[Any]]]:
    """A lowering that sees matrices as arrays [b, m, n], and gives arrays that get the shapes and
    dtypes of the results of the node."""

    def register(function: Callable[..., _Found]) -> Callable[..., list[Any]]:
        def lower(c: Context, *given: Any, **named: Any) -> list[Any]:
            found = function(_Matrices(c), *given, **named)
            return [
                _result(c, each, place)
                for place, each in enumerate(found)
                if place < len(c.declared)
            ]

        full = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names]
        lowering(*full)(lower)
        complex_lowering(*full)(lower)
        return lower

    return register


def _result(c: Context, found: Array | None, place: int) -> Any:
    type = c.declared[place]
    if type is None:
        return None
    if found is None:
        return c.full(0, type.dtype, type.shape) if 0 in type.shape else None
    shaped = found.reshape(*type.shape)
    if shaped.is_complex:
        real, imaginary = shaped.parts
        return ComplexValue(real, imaginary)
    if type.dtype.is_complex:
        real, imaginary = shaped.as_complex().parts
        return ComplexValue(real, imaginary)
    return c.convert(shaped.value, type.dtype)


class _Matrices:
    """The operands of a node as arrays."""

    def __init__(self, c: Context) -> None:
        self.c, self.scope = c, Scope(c.builder)

    def of(self, x: Operand, rank: int = 2) -> Array:
        """[..., m, n] as [b, m, n]; f16 and bf16 as f32."""
        return batched(self.scope, self._parts(x), rank)

    def _parts(self, x: Operand) -> tuple[Value, ...]:
        if isinstance(x, ComplexValue):
            return x.parts
        return (widen(self.c, x) if type_of(x).dtype.is_float else x,)

    def together(
        self, a: Operand, b: Operand, *, with_vectors: bool = False
    ) -> tuple[Array, Array]:
        """Two operands with as many batches; b may be a vector for each matrix (`with_vectors`),
        which is a column."""
        left, right = (_shape(each) for each in (a, b))
        if with_vectors and (len(right) == 1 or right == left[:-1]):
            right = (*right, 1)
        batch = self.c.common_shape(left[:-2], right[:-2])
        return self._spread(a, left, batch), self._spread(b, right, batch)

    def _spread(self, x: Operand, shape: Sequence[Dim], batch: Sequence[Dim]) -> Array:
        parts = [
            self.c.broadcast_to(self.c.reshape(each, shape), (*batch, *shape[-2:]))
            for each in self._parts(x)
        ]
        return batched(self.scope, parts)

    def order(self, pivots: Value, rows: Dim) -> Array:
        """Which row comes to stand in each place, for pivots that count from 1."""
        return order_of(self.of(pivots, 1).convert(I64) - 1, rows)

    def limit(self, x: Any, like: Array) -> Array:
        """A number, or one for each matrix; 0 for none."""
        if not isinstance(x, Value):
            return self.scope.full(x or 0, like.dtype, (1, 1))
        number = Array(self.scope, (self.c.convert(x, like.dtype),))
        return number.reshape(dims.product(number.shape), 1)

    def upper(self, x: Array, below: int = 0) -> Array:
        """What is not below the diagonal of each matrix."""
        rows, columns = (self.scope.count((1, *x.shape[1:]), axis) for axis in (1, 2))
        return self.scope.where(rows <= columns - below, x, 0)

    def lower(self, x: Array, *, unit: bool = False) -> Array:
        """What is not above the diagonal, with 1 on it (`unit`)."""
        rows, columns = (self.scope.count((1, *x.shape[1:]), axis) for axis in (1, 2))
        x = self.scope.where(rows.equals(columns), 1, x) if unit else x
        return self.scope.where(rows >= columns, x, 0)


def _shape(x: Operand) -> tuple[Dim, ...]:
    return x.type.shape if isinstance(x, ComplexValue) else shape_of(x)


# ---- elimination


@_linalg("linalg_inv_ex", "linalg_inv", "inverse")
def inverse(m: _Matrices, x: Operand, **_: Any) -> _Found:
    array = m.of(x)
    factors = lu(array)
    unit = m.scope.identity(array.shape[0], array.shape[1], array)
    return solve(factors, unit), factors.info


@_linalg("_linalg_solve_ex", "linalg_solve")
def solution(m: _Matrices, a: Operand, b: Operand, *, left: bool = True, **_: Any) -> _Found:
    array, right = m.together(a, b, with_vectors=True)
    factors = lu(array if left else array.T)
    found = solve(factors, right if left else right.T)
    found = found if left else found.T
    own = lu(m.of(a))  # what is asked for seldom has no batches that the solution alone has
    return found, own.both, own.pivots + 1, own.info


@_linalg("_linalg_det", "linalg_det", "det")
def determinant(m: _Matrices, x: Operand) -> _Found:
    factors = lu(m.of(x))
    return product_of(signed_pivots(factors)), factors.both, factors.pivots + 1


@_linalg("_linalg_slogdet", "linalg_slogdet", "slogdet")
def log_determinant(m: _Matrices, x: Operand) -> _Found:
    factors = lu(m.of(x))
    pivots = signed_pivots(factors)
    size = pivots.abs()
    none = size.equals(0)
    phases = m.scope.where(none, 0, pivots / m.scope.where(none, 1, size))
    return product_of(phases), size.each("log").sum(1), factors.both, factors.pivots + 1


@_linalg("linalg_lu_factor_ex", "linalg_lu_factor")
def lu_factors(m: _Matrices, x: Operand, *, pivot: bool = True, **_: Any) -> _Found:
    factors = _pivoted(m, x, pivot)
    return factors.both, factors.pivots + 1, factors.info


@_linalg("linalg_lu")
def lu_parts(m: _Matrices, x: Operand, *, pivot: bool = True) -> _Found:
    factors = _pivoted(m, x, pivot)
    return _unpacked(m, factors.both, factors.order)


def _pivoted(m: _Matrices, x: Operand, pivot: bool) -> Factors:
    if not pivot:
        raise UnsupportedNode("pivot is False, which torch itself refuses here")
    return lu(m.of(x))


def _unpacked(m: _Matrices, both: Array, order: Array) -> list[Array]:
    """P, L and U with P L U = A."""
    _, rows, columns = both.shape
    count = minimum(rows, columns)
    places = m.scope.count((1, rows, 1), 1)
    permutation = places.equals(order.unsqueeze(1)).convert(both.dtype)
    return [
        permutation,
        m.lower(both.cut(2, 0, count), unit=True),
        m.upper(both.cut(1, 0, count)),
    ]


@_linalg("lu_unpack")
def unpack(m: _Matrices, factors: Operand, pivots: Value, *_: Any, **__: Any) -> _Found:
    both = m.of(factors)
    return _unpacked(m, both, m.order(pivots, both.shape[1]))


@_linalg("linalg_lu_solve")
def solve_by_factors(
    m: _Matrices, factors: Operand, pivots: Value, b: Operand, *, left: bool = True,
    adjoint: bool = False,
) -> _Found:  # fmt: skip
    both, right = m.together(factors, b)
    rows = m.c.broadcast_to(pivots, (*_batch(m.c, factors, b), shape_of(pivots)[-1]))
    order = m.order(rows, both.shape[1])
    if not left:
        right, adjoint = right.H, not adjoint
    lower, upper = {"lower": True, "unit": True}, {"lower": False, "unit": False}
    turned = {"left": True, "transposed": adjoint, "conjugated": adjoint}
    if adjoint:
        found = solve_triangular(both, right, **upper, **turned)
        found = solve_triangular(both, found, **lower, **turned)
        back = order.unsqueeze(1).equals(m.scope.count((1, both.shape[1], 1), 1))
        found = back.convert(found.dtype) @ found
    else:
        found = solve_triangular(both, right.rows(order), **lower, **turned)
        found = solve_triangular(both, found, **upper, **turned)
    return [found if left else found.H]


def _batch(c: Context, a: Operand, b: Operand) -> tuple[Dim, ...]:
    return c.common_shape(_shape(a)[:-2], _shape(b)[:-2])


# ---- Cholesky factors and triangles


@_linalg("linalg_cholesky_ex", "linalg_cholesky")
def cholesky_factor(m: _Matrices, x: Operand, *, upper: bool = False, **_: Any) -> _Found:
    array = m.of(x)
    factor, info = cholesky(array.H if upper else array)
    return factor.H if upper else factor, info


@_linalg("cholesky")
def cholesky_of(m: _Matrices, x: Operand, upper: bool = False) -> _Found:
    array = m.of(x)
    factor, _ = cholesky(array.H if upper else array)
    return [factor.H if upper else factor]


@_linalg("cholesky_solve", "_cholesky_solve_helper")
def solve_by_cholesky(m: _Matrices, b: Operand, factor: Operand, upper: bool = False) -> _Found:
    array, right = m.together(factor, b)
    return [_by_cholesky(array, right, upper)]


@_linalg("cholesky_inverse")
def inverse_by_cholesky(m: _Matrices, factor: Operand, upper: bool = False) -> _Found:
    array = m.of(factor)
    unit = m.scope.identity(array.shape[0], array.shape[1], array)
    return [_by_cholesky(array, unit, upper)]


def _by_cholesky(factor: Array, right: Array, upper: bool) -> Array:
    lower = factor.H if upper else factor
    given = {"left": True, "lower": True, "unit": False}
    part = solve_triangular(lower, right, **given, transposed=False, conjugated=False)
    return solve_triangular(lower, part, **given, transposed=True, conjugated=True)


@_linalg("linalg_solve_triangular")
def solve_triangle(
    m: _Matrices, a: Operand, b: Operand, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> _Found:  # fmt: skip
    array, right = m.together(a, b)
    given = {"left": left, "lower": not upper, "unit": unitriangular}
    return [solve_triangular(array, right, **given, transposed=False, conjugated=False)]


@_linalg("triangular_solve")
def solve_triangle_of(
    m: _Matrices, b: Operand, a: Operand, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> _Found:  # fmt: skip
    array, right = m.together(a, b)
    given = {"left": True, "lower": not upper, "unit": unitriangular}
    found = solve_triangular(array, right, **given, transposed=transpose, conjugated=False)
    return found, array


# ---- reflectors


@_linalg("linalg_qr")
def qr_parts(m: _Matrices, x: Operand, mode: str = "reduced") -> _Found:
    array = m.of(x)
    batch, rows, columns = array.shape
    kept = rows if mode == "complete" else minimum(rows, columns)
    factors, taus = qr(array)
    r = m.upper(factors.cut(1, 0, kept))
    if mode == "r":
        return None, r
    return product(factors, taus, m.scope.identity(batch, rows, array, kept)), r


@_linalg("geqrf")
def qr_factors(m: _Matrices, x: Operand) -> _Found:
    return qr(m.of(x))


@_linalg("linalg_householder_product")
def product_of_reflectors(m: _Matrices, factors: Operand, taus: Operand) -> _Found:
    array, factor = m.of(factors), m.of(taus, 1)
    batch, rows, columns = array.shape
    return [product(array, factor, m.scope.identity(batch, rows, array, columns))]


@_linalg("ormqr")
def product_with_q(
    m: _Matrices, factors: Operand, taus: Operand, other: Operand, left: bool = True,
    transpose: bool = False,
) -> _Found:  # fmt: skip
    array, factor, c = m.of(factors), m.of(taus, 1), m.of(other)
    if left:
        return [product(array, factor, c, adjoint=transpose)]
    return [product(array, factor, c.H, adjoint=not transpose).H]


# ---- eigenvalues and singular values


@_linalg("_linalg_eigh", "linalg_eigh", "linalg_eigvalsh")
def eigen_of_hermitian(
    m: _Matrices,
    x: Operand,
    UPLO: str = "L",  # noqa: N803 - its name
    compute_v: bool = True,
) -> _Found:
    array = m.of(x)
    values, vectors, _ = eigh(array if UPLO.upper() == "L" else array.H)
    return values, vectors if compute_v else None


@_linalg("linalg_eig")
def eigen(m: _Matrices, x: Operand) -> _Found:
    found = schur(m.of(x))
    return found.values.as_complex(), eigenvectors(found)


@_linalg("linalg_eigvals", "_linalg_eigvals")
def eigenvalues(m: _Matrices, x: Operand) -> _Found:
    return [schur(m.of(x)).values.as_complex()]


@_linalg("_linalg_svd")
def singular(
    m: _Matrices, x: Operand, full_matrices: bool = False, compute_uv: bool = True, **_: Any
) -> _Found:
    u, values, vh = svd(m.of(x), whole=full_matrices and compute_uv)[:3]
    return (u, values, vh) if compute_uv else (None, values, None)


@_linalg("linalg_svd")
def singular_parts(m: _Matrices, x: Operand, full_matrices: bool = True, **_: Any) -> _Found:
    return svd(m.of(x), whole=full_matrices)[:3]


@_linalg("linalg_svdvals")
def singular_values(m: _Matrices, x: Operand, **_: Any) -> _Found:
    return [svd(m.of(x), whole=False)[1]]


@_linalg("linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_float")
def pseudo_inverse(
    m: _Matrices, x: Operand, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> _Found:
    """By singular values, of which those up to `atol` or `rtol` of the greatest count as 0; without
    `rtol`, up to what is lost by rounding, unless `atol` is above 0."""
    if hermitian:  # of which torch reads the lower triangle
        own, vectors, _ = eigh(m.of(x))
        turned = m.scope.where(own.unsqueeze(1) < 0, -vectors, vectors)
        u, values, vh = turned, own.abs(), vectors.H
    else:
        u, values, vh, _ = svd(m.of(x), whole=False)
    count, size = values.shape
    least, share = (m.limit(each, values) for each in (atol, rtol))
    if rtol is None:
        usual = m.scope.full(maximum(*_shape(x)[-2:]), values.dtype) * values.epsilon
        share = m.scope.where(least > 0, 0, usual)
    greatest = values.max(1).reshape(count, 1) if size != 0 else values.reshape(count, 0)
    limit = (greatest * share).greater_of(least)
    used = values > limit
    inverse = m.scope.where(used, 1 / m.scope.where(used, values, 1), 0)
    return [(vh.H * inverse.unsqueeze(1)) @ u.H]


@_linalg("linalg_polar")
def polar_factors(m: _Matrices, x: Operand) -> _Found:
    """The nearest matrix with orthonormal columns, and the Hermitian one that makes x of it."""
    u, values, vh, _ = svd(m.of(x), whole=False)
    return u @ vh, (vh.H * values.unsqueeze(1)) @ vh


@_linalg("linalg_matrix_sqrth")
def root_of_hermitian(m: _Matrices, x: Operand) -> _Found:
    values, vectors, _ = eigh(m.of(x))
    return [(vectors * values.sqrt().unsqueeze(1)) @ vectors.H]


@_linalg("linalg_matrix_exp")
def matrix_exponential(m: _Matrices, x: Operand) -> _Found:
    return [exponential(m.of(x))]


@lowering("aten._linalg_check_errors.default")
def unchecked(c: Context, *_: Any, **__: Any) -> list[Any]:
    """Where torch would raise an error, numbers are infinite or none."""
    return []
