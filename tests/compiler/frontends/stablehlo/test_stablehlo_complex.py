"""Complex numbers, compiled, against jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from stablehlo_cases import export, normal

import ingot

X = (normal(3, 4) + 1j * normal(3, 4, seed=1)).astype(np.complex64)
Y = (normal(3, 4, seed=2) + 1j * normal(3, 4, seed=3)).astype(np.complex64)


def check(function: Callable[..., Any], *arguments: Any, tolerance: float = 2e-5) -> None:
    """Compile `function` and compare it with jax."""
    exported = export(function, *arguments)
    results = ingot.load(ingot.compile(exported))(*arguments)
    found = results if isinstance(results, tuple) else (results,)
    wanted = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one.numpy().dtype == other.dtype
        np.testing.assert_allclose(
            one.numpy(), other, rtol=tolerance, atol=tolerance, err_msg=f"result {place}"
        )


def test_parts_and_arithmetic() -> None:
    def model(x: Any, y: Any) -> Any:
        return (
            *(x + y, x - y, x * y, x / y, -x, jnp.conj(x), x.real, x.imag, abs(x)),
            *(lax.complex(x.imag, y.real), x == y, x != x, jnp.sign(x), jnp.angle(y)),
            *(x.astype("complex64") * 2.0, jnp.where(x.real > 0, x, y), x + 1j),
        )

    check(model, X, Y)


def test_functions() -> None:
    names = (jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.sin, jnp.cos)
    names += (jnp.tanh, jnp.tan, lax.logistic)

    def model(x: Any, y: Any) -> Any:
        return [function(x) for function in names] + [x**y, x**2, lax.pow(x, y)]

    check(model, X, Y, tolerance=1e-4)


def test_elements_move_and_are_summed() -> None:
    def model(x: Any, y: Any, i: Any) -> Any:
        return (
            *(x.T, x.reshape(2, 6), jnp.concatenate([x, y]), x[::-1, 1:3], x[None] + y[:, None]),
            *(jnp.pad(x, 1), x[i], lax.dynamic_slice(x, (i[0], 1), (2, 2)), x.sum(0), x.mean()),
            *(x.at[i].add(y[:2]), x.at[i].set(y[:2]), jnp.cumsum(x, 1), jnp.zeros_like(x)),
        )

    check(model, X, Y, np.array([2, 0], np.int32))


def test_products() -> None:
    def model(x: Any, y: Any) -> Any:
        return x @ y.T, x @ y.real.T, jnp.einsum("ab,ab->b", x, y), jnp.vdot(x, y)

    check(model, X, Y)


def test_complex_values_pass_through_control_flow() -> None:
    def model(x: Any, n: Any) -> Any:
        def step(i: Any, z: Any) -> Any:
            return z * z * 0.5 + x

        loop = lax.fori_loop(0, n, step, x)
        return lax.cond(n > 2, lambda: loop, lambda: x), lax.scan(lambda c, r: (c + r, c), x[0], x)

    check(model, X, np.int32(3))


@pytest.mark.parametrize("shape", [(6,), (3, 12), (2, 8, 5), (2, 100)])
def test_fourier_transforms(shape: tuple[int, ...]) -> None:
    x = (normal(*shape) + 1j * normal(*shape, seed=1)).astype(np.complex64)

    def model(x: Any, r: Any) -> Any:
        one = jnp.fft.fft(x), jnp.fft.ifft(x), jnp.fft.rfft(r), jnp.fft.irfft(x, shape[-1])
        if len(shape) < 2:
            return one
        return *one, jnp.fft.fft2(x), jnp.fft.rfft2(r), jnp.fft.irfft2(x, s=shape[-2:])

    check(model, x, x.real, tolerance=2e-4)


def test_symbolic_sizes() -> None:
    b = jax.export.symbolic_shape("b, 4")
    exported = export(lambda z: jnp.exp(z) * z, jax.ShapeDtypeStruct(b, "complex64"))
    model = ingot.load(ingot.compile(exported))
    for rows in (1, 3):
        np.testing.assert_allclose(model(X[:rows]).numpy(), np.exp(X[:rows]) * X[:rows], rtol=1e-5)


def test_what_complex_numbers_cannot_do_is_named() -> None:
    with pytest.raises(ingot.CompileError, match=r"sort.*complex numbers in it"):
        ingot.compile(export(jnp.sort, X))
