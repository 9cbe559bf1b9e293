"""The C library as embedders get it: its size, its symbols, its installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ingot.hal import header

pytestmark = pytest.mark.slow  # the library is built for it

ROOT = Path(__file__).resolve().parents[2]
MAX_LENGTH = 128_400  # bytes of the stripped library built for size, for the CPU only
MAX_HELLO_LENGTH = 102_400  # code and constants of samples/hello with what it uses of it
MAX_SMALL_LENGTH = 101_700  # without files, threads and a loader of kernels
MAX_OPENCL_LENGTH = 46_000  # what the OpenCL driver adds
PROGRAM = """
#include <ingot/ingot.h>
int main(void) {
  ingot_instance_t *instance;
  if (ingot_instance_create(NULL, &instance)) return 1;
  ingot_instance_release(instance);
  return ingot_version()[0] == 0;
}
"""
FIND_PACKAGE = """
cmake_minimum_required(VERSION 3.22)
project(embedder C)
find_package(ingot REQUIRED)
add_executable(program program.c)
target_link_libraries(program ingot::ingot)
"""


def _run(*command: str | Path, **options: str) -> str:
    environment = os.environ | options
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _build(tmp_path_factory: pytest.TempPathFactory, *options: str, target: str = "all") -> Path:
    """The folder of a build for size."""
    build = tmp_path_factory.mktemp("build")
    options = ("-DCMAKE_BUILD_TYPE=MinSizeRel", *options)
    _run("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *options)
    _run("cmake", "--build", build, "--target", target)
    return build


def _install(tmp_path_factory: pytest.TempPathFactory, *options: str) -> Path:
    """The library, built for size and installed."""
    build, prefix = _build(tmp_path_factory, *options), tmp_path_factory.mktemp("installed")
    _run("cmake", "--install", build, "--prefix", prefix, "--strip")
    return prefix


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with all drivers."""
    return _install(tmp_path_factory)


def _library_length(prefix: Path) -> int:
    return (prefix / "lib" / "libingot.so").resolve().stat().st_size


