"""Every dtype of StableHLO through the whole compiler, against jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tests.support.devices import load_best

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NARROW = ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"]
TOLERANCE = {1: 0.3, 2: 2e-2, 4: 3e-5, 8: 1e-9}


def numbers(name: str, seed: int) -> np.ndarray[Any, Any]:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    rng = np.random.default_rng(seed)
    if "int" in name:
        return rng.integers(0 if name[0] == "u" else -7, 8, (6, 4)).astype(dtype)
    if name == "bool":
        return rng.integers(0, 2, (6, 4)).astype(bool)
    return rng.standard_normal((6, 4)).astype(dtype)


def moved(x: Any, y: Any) -> list[Any]:
    """What every dtype can do."""
    rows = jnp.array([2, 0, 5])
    return [
        *(lax.max(x, y), lax.min(x, y), x == y, x < y, lax.select(x < y, x, y)),
        *(x[rows], x.at[jnp.array([1, 1])].set(y[:2]), x.T, jnp.concatenate([x, y], 1)),
        *(jnp.pad(x, ((1, 0), (0, 2))), x[::-1], jnp.sort(x, 1), jnp.argsort(x, 0)),
        *(
            jnp.take_along_axis(x, jnp.arange(6)[:, None] % 4, 1),
            lax.dynamic_slice(x, (5, 1), (2, 3)),
        ),
        *(jnp.max(x, 1), jnp.argmin(x, 0), x.astype("float32"), x.astype("int32")),
    ]


def computed(x: Any, y: Any) -> list[Any]:
    """What numbers can do."""
    return [
        *(x + y, x * y, x - y, lax.clamp(x, y, x), lax.cumsum(x, 1), lax.cummax(x, 0)),
        *(lax.dot_general(x, y, (((1,), (1,)), ((), ()))), x.at[jnp.array([1, 1])].add(y[:2])),
        lax.reduce_window(x, np.array(0, x.dtype), lax.add, (2, 2), (1, 2), "SAME"),
        lax.conv_general_dilated(x[None, None], y[None, None, :2, :3], (1, 1), "SAME"),
        lax.fori_loop(0, 3, lambda i, a: a + y, x),
    ]


def bits(x: Any, y: Any) -> list[Any]:
    return [
        *(lax.population_count(x), lax.clz(x), x & y, x | y, x ^ y, ~x, lax.sign(x)),
        *(lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.div(x, y), lax.rem(x, y)),
    ]


def functions(x: Any, y: Any) -> list[Any]:
    size = abs(x)
    return [
        *(jnp.exp(x), jnp.tanh(x), jnp.sqrt(size), lax.cbrt(x), lax.log(size + 1), jnp.floor(x)),
        *(lax.round(x), jnp.rint(x), lax.is_finite(x), lax.logistic(x), lax.sin(x), lax.tan(x)),
        *(lax.atan2(x, y), lax.pow(size, y), lax.rem(x, y), lax.expm1(x), lax.log1p(size)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool", *NARROW])
def test_every_dtype_gives_what_jax_gives(name: str) -> None:
    x, y = numbers(name, 1), numbers(name, 2)

    def model(x: Any, y: Any) -> list[Any]:
        results = moved(x, y)
        if name == "bool":
            return [*results, *(lax.dot_general(x, y, (((1,), (1,)), ((), ())),
                    preferred_element_type=each) for each in (None, "float32"))]  # fmt: skip
        if name not in NARROW:
            results += computed(x, y) + (bits if name in INTEGERS else functions)(x, y)
        return results

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        exported = jax.export.export(jax.jit(model))(x, y)
        wanted = [np.asarray(each) for each in jax.jit(model)(x, y)]
    finally:
        jax.config.update("jax_enable_x64", before)
    found = load_best(exported)(x, y)
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        array = one.numpy()
        assert (array.dtype, array.shape) == (other.dtype, other.shape), place
        if other.dtype.kind in "biu":
            np.testing.assert_array_equal(array, other, err_msg=f"result {place}")
            continue
        tolerance = TOLERANCE[other.dtype.itemsize] if place >= 19 else 0
        a, b = (each.astype(np.float64) for each in (array, other))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"result {place}")
