"""samples/ios: the bundle that its Swift package holds compiles for iOS and macOS, needs libSystem
only, loads no code, and runs on aarch64."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.compiler.targets.cpu.compilers import find_ziglang
from tests.support.emulators import need_tool, need_zig, zig_cc, zig_flags
from tests.support.object_files import macho_libraries, macho_symbols

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "samples" / "ios"
FLAGS = ("-std=gnu11", "-O0", "-I.", "-fno-strict-aliasing")
# What code that is loaded, or memory that is asked for, would need.
UNWANTED = {"dlopen", "mmap", "mprotect", "malloc", "calloc", "realloc"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the README makes it, with an example of three images."""
    need_zig()
    folder = tmp_path_factory.mktemp("ios")
    images = np.load(ROOT / "samples/digits/images.npy")[:3, None].astype(np.float32)
    model = ROOT / "samples/digits/digits.onnx"
    ingot.bundle(model, folder, platform="ios", sources=True, inputs={"images": images})
    return folder


def _sources(bundle: Path) -> list[Path]:
    """What Swift's package manager compiles."""
    manifest = (PACKAGE / "Package.swift").read_text()
    (excluded,) = re.findall(r"exclude: \[(.*)\]", manifest)
    left_out = set(re.findall(r'"(.*?)"', excluded))
    files = [each for each in bundle.rglob("*") if each.is_file() and each.name not in left_out]
    assert {each.suffix for each in files} == {".c", ".h"}
    return [each for each in files if each.suffix == ".c"]


def test_it_needs_libsystem_and_loads_no_code(bundle: Path, tmp_path: Path) -> None:
    names = [_symbols(bundle, each, tmp_path) for each in _sources(bundle)]
    needed = {name for undefined, _ in names for name in undefined}
    needed -= {name for _, defined in names for name in defined}
    folder = Path(str(find_ziglang())).parent / "lib" / "libc" / "darwin"
    known = set(re.findall(r"\b_(\w+)", (folder / "libSystem.tbd").read_text()))
    assert {"memcpy", "printf", "pthread_create"} <= known
    assert needed
    assert needed <= known - UNWANTED
    assert not any(name.startswith("_Z") for name in needed)  # of C++


def _symbols(bundle: Path, file: Path, folder: Path) -> tuple[set[str], set[str]]:
    made = folder / "made.o"
    zig_cc("aarch64-ios", *FLAGS, "-c", file, "-o", made, folder=bundle)
    symbols = list(macho_symbols(made.read_bytes()))
    undefined = {each.name for each in symbols if each.is_undefined}
    return undefined, {each.name for each in symbols} - undefined


def test_macos_links_it_with_libsystem(bundle: Path, tmp_path: Path) -> None:
    program = tmp_path / "example"
    words = (*FLAGS, *_sources(bundle), "example.c", "-o", program)
    zig_cc("aarch64-macos", *words, folder=bundle)
    assert macho_libraries(program.read_bytes()) == {"/usr/lib/libSystem.B.dylib"}


def test_aarch64_reads_digits_by_it(bundle: Path, tmp_path: Path) -> None:
    need_tool("qemu-aarch64")
    program = tmp_path / "example"
    target = "aarch64-linux-musl"
    words = (*FLAGS, *zig_flags(target), *_sources(bundle), "example.c", "-o", program)
    zig_cc(target, *words, folder=bundle)
    done = subprocess.run(["qemu-aarch64", program], capture_output=True, text=True, check=True)
    words: Sequence[str] = done.stdout.split()[1:]
    scores = np.array([int(each, 16) for each in words], np.uint32).view(np.float32)
    assert scores.reshape(3, 10).argmax(1).tolist() == [0, 5, 0]


def test_swift_calls_what_the_headers_declare(bundle: Path) -> None:
    text = (PACKAGE / "Sources/Digits/Digits.swift").read_text()
    headers = (bundle / "digits.h").read_text() + (bundle / "ingot.h").read_text()
    called = set(re.findall(r"\b((?:digits|ingot)_\w+)\(", text))
    assert {"digits_create", "digits_main", "ingot_status_free"} <= called
    assert all(re.search(rf"\b{name}\(", headers) for name in called)
    assert "5120*batch" in headers  # which Digits.swift says
    module = (PACKAGE / "Sources/CDigits/module.modulemap").read_text()
    assert all((bundle / name).is_file() for name in re.findall(r'header "(.*)"', module))
