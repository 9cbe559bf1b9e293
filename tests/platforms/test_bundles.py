"""Static bundles: what `ingot bundle` writes builds, runs and gives the same numbers on the host,
on 64-bit and 32-bit Arm, and on a Cortex-M without a system; and what it refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import ingot
from ingot import ops
from ingot.command import main
from ingot.compiler.bundling.archive import write_archive
from ingot.compiler.bundling.example import _elements
from ingot.compiler.bundling.interface import safe_name
from ingot.compiler.targets.cpu import toolchain
from ingot.compiler.targets.cpu.compilers import find_ziglang
from tests.support.devices import load_best
from tests.support.emulators import ZIG_TARGETS, need_tool

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits" / "digits.onnx"
ZIG = f"{find_ziglang()} cc -target "
LIMIT = 64 * 1024

MACHINES = {
    "aarch64": (" ".join(ZIG_TARGETS["aarch64"]), ("qemu-aarch64",)),
    "armv7-neon": (" ".join(ZIG_TARGETS["arm"]), ("qemu-arm",)),
    "cortex-m4": (
        "thumb-freestanding-eabihf -mcpu=cortex_m4",
        ("qemu-system-arm", "-machine", "mps2-an386", "-semihosting", "-nographic", "-kernel"),
    ),
}


@pytest.fixture(scope="module")
def images() -> Array:
    return np.load(ROOT / "samples" / "digits" / "images.npy")[:3, None].astype(np.float32)


@pytest.fixture(scope="module")
def digits() -> ingot.Module:
    return ingot.compile(DIGITS, variants=["x86-64-v3", "aarch64"])


def _make(folder: Path, *options: str) -> None:
    done = subprocess.run(["make", "-s", *options], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    assert "warning:" not in done.stderr, done.stderr[:4000]


def _results(*command: str | Path) -> Array:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    words = (done.stdout + done.stderr).split()[1:]  # semihosting is on the standard error
    return np.array([int(each, 16) for each in words], np.uint32).view(np.float32)


def _sizes(program: Path) -> dict[str, int]:
    """The bytes of the sections of an ELF file."""
    said = subprocess.run(["size", "-A", str(program)], capture_output=True, text=True, check=True)
    return {name: int(size) for name, size in re.findall(r"^(\.[\w.]+)\s+(\d+)", said.stdout, re.M)}


def _undefined(path: Path) -> set[str]:
    """Names that a file lacks, without those of the compiler's own library."""
    said = subprocess.run(["nm", "-u", str(path)], capture_output=True, text=True, check=True)
    return {name for name in said.stdout.split() if name != "U" and not name.startswith("__")}


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_a_bundle_gives_the_same_digits(
    machine: str, digits: ingot.Module, images: Array, tmp_path: Path
) -> None:
    target, emulator = MACHINES[machine]
    need_tool(emulator[0])
    ingot.bundle(
        digits,
        tmp_path,
        name="digits",
        platform=machine,
        sources=machine != "cortex-m4",
        strip_messages=True,
        inputs={"images": images},
    )
    flags = "-Wl,--gc-sections -s"
    if machine == "cortex-m4":
        flags += " -nostartfiles -T board.ld -Wl,-e,reset"
    _make(tmp_path, f"CC={ZIG}{target}", "ARCH=", f"LDFLAGS={flags}", "LDLIBS=")
    found = _results(*emulator, tmp_path / "example").reshape(3, 10)
    wanted = np.asarray(load_best(DIGITS)(images))
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-6)
    assert found.argmax(1).tolist() == [0, 5, 0]
    sizes = _sizes(tmp_path / "example")
    module = (tmp_path / "digits_module.c").read_text()
    length = int(re.search(r"_module_length = (\d+);", module)[1])  # type: ignore[index]
    if machine == "cortex-m4":  # the module lies in flash, and nothing is asked of a C library
        assert sizes[".data"] == 0
        assert _undefined(tmp_path / "ingot.o") == {"memcmp", "memcpy", "memmove", "memset"}
    kinds = (".text", ".rodata", ".eh_frame", ".eh_frame_hdr", ".ARM.exidx", ".ARM.extab", ".data")
    assert sum(sizes.get(kind, 0) for kind in kinds) - length < LIMIT


