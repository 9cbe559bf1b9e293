"""Objects: exports, imports, frames, files, the cache, and the order in which they are compiled."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.command import main as command
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.lanes.contraction import lower_contraction
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.targets.cpu import c_printer, toolchain
from ingot.compiler.targets.cpu.c_printer import PrintedKernel
from ingot.compiler.targets.cpu.variants import PLATFORMS, VARIANTS
from ingot.compiler.targets.opencl import object as opencl_object
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.file_cache import Cache
from ingot.hal.header import INCLUDE_FOLDER
from ingot.hal.spec import dtype
from tests.support.entries import entry, kernels


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("variant", ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
def test_object_exports_the_query_and_imports_nothing(
    compiler: str, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    monkeypatch.setenv("CC", compiler)
    (data,) = toolchain.build_executable({VARIANTS[variant]: kernels(variant)}, Cache(None))
    path = tmp_path / "kernels.so"
    path.write_bytes(data)
    lines = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-2:] for line in lines.splitlines()] == [["T", "ingot_executable_query"]]


def test_same_source_gives_the_same_bytes_and_the_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = VARIANTS["x86-64-v3"]
    cache = Cache(tmp_path)
    first = toolchain.build_executable({variant: kernels()}, Cache(None))
    assert toolchain.build_executable({variant: kernels()}, cache) == first
    (path,) = tmp_path.iterdir()
    monkeypatch.setattr(toolchain, "run", lambda *arguments: pytest.fail("compiled again"))
    assert toolchain.build_executable({variant: kernels()}, cache) == first
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    assert cache.read(path.name) is None
    for put in (os.mkdir, getattr(os, "mkfifo", os.mkdir)):  # nobody writes into the pipe
        path.unlink() if path.is_file() else path.rmdir()
        put(path)
        assert cache.read(path.name) is None


def test_the_compiler_is_started_once_for_a_variant_and_twice_for_many_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[list[str]] = []
    run = toolchain.run
    monkeypatch.setattr(
        toolchain,
        "run",
        lambda command, folder: (commands.append(command), run(command, folder)),
    )
    both = {VARIANTS[name]: kernels() for name in ("x86-64-v3", "x86-64-v2")}
    together = toolchain.build_executable(both, Cache(None))
    assert ["-c" in command for command in commands] == [False, False]
    commands.clear()
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    apart = toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(None))
    # two kernels are equal, as are all contracts, whose check has a file, as has the table
    assert sorted("-c" in command for command in commands) == [False, *[True] * 6]
    assert apart[0].count(b"ingot_executable_query") == together[0].count(b"ingot_executable_query")


def test_kernels_without_products_of_bytes_are_compiled_once_for_variants_that_differ_in_these(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def product(b, x, w):
        return b.value("dot_packed", x, w, n=16, dtype=dtype("i32"))

    function = entry(["u8[3,8]", "i8[1,2,16,4]"], product)
    function.name = "entry_bytes"
    variants = [VARIANTS[name] for name in ("x86-64-v3-vnni", "x86-64-v3")]
    commands: list[list[str]] = []
    run = toolchain.run
    monkeypatch.setattr(
        toolchain, "run", lambda command, folder: (commands.append(command), run(command, folder))
    )
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    given = {each: [lower_contraction(function, each.target), *kernels()] for each in variants}
    toolchain.build_executable(given, Cache(None))
    # of six kernels two are equal, and one multiplies bytes; two checks and the table have files
    compiles = ["-mavxvnni" in each for each in commands if "-c" in each]
    assert sorted(compiles) == [*[False] * 8, True]
    assert sum("-c" not in command for command in commands) == 2


def test_code_without_vectors_is_compiled_once_for_all_variants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], folder: Path) -> None:
        commands.append(command)
        (folder / command[command.index("-o") + 1]).touch()

    one = entry(["f32[]"], lambda b, x: b.op("neg", x))
    one.name = "entry_one"
    monkeypatch.setattr(toolchain, "run", run)
    monkeypatch.setattr(toolchain, "read_object", lambda path, *_, **__: path.read_bytes())
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    variants = [VARIANTS[name] for name in ("x86-64-v4", "x86-64-v3")]
    given = {each: [lower_map(one, each.target), *kernels(each.name)] for each in variants}
    toolchain.build_executable(given, Cache(None))
    # of each four kernels, and the table; once the kernel of a scalar, and the check
    assert sum("-march=x86-64-v4" in each for each in commands if "-c" in each) == 4
    assert sum("-march=x86-64-v3" in each for each in commands if "-c" in each) == 4 + 2 + 1 + 1
    assert sum("-O1" in each for each in commands) == 2 + 1


@pytest.mark.parametrize(("compiler", "expected"), [("gcc", ["f32"]), ("clang", [])])
def test_products_are_compiled_without_searches_that_find_nothing(
    compiler: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short: list[str] = []
    searches: list[tuple[bool, bool]] = []

    def run(command: list[str], folder: Path) -> None:
        made = folder / command[command.index("-o") + 1]
        made.touch()
        searches.append(("-fno-tree-pre" in command, "-fno-gcse" in command))
        text = made.with_suffix(".c").read_text() if "-O1" in command else ""
        short.extend(re.findall(r"(\w+)_memory \* v\d+ = dispatch->bindings\[1\]", text))

    variant = VARIANTS["x86-64-v3-vnni"]
    given = kernels()
    for name, shape in (("f32", "900,16,1"), ("bf16", "450,16,2"), ("i8", "225,16,4")):
        product = entry(
            [f"{'u8' if name == 'i8' else name}[64,900]", f"{name}[8,{shape}]"],
            lambda b, x, w, made=("i32" if name == "i8" else "f32"): b.op(
                "dot_packed", x, w, n=128, dtype=dtype(made)
            ),
        )
        product.name = f"entry_{name}"
        given.append(lower_contraction(product, variant.target))
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(toolchain, "run", run)
    monkeypatch.setattr(toolchain, "read_object", lambda path, *_, **__: path.read_bytes())
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    toolchain.build_executable({variant: given}, Cache(None))
    assert short == expected
    linked, compiled = searches[-1], searches[:-1]
    assert linked == (False, False)
    assert {each for each, _ in compiled} == {bool(expected)}
    assert sum(in_words for _, in_words in compiled) == len(expected)  # the product of bytes


def test_sums_of_a_tile_stay_in_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer of T5, whose rows only the call knows."""
    variant, rows = VARIANTS["x86-64-v4"], (symbol("batch"), symbol("time"))
    types = [TensorType(dtype("f32"), (*rows, n)) for n in (512, 2048)]
    weight = TensorType(dtype("f32"), (32, 2048, 16, 1))

    def layer(b: Any, before: Any, x: Any, w: Any) -> Any:
        return b.op("add", before, b.op("dot_packed", x, w, n=512, dtype=dtype("f32")))

    product = lower_entry(entry([*types, weight], layer), variant.target)
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)  # flags are those of a file of products
    (data,) = toolchain.build_executable({variant: [product]}, Cache(None))
    path = tmp_path / "kernels.so"
    path.write_bytes(data)
    code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
    assert "vfmadd" in code.stdout
    assert not re.search(r"vfmadd\w+ +\S*\(%rsp\)", code.stdout)


