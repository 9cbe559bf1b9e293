"""Static bundles: what `ingot bundle` writes builds, runs and gives the same numbers on the host,
on 64-bit and 32-bit Arm, and on a Cortex-M without a system; and what it refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from ingot.command import main
from ingot.compiler.bundling.archive import write_archive
from ingot.compiler.bundling.interface import safe_name
from ingot.compiler.targets.cpu.compilers import find_ziglang
from tests.support.emulators import need_tool

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits" / "digits.onnx"
ZIG = f"{find_ziglang()} cc -target "
LIMIT = 64 * 1024

MACHINES = {
    "aarch64": ("aarch64-linux-musl", ("qemu-aarch64",)),
    "armv7-neon": ("thumb-linux-musleabihf -mcpu=cortex_a7", ("qemu-arm",)),
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
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    words = (done.stdout + done.stderr).split()[1:]  # semihosting is on the standard error
    return np.array([int(each, 16) for each in words], np.uint32).view(np.float32)


def _sizes(program: Path) -> dict[str, int]:
    """The bytes of the sections of an ELF file."""
    said = subprocess.run(["size", "-A", str(program)], capture_output=True, text=True, check=True)
    return {name: int(size) for name, size in re.findall(r"^(\.\w+)\s+(\d+)", said.stdout, re.M)}


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
        sources=True,
        strip_messages=True,
        inputs={"images": images},
    )
    flags = "-Wl,--gc-sections -s"
    if machine == "cortex-m4":
        flags += " -nostartfiles -T board.ld -Wl,-e,reset"
    _make(tmp_path, f"CC={ZIG}{target}", "ARCH=", f"LDFLAGS={flags}", "LDLIBS=")
    found = _results(*emulator, tmp_path / "example").reshape(3, 10)
    wanted = np.asarray(ingot.load(ingot.compile(DIGITS))(images))
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-6)
    assert found.argmax(1).tolist() == [0, 5, 0]
    sizes = _sizes(tmp_path / "example")
    module = (tmp_path / "digits_module.c").read_text()
    length = int(re.search(r"_module_length = (\d+);", module)[1])  # type: ignore[index]
    assert sizes[".text"] + sizes[".rodata"] + sizes.get(".data", 0) - length < LIMIT


@pytest.mark.slow
def test_a_bundle_of_objects_runs_here(images: Array, tmp_path: Path) -> None:
    """By the command, of a model, with a library of objects, and with messages."""
    np.save(tmp_path / "images.npy", images)
    folder = tmp_path / "made"
    given = ["--input", f"images=@{tmp_path / 'images.npy'}"]
    assert main(["bundle", str(DIGITS), "-o", str(folder), *given]) == 0
    _make(folder)
    found = _results(folder / "example").reshape(3, 10)
    assert found.argmax(1).tolist() == [0, 5, 0]
    (folder / "twice.c").write_text(_TWICE)
    objects = ["digits.c", "digits_module.c", "ingot.c", *map(str, folder.glob("kernels/*/*.a"))]
    build = ["cc", "-std=gnu11", "-O1", "-Wall", "-I.", "twice.c", *objects, "-o", "twice"]
    subprocess.run(build, cwd=folder, check=True)
    said = subprocess.run([folder / "twice"], capture_output=True, text=True, check=True).stdout
    assert said == "steady\nInvalidArgument\n"


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
    assert "function 'main', value 'result0' has the shape [" in said
    assert "follows from data" in said


def test_native_functions_are_refused_by_layer(tmp_path: Path) -> None:
    @ingot.program(ingot.spec("f32[n]"))
    def halved(x: Any) -> Any:
        return ops.native("acme.half", "(f32[n]) -> (f32[n])", x)[0]

    said = _refusal(halved, tmp_path / "made")
    assert "function 'main', layer " in said
    assert "calls a native function" in said


def test_other_modules_and_platforms_are_refused(digits: ingot.Module, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert "no platform is called 'commodore'" in _refusal(digits, folder, platform="commodore")
    assert "WebAssembly has no static bundles" in _refusal(digits, folder, platform="browser")
    assert "objects for ios" in _refusal(digits, folder, platform="ios")
    assert "options are of a source" in _refusal(digits, folder, precision="int8")
    external = ingot.compile(DIGITS, parameters="external", variants=["x86-64-v3"])
    assert "is external" in _refusal(external, folder)
    digits.save(tmp_path / "digits.ingot")
    stripped = tmp_path / "stripped.ingot"
    assert main(["strip", str(tmp_path / "digits.ingot"), "-o", str(stripped)]) == 0
    assert "it was stripped" in _refusal(stripped, folder)
    wrong = {"images": np.zeros((3, 7))}
    assert "expected [batch,1,8,8]" in _refusal(digits, folder, inputs=wrong, sources=True)


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