@pytest.mark.slow
def test_a_bundle_of_objects_runs_here(
    images: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command, of a model, with a library of several objects, and with messages."""
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    np.save(tmp_path / "images.npy", images)
    folder = tmp_path / "made"
    given = ["--input", f"images=@{tmp_path / 'images.npy'}"]
    assert main(["bundle", str(DIGITS), "-o", str(folder), *given]) == 0
    assert len(list(folder.glob("kernels/*/*.o"))) > 1
    _make(folder)
    found = _results(folder / "example").reshape(3, 10)
    assert found.argmax(1).tolist() == [0, 5, 0]
    (folder / "twice.c").write_text(_TWICE)
    objects = ["digits.c", "digits_module.c", "ingot.c", *map(str, folder.glob("kernels/*/*.a"))]
    build = ["cc", "-std=gnu11", "-O1", "-Wall", "-I.", "twice.c", *objects, "-o", "twice"]
    subprocess.run(build, cwd=folder, check=True)
    said = subprocess.run([folder / "twice"], capture_output=True, text=True, check=True).stdout
    assert said == "steady\nInvalidArgument\n"


@pytest.mark.slow
def test_a_runtime_that_lacks_something_says_so(digits: ingot.Module, tmp_path: Path) -> None:
    """Which nobody makes but by hand: it has what the module uses, and takes no other module."""
    ingot.bundle(digits, tmp_path, name="digits", platform="x86-64-v3", sources=True)
    config = (tmp_path / "ingot_config.h").read_text()
    changes = {
        "(code) == INGOT_OP_CONSTANTS": ("false", "has no code"),
        "ONLY_MODULE 0x": ("ONLY_MODULE 1 + 0x", "loads its module only"),
    }
    for old, (new, wanted) in changes.items():
        assert old in config
        (tmp_path / "ingot_config.h").write_text(config.replace(old, new))
        _make(tmp_path, "CFLAGS=-O0")
        done = subprocess.run([tmp_path / "example"], capture_output=True, text=True)
        assert done.returncode == 1
        assert wanted in done.stdout


HOSTILE = ('*/ #error "x"', "int", 'y"); abort(); //', "session")


@pytest.mark.slow
def test_names_of_a_model_stay_names(tmp_path: Path) -> None:
    """Of arguments, results, sizes and functions; formulas of sizes, and state, are C too."""
    first, second, result, state = HOSTILE
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (
            (first, ["views_", 2]),
            (second, ["float", 2]),
            (result, None),
            (state, [2]),
            ("next", [2]),
        )
    }
    nodes = [
        helper.make_node("Concat", [first, second], ["both"], axis=0),
        helper.make_node("Add", ["both", state], [result]),
        helper.make_node("ReduceSum", ["both", "axes"], ["sum"], keepdims=0),
        helper.make_node("Add", ["sum", state], ["next"]),
    ]
    arguments, results = (first, second, state), (result, "next")
    ends = [[values[name] for name in names] for names in (arguments, results)]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [0])
    graph = helper.make_graph(nodes, "g", *ends, [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x, y = np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])
    ingot.bundle(
        {"main": model},
        tmp_path,
        name='"model"',
        sources=True,
        inputs={first: x, second: y},
        state={"next": state},
    )
    (tmp_path / "header.cpp").write_text('#include "model.h"\n')
    strict = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *strict, "header.cpp"], cwd=tmp_path, check=True)
    subprocess.run(["gcc", "-std=c11", *strict, "model.c"], cwd=tmp_path, check=True)
    _make(tmp_path, "CFLAGS=-O1")
    found = _results(tmp_path / "example").reshape(3, 2)
    np.testing.assert_array_equal(found, np.concatenate([x, y]))


_TWICE = """#include <stdio.h>
#include "digits.h"
static _Alignas(64) unsigned char memory[300000];
static float images[5 * 64], logits[5 * 10];
int main(void) {
  digits_session_t *session = NULL;
  ingot_status_t status = digits_create(memory, sizeof(memory), &session);
  if (!status) status = digits_main(session, images, 5, logits);
  const size_t peak = digits_memory_peak(session);
  for (int i = 0; !status && i < 100; ++i) status = digits_main(session, images, 1 + i % 5, logits);
  if (!status && digits_memory_peak(session) == peak) printf("steady\\n");
  status = digits_main(session, images, INT64_MAX, logits);
  printf("%s\\n", ingot_status_code_name(ingot_status_code(status)));
  return 0;
}
"""


# -- what is refused -------------------------------------------------------------------------------


@ingot.program(ingot.spec("f32[n]"))
def _positive(x: Any) -> Any:
    return ops.nonzero(x > 0)[0]


def _refusal(module: Any, folder: Path, **options: Any) -> str:
    with pytest.raises(ingot.Error) as caught:
        ingot.bundle(module, folder, **options)
    assert not folder.exists()
    return str(caught.value)


def test_sizes_that_follow_from_data_are_refused(tmp_path: Path) -> None:
    said = _refusal(ingot.compile(_positive), tmp_path / "made")
    assert re.search(r"function 'main', (layer|word) .* makes result 'result0' of shape \[", said)
    assert "follows from data" in said


def test_native_functions_are_refused_by_layer(tmp_path: Path) -> None:
    @ingot.program(ingot.spec("f32[n]"))
    def halved(x: Any) -> Any:
        return ops.native("acme.half", "(f32[n]) -> (f32[n])", x)[0]

    said = _refusal(halved, tmp_path / "made")
    assert "function 'main', layer " in said
    assert "calls a native function, for which a bundle has no code" in said


def test_other_modules_and_platforms_are_refused(digits: ingot.Module, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert "no platform is called 'commodore'" in _refusal(digits, folder, platform="commodore")
    assert "WebAssembly has no static bundles" in _refusal(digits, folder, platform="browser")
    assert "objects for ios" in _refusal(digits, folder, platform="ios")
    said = _refusal(digits, folder, platform="x86-64-v4-amx")
    assert "cannot be linked into a program" in said
    assert "take x86-64-v4-vnni" in said
    assert "options are of a source" in _refusal(digits, folder, precision="int8")
    external = ingot.compile(DIGITS, parameters="external", variants=["x86-64-v3"])
    assert "is external" in _refusal(external, folder)
    digits.save(tmp_path / "digits.ingot")
    stripped = tmp_path / "stripped.ingot"
    assert main(["strip", str(tmp_path / "digits.ingot"), "-o", str(stripped)]) == 0
    assert "it was stripped" in _refusal(stripped, folder)
    wrong = {"images": np.zeros((3, 7))}
    assert "expected [batch,1,8,8]" in _refusal(digits, folder, inputs=wrong, sources=True)


def test_files_that_no_bundle_made_are_left_alone(digits: ingot.Module, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("mine")
    with pytest.raises(ingot.InvalidArgument, match="no bundle's and would be lost, such as 'Mak"):
        ingot.bundle(digits, tmp_path, sources=True)
    with pytest.raises(ingot.InvalidArgument, match="is a file, and a bundle needs a folder"):
        ingot.bundle(digits, tmp_path / "Makefile", sources=True)
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]
    (tmp_path / "Makefile").rename(tmp_path / "notes")
    for _ in range(2):  # the second over the first
        ingot.bundle(digits, tmp_path, sources=True)
    assert (tmp_path / "notes").read_text() == "mine"


def test_every_integer_is_a_constant_of_c(tmp_path: Path) -> None:
    signed, unsigned = np.int64([-(2**63), 2**63 - 1, -1]), np.uint64([2**64 - 1, 0])
    source = f"#include <stdint.h>\nconst int64_t all[] = {{{_elements(signed)}}};\n"
    source += f"const uint64_t others[] = {{{_elements(unsigned)}}};\n"
    (tmp_path / "all.c").write_text(source)
    subprocess.run(
        ["gcc", "-std=c11", "-Werror", "-fsyntax-only", "all.c"], cwd=tmp_path, check=True
    )
    assert _elements(signed) == "INT64_MIN, 9223372036854775807, -1"


def test_names_of_a_model_are_no_c() -> None:
    assert safe_name("int") == "int_"
    assert safe_name("a*/ b();//") == "a_b"
    assert safe_name("3d") == "value_3d"
    assert safe_name("EOF") == "eof"
    assert safe_name("größe") == "gr_e"
    assert safe_name("x y", {"x_y"}) == "x_y_2"


def test_an_archive_lists_its_symbols(tmp_path: Path) -> None:
    data = write_archive({"a.o": b"123", "b.o": b"45"}, {"a.o": ["f", "g"], "b.o": ["h"]})
    path = tmp_path / "lib.a"
    path.write_bytes(data)
    said = subprocess.run(["ar", "t", str(path)], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["a.o", "b.o"]
    starts = [int.from_bytes(data[72 + 4 * i : 76 + 4 * i], "big") for i in range(3)]
    assert [data[each : each + 4] for each in starts] == [b"a.o/", b"a.o/", b"b.o/"]
