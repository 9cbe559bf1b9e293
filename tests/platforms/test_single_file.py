"""csrc/ingot.c is all of the runtime for every platform: what it builds for, what can be left out
of it, and what the libraries of Windows and macOS export and need."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingot.hal import header
from tests.support.emulators import zig_cc, zig_flags
from tests.support.object_files import macho_libraries, macho_symbols, pe_exports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wswitch-enum", "-Werror")
CSRC = ROOT / "csrc"
SOURCE = CSRC / "ingot.c"
BARE = (f"-I{CSRC / 'platform/freestanding'}",)
CORTEX_M4 = ("thumb-freestanding-eabi", "-mcpu=cortex_m4", *BARE)
TARGETS = (
    ("x86_64-linux-gnu.2.17",),
    ("x86_64-linux-musl", "-DINGOT_OPENCL"),
    ("aarch64-linux-musl",),
    ("arm-linux-musleabihf", "-mcpu=cortex_a7"),
    ("riscv64-linux-musl",),
    ("x86_64-windows-gnu", "-DINGOT_OPENCL"),
    ("aarch64-windows-gnu",),
    ("x86_64-macos",),
    ("aarch64-macos", "-DINGOT_OPENCL"),
    ("aarch64-ios",),
    ("aarch64-linux-android",),
    ("wasm32-wasi",),
    ("wasm32-freestanding", *BARE),
    CORTEX_M4,
)
INCLUDES = (f"-I{CSRC / 'include'}", f"-I{CSRC}")
SHARED = ("-shared", "-s", "-fvisibility=hidden")
PARTS = ("INGOT_NO_THREADS", "INGOT_NO_FILES", "INGOT_NO_LOADER", "INGOT_NO_MALLOC")
PUBLIC = header.declarations(header.read("ingot.h"))


def _check(target: str, *options: str | Path) -> None:
    zig_cc(target, *INCLUDES, "-std=c11", "-O0", *WARNINGS, *options, SOURCE)


@pytest.mark.parametrize("words", TARGETS, ids=lambda words: words[0])
def test_it_builds_without_warnings(words: tuple[str, ...], tmp_path: Path) -> None:
    _check(*words, "-c", "-o", tmp_path / "ingot.o")


@pytest.mark.parametrize("parts", [[each] for each in PARTS])
def test_each_part_can_be_left_out(parts: list[str], tmp_path: Path) -> None:
    _check("x86_64-linux-musl", "-DINGOT_OPENCL", *_left_out(parts), tmp_path / "ingot.o")


def test_all_parts_can_be_left_out_on_windows(tmp_path: Path) -> None:
    _check("x86_64-windows-gnu", *_left_out(PARTS), tmp_path / "ingot.o")


def _left_out(parts: Sequence[str]) -> list[str]:
    return [*(f"-D{each}" for each in parts), "-c", "-o"]


def test_a_board_without_a_system_lends_four_functions(tmp_path: Path) -> None:
    """Names with two underscores are the compiler's own library."""
    path = tmp_path / "ingot.o"
    _check(*CORTEX_M4, "-c", "-o", path)
    said = subprocess.run(["nm", "-u", str(path)], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in said.stdout.splitlines()}
    own = {name for name in names if not name.startswith("__")}
    assert own == {"memcmp", "memcpy", "memmove", "memset"}


# -- libraries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_dylib_needs_the_system_only_and_exports_the_interface(
    machine: str, tmp_path: Path
) -> None:
    path = tmp_path / "libingot.dylib"
    target = f"{machine}-macos"
    zig_cc(target, *zig_flags(target), *INCLUDES, *SHARED, SOURCE, "-o", path)
    data = path.read_bytes()
    exported = {each.name for each in macho_symbols(data) if not each.is_undefined}
    assert macho_libraries(data) == {"/usr/lib/libSystem.B.dylib"}
    exported -= {"_mh_dylib_header", "__dso_handle"}  # the linker's
    assert {name for name in exported if f"{name}(" not in PUBLIC} == set()
    assert "ingot_session_call" in exported


def test_dll_exports_the_interface(tmp_path: Path) -> None:
    path = tmp_path / "ingot.dll"
    api = "-DINGOT_API=__declspec(dllexport)"
    target = "x86_64-windows-gnu"
    zig_cc(target, *zig_flags(target), *INCLUDES, *SHARED, api, SOURCE, "-o", path)
    exported = pe_exports(path.read_bytes())
    assert {name for name in exported if f"{name}(" not in PUBLIC} == set()
    assert "ingot_session_call" in exported
