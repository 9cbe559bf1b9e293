"""Compiles kernels with the C compiler and runs their whole grid on NumPy arrays.

Only for tests: what the runtime does with a device, done with ctypes. The variant
"opencl-c" goes to an OpenCL device, by opencl_runner.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.level import verify_kernel
from ingot.compiler.targets.cpu import c_printer
from ingot.compiler.targets.cpu.compilers import COMMON_FLAGS
from ingot.compiler.targets.cpu.variants import VARIANTS as CPU_VARIANTS
from ingot.compiler.targets.opencl.variant import OPENCL_C
from ingot.hal.device import open_device
from ingot.hal.file_cache import default_cache
from ingot.hal.header import INCLUDE_FOLDER
from tests.support import opencl_runner

HEADERS = Path(c_printer.__file__).parent
FOLDER = Path(tempfile.mkdtemp(prefix="ingot-kernels-"))
VARIANTS = {**CPU_VARIANTS, OPENCL_C.name: OPENCL_C}
V4 = VARIANTS["x86-64-v4"].target
V3 = VARIANTS["x86-64-v3"].target
PLAIN = VARIANTS["x86-64"].target


class Fault(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint32),
        ("operand", ctypes.c_uint32),
        ("index", ctypes.c_int64),
        ("bound", ctypes.c_int64),
    )


POLL = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
LIBC = ctypes.CDLL(None)
GO_ON = POLL(lambda dispatch: 0)


class Dispatch(ctypes.Structure):
    _fields_ = (
        ("bindings", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("workload", ctypes.c_int64 * 3),
        ("poll", POLL),
    )


class IndexFault(Exception):
    """A kernel reported (operand, index, bound)."""


@lru_cache(maxsize=1)
def host_variants() -> tuple[str, ...]:
    """The variants that this machine runs, best first."""
    flags = Path("/proc/cpuinfo").read_text()
    names = ["x86-64"]
    if " avx2 " in flags:
        names.insert(0, "x86-64-v3")
    if " avx512vl " in flags:
        names.insert(0, "x86-64-v4")
    return tuple(names)


def dot4_variants() -> tuple[str, ...]:
    """Those of the same machine whose kernels multiply bytes, and the plain ones that do without
    an instruction."""
    flags = Path("/proc/cpuinfo").read_text()
    names = [*host_variants()]
    for flag, name in (("avx_vnni", "x86-64-v3-vnni"), ("avx512_vnni", "x86-64-v4-vnni")):
        if f" {flag} " in flags:
            names.insert(0, name)
    return (*tile_variants(), *names)


@lru_cache(maxsize=1)
def tile_variants() -> tuple[str, ...]:
    """Those of the same machine whose kernels multiply in tiles."""
    name = "x86-64-v4-amx"
    runs = open_device("cpu").runs(VARIANTS[name].format, VARIANTS[name].feature_bits)
    request_state, tiles = 0x1023, 18  # what a loader of modules asks the system for
    return (name,) if runs and LIBC.syscall(158, request_state, tiles) == 0 else ()


def dot2_variants() -> tuple[str, ...]:
    """Those of the same machine whose kernels multiply bf16 by an instruction."""
    flags = Path("/proc/cpuinfo").read_text()
    return ("x86-64-v4-bf16",) if " avx512_bf16 " in flags else ()


def half2_variants() -> tuple[str, ...]:
    """Those of the same machine whose kernels multiply and add f16 by instructions."""
    flags = Path("/proc/cpuinfo").read_text()
    return ("x86-64-v4-fp16",) if " avx512_fp16 " in flags else ()


def device_variants() -> tuple[str, ...]:
    """ "opencl-c" if there is a device."""
    return (OPENCL_C.name,) if opencl_runner.queue() else ()


def all_variants() -> tuple[str, ...]:
    """The variants that this machine runs, on its CPU and on a device."""
    return (*host_variants(), *device_variants())


@lru_cache(maxsize=1)
def _headers() -> str:
    """The text of all headers that kernels include."""
    paths = [*sorted(HEADERS.glob("*.h")), INCLUDE_FOLDER / "ingot" / "kernel_abi.h"]
    return "\0".join(path.read_text() for path in paths)


@lru_cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout


def build(source: str, variant: str, extra: Sequence[str] = (), compiler: str = "gcc") -> Path:
    """The path of a shared object made of C text, which the user's cache keeps between runs."""
    assert shutil.which(compiler), f"the tests need {compiler}"
    flags = [
        *COMMON_FLAGS,
        *CPU_VARIANTS[variant].flags,
        "-fvisibility=default",
        "-Wall",
        "-Wextra",
    ]
    command = [compiler, *flags, "-shared", f"-I{HEADERS}", f"-I{INCLUDE_FOLDER}", *extra]
    parts = [*command, _version(compiler), _headers(), source]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    target = FOLDER / f"{key}.so"
    cache = default_cache()
    if not target.exists() and (known := cache.read(key)) is not None:
        target.write_bytes(known)
    if not target.exists():
        path = FOLDER / f"{key}.c"
        path.write_text(source)
        command += ["-Werror", "-o", str(target), str(path), "-lgcc"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{path}\n{done.stderr[:4000]}"
        cache.write(key, target.read_bytes())
    return target


class Loaded:
    """A compiled kernel."""

    def __init__(
        self, kernel: Kernel, variant: str, compiler: str = "gcc", path: Path | None = None
    ) -> None:
        self.kernel = kernel
        verify_kernel(kernel)
        source = c_printer.print_source([c_printer.print_kernel(kernel)])
        path = path or build(source, variant, compiler=compiler)
        self.library = ctypes.CDLL(str(path))
        self.poll = GO_ON
        self.function = getattr(self.library, kernel.name)
        self.function.restype = ctypes.c_uint32
        self.function.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]], **symbols: int) -> None:
        """Run the grid on operands then results. IndexFault: a workgroup failed."""
        constants = [evaluate(dim, symbols) for dim in self.kernel.constants]
        self.launch(arrays, constants, [evaluate(dim, symbols) for dim in self.kernel.workload])

    def launch(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        values: Sequence[int],
        workload: Sequence[int],
    ) -> None:
        """The same with the numbers that a caller passes."""
        kernel = self.kernel
        assert len(arrays) == len(kernel.bindings)
        for array, dtype in zip(arrays, kernel.bindings, strict=True):
            assert array.itemsize == dtype.bytes, f"{array.dtype} for {dtype}"
            assert array.flags.c_contiguous
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        lengths = (ctypes.c_int64 * len(arrays))(*(array.nbytes for array in arrays))
        constants = (ctypes.c_int64 * max(len(values), 1))(*values)
        dispatch = Dispatch(
            ctypes.addressof(pointers),
            ctypes.addressof(lengths),
            ctypes.addressof(constants),
            (ctypes.c_int64 * 3)(*workload),
            self.poll,
        )
        scratch = np.full(kernel.scratch_length + 64, 0xA5, np.uint8)
        aligned = -(-scratch.ctypes.data // 64) * 64
        fault = Fault()
        grid = [-(-work // tile) for work, tile in zip(workload, kernel.tile, strict=True)]
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    code = self.function(
                        ctypes.byref(dispatch), x, y, z, aligned, ctypes.byref(fault)
                    )
                    if code:
                        raise IndexFault((fault.operand, fault.index, fault.bound))


_loaded = lru_cache(maxsize=32)(Loaded)


def _at_the_end(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy in front of a page that nobody may read: what a kernel reads behind it ends the
    process."""
    pages = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    behind = ctypes.byref(ctypes.c_char.from_buffer(memory), pages)
    assert LIBC.mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, pages - array.nbytes)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy


def run(
    kernel: Kernel,
    operands: Sequence[np.ndarray[Any, Any]],
    results: Sequence[np.ndarray[Any, Any]],
    variant: str | None = None,
    **symbols: int,
) -> list[np.ndarray[Any, Any]]:
    """Run a kernel on operands; `results` are written and given back."""
    workspaces = [
        np.full([evaluate(dim, symbols) for dim in each.shape], 77).astype(each.dtype.numpy)
        for each in kernel.workspaces
    ]
    arrays = [*(np.ascontiguousarray(each) for each in operands), *results, *workspaces]
    if variant == OPENCL_C.name:
        fault = opencl_runner.run(kernel, arrays, **symbols)
        if fault is not None:
            raise IndexFault(fault)
    else:
        for place, array in enumerate(arrays[: len(operands)]):
            if array.size and not any(np.shares_memory(array, each) for each in results):
                arrays[place] = _at_the_end(array)
        _loaded(kernel, variant or host_variants()[0])(arrays, **symbols)
    return list(results)
