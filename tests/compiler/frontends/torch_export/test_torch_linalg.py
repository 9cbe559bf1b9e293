"""Linear algebra of torch against eager torch, real and complex."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source
from ingot.hal.spec import dtype as dtype_of
from tests.support.torch_calls import Calls, check, drawn, torch

L = torch.linalg


def rebuilt(values: Any, vectors: Any) -> Any:
    return vectors @ torch.diag_embed(values.to(vectors.dtype)) @ L.inv(vectors)


SQUARE: dict[str, Any] = {
    "inv": lambda a, b: (L.inv(a), torch.inverse(a)),
    "inv_ex": lambda a, b: (L.inv_ex(a), L.inv_ex(a[..., :0, :0])),
    "solve": lambda a, b: (L.solve(a, b), L.solve(a, b.mT, left=False), L.solve(a, a[..., 0])),
    "det": lambda a, b: (L.det(a), L.slogdet(a)),
    "lu_solve": lambda a, b: L.lu_solve(*L.lu_factor(a), b),
    "lu_solve_adjoint": lambda a, b: L.lu_solve(*L.lu_factor(a), b, adjoint=True),
    "lu_solve_right": lambda a, b: L.lu_solve(*L.lu_factor(a), b.mT, left=False),
    "solve_triangular": lambda a, b: L.solve_triangular(a, b, upper=True),
    "unit_triangle": lambda a, b: L.solve_triangular(
        a, b.mT, upper=False, left=False, unitriangular=True
    ),
    "eig": lambda a, b: rebuilt(*L.eig(a)),
    "eigvals": lambda a, b: L.eigvals(a).abs().sort(-1)[0],
    "matrix_exp": lambda a, b: L.matrix_exp(a * 2),
    "matrix_power": lambda a, b: L.matrix_power(a, -3),
    "cond": lambda a, b: L.cond(a),
}
TALL: dict[str, Any] = {
    "lu": lambda a: (L.lu(a), torch.lu_unpack(*L.lu_factor(a))),
    "qr": lambda a: (L.qr(a), L.qr(a, "complete"), L.qr(a, "r").R),
    "reflectors": lambda a: (torch.geqrf(a), L.householder_product(*torch.geqrf(a))),
    "ormqr": lambda a: torch.ormqr(*torch.geqrf(a), a, transpose=True),
    "svd": lambda a: (lambda u, s, vh: (s, (u * s[..., None, :]) @ vh))(*L.svd(a, False)),
    "svdvals": lambda a: (L.svdvals(a), L.matrix_norm(a, "nuc"), L.matrix_norm(a, 2)),
    "pinv": lambda a: (L.pinv(a), L.matrix_rank(a)),
    "cross": lambda a: L.cross(a, a.flip(-2)),
}
DEFINITE: dict[str, Any] = {
    "cholesky": lambda a, b: (L.cholesky(a), L.cholesky(a, upper=True), L.cholesky_ex(a)),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, L.cholesky(a)),
    "cholesky_inverse": lambda a, b: torch.cholesky_inverse(L.cholesky(a)),
    "eigh": lambda a, b: (L.eigvalsh(a), rebuilt(*L.eigh(a, UPLO="U"))),
    "pinv": lambda a, b: L.pinv(a, hermitian=True),
    "roots": lambda a, b: (L.matrix_sqrth(a), L.polar(a), L.polar(b)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", SQUARE)
def test_square_matrices_agree(name: str, dtype: Any) -> None:
    check(SQUARE[name], drawn(2, 1, 4, 4, dtype=dtype), drawn(2, 4, 2, dtype=dtype), near=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", TALL)
def test_tall_matrices_agree(name: str, dtype: Any) -> None:
    check(TALL[name], drawn(2, 5, 3, dtype=dtype), near=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", DEFINITE)
def test_definite_matrices_agree(name: str, dtype: Any) -> None:
    a = drawn(2, 4, 4, dtype=dtype)
    check(DEFINITE[name], a @ a.mH + torch.eye(4), drawn(2, 4, 2, dtype=dtype), near=1e-3)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_exponentials_of_matrices_of_16_bits_are_computed_in_f32(name: str) -> None:
    x = drawn(2, 3, 3).to(torch.float16 if name == "f16" else torch.bfloat16)
    program = torch.export.export(Calls(L.matrix_exp), (x,), strict=False)
    given = x.float().numpy().astype(dtype_of(name).numpy)
    (found,) = interpret(read_source(program), "main", [given])
    expected = L.matrix_exp(x.float()).numpy()
    np.testing.assert_allclose(found.astype(np.float32), expected, 4e-3, 1e-3)


def test_pseudo_inverses_without_a_least_value_leave_out_rounding_errors() -> None:
    flat = torch.ones(2, 3, 2) * torch.tensor([1.0, 2.0])
    for atol in (0.0, -1.0, 0.5, torch.tensor(0.0), torch.tensor([0.0, 20.0])):
        check(lambda x, atol=atol: L.pinv(x, atol=atol), flat)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve")
def test_right_sides_for_all_matrices_are_no_vectors() -> None:
    a, b = drawn(3, 3, 3), drawn(3, 3)
    a = a @ a.mT + torch.eye(3)
    check(lambda a, b: L.solve_triangular(a, b, upper=True), a, b)
    check(lambda a, b: L.lu_solve(*L.lu_factor(a), b), a, b)
    check(lambda a, b: torch.cholesky_solve(b, L.cholesky(a)), a, b)
    check(lambda a, b: torch.triangular_solve(b, a)[0], a, b)
    check(lambda a, b: L.solve(a, b), a, b)  # of which b has a vector for each matrix


def test_matrices_without_elements_and_half_ones() -> None:
    check(lambda a: L.cholesky_ex(a), torch.zeros(2, 0, 0))
    check(lambda a: L.pinv(a, hermitian=True), drawn(2, 5, 5), near=1e-3)
    check(lambda a: (torch.fft.irfft(a), torch.fft.irfftn(a)), drawn(3, 4, 5))
    whole = (9 * drawn(3, 4, 5)).long()
    check(lambda a: (torch.fft.irfft2(a, norm="ortho"), torch.fft.irfft(a > 0)), whole)
