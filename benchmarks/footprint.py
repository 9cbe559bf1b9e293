"""What a program pays for Ingot, platform by platform: bytes, time to the first result, memory.

    python benchmarks/footprint.py [FOLDER ...]

The runtime is csrc/ingot.c as a shared library by ziglang (-Os, stripped); beside it stand modules
for one variant of the platform: digits with its weights, and MobileNetV2 without. A program that
links the runtime loads digits and reads one image: the time from main on, and the peak of memory
beyond that of an empty program, natively (x86-64) or under the emulator that is named. Of a
bundle, which is a program of one model: what is kernels and runtime, all of it, and its memory that
is not constant. A FOLDER has other runtimes installed (`pip install --target`, `npm install`): the
libraries that a program of theirs loads.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "web")]

from table import format_seconds, print_table  # noqa: E402

import ingot  # noqa: E402
from build import build as build_web  # noqa: E402
from tests.models import graphs  # noqa: E402

SAMPLES = ROOT / "samples" / "digits"
TURNS = 7
EMPTY = "int main(void) { return 0; }\n"
TIMED = """#define main read_digits
#include "digits.c"
#undef main
#include <time.h>
int main(int count, char **words) {
  struct timespec start, end;
  timespec_get(&start, TIME_UTC);
  int result = read_digits(count, words);
  timespec_get(&end, TIME_UTC);
  double whole = difftime(end.tv_sec, start.tv_sec);
  fprintf(stderr, "%.9f ", whole + (double)(end.tv_nsec - start.tv_nsec) * 1e-9);
  return result;
}
"""
# A process counts what it held before exec, so a small one starts the program.
START = """
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words) {
  int status = count;
  struct rusage usage;
  pid_t child = fork();
  if (child == 0) execvp(words[1], words + 1), _exit(127);
  wait4(child, &status, 0, &usage);
  fprintf(stderr, "%ld", usage.ru_maxrss);
  return status != 0;
}
"""
LIBRARY = ("-shared", "-s", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections")


class Platform(NamedTuple):
    """How programs are built and run, and the variant of their kernels."""

    variant: str
    target: tuple[str, ...]
    command: tuple[str, ...] | None = ()
    """What runs a program of it here; None: nothing does."""


PLATFORMS = {
    "Linux x86-64": Platform("x86-64-v3", ("x86_64-linux-musl",)),
    "Linux aarch64": Platform("aarch64", ("aarch64-linux-musl",), ("qemu-aarch64",)),
    "Linux armv7": Platform(
        "armv7-neon", ("arm-linux-musleabihf", "-mcpu=cortex_a7"), ("qemu-arm",)
    ),
    "Linux riscv64": Platform("riscv64", ("riscv64-linux-musl",), ("qemu-riscv64",)),
    "Windows x86-64": Platform("x86-64-v3", ("x86_64-windows-gnu",), ("wine",)),
    "macOS aarch64": Platform("aarch64", ("aarch64-macos",), None),
}
BUNDLES = {
    "bundle, aarch64": ("aarch64", "aarch64-linux-musl", ""),
    "bundle, armv7": ("armv7-neon", "thumb-linux-musleabihf -mcpu=cortex_a7", ""),
    "bundle, Cortex-M4": (
        *("cortex-m4", "thumb-freestanding-eabihf -mcpu=cortex_m4"),
        "-nostartfiles -T board.ld",
    ),
}
"""By name: the platform of `ingot bundle`, and how its Makefile links."""
WEB_PROGRAM = """
import {{ readFile }} from "node:fs/promises";
const start = performance.now();
const {{ Ingot }} = await import({package!r});
const model = await Ingot.load(await readFile({module!r}));
await model.call({{ images: {{ data: new Float32Array(64), dims: [1, 1, 8, 8] }} }});
console.error(((performance.now() - start) / 1000).toFixed(9));
"""
PEERS = {
    "onnxruntime": ("onnxruntime/capi/libonnxruntime.so.*",),
    "LiteRT": ("ai_edge_litert/libLiteRt.so",),
    "ExecuTorch": (
        "executorch/lib/libexecutorch.so",
        "executorch/lib/libexecutorch_kernels_optimized.so",
        "executorch/lib/libexecutorch_threadpool.so",
    ),
    "IREE": ("iree/_runtime_libs/_runtime.*.so",),
    "onnxruntime-web": ("onnxruntime-web/dist/ort-wasm-simd-threaded.wasm",),
}


def zig(target: Sequence[str], *words: str | Path) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", *target, "-Os"]
    command += ["-fno-sanitize=undefined", "-Icsrc/include", "-Icsrc", *map(str, words)]
    subprocess.run(command, cwd=ROOT, check=True)


def beyond(used: Sequence[str | Path], empty: Sequence[str | Path], folder: Path) -> list[str]:
    """The least time that the first process tells of its work, and by how much its least peak of
    memory is above that of the second."""
    starter = folder / "starter"
    (folder / "starter.c").write_text(START)
    zig(PLATFORMS["Linux x86-64"].target, folder / "starter.c", "-o", starter)
    seconds: list[float] = []
    peaks: list[list[int]] = []
    for command in (used, empty):
        peaks.append([])
        for _ in range(TURNS):
            done = subprocess.run(
                [starter, *command], cwd=folder, capture_output=True, text=True, check=True
            )
            *told, peak = done.stderr.split()
            peaks[-1].append(int(peak))
            seconds += map(float, told[-1:])
    return [format_seconds(min(seconds)), f"{min(peaks[0]) - min(peaks[1])} KB"]


def modules(variant: str, folder: Path) -> list[int]:
    """The lengths of digits, which stays in the folder, and of MobileNetV2."""
    digits = ingot.compile(SAMPLES / "digits.onnx", variants=[variant])
    digits.save(folder / "digits.ingot")
    model = graphs.load("mobilenetv2", seed=0)
    mobile = ingot.compile(model, variants=[variant], parameters="external")
    return [len(bytes(digits)), len(bytes(mobile))]


def line(name: str, runtime: int, lengths: Sequence[int], figures: Sequence[str]) -> list[str]:
    return [name, *(f"{each:,}" for each in (runtime, *(runtime + n for n in lengths))), *figures]


def native_row(name: str, platform: Platform, folder: Path) -> list[str]:
    library, used, empty = folder / "library", folder / "used.exe", folder / "empty.exe"
    gc = () if "macos" in platform.target[0] else ("-Wl,--gc-sections",)
    export = ("-DINGOT_API=__declspec(dllexport)",) if "windows" in platform.target[0] else ()
    zig(platform.target, *LIBRARY, *gc, *export, "csrc/ingot.c", "-o", library)
    lengths = modules(platform.variant, folder)
    command = platform.command
    figures = ["", ""]
    if command:
        name = f"{name}, {command[0]}"
    if command is not None and (not command or shutil.which(command[0])):
        (folder / "empty.c").write_text(EMPTY)
        zig(platform.target, folder / "empty.c", "-o", empty)
        (folder / "timed.c").write_text(TIMED)
        zig(platform.target, f"-I{SAMPLES}", folder / "timed.c", "csrc/ingot.c", "-lm", "-o", used)
        files = ("digits.ingot", "images.npy", "labels.npy")
        figures = beyond([*command, used, *files], [*command, empty], folder)
    return line(name, library.stat().st_size, lengths, figures)


def web_row(folder: Path) -> list[str]:
    package = build_web(folder / "ingot-runtime")
    lengths = modules("wasm32-simd128", folder)
    threaded = {"ingot-threads.wasm", "worker.js"}  # only where pages are isolated
    files = [each for each in package.iterdir() if each.name not in threaded]
    runtime = sum(each.stat().st_size for each in files if each.suffix in (".js", ".wasm"))
    if shutil.which("node") is None:
        return line("WebAssembly", runtime, lengths, ["no node", ""])
    text = WEB_PROGRAM.format(
        package=(package / "index.js").as_uri(), module=str(folder / "digits.ingot")
    )
    (folder / "used.mjs").write_text(text)
    (folder / "empty.mjs").write_text("")
    figures = beyond(["node", folder / "used.mjs"], ["node", folder / "empty.mjs"], folder)
    return line("WebAssembly, node", runtime, lengths, figures)


def bundle_row(name: str, variant: str, target: str, flags: str, folder: Path) -> list[str]:
    """A program of nothing but digits, and what of it is not the module."""
    made = {"name": "digits", "platform": variant, "sources": True}
    image = {"images": np.zeros((1, 1, 8, 8), np.float32)}
    ingot.bundle(SAMPLES / "digits.onnx", folder, inputs=image, **made)
    compiler = f"{sys.executable} -m ziglang cc -target {target}"
    options = [f"CC={compiler}", "ARCH=", f"LDFLAGS=-Wl,--gc-sections -s {flags}", "LDLIBS="]
    subprocess.run(["make", "-s", *options], cwd=folder, check=True, capture_output=True)
    said = subprocess.run(["size", folder / "example"], capture_output=True, text=True, check=True)
    text, data, bss = map(int, said.stdout.split("\n")[1].split()[:3])
    (length,) = re.findall(r"_length = (\d+);", (folder / "digits_module.c").read_text())
    total = text + data
    return [name, f"{total - int(length):,}", f"{total:,}", "", "", f"{(data + bss) // 1024} KB"]


def peers(folders: Sequence[Path]) -> Iterator[list[str]]:
    for name, patterns in PEERS.items():
        for folder in folders:
            files = [path for pattern in patterns for path in folder.glob(pattern)]
            if files:
                yield [name, f"{sum(path.stat().st_size for path in files):,}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    rows = []
    for name, platform in [*PLATFORMS.items(), ("WebAssembly", None)]:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            for array in ("images", "labels"):
                np.save(folder / f"{array}.npy", np.load(SAMPLES / f"{array}.npy")[:1])
            rows.append(native_row(name, platform, folder) if platform else web_row(folder))
    for name, words in BUNDLES.items():
        with tempfile.TemporaryDirectory() as made:
            rows.append(bundle_row(name, *words, Path(made)))
    head = ("", "runtime", "with digits", "with MobileNetV2", "first result", "peak memory")
    print_table(head, rows)
    others = list(peers(options.folders))
    if others:
        print()
        print_table(("libraries of others", "bytes"), others)


if __name__ == "__main__":
    main()
