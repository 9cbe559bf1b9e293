"""Linear algebra, `ingot.ops.linalg`: the standard's extension of this name. Matrices stand in the
last two axes, real or complex. What NumPy raises an error for gives inf or NaN."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

from ingot.compiler.frontends import matrices
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.matrices import (
    Array,
    Scope,
    batched,
    bisection,
    elimination,
    jacobi,
    reflectors,
    schur,
)
from ingot.compiler.frontends.program.complex import of_parts, parts_of
from ingot.compiler.frontends.program.creation import arange, asarray, astype, eye
from ingot.compiler.frontends.program.dtypes import finfo
from ingot.compiler.frontends.program.elementwise import (
    abs,
    common_dtype,
    floating,
    pow,
    square,
    where,
)
from ingot.compiler.frontends.program.linear import matmul
from ingot.compiler.frontends.program.manipulation import (
    axes_of,
    broadcast_arrays,
    broadcast_to,
    expand_dims,
    matrix_transpose,
    reshape,
    squeeze,
)
from ingot.compiler.frontends.program.reductions import count_nonzero, max, min, sum
from ingot.compiler.frontends.program.searching import take
from ingot.compiler.frontends.program.tensor import (
    EXTENSIONS,
    FUNCTIONS,
    ComplexTensor,
    Tensor,
    as_dim,
    as_size,
    current,
    extension,
    given,
    value_of,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []


class EigResult(NamedTuple):
    """The result of `eig`, both complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _tensor(x: Any) -> Tensor:
    """A tensor of floats or of complex numbers."""
    if common_dtype(x).is_complex:
        return of_parts(parts_of(x))
    return given(floating(x))


def _matrices(
    x: Any, *, square: bool = False, scope: Scope | None = None
) -> tuple[Array, tuple[Dim, ...]]:
    """A tensor as [b, m, n], and the dims in front of its last two."""
    tensor = _tensor(x)
    parts: tuple[Value, ...] = (value_of(tensor),)
    if isinstance(tensor, ComplexTensor):
        parts = tensor.parts
    shape = shape_of(parts[0])
    if len(shape) < 2:
        raise UnsupportedNode(f"it takes matrices [..., m, n], but got {tensor}")
    if square:
        parts = tuple(current().agree_on(part, len(shape) - 1, shape[-2]) for part in parts)
    if type_of(parts[0]).dtype.is_half:
        raise UnsupportedNode(f"it takes floats of 32 or 64 bits, but got {tensor}")
    return batched(scope or Scope(current().builder), parts), shape[:-2]


def _back(x: Array, batch: tuple[Dim, ...]) -> Tensor:
    """An array [b, ...] as a tensor of these batches."""
    shaped = x.reshape(*batch, *x.shape[1:])
    if not shaped.is_complex:
        return given(shaped.value)
    real, imaginary = shaped.parts
    return of_parts((real, imaginary))


@extension("linalg")
def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """L with L L^H = x, or the adjoint of L (`upper`); NaN where x is not positive definite."""
    array, batch = _matrices(x, square=True)
    factor, _ = elimination.cholesky(array)
    return _back(factor.H if upper else factor, batch)


@extension("linalg")
def det(x: Any, /) -> Tensor:
    """The determinants of square matrices."""
    array, batch = _matrices(x, square=True)
    return _back(matrices.product_of(matrices.signed_pivots(elimination.lu(array))), batch)


@extension("linalg")
def slogdet(x: Any, /) -> SlogdetResult:
    """The signs of determinants, or their phases, and the logarithms of their sizes."""
    array, batch = _matrices(x, square=True)
    pivots = matrices.signed_pivots(elimination.lu(array))
    size, scope = pivots.abs(), array.scope
    phases = scope.where(size.equals(0), 0, pivots / scope.where(size.equals(0), 1, size))
    return SlogdetResult(
        _back(matrices.product_of(phases), batch), _back(size.each("log").sum(1), batch)
    )


@extension("linalg")
def inv(x: Any, /) -> Tensor:
    """The inverses of square matrices."""
    array, batch = _matrices(x, square=True)
    unit = array.scope.identity(array.shape[0], array.shape[1], array)
    return _back(matrices.solve(array, unit), batch)