def test_stripped_library_is_small(
    installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    only_cpu = _install(tmp_path_factory, "-DINGOT_OPENCL=OFF")
    assert _library_length(only_cpu) < MAX_LENGTH
    assert not (only_cpu / "include" / "ingot" / "opencl.h").exists()
    assert _library_length(installed) - _library_length(only_cpu) < MAX_OPENCL_LENGTH
    hello, library = tmp_path_factory.mktemp("hello") / "hello", only_cpu / "lib" / "libingot.a"
    words = (f"-I{only_cpu / 'include'}", ROOT / "samples" / "hello" / "hello.c", library)
    _run("cc", "-Os", *words, "-Wl,--gc-sections", "-pthread", "-ldl", "-o", hello)
    assert int(_run("size", hello).splitlines()[1].split()[0]) < MAX_HELLO_LENGTH
    without = " ".join(f"-DINGOT_NO_{feature}" for feature in ("FILES", "THREADS", "LOADER"))
    flags = ("-DINGOT_OPENCL=OFF", f"-DCMAKE_C_FLAGS={without}")
    (small,) = _build(tmp_path_factory, *flags, target="ingot_shared").rglob("libingot.so")
    _run("strip", small.resolve())
    assert small.stat().st_size < MAX_SMALL_LENGTH


def test_program_that_names_no_driver_has_no_code_of_it(installed: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    library = installed / "lib" / "libingot.a"
    _run("cc", f"-I{installed / 'include'}", source, library, "-pthread", "-ldl", "-o", program)
    assert "ingot_opencl" not in _run("nm", program)


def test_library_has_no_mutable_globals(installed: Path) -> None:
    """Letters of nm: b and d are writable data, C is common."""
    lines = _run("nm", installed / "lib" / "libingot.a").splitlines()
    symbols = [line.split()[-2:] for line in lines if len(line.split()) >= 2]
    mutable = [name for letter, name in symbols if letter in "bBdDC" and ".rel.ro" not in name]
    # Tables of pointers are constant too, but lie in .data.rel.ro, which nm calls d.
    sections = _run("objdump", "-t", installed / "lib" / "libingot.a")
    constant = {line.split()[-1] for line in sections.splitlines() if ".data.rel.ro" in line}
    assert sorted(set(mutable) - constant) == []


def test_shared_library_exports_the_public_functions_and_nothing_else(installed: Path) -> None:
    lines = _run("nm", "-D", "--defined-only", installed / "lib" / "libingot.so").splitlines()
    exported = {line.split()[-1] for line in lines}
    text = header.declarations(header.read("ingot.h"))
    in_ingot = {name for name in exported if f"{name}(" in text}
    assert len(in_ingot) <= 90
    text = header.declarations(header.read("opencl.h"))
    assert exported - in_ingot == {
        name for name in exported if f" {name}(" in text.replace("*", " ")
    }


def test_shared_library_needs_libc_only(installed: Path) -> None:
    lines = _run("readelf", "-d", installed / "lib" / "libingot.so").splitlines()
    needed = [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]
    assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_single_file_builds_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wswitch-enum", "-Werror"]
    include = [f"-I{header.INCLUDE_FOLDER}", f"-I{ROOT / 'csrc'}"]
    source = ROOT / "csrc" / "ingot.c"
    made = ("-O1", "-DINGOT_OPENCL", "-c", "-o", tmp_path / "ingot.o")
    for options in (made, ("-fsyntax-only", "-UINGOT_OPENCL")):  # less code, with all that it uses
        _run(compiler, *options, *flags, *include, source)


def test_pkg_config_finds_the_library(installed: Path, tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    (tmp_path / "program.c").write_text(PROGRAM)
    path = {"PKG_CONFIG_PATH": str(installed / "lib" / "pkgconfig")}
    flags = _run("pkg-config", "--cflags", "--libs", "ingot", **path).split()
    rpath = f"-Wl,-rpath,{installed / 'lib'}"
    _run("cc", tmp_path / "program.c", *flags, rpath, "-o", tmp_path / "program")
    _run(tmp_path / "program")


def test_find_package_finds_the_library(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(FIND_PACKAGE)
    build = tmp_path / "build"
    _run("cmake", "-G", "Ninja", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={installed}")
    _run("cmake", "--build", build)
    _run(build / "program")


def test_public_header_is_valid_c_plus_plus(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    source = tmp_path / "program.cc"
    headers = '#include "ingot/arena.h"\n#include "ingot/opencl.h"\n'
    source.write_text(headers + "int main() { return INGOT_STATUS_OK; }\n")
    _run("g++", "-Wall", "-Werror", f"-I{header.INCLUDE_FOLDER}", "-fsyntax-only", source)


def test_python_and_c_have_one_version() -> None:
    import ingot
    from ingot.hal.native import lib, text

    assert ingot.__version__ == text(lib.ingot_version())


def test_wheel_installs_and_imports_without_the_source_tree(tmp_path: Path) -> None:
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, ROOT)
    (wheel,) = wheels.iterdir()
    assert wheel.name.endswith(".whl")
    assert "-cp310-abi3-" in wheel.name
    _run(*pip, "install", "--no-deps", "--target", site, wheel)
    program = "import ingot; print(ingot.devices()[0].uri, ingot.__file__, ingot.__version__)"
    printed = _run(sys.executable, "-S", "-c", _without_site_packages(site) + program)
    uri, file, _ = printed.split()
    assert uri == "cpu"
    assert Path(file).is_relative_to(site)
    assert (site / "ingot" / "csrc" / "include" / "ingot" / "kernel_abi.h").is_file()
    assert (site / "bin" / "ingot").is_file()
    assert not [*(site / "ingot" / "hal").rglob("*.[ch]")]
    bundled = ("bundle", ROOT / "samples/hello/hello.onnx", "--sources", "-o", tmp_path / "hello")
    program = "from ingot.command import main; import sys; sys.exit(main())"
    _run(sys.executable, "-S", "-c", _without_site_packages(site) + program, *bundled)
    assert (tmp_path / "hello" / "ingot.c").is_file()


def _without_site_packages(site: Path) -> str:
    """A line that imports from `site`, and from other packages numpy and cffi only."""
    import numpy

    others = str(Path(numpy.__file__).parents[1])
    return f"import sys; sys.path[:0] = [{str(site)!r}]; sys.path.append({others!r}); "
