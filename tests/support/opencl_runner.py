"""Compiles kernels as OpenCL C and runs them through pyopencl on NumPy arrays.

Only for tests: what the OpenCL driver does, with the interface of kernel_runner. Every
buffer has a margin of random bytes on both sides, which no kernel may change.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.level import verify_kernel
from ingot.compiler.targets.opencl.object import print_source

Array = np.ndarray[Any, Any]
_MARGIN = 64  # elements
_TICKET = 5


class Queue:
    """A queue of the first OpenCL device, and how programs are built for it."""

    def __init__(self) -> None:
        import pyopencl

        self.opencl = pyopencl
        device = pyopencl.get_platforms()[0].get_devices()[0]
        self.context = pyopencl.Context([device])
        self.queue = pyopencl.CommandQueue(self.context)
        self.built: dict[tuple[str, str, str], Any] = {}
        self.options = ["-cl-std=CL1.2"]
        self.options.append(f"-DINGOT_GROUP_SIZE={device.max_work_group_size}")
        self.options.append(f"-DINGOT_LOCAL_LENGTH={device.local_mem_size}")
        if "cl_khr_fp64" in device.extensions:
            self.options.append("-DINGOT_OPENCL_FP64")
        if "cl_khr_fp16" in device.extensions:
            self.options.append("-DINGOT_OPENCL_FP16")
        if device.single_fp_config & pyopencl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            self.options += [
                "-cl-fp32-correctly-rounded-divide-sqrt",
                "-DINGOT_OPENCL_EXACT_DIVISION",
            ]

    def build(self, source: str, name: str, index: str) -> Any:
        """A kernel of the source, with indices of that type; compiled once."""
        key = (source, name, index)
        if key not in self.built:
            program = self.opencl.Program(self.context, source)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self.opencl.CompilerWarning)
                built = program.build([*self.options, f"-DINGOT_INDEX={index}"], cache_dir=False)
            self._check_log(built)
            self.built[key] = self.opencl.Kernel(built, name)
        return self.built[key]

    def _check_log(self, program: Any) -> None:
        """Warnings are errors, but for one of compilers for CPUs: how wide vectors are passed."""
        logs = (
            program.get_build_info(each, self.opencl.program_build_info.LOG)
            for each in self.context.devices
        )
        lines = [line for log in logs for line in log.splitlines() if "warning:" in line]
        unknown = [line for line in lines if "changes the ABI" not in line]
        assert not unknown, "\n".join(unknown)

    def buffer(self, array: Array) -> Any:
        """A buffer with a copy of the array."""
        flags = self.opencl.mem_flags.READ_WRITE | self.opencl.mem_flags.COPY_HOST_PTR
        return self.opencl.Buffer(self.context, flags, hostbuf=array)

    def read(self, buffer: Any, array: Array) -> Array:
        """The buffer's bytes, into the array."""
        self.opencl.enqueue_copy(self.queue, array, buffer)
        return array


@lru_cache(maxsize=1)
def queue() -> Queue | None:
    """The queue; None if there is no OpenCL device."""
    try:
        import pyopencl
    except ImportError:
        return None
    try:
        return Queue()
    except pyopencl.Error:  # no platform, or one without devices
        return None


def with_margins(array: Array) -> Array:
    """The bytes of the array between two margins."""
    margin = np.random.default_rng(1).integers(0, 256, _MARGIN * array.itemsize, np.uint8)
    return np.concatenate([margin, array.reshape(-1).view(np.uint8), margin])


@lru_cache(maxsize=32)
def _source(kernel: Kernel) -> str:
    verify_kernel(kernel)
    return print_source([kernel])


def run(
    kernel: Kernel, arrays: Sequence[Array], index: str = "int", **symbols: int
) -> tuple[int, int, int] | None:
    """Run the grid on operands, results and workspaces; gives (operand, index, bound) of a
    fault, else None."""
    device = queue()
    assert device is not None, "no OpenCL device: install pocl-opencl-icd"
    function = device.build(_source(kernel), kernel.name, index)
    first = np.int32(_MARGIN) if index == "int" else np.int64(_MARGIN)
    arguments: list[Any] = []
    images = [with_margins(np.ascontiguousarray(array)) for array in arrays]
    buffers = [device.buffer(image) for image in images]
    for buffer in buffers:
        arguments += [buffer, first]
    workload = [evaluate(dim, symbols) for dim in kernel.workload]
    grid = [-(-work // tile) for work, tile in zip(workload, kernel.tile, strict=True)]
    arguments += [np.int64(evaluate(dim, symbols)) for dim in kernel.constants]
    arguments += map(np.int64, workload)
    if kernel.scratch_length:
        length = -(-kernel.scratch_length // 64) * 64 * max(int(np.prod(grid)), 1)
        arguments.append(device.buffer(np.full(length, 0xA5, np.uint8)))
    fault = np.zeros(4, np.int64)
    arguments += [device.buffer(fault), np.int32(_TICKET)]
    if all(grid):
        size = [count * items for count, items in zip(grid, kernel.local_size, strict=True)]
        function(device.queue, size, kernel.local_size, *arguments)
    for array, image, buffer in zip(arrays, images, buffers, strict=True):
        _take(array, image, device.read(buffer, np.empty_like(image)))
    device.read(arguments[-2], fault)
    words = fault.view(np.int32)
    if words[0] == 0:
        return None
    assert words[0] == _TICKET
    assert words[2] == 1, "INGOT_FAULT_INDEX_OUT_OF_RANGE"
    return int(words[1]), int(fault[2]), int(fault[3])


def _take(array: Array, before: Array, after: Array) -> None:
    """Copy the array back, and see that its margins are as before."""
    margin = _MARGIN * array.itemsize
    end = len(before) - margin
    np.testing.assert_array_equal(after[:margin], before[:margin], "bytes before a binding")
    np.testing.assert_array_equal(after[end:], before[end:], "bytes behind a binding")
    if array.flags.writeable and array.flags.c_contiguous:
        array.reshape(-1).view(np.uint8)[:] = after[margin:end]