@extension("linalg")
def solve(x1: Any, x2: Any, /) -> Tensor:
    """X with x1 X = x2: [..., m, m] and [..., m, k], or one column [m]."""
    a, b = _tensor(x1), _tensor(x2)
    element = common_dtype(a, b)
    a, b = (astype(each, element) for each in (a, b))
    is_column = b.ndim == 1
    b = expand_dims(b, axis=1) if is_column else b
    batch = tuple(map(as_size, current().common_shape(_dims(a)[:-2], _dims(b)[:-2])))
    a, b = (broadcast_to(each, (*batch, *each.shape[-2:])) for each in (a, b))
    left, dims_before = _matrices(a, square=True)
    right, _ = _matrices(b, scope=left.scope)
    current().equate(left.shape[1], right.shape[1])
    found = _back(matrices.solve(left, right), dims_before)
    return squeeze(found, -1) if is_column else found


def _dims(x: Tensor) -> tuple[Dim, ...]:
    return tuple(as_dim(each) for each in x.shape)


@extension("linalg")
def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Q with orthonormal columns and R, a triangle, with Q R = x; of `mode` "complete" Q is
    square."""
    if mode not in ("reduced", "complete"):
        raise UnsupportedNode(f'mode is {mode!r}, expected "reduced" or "complete"')
    array, batch = _matrices(x)
    scope, (count, m, n) = array.scope, array.shape
    kept = m if mode == "complete" else dims.minimum(m, n)
    factors, taus = reflectors.qr(array)
    upper = scope.count((1, kept, n), 1) <= scope.count((1, kept, n), 2)
    q = reflectors.product(factors, taus, scope.identity(count, m, array, kept))
    return QRResult(_back(q, batch), _back(scope.where(upper, factors.cut(1, 0, kept), 0), batch))


@extension("linalg")
def eig(x: Any, /) -> EigResult:
    """The eigenvalues of square matrices, in no order, and the eigenvectors as columns of length 1;
    both complex."""
    array, batch = _matrices(x, square=True)
    found = schur.schur(array)
    vectors = schur.eigenvectors(found)
    return EigResult(_back(found.values.as_complex(), batch), _back(vectors, batch))


@extension("linalg")
def eigvals(x: Any, /) -> Tensor:
    """The eigenvalues of `eig`."""
    array, batch = _matrices(x, square=True)
    return _back(schur.schur(array).values.as_complex(), batch)


@extension("linalg")
def eigh(x: Any, /) -> EighResult:
    """The eigenvalues of Hermitian matrices, of which the lower half is read, in rising order, and
    the eigenvectors as columns."""
    array, batch = _matrices(x, square=True)
    values, vectors, _ = bisection.eigh(array)
    return EighResult(_back(values, batch), _back(vectors, batch))


@extension("linalg")
def eigvalsh(x: Any, /) -> Tensor:
    """The eigenvalues of `eigh`."""
    return eigh(x).eigenvalues


@extension("linalg")
def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """U, singular values in falling order, and V^H. U and V^H are square, or have as many columns
    and rows as there are singular values."""
    array, batch = _matrices(x)
    u, values, vh, _ = jacobi.svd(array, whole=full_matrices)
    return SVDResult(_back(u, batch), _back(values, batch), _back(vh, batch))


@extension("linalg")
def svdvals(x: Any, /) -> Tensor:
    """The singular values in falling order."""
    return svd(x, full_matrices=False).S


def _limit(x: Any, values: Tensor, rtol: Any) -> Tensor:
    """Singular values up to this count as 0."""
    if rtol is None:
        m, n = _dims(_tensor(x))[-2:]
        rtol = given(current().size(dims.maximum(m, n), values.dtype)) * finfo(values).eps
    elif isinstance(rtol, Tensor) and rtol.ndim:
        rtol = expand_dims(rtol, axis=-1)
    return max(values, axis=-1, keepdims=True) * rtol  # type: ignore[no-any-return]


@extension("linalg")
def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above `rtol` of the greatest one; None: max(m, n) epsilon."""
    values = svdvals(x)
    return count_nonzero(values > _limit(x, values, rtol), axis=-1)


@extension("linalg")
def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """The inverses of Moore and Penrose; `rtol` as in `matrix_rank`."""
    u, values, vh = svd(x, full_matrices=False)
    used = values > _limit(x, values, rtol)
    inverse = where(used, 1 / where(used, values, 1), 0)
    conj = FUNCTIONS["conj"]
    right, left = matrix_transpose(conj(vh)), matrix_transpose(conj(u))
    return matmul(right * expand_dims(inverse, axis=-2), left)


