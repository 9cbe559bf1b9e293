"""Functions of `ingot.ops` against NumPy's, by the references of graph ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ingot
from ingot import ops
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import verify
from ingot.hal.spec import DType

__all__ = ["Array", "check", "numbers", "run"]

Array = np.ndarray[Any, Any]


def run(function: Callable[..., Any], *arrays: Array, dims: bool = False) -> list[Array]:
    """What a traced function gives; with `dims` all sizes of its arguments are symbols."""
    specs = []
    for place, array in enumerate(arrays):
        shape = [f"d{place}_{axis}" if dims else str(n) for axis, n in enumerate(array.shape)]
        specs.append(ingot.spec(f"{DType.from_numpy(array.dtype).name}[{','.join(shape)}]"))
    module = ingot.trace(function, *specs).module
    verify(module, GRAPH)
    return [np.asarray(each) for each in interpret(module, "main", arrays)]


def check(function: Callable[[Any], Any], *arrays: Array, **options: Any) -> None:
    """`function` gets a namespace and the arrays: `ops`, then NumPy."""
    for dims in (False, True):
        got = run(lambda *tensors: function(ops, *tensors), *arrays, dims=dims)
        with np.errstate(all="ignore"):
            wanted = function(np, *arrays)
        wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
        assert len(got) == len(wanted)
        for one, other in zip(got, map(np.asarray, wanted), strict=True):
            if other.dtype == np.float64 and one.dtype == np.float32:
                other = other.astype(np.float32)  # integers that became floats
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=options.get("rtol", 2e-5), atol=1e-5)


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.startswith("complex"):
        real, imaginary = generator.standard_normal((2, *shape)) * 3
        return np.asarray(real + 1j * imaginary, dtype)
    if dtype.startswith("float"):
        return (generator.standard_normal(shape) * 3).astype(dtype)
    low = 0 if dtype.startswith("u") else -9
    return generator.integers(low, 10, shape).astype(dtype)
