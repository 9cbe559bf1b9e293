"""Complex numbers, compiled, against jax."""

from __future__ import annotations

import cmath
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath
import numpy as np
import pytest
from jax import lax

import ingot
from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from tests.support.devices import load_best
from tests.support.stablehlo_cases import artifact, check_compiled, export, normal

X = (normal(3, 4) + 1j * normal(3, 4, seed=1)).astype(np.complex64)
Y = (normal(3, 4, seed=2) + 1j * normal(3, 4, seed=3)).astype(np.complex64)


def test_parts_and_arithmetic() -> None:
    def model(x: Any, y: Any) -> Any:
        return (
            *(x + y, x - y, x * y, x / y, -x, jnp.conj(x), x.real, x.imag, abs(x)),
            *(lax.complex(x.imag, y.real), x == y, x != x, jnp.sign(x), jnp.angle(y)),
            *(x.astype("complex64") * 2.0, jnp.where(x.real > 0, x, y), x + 1j),
        )

    check_compiled(model, X, Y, tolerance=2e-5)


def test_functions() -> None:
    names = (jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.sin, jnp.cos)
    names += (jnp.tanh, jnp.tan, lax.logistic, jnp.sinh, jnp.cosh, jnp.arcsin, jnp.arccos)
    names += (jnp.arctan, jnp.arcsinh, jnp.arccosh, jnp.arctanh)

    def model(x: Any, y: Any) -> Any:
        return [function(x) for function in names] + [x**y, x**2, lax.pow(x, y)]

    check_compiled(model, X, Y, tolerance=1e-4)


def test_elements_move_and_are_summed() -> None:
    def model(x: Any, y: Any, i: Any) -> Any:
        return (
            *(x.T, x.reshape(2, 6), jnp.concatenate([x, y]), x[::-1, 1:3], x[None] + y[:, None]),
            *(jnp.pad(x, 1), x[i], lax.dynamic_slice(x, (i[0], 1), (2, 2)), x.sum(0), x.mean()),
            *(x.at[i].add(y[:2]), x.at[i].set(y[:2]), jnp.cumsum(x, 1), jnp.zeros_like(x)),
        )

    check_compiled(model, X, Y, np.array([2, 0], np.int32), tolerance=2e-5)


def test_products() -> None:
    def model(x: Any, y: Any) -> Any:
        return x @ y.T, x @ y.real.T, jnp.einsum("ab,ab->b", x, y), jnp.vdot(x, y)

    check_compiled(model, X, Y, tolerance=2e-5)


def test_complex_values_pass_through_control_flow() -> None:
    def model(x: Any, n: Any) -> Any:
        def step(i: Any, z: Any) -> Any:
            return z * z * 0.5 + x

        loop = lax.fori_loop(0, n, step, x)
        return lax.cond(n > 2, lambda: loop, lambda: x), lax.scan(lambda c, r: (c + r, c), x[0], x)

    check_compiled(model, X, np.int32(3), tolerance=2e-5)


@pytest.mark.parametrize("shape", [(6,), (3, 12), (2, 8, 5), (2, 100)])
def test_fourier_transforms(shape: tuple[int, ...]) -> None:
    x = (normal(*shape) + 1j * normal(*shape, seed=1)).astype(np.complex64)

    def model(x: Any, r: Any) -> Any:
        one = jnp.fft.fft(x), jnp.fft.ifft(x), jnp.fft.rfft(r), jnp.fft.irfft(x, shape[-1])
        if len(shape) < 2:
            return one
        return *one, jnp.fft.fft2(x), jnp.fft.rfft2(r), jnp.fft.irfft2(x, s=shape[-2:])

    check_compiled(model, x, x.real, tolerance=2e-4)


def test_symbolic_sizes() -> None:
    b = jax.export.symbolic_shape("b, 4")
    exported = export(lambda z: jnp.exp(z) * z, jax.ShapeDtypeStruct(b, "complex64"))
    model = load_best(exported)
    for rows in (1, 3):
        np.testing.assert_allclose(model(X[:rows]).numpy(), np.exp(X[:rows]) * X[:rows], rtol=1e-5)


def test_what_complex_numbers_cannot_do_is_named() -> None:
    t = "tensor<4xcomplex<f32>>"
    text = f"""func.func @main(%a: {t}) -> {t} {{
      %0 = stablehlo.remainder %a, %a : {t}
      return %0 : {t} }}"""
    with pytest.raises(ingot.CompileError, match=r"remainder.*complex numbers in it"):
        ingot.compile(artifact(text))


