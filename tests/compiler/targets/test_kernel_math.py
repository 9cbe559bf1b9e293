"""Math functions, printed, keep the error bounds of the op table, in f32 and f64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import pytest

from ingot.compiler.graph.ops import lookup
from ingot.compiler.kernels.lanes.map import lower_map
from tests.support.entries import entry
from tests.support.kernel_runner import VARIANTS, all_variants, run

Array = np.ndarray[Any, Any]
NAMES = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "logistic",
    "erf",
]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-30, -1e-30]
ROUND = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_even": np.rint,
    "round_away": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}
MP: dict[str, Any] = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log1p": lambda x: mpmath.log1p(x),
}
INVERSE = ("asin", "acos", "atan", "asinh", "acosh", "atanh")
NUMPY_NAMES = {each: each.replace("a", "arc", 1) for each in INVERSE}
DOMAIN = {
    "log": (0, None),
    "sqrt": (0, None),
    "rsqrt": (0, None),
    "log1p": (-1, None),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "acosh": (1, None),
    "atanh": (-1, 1),
}


def samples(name: str, dtype: str) -> Array:
    rng = np.random.default_rng(3)
    large = 1e30 if dtype == "f32" else 1e200
    points = [
        rng.standard_normal(200),
        rng.uniform(-1.2, 1.2, 150),
        rng.uniform(-110, 110, 150) if dtype == "f32" else rng.uniform(-750, 750, 150),
        rng.standard_normal(100) * 1e-6,
        np.exp(rng.uniform(-80, np.log(large), 150)) * rng.choice([-1, 1], 150),
    ]
    x = np.concatenate(points)
    low, high = DOMAIN.get(name, (None, None))
    if low is not None:
        x = np.where(x < low, low - (x - low), x)
    if high is not None:
        x = np.clip(x, low, high)
    return x.astype(np.float32 if dtype == "f32" else np.float64)


@lru_cache(maxsize=64)
def exact(name: str, dtype: str) -> list[Any]:
    x = samples(name, dtype)
    function = MP.get(name) or getattr(mpmath, name)
    with mpmath.workprec(200):
        return [function(mpmath.mpf(float(each))) for each in x]


def errors(got: Array, wanted: list[Any]) -> Array:
    """Units in the last place; an overflow counts as none where the exact result overflows."""
    info = np.finfo(got.dtype)
    result = np.zeros(len(got))
    for place, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        if abs(theirs) > float(info.max):
            result[place] = 0 if np.isinf(mine) or abs(mine) == info.max else np.inf
            continue
        step = max(
            abs(float(np.spacing(got.dtype.type(float(theirs))))), float(info.smallest_subnormal)
        )
        result[place] = float(abs(mpmath.mpf(float(mine)) - theirs)) / step
    return result


def call(names: Sequence[str], dtype: str, arrays: Sequence[Array], variant: str) -> list[Array]:
    """Function n of array n, all in one kernel: compiling takes most of the time."""
    types = [f"{dtype}[{arrays[0].size}]"] * len(arrays)

    def body(b, *x):
        return [b.op(name, each) for name, each in zip(names, x, strict=True)]

    kernel = lower_map(entry(types, body), VARIANTS[variant].target)
    return run(kernel, arrays, [np.empty_like(each) for each in arrays], variant)


@pytest.mark.parametrize("variant", all_variants())
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_keep_their_bounds(dtype: str, variant: str) -> None:
    arrays = [samples(name, dtype) for name in NAMES]
    for name, x, got in zip(NAMES, arrays, call(NAMES, dtype, arrays, variant), strict=True):
        worst = errors(got, exact(name, dtype))
        at = int(np.argmax(worst))
        assert worst[at] <= lookup(name).ulp, f"{name}: {worst[at]:.2f} ulp at {x[at]!r}"


def numpy_function(name: str, x: Array) -> Array:
    if name in ROUND:
        return ROUND[name](x)
    if name == "rsqrt":
        return 1 / np.sqrt(x)
    if name == "logistic":
        return 1 / (1 + np.exp(-x))
    if name == "erf":
        return np.array([math.erf(each) for each in x])
    return getattr(np, NUMPY_NAMES.get(name, name))(x)


@pytest.mark.parametrize("variant", all_variants())
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_special_values(dtype: str, variant: str) -> None:
    kind = np.float32 if dtype == "f32" else np.float64
    x = np.array([*SPECIAL, 1e30, -1e30, 2.5, -2.5, 1e-40], kind)
    names = [*NAMES, *ROUND]
    for name, got in zip(names, call(names, dtype, [x] * len(names), variant), strict=True):
        with np.errstate(all="ignore"):
            expected = numpy_function(name, x.astype(np.float64)).astype(kind)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), name)
        known = ~np.isnan(expected)
        signs = np.signbit(got[known]), np.signbit(expected[known])
        np.testing.assert_array_equal(*signs, f"sign of {name}")
        np.testing.assert_allclose(
            got[known], expected[known], rtol=1e-6 if dtype == "f32" else 1e-14
        )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_of_two(dtype: str) -> None:
    names = {"pow": np.power, "atan2": np.arctan2, "rem": np.fmod}
    rng = np.random.default_rng(5)
    kind = np.float32 if dtype == "f32" else np.float64
    a, b = (each.reshape(-1) for each in np.meshgrid(*[[*SPECIAL, 3.0, -3.0]] * 2))
    a = np.concatenate([a, np.exp(rng.uniform(-5, 5, 200)), rng.standard_normal(99)]).astype(kind)
    b = np.concatenate([b, rng.uniform(-15, 15, 200), rng.standard_normal(99)]).astype(kind)
    function = entry([f"{dtype}[{a.size}]"] * 2, lambda x, *y: [x.op(name, *y) for name in names])
    for variant in all_variants():
        kernel = lower_map(function, VARIANTS[variant].target)
        results = run(kernel, [a, b], [np.empty_like(a) for _ in names], variant)
        for (name, reference), got in zip(names.items(), results, strict=True):
            with np.errstate(all="ignore"):
                expected = reference(a.astype(np.longdouble), b.astype(np.longdouble)).astype(kind)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), f"{name} {variant}")
            infinite = np.isinf(expected)
            np.testing.assert_array_equal(got[infinite], expected[infinite], name)
            known = np.isfinite(expected)
            steps = np.abs(got[known] - expected[known]) / np.spacing(np.abs(expected[known]))
            at = int(np.argmax(steps))
            message = f"{name} {variant}: {steps[at]} ulp at {a[known][at]}, {b[known][at]}"
            assert steps[at] <= lookup(name).ulp, message


@pytest.mark.parametrize("variant", all_variants())
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_huge_angles(dtype: str, variant: str) -> None:
    rng = np.random.default_rng(9)
    kind, most = (np.float32, 88) if dtype == "f32" else (np.float64, 709)
    x = (np.exp(rng.uniform(9, most, 200)) * rng.choice([-1, 1], 200)).astype(kind)
    names = ["sin", "cos", "tan"]
    for name, got in zip(names, call(names, dtype, [x] * 3, variant), strict=True):
        with mpmath.workprec(1300):
            wanted = [getattr(mpmath, name)(mpmath.mpf(float(each))) for each in x]
        assert errors(got, wanted).max() <= lookup(name).ulp, name


@pytest.mark.parametrize("variant", all_variants())
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_cube_roots_of_the_greatest_and_least(dtype: str, variant: str) -> None:
    info = np.finfo(np.float32 if dtype == "f32" else np.float64)
    least = info.smallest_subnormal
    x = np.array([info.max, info.max / 3, -info.max / 5, info.tiny, least, 3 * least], info.dtype)
    (got,) = call(["cbrt"], dtype, [x], variant)
    with mpmath.workprec(200):
        wanted = [MP["cbrt"](mpmath.mpf(float(each))) for each in x]
    assert errors(got, wanted).max() <= lookup("cbrt").ulp


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_as_great_as_a_number_can_be(dtype: str) -> None:
    info = np.finfo(np.float32 if dtype == "f32" else np.float64)
    most, digits = float(info.max), info.maxexp * math.log10(2)
    before, root = float(np.nextafter(info.max, 0, dtype=info.dtype)), most**0.5 * 0.9999999
    rows = [(most, 1), (-most, 1), (before, 1), (root, 2), (0.5, 1 - info.maxexp),
            (10, math.floor(digits))]  # fmt: skip
    over = [(10, math.ceil(digits)), (most, 2), (-most, 3), (most, np.inf), (0.0, -np.inf),
            (0.0, -1), (2, info.maxexp)]  # fmt: skip
    x, y = np.array([*rows, *over], info.dtype).T
    function = entry([f"{dtype}[{x.size}]"] * 2, lambda b, *z: [b.op("pow", *z)])
    with mpmath.workprec(200):
        pairs = list(zip(x, y, strict=True))[: len(rows)]
        wanted = [float(mpmath.mpf(float(a)) ** int(b)) for a, b in pairs]
    for variant in all_variants():
        kernel = lower_map(function, VARIANTS[variant].target)
        (got,) = run(kernel, [x, y], [np.empty_like(x)], variant)
        relative = lookup("pow").ulp * info.eps / 2
        np.testing.assert_allclose(got[: len(rows)], wanted, rtol=relative, err_msg=variant)
        signs = np.where(x[len(rows) :] < 0, -np.inf, np.inf)
        np.testing.assert_array_equal(got[len(rows) :], signs, variant)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_large_powers_of_numbers_near_one(dtype: str) -> None:
    """|y log x| is up to its limits: what log x lacks, the result lacks times that."""
    info = np.finfo(np.float32 if dtype == "f32" else np.float64)
    rng = np.random.default_rng(13)
    near = [np.exp(rng.uniform(-width, width, 200)) for width in (0.36, 1e-2, 1e-5)]
    x = np.concatenate([*near, np.exp(rng.uniform(-80, 80, 100))]).astype(info.dtype)
    x[x == 1] = 1 + info.eps
    powers = rng.choice(np.log([float(info.tiny), float(info.max)]), x.size) * 0.999
    y = (powers * rng.uniform(0.3, 1, x.size) / np.log(x.astype(np.float64))).astype(info.dtype)
    with mpmath.workprec(200):
        wanted = [mpmath.mpf(float(a)) ** mpmath.mpf(float(b)) for a, b in zip(x, y, strict=True)]
    function = entry([f"{dtype}[{x.size}]"] * 2, lambda b, *z: [b.op("pow", *z)])
    for variant in all_variants():
        kernel = lower_map(function, VARIANTS[variant].target)
        (got,) = run(kernel, [x, y], [np.empty_like(x)], variant)
        worst = errors(got, wanted)
        at = int(np.argmax(worst))
        assert worst[at] <= lookup("pow").ulp, f"{variant}: {worst[at]:.1f} ulp, {x[at]} ** {y[at]}"
