"""Checks kernels of OpenCL schedules against the graph interpreter: as OpenCL C on the device
that there is, with large and small groups, and as the plain C that is their fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ingot.compiler.ir import Function
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.targets.opencl.variant import OPENCL_C, OPENCL_C_LARGE
from tests.support import kernel_runner, opencl_runner
from tests.support.entries import Lower, assert_close, lowered, make, reference

__all__ = ["LARGE", "PLAIN", "SMALL", "check", "needs_device"]

LARGE, SMALL = OPENCL_C_LARGE.target, OPENCL_C.target
PLAIN = TargetInfo("generic", 16, 16, False, has_items=True, is_fallback=True)

needs_device = pytest.mark.skipif(
    opencl_runner.queue() is None, reason="no OpenCL device: install pocl-opencl-icd"
)


def check(
    function: Function,
    lower: Lower,
    operands: Sequence[np.ndarray[Any, Any]] | None = None,
    tolerance: float = 3e-6,
    targets: Sequence[TargetInfo] = (LARGE, SMALL),
    **symbols: int,
) -> None:
    """Assert that all variants take the same call and give what the interpreter gives, on
    random operands if none."""
    rng = np.random.default_rng(7)
    if operands is None:
        operands = [make(each.type, rng, symbols) for each in function.arguments]  # type: ignore[arg-type]
    operands = [np.asarray(each, order="C") for each in operands]
    expected = reference(function, operands)
    plain = lowered(lower, function, PLAIN)
    results = [np.full(each.shape, 77).astype(each.dtype) for each in expected]
    got = kernel_runner.run(plain, operands, results, "x86-64", **symbols)
    for mine, theirs in zip(got, expected, strict=True):
        assert_close(mine, theirs, tolerance)
    for target in targets:
        kernel = lowered(lower, function, target)
        assert_same_call(kernel, plain)
        results = [np.full(each.shape, 77).astype(each.dtype) for each in expected]
        fault = run(kernel, operands, results, **symbols)
        assert fault is None, fault
        for mine, theirs in zip(results, expected, strict=True):
            assert_close(mine, theirs, tolerance)


def assert_same_call(kernel: Kernel, other: Kernel) -> None:
    """What the variants of one entry must share."""
    assert kernel.workload == other.workload
    assert kernel.bindings == other.bindings
    assert kernel.workspaces == other.workspaces
    assert kernel.in_place == other.in_place


def run(
    kernel: Kernel,
    operands: Sequence[np.ndarray[Any, Any]],
    results: Sequence[np.ndarray[Any, Any]],
    **symbols: int,
) -> tuple[int, int, int] | None:
    """Run on the device; gives a fault as opencl_runner.run."""
    workspaces = [
        np.full([evaluate(dim, symbols) for dim in each.shape], 77).astype(each.dtype.numpy)
        for each in kernel.workspaces
    ]
    return opencl_runner.run(kernel, [*operands, *results, *workspaces], **symbols)