def test_regions_of_complex_numbers() -> None:
    """Products, extremes and code of any kind, in every op that has a region."""

    def further(a: Any, b: Any) -> Any:
        return jnp.where(abs(a) < abs(b), b, a)

    def model(x: Any, y: Any, i: Any) -> Any:
        one, none = np.complex64(1), np.complex64(0)
        windows = ((2, 2), (1, 2), ((1, 0), (0, 0)))
        pairs = lax.reduce(
            (x, i), (none, np.int32(0)), lambda a, b: (a[0] * b[0], a[1] + b[1]), (1,)
        )
        return (
            *(lax.reduce(x, one, lax.mul, (0,)), lax.reduce(x, none, further, (1, 0)), *pairs),
            *(lax.reduce_window(x, one, lax.mul, *windows), lax.cumprod(x, 0), lax.cummax(x, 1)),
            lax.reduce_window(x, np.complex64(complex("-inf")), lax.max, *windows),
            *(x.at[i[:, 0]].multiply(y), x.at[i[:, 0]].apply(jnp.sin)),
            *(lax.sort(x, dimension=1), *lax.sort((x, i), dimension=0, num_keys=1)),
        )

    places = np.array([[2, 0, 1, 0], [0, 1, 1, 0], [2, 2, 0, 1]], np.int32)
    check_compiled(model, X, Y, places, tolerance=1e-4)


def run_text(*texts: str) -> Any:
    """Compile functions `main` of several artifacts in one module."""
    artifacts = {f"f{place}": artifact(text) for place, text in enumerate(texts)}
    model = load_best(artifacts)
    return [getattr(model, name) for name in artifacts]


def test_the_order_of_complex_numbers_is_by_real_then_imaginary_parts() -> None:
    t, b = "tensor<?xcomplex<f32>>", "tensor<?xi1>"
    names = ("LT", "LE", "GT", "GE")
    compares = "\n".join(
        f"%{name} = stablehlo.compare {name}, %a, %b : ({t}, {t}) -> {b}" for name in names
    )
    text = f"""
    func.func @main(%a: {t}, %b: {t}, %c: {t}) -> ({t}, {t}, {t}, {b}, {b}, {b}, {b}, {b}) {{
      %0 = stablehlo.maximum %a, %b : {t}
      %1 = stablehlo.minimum %a, %b : {t}
      %2 = stablehlo.clamp %a, %c, %b : {t}
      {compares}
      %3 = stablehlo.convert %a : ({t}) -> {b}
      return %0, %1, %2, {", ".join(f"%{name}" for name in names)}, %3
        : {t}, {t}, {t}, {b}, {b}, {b}, {b}, {b}
    }}"""
    (function,) = run_text(text)
    random = np.random.default_rng(3)
    a, b_, c = (
        (random.integers(-2, 3, 40) + 1j * random.integers(-2, 3, 40)).astype(np.complex64)
        for _ in range(3)
    )
    wanted = (np.maximum(a, b_), np.minimum(a, b_), np.minimum(np.maximum(a, c), b_))
    wanted += (a < b_, a <= b_, a > b_, a >= b_, a.real != 0)  # the standard: i is false
    for found, other in zip(function(a, b_, c), wanted, strict=True):
        np.testing.assert_array_equal(found.numpy(), other)


def test_arc_tangents_of_two_complex_numbers_and_parts_of_real_ones() -> None:
    t, r = "tensor<3x4xcomplex<f32>>", "tensor<3x4xf32>"
    text = f"""
    func.func @main(%a: {t}, %b: {t}, %c: {r}) -> ({t}, {r}, {r}) {{
      %0 = stablehlo.atan2 %a, %b : {t}
      %1 = stablehlo.real %c : ({r}) -> {r}
      %2 = stablehlo.imag %c : ({r}) -> {r}
      return %0, %1, %2 : {t}, {r}, {r}
    }}"""
    (function,) = run_text(text)
    angle, real, imaginary = (each.numpy() for each in function(X, Y, normal(3, 4)))
    x, y = Y.astype(np.complex128), X.astype(np.complex128)
    np.testing.assert_allclose(angle, -1j * np.log((x + 1j * y) / np.sqrt(x**2 + y**2)), rtol=1e-4)
    np.testing.assert_array_equal(real, normal(3, 4))
    np.testing.assert_array_equal(imaginary, np.zeros((3, 4)))


