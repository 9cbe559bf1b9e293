"""Complex tensors in traced programs, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from tests.support.array_api import check, numbers, run
from tests.support.devices import load_everywhere

Z = numbers("complex64", (2, 3, 4)) / 4
W = numbers("complex64", (3, 4), 1) / 4
UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cos", "cosh", "exp", "expm1",
    "imag", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not",
    "negative", "positive", "real", "reciprocal", "sign", "sin", "sinh", "sqrt", "square", "tan",
    "tanh",
]  # fmt: skip
INVERSE = ["acos", "acosh", "asin", "asinh", "atan", "atanh"]


def test_functions_of_one_operand() -> None:
    check(lambda xp, z: [getattr(xp, name)(z) for name in UNARY], Z, rtol=1e-4)


@pytest.mark.parametrize("name", [*INVERSE, "sqrt"])
def test_branch_cuts_are_those_of_numpy(name: str) -> None:
    """Beside the axes, on both sides, and at zeros with a sign."""
    zeros = np.array([0.0, -0.0, 1e-7, -1e-7, 0.5, -0.5, 2.0, -2.0])
    z = (zeros[:, None] + 0j).astype(np.complex128)
    z = np.broadcast_to(z, (8, 8)).copy()
    z.imag = zeros
    with np.errstate(all="ignore"):
        found, wanted = run(lambda z: getattr(ops, name)(z), z)[0], getattr(np, name)(z)
    usual = np.isfinite(wanted) & ((zeros != 0)[:, None] & (zeros != 0))
    np.testing.assert_allclose(found[usual], wanted[usual], rtol=1e-9, atol=1e-12)


def test_what_is_in_range_has_its_digits_where_parts_of_formulas_are_not() -> None:
    """Near the greatest f32, and where e^x is out of range but not its product with a sine."""
    sizes = np.array([1e-10, 0.5, 3, 10, 44, 89.6, 100, 170, 1e20, 1e38, 3.4e38], np.float32)
    parts = np.concatenate([sizes, -sizes])
    z = (parts + 1j * parts[:, None]).astype(np.complex64)
    names = [*INVERSE, "cos", "cosh", "exp", "sin", "sinh", "sqrt", "tan", "tanh"]
    results = run(lambda z: [getattr(ops, name)(z) for name in names], z)
    for name, found in zip(names, results, strict=True):
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(z.astype(np.complex128)).astype(np.complex64)
        for a, b in ((found.real, wanted.real), (found.imag, wanted.imag)):
            np.testing.assert_allclose(a, b, 1e-4, 1e-37, err_msg=name)


def test_zeros_infinities_and_nan_give_what_they_give_in_numpy() -> None:
    """With their signs, where C's standard says which."""
    parts = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -0.5, np.inf, -np.inf, np.nan])
    z = np.array([complex(a, b) for a in parts for b in parts])
    names = [name for name in UNARY if name not in ("expm1", "reciprocal", "logical_not")]
    names = [name for name in names if not name.startswith("is")]
    results = run(lambda z: [getattr(ops, name)(z) for name in names], z)
    endless = np.isinf(z.real).astype(int) + np.isinf(z.imag)
    for name, found in zip(names, results, strict=True):
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(z)
        signed = (endless < 2) & ~np.isnan(z) & ~np.isnan(wanted)
        for a, b in ((found.real, wanted.real), (found.imag, wanted.imag)):
            np.testing.assert_allclose(np.abs(a), np.abs(b), 1e-12, 1e-15, err_msg=name)
            signs = np.signbit(a)[signed], np.signbit(b)[signed]
            np.testing.assert_array_equal(*signs, err_msg=name)


def test_division_and_powers_of_zero_and_of_infinity() -> None:
    parts = [0.0, 1.0, -2.5, np.inf, np.nan]
    z = np.array([complex(a, b) for a in parts for b in parts])
    powers = np.array([0, 1, 2.5, -1, 1j, 1 + 1j, -1 + 1j, np.nan])
    found = run(lambda z, b: [z / 0, 1 / z, ops.pow(0j, b), z**3], z, powers)
    with np.errstate(all="ignore"):
        inverse = np.where(np.isinf(z), 0, 1 / z)  # in C, and in NumPy of one infinite part
        wanted = [z / np.complex128(0), inverse, np.zeros(8, complex) ** powers, z * z * z]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.real, b.real, 1e-12)
        np.testing.assert_allclose(a.imag, b.imag, 1e-12)


def test_products_and_variances() -> None:
    def made(xp: Any, z: Any) -> list[Any]:
        named = {"correction": 1} if xp is ops else {"ddof": 1}
        running = xp.cumulative_prod
        return [
            xp.prod(z), xp.prod(z, axis=(0, 2), keepdims=True), xp.prod(z[:, :0], axis=1),
            xp.std(z), xp.var(z, axis=1, **named), running(z, axis=1), xp.pow(z, 7),
            running(z, axis=-1, include_initial=True), xp.prod(z, dtype=xp.complex128),
        ]  # fmt: skip

    check(made, Z * 4, rtol=1e-4)


def test_functions_of_two_operands() -> None:
    def made(xp: Any, a: Any, b: Any) -> list[Any]:
        names = ("add", "subtract", "multiply", "divide", "pow", "equal", "not_equal")
        found = [getattr(xp, name)(a, b) for name in names]
        real = xp.real(b)
        return [*found, a * 2.5, 1j - a, real * 1j, a / real, a**2, a == a, real + b, 2 * a != a]

    check(made, Z, W, rtol=1e-4)