@extension("linalg")
def matrix_power(x: Any, n: int, /) -> Tensor:
    """The product of n of the matrices; of their inverses for a negative n."""
    n, tensor = operator.index(n), inv(x) if n < 0 else _tensor(x)
    if n == 0:
        _matrices(tensor, square=True)
    found = None
    for bit in bin(n if n > 0 else -n)[:1:-1]:
        if bit == "1":
            found = tensor if found is None else matmul(found, tensor)
        tensor = matmul(tensor, tensor)
    if found is None:
        unit = eye(tensor.shape[-1], dtype=tensor.dtype)
        return broadcast_to(unit, (*tensor.shape[:-2], *unit.shape))
    return found


@extension("linalg")
def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """The elements on a diagonal of matrices, `offset` to the right of the main one."""
    tensor = given(value_of(x)) if not isinstance(x, Tensor) else x
    if tensor.ndim < 2:
        raise UnsupportedNode(f"it takes matrices [..., m, n], but got {tensor}")
    m, n = tensor.shape[-2:]
    offset = operator.index(offset)
    low, high = (-offset, 0) if offset < 0 else (0, offset)
    count = dims.maximum(dims.minimum(as_dim(m) - low, as_dim(n) - high), 0)
    at = arange(as_size(count))
    flat = reshape(tensor, (*tensor.shape[:-2], m * n))
    return take(flat, (at + low) * n + (at + high), axis=-1)


@extension("linalg")
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of `diagonal`."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@extension("linalg")
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The cross products of vectors of three elements along an axis."""
    x1, x2 = asarray(x1), asarray(x2)
    for each in (x1, x2):
        if each.shape[axes_of((axis,), each.ndim)[0]] != 3:
            raise UnsupportedNode(f"it takes vectors of three elements, but got {each}")
    a, b = broadcast_arrays(x1, x2)
    place = axes_of((axis,), a.ndim)[0]
    first, second = asarray([1, 2, 0]), asarray([2, 0, 1])
    left = take(a, first, axis=place) * take(b, second, axis=place)
    return left - take(a, second, axis=place) * take(b, first, axis=place)


def _greatest(sizes: Tensor, **over: Any) -> Tensor:
    """The greatest of what is not below 0; 0 of none."""
    return FUNCTIONS["maximum"](max(sizes, **over), 0)  # type: ignore[no-any-return]


@extension("linalg")
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """(sum |x|^ord)^(1 / ord) over axes; the greatest or least |x| for inf and -inf, how many are
    not 0 for 0."""
    size = abs(_tensor(x))
    over = {"axis": axis, "keepdims": keepdims}
    if math.isinf(ord):
        return _greatest(size, **over) if ord > 0 else min(size, **over)
    if ord == 0:
        return sum(astype(size != 0, size.dtype), **over)
    if ord == 1:
        return sum(size, **over)
    if ord == 2:
        found: Tensor = FUNCTIONS["sqrt"](sum(square(size), **over))
        return found
    return pow(sum(pow(size, float(ord)), **over), 1 / ord)


@extension("linalg")
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of matrices: "fro" (of all elements), "nuc" (the sum of singular values), 2 and -2
    (the greatest and the least of them), 1 and -1 (the greatest and the least column sum), inf
    and -inf (row sum)."""
    tensor = _tensor(x)
    if ord == "fro":
        return vector_norm(tensor, axis=(-2, -1), keepdims=keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        sums = sum(abs(tensor), axis=-2 if ord in (1, -1) else -1)
        found = (_greatest if ord > 0 else min)(sums, axis=-1)
    elif ord in ("nuc", 2, -2):
        values = svdvals(tensor)
        found = (
            sum(values, axis=-1)
            if ord == "nuc"
            else (_greatest if ord > 0 else min)(values, axis=-1)
        )
    else:
        raise UnsupportedNode(f"ord is {ord!r}, expected fro, nuc, 1, -1, 2, -2, inf or -inf")
    return expand_dims(found, axis=(-2, -1)) if keepdims else found


EXTENSIONS["linalg"].update(
    {
        name: FUNCTIONS[name]
        for name in ("matmul", "matrix_transpose", "outer", "tensordot", "vecdot")
    }
)