def test_the_bits_of_complex_numbers_and_booleans() -> None:
    def text(a: str, b: str) -> str:
        return f"""func.func @main(%a: tensor<{a}>) -> tensor<{b}> {{
          %0 = stablehlo.bitcast_convert %a : (tensor<{a}>) -> tensor<{b}>
          return %0 : tensor<{b}> }}"""

    pairs = [("4x4xi1", "4xi4"), ("4x2xi2", "4xi4"), ("16xi1", "i16")]
    pairs = [
        (f"5x{a}", f"5x{b}")
        for a, b in [*pairs, ("2xf8E4M3FN", "bf16"), ("2xcomplex<f32>", "complex<f64>")]
    ]
    functions = run_text(*(text(*each) for a, b in pairs for each in ((a, b), (b, a))))
    bits = np.random.default_rng(5).integers(0, 2, (5, 16)).astype(bool)
    bytes_ = np.packbits(bits, axis=1, bitorder="little")
    fours = np.stack([bytes_ & 15, bytes_ >> 4], 2).reshape(5, 4)
    signed = ((fours.astype(np.int8) ^ 8) - 8).astype(ml_dtypes.int4)
    twos = np.stack([fours & 3, fours >> 2], 2).astype(np.int8)
    twos = ((twos ^ 2) - 2).astype(ml_dtypes.int2)
    doubles = normal(5, dtype="float64") + 1j * normal(5, dtype="float64", seed=2)
    columns = [
        *((bits.reshape(5, 4, 4), signed), (twos, signed)),
        (bits, bytes_.view(np.int16)[:, 0]),
        (bytes_.view(ml_dtypes.float8_e4m3fn), bytes_.view(ml_dtypes.bfloat16)[:, 0]),
        (doubles.view(np.complex64).reshape(5, 2), doubles),
    ]
    both = [each for a, b in columns for each in ((a, b), (b, a))]
    for function, (given, wanted) in zip(functions, both, strict=True):
        found = function(np.ascontiguousarray(given)).numpy()
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def function_text(name: str, element: str) -> str:
    t = f"tensor<?xcomplex<{element}>>"
    return f"""func.func @main(%a: {t}) -> {t} {{
      %0 = stablehlo.{name} %a : {t}
      return %0 : {t} }}"""


def test_logarithms_and_roots_are_right_over_the_whole_range() -> None:
    """In ulp of the size of the result, against 60 digits; subnormal and greatest parts too."""
    names = ("log", "log_plus_one", "sqrt")
    random = np.random.default_rng(7)

    def drawn(low: float, high: float) -> Any:
        powers = 2.0 ** random.uniform(low, high, 150)
        return (random.choice([-1, 1], 150) * powers).astype(np.float32)

    near = 1 + drawn(-23, -1)
    real = np.concatenate([drawn(-148, 127.9), drawn(-148, -120), drawn(120, 127.9), near])
    imaginary = np.concatenate([drawn(-148, 127.9), drawn(-148, -90), drawn(90, 127.9), near - 1])
    values = np.empty(len(real), np.complex64)
    values.real, values.imag = real, imaginary
    epsilon = mpmath.mpf(2) ** -23
    with mpmath.workdps(120):
        for name, function in zip(
            names, run_text(*(function_text(n, "f32") for n in names)), strict=True
        ):
            for z, found in zip(values.tolist(), function(values).numpy().tolist(), strict=True):
                exact = mpmath.mpc(z)
                wanted = getattr(mpmath, name.removesuffix("_plus_one"))(exact + (name == names[1]))
                unit = max(abs(wanted) * epsilon, mpmath.mpf(2) ** -149)
                assert abs(mpmath.mpc(found) - wanted) < 4 * unit, (name, z, found)


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_logarithms_and_roots_of_special_numbers_are_those_of_c(name: str) -> None:
    parts = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.0]
    values = [complex(a, b) for a in parts for b in parts]
    source = artifact(function_text(name, "f64"))
    (found,) = interpret(import_stablehlo(source), "main", [np.array(values)])
    for z, one in zip(values, found.tolist(), strict=True):
        if name == "log" and z == 0:
            wanted = complex(-np.inf, np.arctan2(z.imag, z.real))
        else:
            wanted = getattr(cmath, name)(z)
        for a, b in ((one.real, wanted.real), (one.imag, wanted.imag)):
            assert (a != a and b != b) or abs(a - b) <= 1e-15 * abs(b) or a == b, (z, one, wanted)
            assert a != a or np.signbit(a) == np.signbit(b), (z, one, wanted)