MOVES: dict[str, Callable[..., Any]] = {
    "moved": lambda xp, z: (
        z[0], z[:, ::-1, 1], z.mT, xp.reshape(z, (4, 6)), xp.permute_dims(z, (2, 0, 1)),
        xp.flip(z, axis=1), xp.roll(z, 1), xp.repeat(z, 2, axis=0), xp.tile(z, (2, 1, 1)),
        xp.take(z, np.array([2, 0]), axis=1), xp.squeeze(z[:1], axis=0), xp.tril(z),
        *xp.broadcast_arrays(z, z[:, :1]), xp.pad(z, 1, constant_values=7j),
    ),
    "joined": lambda xp, z: (
        xp.concat([z, xp.real(z)]), xp.stack([z, z * 1j], axis=1),
        xp.where(xp.real(z) > 0, z, 1), xp.where(xp.imag(z) > 0, 2j, xp.real(z)),
    ),
    "made": lambda xp, z: (
        xp.zeros_like(z), xp.ones((2,), dtype=xp.complex64), xp.full((2,), 1j, dtype=xp.complex128),
        xp.full_like(z, 2 + 1j), xp.zeros((2,), dtype=np.complex64), xp.sum(np.complex64(1j)),
        xp.eye(3, dtype=xp.complex64), xp.asarray(np.array([1j, 2])),
        xp.astype(xp.real(z), xp.complex128), xp.astype(z, xp.complex128),
    ),
    "summed": lambda xp, z: (
        xp.sum(z, axis=(0, 2)), xp.mean(z, axis=1), xp.cumulative_sum(z, axis=1), xp.diff(z),
        xp.any(z, axis=0), xp.all(z - z[:1]), xp.count_nonzero(z * xp.asarray([0, 1, 0, 2])),
    ),
    "products": lambda xp, z: (
        xp.matmul(z, z.mT), xp.matmul(z, xp.real(z).mT), xp.vecdot(z, z * 1j),
        xp.tensordot(z, z, axes=([0, 2], [0, 2])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_functions_of_tensors(name: str) -> None:
    check(MOVES[name], Z, rtol=1e-4)


def test_dtypes_promote_and_tell_their_limits() -> None:
    assert ops.result_type(ops.complex64, ops.float64) is ops.complex128
    assert ops.result_type(ops.complex64, ops.int32) is ops.complex64
    assert ops.isdtype(ops.complex64, "complex floating")
    assert ops.finfo(ops.complex128).eps == np.finfo(np.float64).eps
    assert not ops.can_cast(ops.complex64, ops.float64)


def test_branches_and_loops_carry_complex_numbers() -> None:
    def spiral(z: Any) -> Any:
        turned = ops.fori_loop(0, 3, lambda i, state: (state[0] * 1j, state[1] + 1), (z, 0))
        return ops.cond(turned[1] > 2, lambda x: x + 1, lambda x: x, turned[0])

    (found,) = run(spiral, W)
    np.testing.assert_allclose(found, W * (1j) ** 3 + 1, rtol=1e-6)


NAN, INFINITY = complex(np.nan, np.nan), complex(1, np.inf)
MIXED = np.array([1 + 2j, complex(np.nan, 1), 1 + 1j, complex(1, np.nan), 2, NAN, NAN, 1 + 2j, -1,
                  complex(0, np.nan), complex(np.nan, 0), np.inf, INFINITY])  # fmt: skip


def test_complex_numbers_have_an_order() -> None:
    """Also where a part is NaN."""

    def made(xp: Any, z: Any) -> list[Any]:
        return [
            *xp.unique_all(z), *xp.unique_counts(z[:9]), *xp.unique_inverse(z),
            xp.unique_values(z[:0]), xp.sort(z), xp.argsort(z, stable=True),
        ]  # fmt: skip

    check(made, MIXED)
    check(made, MIXED.astype(np.complex64))
    rows = np.round(W * 4)
    check(lambda xp, z: [xp.sort(z, axis=0), *xp.unique_all(z)], rows)
    (falling,) = run(lambda z: ops.sort(z, descending=True), MIXED[[0, 2, 4, 7, 8]])
    np.testing.assert_array_equal(falling, [2, 1 + 2j, 1 + 2j, 1 + 1j, -1])
    with pytest.raises(ingot.CompileError, match="has rank 0"):
        run(ops.sort, MIXED[0].reshape(()))


def test_what_is_of_real_numbers_only_says_so() -> None:
    with pytest.raises(ingot.CompileError, match=r"max: complex numbers in it are not supported"):
        run(ops.max, W)
    with pytest.raises(ingot.CompileError, match=r"complex numbers are no f32: take ops\.real"):
        run(lambda z: ops.astype(z, "f32"), W)
    kept: list[Any] = []
    run(lambda z: kept.append(z) or z, W)
    with pytest.raises(ingot.CompileError, match="belongs to another program"):
        run(lambda z: z + kept[0], W)


@pytest.mark.slow
def test_complex_arguments_and_results_of_modules() -> None:
    def mixed(z: Any, x: Any) -> dict[str, Any]:
        return {"turned": ops.fft.fft(z * x), "size": ops.abs(z)}

    program = ingot.trace(mixed, ingot.spec("c64[n,4]"), ingot.spec("f32[4]"))
    x = numbers("float32", (4,))
    for target, model in load_everywhere(program).items():
        turned, size = model(W, x)
        np.testing.assert_allclose(turned, np.fft.fft(W * x), 1e-4, 1e-5, err_msg=target)
        np.testing.assert_allclose(size, np.abs(W), 1e-5, err_msg=target)


def test_logarithms_of_zero_and_of_infinity() -> None:
    x = np.array([0, 2, np.inf], np.complex64)
    for name in ("log2", "log10"):
        (found,) = run(getattr(ops, name), x)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(found, getattr(np, name)(x), rtol=1e-6)
