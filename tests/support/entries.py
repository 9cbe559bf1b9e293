"""Builds entry functions for tests, and checks kernels against the graph interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Function, Module, TensorType
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.hal.spec import dtype
from tests.support.kernel_runner import VARIANTS, host_variants, run
from tests.support.programs import Build, function

__all__ = ["check", "entry", "kernels", "lowered", "make"]

Lower = Callable[[Function, TargetInfo], Kernel]


def entry(
    types: Sequence[str | TensorType],
    body: Build,
    symbols: dict[str, tuple[int, int | None]] | None = None,
) -> Function:
    """An entry function of a body that gets the builder and the arguments."""
    return function("entry", types, body, symbols)


def make(
    type: TensorType, rng: np.random.Generator, symbols: dict[str, int]
) -> np.ndarray[Any, Any]:
    """Random elements of a type."""
    shape = [evaluate(dim, symbols) for dim in type.shape]
    if type.dtype.is_boolean:
        return rng.integers(0, 2, shape).astype(bool)
    if type.dtype.is_integer:
        return rng.integers(0, 100, shape).astype(type.dtype.numpy)
    return np.asarray(rng.standard_normal(shape) * 2).astype(type.dtype.numpy)


TABLE = (-128, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 127)


def coded(codes: str) -> dict[str, Any]:
    """The attributes of `dot_coded` for codes such as "i4" or "u5", "t4" of a table, or "f8"."""
    if codes[0] == "t":
        return {**coded(f"u{codes[1:]}"), "table": TABLE}
    if codes == "f8":
        return {"coding": dtype("f8e4m3fn")}
    bits = int(codes[1:])
    if bits in (2, 4, 8):
        return {"coding": dtype(codes)}
    return {"coding": dtype(f"{codes[0]}8"), "bits": bits}


def reference(function: Function, operands: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    """What the interpreter of graph IR gives."""
    module = Module()
    module.add(function)
    return [np.asarray(each) for each in interpret(module, function.name, list(operands))]


@lru_cache(maxsize=32)
def lowered(lower: Lower, function: Function, target: TargetInfo) -> Kernel:
    """The kernel, made once for all sizes that a test calls it with."""
    return lower(function, target)


def check(
    function: Function,
    lower: Lower,
    operands: Sequence[np.ndarray[Any, Any]] | None = None,
    variants: Sequence[str] | None = None,
    tolerance: float = 3e-6,
    **symbols: int,
) -> None:
    """Assert that the kernel gives what the interpreter gives, on random operands if none; as C
    for each variant of this machine, unless `variants` says where."""
    rng = np.random.default_rng(7)
    if operands is None:
        operands = [make(each.type, rng, symbols) for each in function.arguments]  # type: ignore[arg-type]
    expected = reference(function, operands)
    for variant in variants or host_variants():
        kernel = lowered(lower, function, VARIANTS[variant].target)
        results = [np.full(each.shape, 77).astype(each.dtype) for each in expected]
        got = run(kernel, operands, results, variant, **symbols)
        for mine, theirs in zip(got, expected, strict=True):
            assert_close(mine, theirs, tolerance)


def assert_close(
    got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], tolerance: float
) -> None:
    """Equal for integers, within `tolerance` of the greatest element for floats."""
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
        return
    steps = {np.dtype(np.float16): 1e-3, np.dtype(ml_dtypes.bfloat16): 8e-3}
    tolerance = steps.get(got.dtype, tolerance)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    scale = np.abs(b[finite]).max(initial=1e-30)
    assert np.abs(a[finite] - b[finite]).max(initial=0) <= tolerance * scale


def kernels(variant: str = "x86-64-v3") -> list[Kernel]:
    """Five kernels, of which two are of one op."""
    functions = []
    for place, name in enumerate(["exp", "erf", "sin", "neg", "neg"]):
        function = entry(["f32[7,33]"], lambda b, x, name=name: b.op(name, x))
        function.name = f"entry_{place}"
        functions.append(function)
    return [lower_map(each, VARIANTS[variant].target) for each in functions]
