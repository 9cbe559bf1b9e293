"""The calls of LAPACK that jax exports for CPUs, as algorithms of our own.

A call is named after its routine, with a letter for the dtype: `lapack_sgetrf_ffi` is `getrf`.
Layouts of operands say how jax hands them to LAPACK; the values are the same without them, and
operands behind those of the routine are sizes of the results, which follow from the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.matrices import Array, Scope, batched
from ingot.compiler.frontends.matrices.arrays import I64
from ingot.compiler.frontends.matrices.bisection import eigh
from ingot.compiler.frontends.matrices.elimination import cholesky, lu, solve_triangular
from ingot.compiler.frontends.matrices.jacobi import svd
from ingot.compiler.frontends.matrices.reflectors import (
    hessenberg,
    pivoted_qr,
    product,
    qr,
    tridiagonal,
)
from ingot.compiler.frontends.matrices.schur import eigenvectors, schur
from ingot.compiler.frontends.matrices.tridiagonal import solve_tridiagonal
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, TensorType
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import dtype

__all__ = ["call_lapack", "is_lapack"]

_NAME = re.compile(r"lapack_[sdcz](?P<routine>[a-z0-9]+)_ffi")


@dataclass(frozen=True)
class _Call:
    """The operands of a call as batches, and its attributes."""

    context: Context
    op: SourceOp
    scope: Scope

    def operand(self, place: int, rank: int = 2) -> Array:
        return batched(self.scope, self.context.flat([self.context.lowered(self.op, place)]), rank)

    def square(self) -> Array:
        """The first operand, whose matrices are square."""
        parts = self.context.flat([self.context.lowered(self.op, 0)])
        shape = tensor_type(parts[0]).shape
        wanted = (*shape[:-1], shape[-2])
        return batched(self.scope, [self.context.agree(self.op, x, wanted) for x in parts])

    def done(self) -> Array:
        """The info of routines that cannot fail."""
        return self.scope.full(0, I64, self.operand(0).shape[:1])

    def attribute(self, name: str) -> Any:
        """A number, a truth, or a letter that LAPACK takes."""
        return self.op.attributes["mhlo.backend_config"][name]

    def is_letter(self, name: str, letter: str) -> bool:
        return bool(self.attribute(name) == ord(letter))


def _cholesky(call: _Call) -> Sequence[Array]:
    x = call.square()
    lower = call.is_letter("uplo", "L")
    factor, info = cholesky(x if lower else x.H)
    at, along = (call.scope.count(x.shape, axis) for axis in ((1, 2) if lower else (2, 1)))
    return call.scope.where(at >= along, factor if lower else factor.H, x), info


def _lu(call: _Call) -> Sequence[Array]:
    factors = lu(call.operand(0))
    return factors.both, factors.pivots + 1, factors.info


def _triangular(call: _Call) -> Sequence[Array]:
    a, b = call.square(), call.operand(1)
    return [
        solve_triangular(
            a,
            b,
            left=call.is_letter("side", "L"),
            lower=call.is_letter("uplo", "L"),
            unit=call.is_letter("diag", "U"),
            transposed=not call.is_letter("trans_x", "N"),
            conjugated=call.is_letter("trans_x", "C"),
        )
    ]


def _with_q(call: _Call) -> Sequence[Array]:
    """Q C, Q^H C, C Q or C Q^H."""
    factors, taus, c = call.operand(0), call.operand(1, 1), call.operand(2)
    adjoint = bool(call.attribute("transpose"))
    if call.attribute("left"):
        return [product(factors, taus, c, adjoint=adjoint)]
    return [product(factors, taus, c.H, adjoint=not adjoint).H]


def _q(call: _Call) -> Sequence[Array]:
    """The first columns of Q, as many as its operand has."""
    factors, taus = call.operand(0), call.operand(1, 1)
    batch, rows, columns = factors.shape
    unit = call.scope.identity(batch, rows, factors, columns)
    return [product(factors, taus, unit)]


def _hessenberg(call: _Call) -> Sequence[Array]:
    return (*hessenberg(call.square()), call.done())


def _pivoted_qr(call: _Call) -> Sequence[Array]:
    factors, taus, order = pivoted_qr(call.operand(0))
    return factors, order, taus


def _tridiagonal(call: _Call) -> Sequence[Array]:
    """The upper half is the lower one of the matrix in opposite order."""
    x = call.square()
    if call.is_letter("uplo", "L"):
        return (*tridiagonal(x), call.done())
    matrix, *vectors = tridiagonal(x.reverse(1, 2))
    return (matrix.reverse(1, 2), *(each.reverse(1) for each in vectors), call.done())


def _eigh(call: _Call) -> Sequence[Array]:
    x = call.square()
    values, vectors, info = eigh(x if call.is_letter("uplo", "L") else x.H)
    return vectors, values, info


def _svd(call: _Call) -> Sequence[Array]:
    x = call.operand(0)
    whole = call.is_letter("mode", "A")
    if call.is_letter("mode", "N"):  # nobody asks for the vectors, but they have a type
        left, right = (each.type for each in call.op.results[2:4])
        assert isinstance(left, TensorType)
        assert isinstance(right, TensorType)
        whole = (left.shape[-1], right.shape[-2]) == tuple(x.shape[1:])
    u, values, vh, info = svd(x, whole=whole)
    return x, values, u, vh, info


def _eig(call: _Call) -> Sequence[Array]:
    """The eigenvalues, of real matrices as real and imaginary parts, left and right vectors."""
    x = call.square()
    found = schur(x)
    sides = [
        eigenvectors(found, left=name == "compute_left")
        if call.is_letter(name, "V")
        else call.scope.zeros(x.as_complex())
        for name in ("compute_left", "compute_right")
    ]
    values = [found.values] if x.is_complex else found.values.split()
    return (*values, *sides, found.info)


def _schur(call: _Call) -> Sequence[Array]:
    x = call.square()
    found = schur(x)
    values = [found.values] if x.is_complex else found.values.split()
    return found.form, found.vectors.H, *values, call.done(), found.info


def _tridiagonal_system(call: _Call) -> Sequence[Array]:
    below, diagonal, above = (call.operand(place, 1) for place in range(3))
    return solve_tridiagonal(below, diagonal, above, call.operand(3))


_ROUTINES: dict[str, Callable[[_Call], Sequence[Array]]] = {
    "gees": _schur,
    "geev": _eig,
    "gehrd": _hessenberg,
    "geqp3": _pivoted_qr,
    "geqrf": lambda call: qr(call.operand(0)),
    "gesdd": _svd,
    "gesvd": _svd,
    "getrf": _lu,
    "gtsv": _tridiagonal_system,
    "heevd": _eigh,
    "hetrd": _tridiagonal,
    "orgqr": _q,
    "ormqr": _with_q,
    "potrf": _cholesky,
    "syevd": _eigh,
    "sytrd": _tridiagonal,
    "trsm": _triangular,
    "ungqr": _q,
    "unmqr": _with_q,
}


def is_lapack(target: object) -> bool:
    """Whether a custom call is one of the routines that are known."""
    match = _NAME.fullmatch(str(target))
    return match is not None and match["routine"] in _ROUTINES


def call_lapack(context: Context, op: SourceOp) -> list[Lowered]:
    """The results of the routine that a custom call names."""
    match = _NAME.fullmatch(str(op.attributes["call_target_name"]))
    assert match is not None
    call = _Call(context, op, Scope(context.builder))
    batch = tensor_type(context.flat([context.lowered(op, 0)])[0]).shape
    results = _ROUTINES[match["routine"]](call)
    return [
        _shaped(result, each.type, batch) for result, each in zip(results, op.results, strict=True)
    ]


def _shaped(x: Array, type: Any, batch: Sequence[Any]) -> Lowered:
    """A result in the type that the call declares, with the batches of its operand."""
    assert isinstance(type, TensorType)
    own = x.shape[1:]
    shaped = x.reshape(*batch[: len(type.shape) - len(own)], *own)
    if len(shaped.parts) == 2:
        real, imaginary = shaped.parts
        return Lowered(parts=(real, imaginary))
    return Lowered(shaped.convert(dtype(type.element)).value)