def test_a_changed_kernel_is_compiled_alone_and_gives_the_bytes_of_a_new_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    variant = VARIANTS["x86-64-v3"]
    cache = Cache(tmp_path)
    before = kernels()
    told: list[tuple[int, int]] = []
    toolchain.build_executable({variant: before}, cache, lambda *counts: told.append(counts))
    assert told[0] == (0, 4)
    assert told[-1] == (4, 4)
    function = entry(["f32[7,33]"], lambda b, x: b.op("cos", x))
    function.name = "entry_9"
    added = lower_map(function, variant.target)
    # in front of the others, which get other numbers in a program
    renamed = [replace(each, name=f"other_{place}") for place, each in enumerate(before)]
    after = [added, *renamed]
    new = toolchain.build_executable({variant: after}, Cache(None))
    commands: list[list[str]] = []
    run = toolchain.run
    monkeypatch.setattr(
        toolchain,
        "run",
        lambda command, folder: (commands.append(command), run(command, folder)),
    )
    told.clear()
    assert toolchain.build_executable({variant: after}, cache, lambda *n: told.append(n)) == new
    assert sorted("-c" in command for command in commands) == [False, True, True]  # and the table
    assert told[-1] == (1, 1)


def test_files_depend_on_the_texts_alone() -> None:
    functions = {
        f"kernel_{number:024x}": PrintedKernel("x" * 4500, {}, frozenset(), {})
        for number in range(100, 200)
    }
    groups = toolchain._groups(functions)
    assert 2 < len(groups) <= 8
    assert sorted(name for each in groups for name in each) == sorted(functions)
    removed = functions.copy()
    removed.pop("kernel_" + f"{150:024x}")
    changed = [each for each in toolchain._groups(removed) if each not in groups]
    assert len(changed) == 1


