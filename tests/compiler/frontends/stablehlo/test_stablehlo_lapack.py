"""The calls of LAPACK in what jax exports for CPUs, against jax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.export import DisabledSafetyCheck

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from tests.support.stablehlo_cases import Array, check_compiled, normal, run_compiled, spec

DTYPES = ("float32", "float64", "complex64", "complex128")
SIZES = (1, 2, 3, 8, 33, 70)
WHOLE = ("float32", "complex128")
"""Real and complex numbers of both widths are among them: these have all sizes, others some."""
UNSTABLE = [
    DisabledSafetyCheck.custom_call(f"lapack_{letter}{routine}_ffi")
    for letter in "sdcz"
    for routine in ("ormqr", "unmqr", "geqp3", "gesvd")
]
"""Calls that jax exports only if told to, since it may change what they mean."""


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def drawn(*shape: int, dtype: str, seed: int = 0) -> Array:
    values = normal(*shape, dtype="float64", seed=seed)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * normal(*shape, dtype="float64", seed=seed + 100)
    return np.asarray(values.astype(dtype))


def adjoint(x: Array) -> Array:
    return np.asarray(np.conj(np.swapaxes(x, -1, -2)))


def results_of(function: Callable[..., Any], *arguments: Array) -> list[Array]:
    """What the graph of an export gives."""
    exported = export.export(jax.jit(function), disabled_checks=UNSTABLE)(*arguments)
    return [np.asarray(each) for each in interpret(import_stablehlo(exported), "main", arguments)]


def check(function: Callable[..., Any], *arguments: Array, tolerance: float = 500) -> list[Array]:
    """As jax, up to `tolerance` units of the last place of the greatest element."""
    results = results_of(function, *arguments)
    wanted = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    for found, leaf in zip(results, map(np.asarray, wanted), strict=True):
        assert (found.dtype, found.shape) == (leaf.dtype, leaf.shape)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(leaf))
        if leaf.dtype.kind in "fc":
            limit = tolerance * np.finfo(leaf.dtype).eps * np.nanmax(np.abs(leaf), initial=0)
            np.testing.assert_allclose(found, leaf, rtol=0, atol=limit)
        else:
            np.testing.assert_array_equal(found, leaf)
    return results


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_of_matrices(dtype: str) -> None:
    """Of one, two and three panels of columns, whole or not."""

    def factors(a: Any, definite: Any) -> Any:
        hermitian = a + jnp.conj(jnp.swapaxes(a, 1, 2))
        return (
            jax.lax.linalg.lu(a),
            jnp.linalg.cholesky(definite),
            jnp.linalg.cholesky(definite, upper=True),
            jnp.linalg.qr(a),
            jax.lax.linalg.tridiagonal(hermitian),
            jax.lax.linalg.tridiagonal(hermitian, lower=False),
            jax.lax.linalg.hessenberg(a) if a.shape[1] > 1 else None,
        )

    for size in SIZES if dtype in WHOLE else (3, 33):
        a = drawn(2, size, size, dtype=dtype)
        definite = (a @ adjoint(a) + size * np.eye(size)).astype(dtype)
        check(factors, a, definite, tolerance=2e4)


@pytest.mark.slow
def test_factors_of_matrices_that_are_not_square() -> None:
    def factors(a: Any) -> Any:
        return jax.lax.linalg.lu(a), jnp.linalg.qr(a), jnp.linalg.qr(a, mode="complete")

    for dtype, shape in (
        ("float32", (5, 3)),
        ("complex128", (3, 5)),
        ("float64", (70, 80)),
        ("complex64", (80, 70)),
    ):
        check(factors, drawn(*shape, dtype=dtype), tolerance=2e4)


@pytest.mark.slow
def test_systems_and_what_is_computed_of_factors() -> None:
    def solved(a: Any, b: Any) -> Any:
        systems = [
            jax.lax.linalg.triangular_solve(
                a,
                b if left else jnp.swapaxes(b, 1, 2),
                left_side=left,
                lower=lower,
                unit_diagonal=unit,
                transpose_a=transpose,
                conjugate_a=conjugate,
            )
            for transpose, conjugate in ((False, False), (True, False), (True, True))
            for left, lower, unit in ((True, True, False), (False, False, True))
        ]
        whole = jnp.linalg.inv(a), jnp.linalg.slogdet(a), jax.scipy.linalg.expm(a)
        return systems, whole, jnp.linalg.solve(a, b)

    for dtype, size in (("float64", 4), ("complex64", 4), ("float64", 70)):
        a, b = drawn(2, size, size, dtype=dtype), drawn(2, size, 3, dtype=dtype, seed=1)
        check(solved, a + 2 * size * np.eye(size, dtype=dtype), b, tolerance=2e4)


def test_matrices_that_have_no_factor_give_what_jax_gives() -> None:
    check(jax.lax.linalg.lu, np.ones((3, 3)))
    check(jnp.linalg.inv, np.zeros((2, 3, 3), np.float32))
    definite = np.eye(3, dtype=np.complex64)
    check(jnp.linalg.cholesky, np.stack([definite, -definite, definite]))
    check(jnp.linalg.cholesky, np.full((2, 2), np.nan))
    check(jnp.linalg.qr, np.zeros((4, 3)))
    q, r = results_of(jnp.linalg.qr, np.ones((4, 3)))
    np.testing.assert_allclose(q @ r, np.ones((4, 3)), atol=1e-14)
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-14)


def test_matrices_without_rows_have_empty_results() -> None:
    def everything(a: Any) -> Any:
        whole = jnp.linalg.inv(a), jnp.linalg.cholesky(a), jnp.linalg.det(a), jnp.linalg.qr(a)
        values = jnp.linalg.eigh(a), jnp.linalg.svd(a), jnp.linalg.eig(a), jax.scipy.linalg.schur(a)
        return whole, values, jnp.linalg.solve(a, a)

    check(everything, np.zeros((0, 0), np.float32))
    check(lambda a: (jnp.linalg.qr(a), jnp.linalg.svd(a)), np.zeros((3, 0)))
    check(lambda a: (jax.lax.linalg.lu(a), jnp.linalg.eigh(a)), np.zeros((0, 3, 3)))


def test_products_with_q_and_pivoted_factors() -> None:
    def products(a: Any, tau: Any, c: Any, d: Any) -> Any:
        sides = [
            jax.lax.linalg.ormqr(a, tau, c if left else d, left=left, transpose=transpose)
            for left in (True, False)
            for transpose in (True, False)
        ]
        return sides, [jax.lax.linalg.qr(x, pivoting=True) for x in (a, c, d)]

    for dtype in ("float32", "complex128"):
        a, tau = drawn(2, 5, 3, dtype=dtype), drawn(2, 3, dtype=dtype, seed=1)
        c, d = drawn(2, 5, 2, dtype=dtype, seed=2), drawn(2, 2, 5, dtype=dtype, seed=3)
        check(products, a, tau, c, d)


def test_columns_of_any_size_have_reflectors() -> None:
    x = drawn(4, 3, dtype="float32")
    for scale in (1e30, 1e-30):
        check(jnp.linalg.qr, (x * scale).astype(np.float32))


def assert_near(found: Array, wanted: Array, scale: float = 1) -> None:
    """Within some units of the last place of numbers of size `scale`."""
    limit = 200 * np.finfo(found.dtype).eps * max(scale, 1e-30)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=limit)


def assert_unitary(x: Array) -> None:
    assert_near(
        adjoint(x) @ x, np.broadcast_to(np.eye(x.shape[-1]), (*x.shape[:-2], *x.shape[-1:] * 2))
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_of_hermitian_matrices(dtype: str) -> None:
    for size in SIZES[:5]:
        a = drawn(2, size, size, dtype=dtype)
        a = (a + adjoint(a)).astype(dtype)
        a[1] *= 0 if size == 3 else 1  # all equal
        w, v = results_of(jnp.linalg.eigh, a)
        scale = float(np.abs(a).max())
        assert_near(w, np.linalg.eigvalsh(a), scale * size)
        assert_near(a @ v, v * w[:, None], scale * size)
        assert_unitary(v)


@pytest.mark.slow
def test_eigenvalues_that_coincide_have_orthonormal_vectors() -> None:
    """Exactly, up to rounding, and in a tridiagonal form without a 0 beside its diagonal."""
    size = 50
    turn = np.linalg.qr(drawn(size, size, dtype="complex128"))[0]
    graded = 10.0 ** -np.linspace(0, 12, size)
    spectra = [np.repeat([0.0, 3.0], [45, 5]), np.arange(size) % 3.0, graded]
    wilkinson = np.diag(np.abs(np.arange(size) - 25.0)) + np.eye(size, k=1) + np.eye(size, k=-1)
    for dtype in ("float64", "complex64"):
        q = turn if np.dtype(dtype).kind == "c" else np.linalg.qr(turn.real)[0]
        x = [(q * values) @ adjoint(q) for values in spectra]
        stack = np.stack([*x, wilkinson, np.eye(size)]).astype(dtype)
        found, vectors = results_of(jnp.linalg.eigh, stack)
        for w, v, a in zip(found, vectors, stack, strict=True):
            scale = float(np.abs(w).max())
            assert_near(w, np.linalg.eigvalsh(a), scale)
            assert_near((v * w) @ adjoint(v), a, scale)
            assert_unitary(v)
    u, s, vh = results_of(jnp.linalg.svd, stack[2].real)
    assert_near(s, np.linalg.svd(stack[2].real, compute_uv=False))
    assert_near((u * s) @ vh, stack[2].real)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 2, 4)])
def test_singular_values_alone_of_matrices_of_every_shape(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    x[..., 1, :] = x[..., 0, :]
    values, greatest, rank = results_of(
        lambda a: (jnp.linalg.svdvals(a), jnp.linalg.norm(a, 2, (-2, -1)),
                   jnp.linalg.matrix_rank(a)), x,
    )  # fmt: skip
    wanted = np.linalg.svd(x, compute_uv=False)
    assert_near(values, wanted)
    assert_near(greatest, wanted[..., 0])
    assert (rank == np.linalg.matrix_rank(x)).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_values(dtype: str) -> None:
    shapes = ((1, 1), (2, 3), (8, 8), (5, 2), (33, 20))
    for rows, columns in shapes if dtype in WHOLE else shapes[3:4]:
        a, least = drawn(2, rows, columns, dtype=dtype), min(rows, columns)
        a[1] = np.ones((rows, columns))  # of rank 1
        for whole in (True, False):
            u, s, vh = results_of(
                lambda x: tuple(jnp.linalg.svd(x, full_matrices=whole)),  # noqa: B023
                a,
            )
            scale = float(s.max())
            assert_near(s, np.linalg.svd(a, compute_uv=False), scale)
            assert_near((u[..., :least] * s[:, None]) @ vh[:, :least], a, scale)
            assert_unitary(u)
            assert_unitary(adjoint(vh))
    x = drawn(4, 3, dtype=dtype)
    check(lambda x: (jnp.linalg.pinv(x), jnp.linalg.matrix_rank(x), jnp.linalg.cond(x)), x)
    check(lambda x, b: jnp.linalg.lstsq(x, b)[0], x, drawn(4, 2, dtype=dtype, seed=1))


def _defective(size: int, dtype: str) -> Array:
    """A block of Jordan, and a cycle, whose sweeps need shifts that are not eigenvalues."""
    return np.stack([np.diag(np.ones(size - 1), 1), np.roll(np.eye(size), 1, 0)]).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_of_any_matrix(dtype: str) -> None:
    def both(a: Any) -> Any:
        return jax.lax.linalg.schur(a), jax.lax.linalg.eig(a, compute_left_eigenvectors=True)

    few = SIZES[:4] if dtype in WHOLE else SIZES[2:3]
    sizes = SIZES[:5] if dtype == "float64" else few
    for a in (*(drawn(2, size, size, dtype=dtype) for size in sizes), _defective(6, dtype)):
        size = a.shape[-1]
        t, z, w, left, right = results_of(both, a)
        scale = float(np.abs(a).max()) * size
        assert_near(z @ t @ adjoint(z), a, scale)
        assert_unitary(z)
        assert not np.tril(t, -2 if t.dtype.kind == "f" else -1).any()
        assert_near(a @ right, right * w[:, None], scale)
        assert_near(adjoint(left) @ a, w[:, :, None] * adjoint(left), scale)
        assert_near(np.linalg.norm(right, axis=1), np.ones((2, size)))
        if t.dtype.kind == "f":  # pairs are conjugate to the last bit, and blocks have one diagonal
            np.testing.assert_array_equal(np.sort_complex(w), np.sort_complex(np.conj(w)))
            corners = [t[..., : size - 1, : size - 1], t[..., 1:, 1:]]
            low = np.diagonal(t, -1, 1, 2) != 0
            first, second = (np.diagonal(each, 0, 1, 2)[low] for each in corners)
            np.testing.assert_array_equal(first, second)


def test_tridiagonal_systems_and_functions_of_matrices() -> None:
    for dtype in ("float32", "complex128"):
        rows = [drawn(2, 6, dtype=dtype, seed=seed) for seed in range(3)]
        rows[0][:, 0] = rows[2][:, -1] = 0
        check(jax.lax.linalg.tridiagonal_solve, *rows, drawn(2, 6, 3, dtype=dtype), tolerance=1e4)
    x = drawn(4, 4, dtype="float64")
    check(lambda x: jax.scipy.linalg.sqrtm(x @ x.T), x, tolerance=1e5)


def test_what_is_not_finite_has_no_eigenvalues() -> None:
    x = np.stack([np.eye(3), np.full((3, 3), np.nan)]).astype(np.float32)
    for function in (jnp.linalg.eigh, jnp.linalg.eig, lambda x: tuple(jnp.linalg.svd(x))):
        for found in results_of(function, x):
            assert np.isfinite(found[0]).all()
            assert np.isnan(found[1]).all()


@pytest.mark.slow
def test_all_of_it_runs() -> None:
    def real(a: Any, b: Any) -> Any:
        definite = a @ jnp.swapaxes(a, 1, 2) + 4 * jnp.eye(4, dtype=a.dtype)
        whole = jnp.linalg.solve(a, b), jnp.linalg.cholesky(definite), jnp.linalg.qr(a)
        ends = jnp.linalg.eigvalsh(definite), jnp.linalg.svdvals(a), jnp.linalg.eigvals(definite)
        return whole, ends[:2], jnp.sort(ends[2])

    def complex(a: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b), jnp.linalg.qr(a), jnp.linalg.svdvals(a)

    for function, dtype in ((real, "float32"), (complex, "complex64")):
        a, b = drawn(2, 4, 4, dtype=dtype), drawn(2, 4, 3, dtype=dtype, seed=1)
        check_compiled(function, a, b, tolerance=1e-4)


@pytest.mark.slow
def test_sizes_may_be_symbols() -> None:
    b, m, n = export.symbolic_shape("b, m, n", constraints=["m >= n"])

    def both(a: Any, s: Any) -> Any:
        return jnp.linalg.qr(a), jnp.linalg.inv(s), jnp.linalg.svd(a)

    exported = export.export(jax.jit(both))(spec(b, m, n), spec(n, n))
    for sizes in ((2, 3, 3), (1, 6, 2)):
        a, s = normal(*sizes), normal(sizes[2], sizes[2]) + 2 * np.eye(sizes[2], dtype=np.float32)
        q, r, inverse, u, values, vh = run_compiled(exported, a, s)
        np.testing.assert_allclose(q @ r, a, atol=1e-5)
        least = len(values[0])
        np.testing.assert_allclose((u[..., :least] * values[:, None]) @ vh, a, atol=1e-4)
        np.testing.assert_allclose(inverse @ s, np.eye(sizes[2]), atol=1e-4)
    (n,) = export.symbolic_shape("n")
    module = import_stablehlo(export.export(jax.jit(jnp.linalg.eig))(spec(2, n, n)))
    for size in (1, 2, 5):
        x = normal(2, size, size)
        w, v = (np.asarray(each) for each in interpret(module, "main", [x]))
        np.testing.assert_allclose(x @ v, v * w[:, None], atol=1e-4)
