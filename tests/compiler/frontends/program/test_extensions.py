"""`ingot.ops.linalg` and `ingot.ops.fft` against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from tests.support.array_api import Array, check, numbers, run

NORMS = ("backward", "ortho", "forward")
REAL = numbers("float32", (3, 4, 10))
COMPLEX = numbers("complex64", (3, 4, 10))
SQUARES = [numbers(dtype, (2, 5, 5), 3) / 3 for dtype in ("float32", "complex64")]


def test_transforms_of_complex_numbers() -> None:
    def made(xp: Any, x: Any) -> list[Any]:
        return [
            y
            for norm in NORMS
            for y in (
                xp.fft.fft(x, norm=norm), xp.fft.ifft(x, n=12, axis=1, norm=norm),
                xp.fft.fftn(x, s=(4, 8), axes=(0, 2), norm=norm), xp.fft.ifftn(x, norm=norm),
            )
        ]  # fmt: skip

    check(made, COMPLEX, rtol=2e-4)


def test_transforms_between_real_and_complex_numbers() -> None:
    def of_real(xp: Any, x: Any) -> list[Any]:
        return [
            y
            for norm in NORMS
            for y in (
                xp.fft.rfft(x, norm=norm), xp.fft.rfft(x, n=7, norm=norm),
                xp.fft.rfftn(x, norm=norm), xp.fft.ihfft(x, norm=norm),
            )
        ]  # fmt: skip

    def to_real(xp: Any, x: Any) -> list[Any]:
        return [
            y
            for norm in NORMS
            for y in (
                xp.fft.irfft(x, norm=norm), xp.fft.irfft(x, n=7, axis=1, norm=norm),
                xp.fft.irfftn(x, norm=norm), xp.fft.hfft(x, norm=norm),
            )
        ]  # fmt: skip

    check(of_real, REAL, rtol=2e-4)
    check(to_real, COMPLEX, rtol=2e-4)


def test_frequencies_and_shifts() -> None:
    def made(xp: Any, x: Any) -> list[Any]:
        return [
            xp.fft.fftshift(x), xp.fft.ifftshift(x, axes=(1,)), xp.fft.ifftshift(x[:, 0]),
            xp.fft.fftfreq(7, d=0.5), xp.fft.fftfreq(8), xp.fft.rfftfreq(8),
        ]  # fmt: skip

    check(made, REAL)
    with pytest.raises(ingot.CompileError, match=r"rfft: its operand is complex"):
        run(lambda x: ops.fft.rfft(x), COMPLEX)
    with pytest.raises(ingot.CompileError, match="norm is 'half', expected one of backward"):
        run(lambda x: ops.fft.fft(x, norm="half"), COMPLEX)


@pytest.mark.parametrize("x", SQUARES, ids=["real", "complex"])
def test_determinants_and_systems(x: Array) -> None:
    def made(xp: Any, x: Any) -> list[Any]:
        la = xp.linalg
        return [
            la.det(x), la.inv(x), *la.slogdet(x), la.solve(x, x[0, :, :2]),
            la.solve(x[0], x[1, :, 0]), *(la.matrix_power(x, n) for n in (-2, 0, 1, 3)),
        ]  # fmt: skip

    check(made, x, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("x", SQUARES, ids=["real", "complex"])
def test_norms_and_singular_values(x: Array) -> None:
    def made(xp: Any, x: Any) -> list[Any]:
        la = xp.linalg
        orders = ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
        return [
            *(la.matrix_norm(x[:, :4], ord=ord, keepdims=True) for ord in orders),
            *(la.vector_norm(x, axis=(0, 2), ord=ord) for ord in (0, 1, 2, 3, np.inf, -np.inf)),
            la.vector_norm(x), la.svdvals(x[:, :3]), la.pinv(x[:, :3]),
            la.matrix_rank(x), la.matrix_rank(x[:, :, :1] * x[:, :1]),
            la.eigvalsh(x + xp.conj(x).mT),
        ]  # fmt: skip

    check(made, x, rtol=1e-3)


@pytest.mark.parametrize("x", SQUARES, ids=["real", "complex"])
def test_factors_multiply_to_the_matrix(x: Array) -> None:
    hermitian = x + np.conj(np.swapaxes(x, 1, 2))

    def products(x: Any, hermitian: Any) -> list[Any]:
        la = ops.linalg
        u, s, vh = la.svd(x[:, :, :3])
        values, vectors = la.eigh(hermitian)
        lower, upper = (la.cholesky(x @ ops.conj(x).mT, upper=each) for each in (False, True))
        return [
            *(ops.matmul(*la.qr(x[:, :3], mode=mode)) for mode in ("reduced", "complete")),
            *(ops.matmul(*la.qr(x[:, :, :3], mode=mode)) for mode in ("reduced", "complete")),
            (u[:, :, :3] * s[:, None, :]) @ vh,
            (vectors * values[:, None, :]) @ ops.conj(vectors).mT,
            lower @ ops.conj(lower).mT,
            ops.conj(upper).mT @ upper,
        ]

    square = x @ np.conj(np.swapaxes(x, 1, 2))
    wanted = [x[:, :3], x[:, :3], x[..., :3], x[..., :3], x[..., :3], hermitian, square, square]
    for dims in (False, True):
        for found, each in zip(run(products, x, hermitian, dims=dims), wanted, strict=True):
            np.testing.assert_allclose(found, each, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("x", SQUARES, ids=["real", "complex"])
def test_eigenvalues_of_any_matrix(x: Array) -> None:
    def made(x: Any) -> list[Any]:
        la = ops.linalg
        values, vectors = la.eig(x)
        rest = x @ vectors - vectors * values[:, None, :]
        return [rest, la.vector_norm(vectors, axis=1), ops.sum(la.eigvals(x), axis=1)]

    x = x[:, :3, :3]
    wanted = np.zeros_like(x), np.ones((len(x), 3)), np.trace(x, axis1=1, axis2=2)
    for found, each in zip(run(made, x, dims=True), wanted, strict=True):
        np.testing.assert_allclose(found, each, atol=1e-4)


@pytest.mark.parametrize("x", SQUARES, ids=["real", "complex"])
def test_diagonals_and_products(x: Array) -> None:
    def made(xp: Any, x: Any) -> list[Any]:
        la = xp.linalg
        return [
            *(la.diagonal(x[:, :4], offset=k) for k in (-3, 0, 1, 9)),
            *(la.trace(x[:, :4], offset=k) for k in (-1, 0, 2)),
            la.outer(x[0, 0], x[1, 1]), la.vecdot(x, x), la.matmul(x, x),
        ]  # fmt: skip

    check(made, x, rtol=1e-4)
    (found,) = run(lambda x: ops.linalg.cross(x[:, :3], x[:1, :3], axis=1), x)
    np.testing.assert_allclose(found, np.linalg.cross(x[:, :3], x[:1, :3], axis=1), 1e-4, 1e-6)


def test_empty_matrices_have_empty_factors() -> None:
    def made(xp: Any, x: Any) -> list[Any]:
        la = xp.linalg
        return [la.inv(x), la.det(x), la.solve(x, x), la.cholesky(x), *la.qr(x), la.eigvalsh(x)]

    for found, each in zip(run(lambda x: made(ops, x), np.zeros((2, 0, 0), np.float32)),
                           made(np, np.zeros((2, 0, 0), np.float32)), strict=True):  # fmt: skip
        np.testing.assert_array_equal(found, each)


def test_norms_of_nothing_and_transforms_of_halves() -> None:
    def norms(xp: Any, x: Any) -> list[Any]:
        la = xp.linalg
        return [la.matrix_norm(x, ord=1), la.matrix_norm(x, ord=2), la.vector_norm(x, ord=np.inf)]

    for found, each in zip(run(lambda x: norms(ops, x), np.zeros((2, 0, 0), np.float32)),
                           (np.zeros(2), np.zeros(2), 0), strict=True):  # fmt: skip
        np.testing.assert_array_equal(found, each)
    check(lambda xp, x: xp.fft.rfft(x), REAL[0].astype(np.float16), rtol=1e-2)


REFUSED: list[tuple[Any, str]] = [
    (lambda x: ops.linalg.solve(x, x[:2]), "the dims 3 and 2 differ"),
    (lambda x: ops.linalg.solve(x, x[0, :1]), "the dims 3 and 1 differ"),
    (lambda x: ops.linalg.cross(x, x[:, :1]), "vectors of three elements"),
    (lambda x: ops.linalg.cross(x, x, axis=(0, 1)), "cross: its arguments are not what it takes"),
    (lambda x: ops.linalg.matrix_power(x[0], 0), "it takes matrices"),
    (lambda x: ops.linalg.matrix_power(x[:2], 1), "the dims 2 and 3 differ"),
    (lambda x: ops.linalg.matrix_power(x, 1.5), "'float' object cannot be interpreted"),
    (lambda x: ops.linalg.diagonal(x, offset=0.5), "'float' object cannot be interpreted"),
    (lambda x: ops.linalg.vector_norm(x, ord="fro"), "must be real number.*its docstring"),
    (lambda x: ops.sum(x, axis=0.5), "sum: its arguments are not what it takes"),
    (lambda x: ops.fft.fftn(x, s=(2, 3), axes=(1,)), "give as many lengths"),
    (lambda x: ops.fft.fft(x, axis=(0, 1)), "fft: its arguments are not what it takes"),
    (lambda x: ops.fft.fft(x, norm=[1]), "unhashable"),
    (lambda x: ops.fft.rfft(x[:, :0]), "axis 1 has no points"),
    (lambda x: ops.fft.ifft(x, n=0), "axis 1 has no points"),
    (lambda x: ops.fft.irfft(x[:, :1]), "it would give 0 numbers"),
    (lambda x: ops.fft.fftfreq(0), "n must be 1 or more"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED)
def test_arguments_of_no_meaning_are_refused(function: Any, message: str) -> None:
    with pytest.raises(ingot.CompileError, match=message):
        run(function, np.eye(3, dtype=np.float32))


def test_errors_of_the_users_functions_stay_as_they_are() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(lambda x: ops.cond(x[0, 0] > 0, fails, fails, x), np.eye(3, dtype=np.float32))


def test_what_is_no_matrix_is_refused() -> None:
    for x, message in ((np.ones(3), "takes matrices"), (np.ones((2, 3)), "3 and 2 differ"),
                       (np.ones((2, 2), np.float16), "floats of 32 or 64 bits")):  # fmt: skip
        with pytest.raises(ingot.CompileError, match=message):
            run(ops.linalg.inv, x)