def test_compilers_run_beside_the_caller_who_may_leave_without_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    monkeypatch.setattr(toolchain.os, "sched_getaffinity", lambda process: {0})
    begun, going = threading.Event(), threading.Event()
    calls: list[object] = []

    def wait(*arguments: object) -> None:
        calls.append(arguments)
        begun.set()
        going.wait(10)

    monkeypatch.setattr(toolchain, "run", wait)
    with toolchain.building_executables(Cache(None)) as build:
        build.executable([(VARIANTS["x86-64-v3"], kernels())])
        assert begun.wait(10)
        threading.Timer(0.1, going.set).start()
    assert len(calls) == 1


def test_long_kernels_are_begun_before_all_are_known_and_give_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[list[str]] = []
    run = toolchain.run
    monkeypatch.setattr(
        toolchain, "run", lambda command, folder: (commands.append(command), run(command, folder))
    )
    long = entry(["f32[7,33]"], lambda b, x: b.op("add", b.op("exp", x), b.op("sin", x)))
    long.name = "entry_long"
    variants = [VARIANTS[name] for name in ("x86-64-v4", "x86-64-v3")]
    given = {each: [lower_map(long, each.target), *kernels(each.name)] for each in variants}
    lengths = [len(toolchain._texts(each, {})[1].text) for each in given[variants[0]]]
    assert lengths[0] > 1.05 * max(lengths[1:])
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", int(2.05 * max(lengths[1:])))
    alone = toolchain.build_executable(given, Cache(None))
    count = len(commands)
    commands.clear()
    with toolchain.building_executables(Cache(None)) as build:
        for variant, column in given.items():
            for kernel in column:  # it is known to be alone when there are enough of them
                build.begin(variant, kernel)
        begun = [future for _, future in build._begun.values()]
        assert len(begun) == len(given)
        assert build.executable(list(given.items()))(lambda done, count: None) == alone
        assert all(future is not None and future.done() for future in begun)
    assert len(commands) == count


def test_what_is_compiled_is_kept_if_another_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    variant, cache, run, commands = (
        VARIANTS["x86-64-v3"],
        Cache(tmp_path),
        toolchain.run,
        [],
    )

    def compile_all_but_the_table(command: list[str], folder: Path) -> None:
        commands.append(command)
        if "-c" not in command:
            raise CompileError("out of luck")
        run(command, folder)

    monkeypatch.setattr(toolchain, "run", compile_all_but_the_table)
    for count in (7, 1):
        commands.clear()
        with pytest.raises(CompileError, match="out of luck"):
            toolchain.build_executable({variant: kernels()}, cache)
        assert len(commands) == count


def test_a_folder_that_is_full_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(CompileError, match="No space left on device; make room"):
        toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(None))


def test_variants_are_chosen_by_name() -> None:
    (variant,) = toolchain.choose_variants(["x86-64-v3"])
    assert variant.feature_bits == 1
    for wrong, near in (("x86-64-v9", "x86-64-v4"), ("rasberry-pi", "raspberry-pi")):
        with pytest.raises(
            InvalidArgument, match=rf"unknown CPU variant '{wrong}' .*mean.* {near}"
        ):
            toolchain.choose_variants([wrong])
    with pytest.raises(
        InvalidArgument, match=r"'quantum'; the variants are: .* platforms, .*: and"
    ):
        toolchain.choose_variants(["quantum"])
    with pytest.raises(InvalidArgument, match="unknown CPU variant ''"):
        toolchain.choose_variants([])


def test_platforms_are_sets_of_variants() -> None:
    def names(given: str | list[str], *products: str) -> list[str]:
        return [each.name for each in toolchain.choose_variants(given, products)]

    assert names(["raspberry-pi"]) == ["aarch64", "armv7-neon"]
    assert names(["raspberry-pi"], "i8") == ["aarch64-dotprod", "aarch64", "armv7-neon"]
    assert names(["aarch64-dotprod", "ios"]) == ["aarch64-dotprod", "aarch64"]
    first = ["x86-64-v4-amx", "x86-64-v4-bf16"]
    with_bf16 = [*first, "x86-64-v4", "x86-64-v3", "aarch64-bf16", "aarch64"]
    assert names(["server"], "bf16") == with_bf16
    assert names(["server"]) == ["x86-64-v4", "x86-64-v3", "aarch64"]
    assert names(["browser"]) == names("browser") == ["wasm32-relaxed-simd", "wasm32-simd128"]


def test_the_help_names_all_platforms(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(["compile", "--help"])
    assert ", ".join(PLATFORMS) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["a b", "a;", "a\n", "", "ünïcödé", "a/*", "1a", "a\0", "-o"])
