"""Runs kernels and modules of other machines: those of Linux under qemu-user, WebAssembly in node.

The programs that run there are tests/platforms/emulated.c and run_kernels.mjs.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.cpu.compilers import find_ziglang
from ingot.compiler.targets.cpu.toolchain import build_executable
from ingot.compiler.targets.cpu.variants import VARIANTS
from ingot.hal.spec import DType, dtype_of_code

__all__ = [
    "EMULATED",
    "RUNTIME",
    "ZIG_TARGETS",
    "Job",
    "borrowed_headers",
    "converts_vectors",
    "need_emulator",
    "need_tool",
    "need_zig",
    "program",
    "run_jobs",
    "run_module",
    "zig_cc",
    "zig_flags",
]

Array = np.ndarray[Any, Any]

EMULATED = {
    "aarch64": ("qemu-aarch64", "-cpu", "cortex-a53"),
    "aarch64-dotprod": ("qemu-aarch64", "-cpu", "neoverse-n1"),
    "aarch64-fp16": ("qemu-aarch64", "-cpu", "neoverse-n1"),
    "aarch64-bf16": ("qemu-aarch64", "-cpu", "max"),
    "aarch64-i8mm": ("qemu-aarch64", "-cpu", "max"),
    "armv7-neon": ("qemu-arm", "-cpu", "cortex-a7"),
    "riscv64": ("qemu-riscv64", "-cpu", "rv64,v=false"),
    "riscv64-v": ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128"),
    "wasm32-simd128": ("node",),
    "wasm32-relaxed-simd": ("node", "--experimental-wasm-relaxed-simd"),
}
"""What runs each variant, on a processor that has what it needs and little more."""

ZIG_TARGETS = {
    "aarch64": ("aarch64-linux-musl",),
    "arm": ("thumb-linux-musleabihf", "-mcpu=cortex_a7"),
    "riscv64": ("riscv64-linux-musl",),
}


def zig_flags(target: str) -> tuple[str, ...]:
    """Of all programs for a target, as of bundles: zig compiles a C library for each level, with
    and without unwind tables, which takes it most of a minute. That of Windows needs the tables."""
    flags = ("-Os", "-fno-sanitize=undefined")
    if "windows" in target:
        return flags
    return (*flags, "-fno-unwind-tables", "-fno-asynchronous-unwind-tables")


_BORROWED = {
    "aarch64-ios": ("any-darwin-any",),
    "aarch64-linux-android": (
        *("aarch64-linux-musl", "generic-musl"),
        *("aarch64-linux-any", "any-linux-any"),
    ),
}
_ROOT = Path(__file__).resolve().parents[2]
RUNTIME = (
    *(f"-I{_ROOT / each}" for each in ("csrc/include", "csrc", "tests/csrc")),
    str(_ROOT / "csrc/ingot.c"),
)
"""Words that add the runtime to a program. With the same ones zig compiles it once for a target."""

_FOLDER = Path(tempfile.mkdtemp(prefix="ingot-emulated-"))


class Job(NamedTuple):
    """A kernel, the arrays of its operands, and those that results are written to."""

    kernel: Kernel
    operands: Sequence[Array]
    results: Sequence[Array]
    symbols: Mapping[str, int]


def _need(is_there: bool, missing: str) -> None:
    """Skip the test where a tool is missing; with INGOT_REQUIRE_EMULATORS it fails instead."""
    if not is_there and os.environ.get("INGOT_REQUIRE_EMULATORS"):
        pytest.fail(missing)
    if not is_there:
        pytest.skip(missing)


def need_zig() -> None:
    _need(find_ziglang() is not None, "ziglang is not installed (pip install ziglang)")


def borrowed_headers(target: str) -> list[str]:
    """Options for systems whose headers do not come with zig: those of their kin declare the same
    functions."""
    folder = Path(str(find_ziglang())).parent / "lib" / "libc" / "include"
    return [f"-isystem{folder / each}" for each in _BORROWED.get(target, ())]


def zig_cc(target: str, *words: str | Path, folder: Path = _FOLDER) -> None:
    """Compile in the folder, with no warning. Paths are absolute: where zig itself lies below the
    folder, it calls its files otherwise and compiles its libraries again."""
    need_zig()
    flags = ("-target", target, "-fno-sanitize=undefined", *borrowed_headers(target))
    command = [str(find_ziglang()), "cc", *flags, *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert "warning:" not in done.stderr, done.stderr[:4000]


def need_tool(tool: str) -> None:
    """An emulator, and what builds for it."""
    packages = "qemu-user qemu-system-arm nodejs wine default-jdk-headless kotlin"
    _need(
        shutil.which(tool) is not None,
        f"{tool} is not installed (Debian: apt-get install {packages})",
    )
    need_zig()


def need_emulator(variant: str) -> None:
    need_tool(EMULATED[variant][0])


@lru_cache
def converts_vectors() -> bool:
    """Whether qemu-riscv64 runs conversions of vectors to integers; 7 ends with a failed assertion
    of its own."""
    said = subprocess.run(["qemu-riscv64", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", said)
    return found is not None and int(found[1]) >= 8


@lru_cache
def program(machine: str) -> Path:
    """The program for Linux on a machine, linked statically, with the runtime in it."""
    path = _FOLDER / f"emulated-{machine}"
    target = ZIG_TARGETS[machine]
    files = (_ROOT / "tests/platforms/emulated.c", *RUNTIME, "-o", path)
    zig_cc(*target, *zig_flags(target[0]), *files)
    return path


def _emulate(variant: str, kind: str, path: Path, given: bytes) -> bytes:
    need_emulator(variant)
    machine = VARIANTS[variant].machine
    if machine == "wasm32":
        script = _ROOT / "tests" / "platforms" / "run_kernels.mjs"
        command = [*EMULATED[variant], str(script), str(path)]
    else:
        command = [*EMULATED[variant], str(program(machine)), kind, str(path)]
    done = subprocess.run(command, input=given, capture_output=True)
    assert done.returncode == 0, f"{variant}: {done.stderr.decode()[:2000]}"
    return done.stdout


def run_jobs(variant: str, jobs: Sequence[Job]) -> None:
    """Run kernels in one process; results are written. All are compiled into one object."""
    (data,) = build_executable({VARIANTS[variant]: [job.kernel for job in jobs]})
    path = _FOLDER / f"kernels-{variant}"
    path.write_bytes(data)
    parts = [struct.pack("<I", len(jobs))]
    arrays: list[list[Array]] = []
    for place, job in enumerate(jobs):
        kernel, symbols = job.kernel, dict(job.symbols)
        spaces = [
            np.full([evaluate(dim, symbols) for dim in each.shape], 77).astype(each.dtype.numpy)
            for each in kernel.workspaces
        ]
        arrays.append([*map(np.ascontiguousarray, job.operands), *job.results, *spaces])
        constants = [evaluate(dim, symbols) for dim in kernel.constants]
        workload = [evaluate(dim, symbols) for dim in kernel.workload]
        head = [place, len(arrays[-1]), len(constants), *workload, *constants]
        parts.append(struct.pack(f"<{len(head)}q", *head))
        for array in arrays[-1]:
            parts += [struct.pack("<q", array.nbytes), array.tobytes()]
    given = _emulate(variant, "kernels", path, b"".join(parts))
    start = 0
    for job, each in zip(jobs, arrays, strict=True):
        (code,) = struct.unpack_from("<q", given, start)
        assert code == 0, f"{variant}: {job.kernel.name} gives {code}"
        start += 8
        for array in each:
            back = np.frombuffer(given, array.dtype, array.size, start).reshape(array.shape)
            start += array.nbytes
            if any(array is result for result in job.results):
                array[...] = back
            elif any(array is space for space in each[: len(job.operands)]):
                np.testing.assert_array_equal(back.view(np.uint8), array.view(np.uint8))
    assert start == len(given)


def run_module(variant: str, path: Path, arguments: Sequence[Array], results: int) -> list[Array]:
    """Call the first function of a module file with arrays; the variant is that of the emulated
    processor. Gives its results."""
    parts = [struct.pack("<I", len(arguments))]
    for each in map(np.ascontiguousarray, arguments):
        number = DType.from_numpy(each.dtype).code
        parts.append(struct.pack(f"<ii{each.ndim}qq", number, each.ndim, *each.shape, each.nbytes))
        parts.append(each.tobytes())
    parts.append(struct.pack("<I", results))
    given = _emulate(variant, "model", path, b"".join(parts))
    found: list[Array] = []
    start = 0
    while start < len(given):
        number, rank = struct.unpack_from("<ii", given, start)
        *shape, length = struct.unpack_from(f"<{rank + 1}q", given, start + 8)
        start += 8 + 8 * (rank + 1)
        found.append(
            np.frombuffer(
                given, dtype_of_code(number).numpy, length // dtype_of_code(number).bytes, start
            ).reshape(shape)
        )
        start += length
    return found
