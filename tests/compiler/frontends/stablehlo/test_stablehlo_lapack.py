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

    for size in SIZES:
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


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_factors_run(dtype: str) -> None:
    def everything(a: Any, b: Any) -> Any:
        definite = a @ jnp.conj(jnp.swapaxes(a, 1, 2)) + 4 * jnp.eye(4, dtype=a.dtype)
        return jnp.linalg.solve(a, b), jnp.linalg.cholesky(definite), jnp.linalg.qr(a)

    a, b = drawn(2, 4, 4, dtype=dtype), drawn(2, 4, 3, dtype=dtype, seed=1)
    check_compiled(everything, a, b, tolerance=1e-4)


def test_sizes_may_be_symbols() -> None:
    b, m, n = export.symbolic_shape("b, m, n", constraints=["m >= n"])

    def both(a: Any, s: Any) -> Any:
        return jnp.linalg.qr(a), jnp.linalg.inv(s)

    exported = export.export(jax.jit(both))(spec(b, m, n), spec(n, n))
    for sizes in ((2, 3, 3), (1, 6, 2)):
        a, s = normal(*sizes), normal(sizes[2], sizes[2]) + 2 * np.eye(sizes[2], dtype=np.float32)
        q, r, inverse = run_compiled(exported, a, s)
        np.testing.assert_allclose(q @ r, a, atol=1e-5)
        np.testing.assert_allclose(inverse @ s, np.eye(sizes[2]), atol=1e-4)
