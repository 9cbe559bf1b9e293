"""The C tests and samples run as they are on other machines: under qemu-user and wine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

import ingot
from ingot.compiler.targets.cpu.compilers import find_ziglang
from tests.support.emulators import RUNTIME, ZIG_TARGETS, need_tool, zig_cc, zig_flags

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# Those that neither call a compiler nor a system themselves; vm/device, with its thousands of
# damaged modules, takes long under an emulator.
C_TESTS = (
    *("base/memory", "base/status", "module/verify", "api/failure", "api/native"),
    *("vm/debug", "vm/edge", "vm/list", "vm/opcode", "vm/state"),
)
BUILDER = ROOT / "tests/csrc/module/builder.c"


class Machine(NamedTuple):
    """Where programs run: how they are built and called."""

    variant: str
    target: tuple[str, ...]
    command: tuple[str, ...]


MACHINES = {
    "aarch64": Machine("aarch64", ZIG_TARGETS["aarch64"], ("qemu-aarch64",)),
    "arm": Machine("armv7-neon", ZIG_TARGETS["arm"], ("qemu-arm",)),
    "riscv64": Machine("riscv64", ZIG_TARGETS["riscv64"], ("qemu-riscv64",)),
    "windows": Machine("x86-64", ("x86_64-windows-gnu",), ("wine",)),
}


@pytest.fixture(scope="session")
def wine_prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("wine"))


def _build(machine: Machine, program: Path, *files: str | Path) -> None:
    need_tool(machine.command[0])
    zig = (str(find_ziglang()), "cc", *zig_flags(machine.target[0]))
    _compile(program, *zig, "-target", *machine.target, *files)


def _compile(program: Path, *words: str | Path) -> None:
    command = [*map(str, words), *RUNTIME, "-lm", "-o", str(program)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def _run(machine: Machine, program: Path, *arguments: str, prefix: str) -> str:
    done = subprocess.run(
        [*machine.command, str(program), *arguments],
        cwd=program.parent,
        env={**os.environ, "WINEPREFIX": prefix, "WINEDEBUG": "-all"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def _write_program(folder: Path) -> list[Path]:
    """All of C_TESTS as one program: a file for each, with its `main` renamed, and one that calls
    them."""
    files, calls, names = [], [], []
    for test in C_TESTS:
        name = test.replace("/", "_")
        files.append(folder / f"{name}.c")
        files[-1].write_text(f'#define main {name}\n#include "{test}_test.c"\n')
        names.append(f"int {name}(void);")
        calls.append(f'if ({name}()) printf("{name} failed\\n"), failed = 1;')
    files.append(folder / "all.c")
    body = "\n".join(["int failed = 0;", *calls, "return failed;"])
    text = "\n".join(["#include <stdio.h>", *names, f"int main(void) {{\n{body}\n}}\n"])
    files[-1].write_text(text)
    return files


@pytest.mark.parametrize(
    "name",
    [  # 64 bits and Linux is what the C tests run on here
        *("arm", "windows"),
        *(pytest.param(each, marks=pytest.mark.long) for each in ("aarch64", "riscv64")),
    ],
)
def test_c_tests_pass(name: str, tmp_path: Path, wine_prefix: str) -> None:
    machine, program = MACHINES[name], tmp_path / "all.exe"
    _build(machine, program, BUILDER, *_write_program(tmp_path))
    assert "failed" not in _run(machine, program, prefix=wine_prefix)


def test_c_tests_pass_without_threads_files_and_loader(tmp_path: Path) -> None:
    program = tmp_path / "all"
    parts = [f"-DINGOT_NO_{part}" for part in ("THREADS", "FILES", "LOADER")]
    _compile(program, "cc", "-Os", *parts, BUILDER, *_write_program(tmp_path))
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_windows_reads_digits(tmp_path: Path, wine_prefix: str) -> None:
    """With the ELF object that Linux loads. Of the machines of Linux, test_emulated_models."""
    machine, program = MACHINES["windows"], tmp_path / "digits.exe"
    samples = ROOT / "samples" / "digits"
    _build(machine, program, samples / "digits.c")
    ingot.compile(samples / "digits.onnx", variants=[machine.variant]).save(
        tmp_path / "digits.ingot"
    )
    for file in ("images.npy", "labels.npy"):
        shutil.copy(samples / file, tmp_path)
    files = ("digits.ingot", "images.npy", "labels.npy")
    assert _run(machine, program, *files, prefix=wine_prefix) == "358 of 360 right (99.44 %)\n"


def test_windows_says_hello_by_the_dll(tmp_path: Path, wine_prefix: str) -> None:
    """Built as docs/platforms.md has it; `hello` is linked with it."""
    machine, library = MACHINES["windows"], tmp_path / "ingot.dll"
    _build(machine, library, "-shared", "-s", "-DINGOT_API=__declspec(dllexport)")
    program, sample = tmp_path / "hello.exe", ROOT / "samples/hello"
    files = (sample / "hello.c", tmp_path / "ingot.lib", "-o", program)
    zig_cc(*machine.target, *zig_flags(*machine.target), f"-I{ROOT / 'csrc/include'}", *files)
    ingot.compile(sample / "hello.onnx", variants=[machine.variant]).save(tmp_path / "hello.ingot")
    said = _run(machine, program, "hello.ingot", "0", "1", "2", "3", prefix=wine_prefix)
    assert said.split() == ["1", "2", "3", "4"]