def test_no_printer_takes_a_name_that_is_no_identifier(name: str) -> None:
    kernel = replace(kernels()[0], name=name)
    with pytest.raises(CompileError, match="identifier"):
        c_printer.print_kernel(kernel)
    with pytest.raises(CompileError, match="identifier"):
        c_printer.prototype(name)
    with pytest.raises(CompileError, match="identifier"):
        opencl_object.print_source([kernel])


def test_a_kernel_is_printed_once_and_its_file_has_few_parts_of_the_headers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names: list[str] = []
    print_kernel = c_printer.print_kernel
    monkeypatch.setattr(
        c_printer, "print_kernel", lambda each: (names.append(each.name), print_kernel(each))[1]
    )
    lengths = []
    for kernel in kernels():  # exp, erf, sin, neg, neg
        (file,) = toolchain.kernel_files([kernel])
        assert re.search(r"^(INGOT_)?IF\(", file.text, re.M) is None
        path = tmp_path / "kernel.c"
        path.write_text(file.text)
        folders = [f"-I{folder}" for folder in (toolchain.HEADER_FOLDER, INCLUDE_FOLDER)]
        command = ["gcc", "-E", "-P", "-march=x86-64-v3", *folders, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lengths.append(len(done.stdout))
    assert len(names) == 5
    neg, exp, sin = lengths[3], lengths[0], lengths[2]
    assert neg < exp < 35_000 < sin < 82_000  # with all parts of the headers it is 130 000


@pytest.mark.parametrize("flags", [[], ["-U__x86_64__"]])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_memory_functions_do_what_the_standard_says(
    tmp_path: Path, compiler: str, flags: list[str]
) -> None:
    names = ("memcpy", "memmove", "memset", "memcmp")
    renamed = [f"-D{name}=own_{name}" for name in names]
    path = tmp_path / "memory.so"
    header = toolchain.HEADER_FOLDER / "kernel_memory.h"
    command = [compiler, "-O3", "-ffreestanding", "-fPIC", "-shared", *renamed, *flags]
    subprocess.run([*command, "-x", "c", str(header), "-o", str(path)], check=True)
    library = ctypes.CDLL(str(path))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    copy, move, fill, compare = (library[f"own_{name}"] for name in names)
    copy.argtypes = move.argtypes = compare.argtypes = [pointer, pointer, size]
    fill.argtypes, compare.restype = [pointer, ctypes.c_int, size], ctypes.c_int
    rng = np.random.default_rng(0)
    for _ in range(200):
        data = rng.integers(0, 256, 64, np.uint8)
        to, source, length = (int(each) for each in rng.integers(0, 32, 3))
        for function, given in ((move, to), (copy, 32 + to % 4)):
            found, expected = data.copy(), data.copy()
            length = min(length, 28)
            start = source if function is move else source % 4
            function(found.ctypes.data + given, found.ctypes.data + start, length)
            expected[given : given + length] = data[start : start + length]
            np.testing.assert_array_equal(found, expected)
        fill(found.ctypes.data + to, 0x1A5, length)
        expected[to : to + length] = 0xA5
        np.testing.assert_array_equal(found, expected)
        other = found.copy()
        other[int(rng.integers(64))] ^= int(rng.integers(2)) * 0x80
        for n in (0, 1, length, 64):
            a, b = bytes(found[:n]), bytes(other[:n])
            assert compare(found.ctypes.data, other.ctypes.data, n) == (a > b) - (a < b)


def test_checks_are_begun_first_and_then_the_longest_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also across variants; each is compiled once, whoever asks for it then."""
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1000)
    files: list[tuple[bool, int]] = []
    compile = toolchain.Build.compile

    def noted(self: toolchain.Build, *arguments: Any) -> Any:
        files.append((arguments[2].count > 0, -len(arguments[2].text)))
        return compile(self, *arguments)

    monkeypatch.setattr(toolchain.Build, "compile", noted)
    made = {VARIANTS[name]: kernels() for name in ("x86-64-v3", "x86-64-v2")}
    columns = list(made.items())
    with toolchain.building_executables(Cache(tmp_path)) as build:
        build.begin_files(columns)
        assert {True, False} == {has_kernels for has_kernels, _ in files}
        assert files == sorted(files)
        begun = dict(build._begun)
        first = build.executable(columns)(lambda done, count: None)
        assert begun.items() <= build._begun.items()
    assert first == toolchain.build_executable(made, Cache(tmp_path / "other"))
