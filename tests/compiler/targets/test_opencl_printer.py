"""Kernels printed as OpenCL C, run by PoCL or whatever device there is, match NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from products import draw, entry, error_of, f32, pack

from ingot.compiler.dispatch.classify import lower_entry
from ingot.compiler.dispatch.kernel import Kernel
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.targets.opencl.opencl_printer import TARGET, print_kernel
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def queue() -> Any:
    opencl = pytest.importorskip("pyopencl", reason="no OpenCL: pyopencl is not installed")
    try:
        platforms = opencl.get_platforms()
    except opencl.Error:
        platforms = []
    if not platforms:
        pytest.skip("no OpenCL device: install pocl-opencl-icd")
    context = opencl.Context(platforms[0].get_devices()[:1])
    return opencl.CommandQueue(context)


def run(queue: Any, kernel: Kernel, operands: list[Array], result: Array) -> Array:
    """The kernel's result; every buffer begins with elements that an offset skips."""
    import pyopencl as opencl

    flags = opencl.mem_flags.READ_WRITE | opencl.mem_flags.COPY_HOST_PTR
    program = opencl.Program(queue.context, print_kernel(kernel)).build()
    arguments: list[Any] = []
    buffers = []
    for array in [*operands, result]:
        shifted = np.concatenate([np.zeros(3, array.dtype), array.reshape(-1)])
        buffers.append(opencl.Buffer(queue.context, flags, hostbuf=shifted))
        arguments += [buffers[-1], np.int64(3)]
    workload = [evaluate(dim, {}) for dim in kernel.workload]
    grid = [-(-work // tile) for work, tile in zip(workload, kernel.tile, strict=True)]
    groups = grid[0] * grid[1] * grid[2]
    scratch = opencl.Buffer(
        queue.context, opencl.mem_flags.READ_WRITE, max(groups * kernel.scratch_length, 64)
    )
    fault = opencl.Buffer(queue.context, flags, hostbuf=np.zeros(4, np.int64))
    arguments += [np.int64(evaluate(dim, {})) for dim in kernel.constants]
    arguments += [*map(np.int64, workload), scratch, np.int64(kernel.scratch_length), fault]
    getattr(program, kernel.name)(queue, grid, (1, 1, 1), *arguments)
    got = np.zeros(result.size + 3, result.dtype)
    opencl.enqueue_copy(queue, got, buffers[-1])
    return got[3:].reshape(result.shape)


def compiled(build: Callable[..., Value], *types: TensorType) -> Kernel:
    return lower_entry(entry(build, *types), TARGET)


def test_an_elementwise_kernel_matches(queue: Any) -> None:
    def build(b: Builder, x: Value, y: Value) -> Value:
        total = b.op("add", x, b.broadcast_to(y, (50, 37)))
        zero = b.full(0.0, dtype("f32"), (50, 37))
        result: Value = b.op("max", b.op("tanh", total), zero)
        return result

    x, y = draw(50, 37), draw(37, seed=1)
    got = run(queue, compiled(build, f32(50, 37), f32(37)), [x, y], np.ones((50, 37), np.float32))
    assert error_of(got, np.maximum(np.tanh(x.astype(np.float64) + y), 0)) < 1e-6


def test_a_row_kernel_matches(queue: Any) -> None:
    def build(b: Builder, x: Value) -> Value:
        top = b.op(
            "broadcast", b.op("reduce", x, axes=(1,), kind="max"), shape=(9, 70), dimensions=(0,)
        )
        e = b.op("exp", b.op("sub", x, top))
        total = b.op("reduce", e, axes=(1,), kind="add")
        result: Value = b.op("div", e, b.op("broadcast", total, shape=(9, 70), dimensions=(0,)))
        return result

    x = draw(9, 70)
    got = run(queue, compiled(build, f32(9, 70)), [x], np.ones((9, 70), np.float32))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert error_of(got, e / e.sum(1, keepdims=True)) < 1e-6


def test_a_contraction_kernel_matches(queue: Any) -> None:
    def build(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        y = b.op("dot_packed", x, w, n=37)
        result: Value = b.op("add", y, b.broadcast_to(bias, (19, 37)))
        return result

    x, w, bias = draw(19, 40), draw(40, 37, seed=1), draw(37, seed=2)
    kernel = compiled(build, f32(19, 40), f32(3, 40, 16, 1), f32(37))
    got = run(queue, kernel, [x, pack(w), bias], np.ones((19, 37), np.float32))
    assert error_of(got, x.astype(np.float64) @ w + bias) < 1e-6


def test_a_dtype_that_opencl_lacks_is_refused_by_name() -> None:
    type = TensorType(dtype("bf16"), (8,))
    kernel = compiled(lambda b, x: b.op("neg", x), type)
    with pytest.raises(CompileError, match="bf16"):
        print_kernel(kernel)
